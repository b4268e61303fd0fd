#include "core/files/torch_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <zlib.h>

#include "core/files/file.h"
#include "core/files/pickle.h"
#include "core/files/zip.h"
#include "core/storage.h"

namespace axle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
// The names of the functions that create tensors from storages with a dtype, and from untyped
// storages.
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kTensorOfBytes = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kBytes = "torch.storage.UntypedStorage";

struct StorageName {
    std::string_view name;
    DType dtype;
};
constexpr StorageName kStorages[] = {
    {"torch.DoubleStorage", DType::f64},       {"torch.FloatStorage", DType::f32},
    {"torch.HalfStorage", DType::f16},         {"torch.BFloat16Storage", DType::bf16},
    {"torch.LongStorage", DType::i64},         {"torch.IntStorage", DType::i32},
    {"torch.ShortStorage", DType::i16},        {"torch.CharStorage", DType::i8},
    {"torch.ByteStorage", DType::u8},          {"torch.BoolStorage", DType::boolean},
    {"torch.ComplexFloatStorage", DType::c64},
};
constexpr DType kDTypes[] = {
    DType::f64, DType::f32, DType::f16,     DType::bf16,    DType::i64,     DType::i32,
    DType::u8,  DType::i16, DType::i8,      DType::boolean, DType::u64,     DType::u32,
    DType::u16, DType::c64, DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0,
};

std::optional<DType> dtype_of_storage(std::string_view name) {
    for (const auto& [known, dtype] : kStorages)
        if (name == known) return dtype;
    return std::nullopt;
}
std::optional<DType> dtype_named(std::string_view name) {
    for (const DType dtype : kDTypes)
        if (name == str("torch.", dtype)) return dtype;
    return std::nullopt;
}
bool is_known(std::string_view name) {
    return name == kSize || name == kParameter || name == kTensor || name == kTensorOfBytes ||
           name == kBytes || dtype_of_storage(name) || dtype_named(name);
}

// An open checkpoint file. Its functions throw FileError with the reason but without a path.
class TorchFile {
  public:
    TorchFile(const std::shared_ptr<MappedFile>& map, TorchFileOptions options)
        : options_(options), map_(map) {
        if (!map_->bytes().empty() && map_->bytes()[0] == kPickleStart)
            throw FileError(
                "a bare pickle, from PyTorch before 1.6 or another program; load it with "
                "torch.load and save it again with torch.save");
        for (StoredEntry& entry : read_stored_zip(map_->bytes())) {
            std::string name = entry.name;
            entries_.emplace(std::move(name), std::move(entry));
        }
        folder_ = find_folder();
        if (const StoredEntry* order = find("byteorder"); order != nullptr)
            if (text_of(*order) != "little") fail("byteorder", "only little-endian is supported");
    }

    Tree read() {
        const StoredEntry& entry = at(kPickle);
        check_crc(entry);
        try {
            pickle_ = read_pickle(entry.bytes, [&](std::string_view name) {
                return options_.unknown_as_null || is_known(name);
            });
        } catch (const FileError& error) {
            refuse(error.what());
        }
        // A container that is referenced many times is copied each time. This limits the size of
        // the copies; real checkpoints need few.
        copy_budget_ = 64 * entry.bytes.size() + kFreeCopyBytes;
        return tree_of(pickle_.root, 0);
    }

  private:
    static constexpr std::byte kPickleStart{0x80};
    static constexpr std::string_view kPickle = "data.pkl";
    static constexpr std::size_t kFreeCopyBytes = std::size_t{1} << 26;  // always allowed

    // --- entries
    [[noreturn]] void fail(std::string_view entry, std::string_view reason) const {
        throw FileError(str("entry ", in_quotes(folder_ + std::string(entry)), ": ", reason));
    }
    [[noreturn]] void refuse(std::string_view reason) const { fail(kPickle, reason); }
    std::string find_folder() const {
        static constexpr std::string_view kEnd = "/data.pkl";
        std::optional<std::string> folder;
        for (const auto& [name, entry] : entries_) {
            if (!name.ends_with(kEnd) || name.find('/') != name.size() - kEnd.size()) continue;
            if (folder) throw FileError("the zip file has several entries named data.pkl");
            folder = name.substr(0, name.size() - kPickle.size());
        }
        if (!folder)
            throw FileError("a zip file, but not from torch.save: it has no entry data.pkl");
        if (entries_.contains(*folder + "constants.pkl"))
            throw FileError(
                "a TorchScript program, which is not supported; save its state_dict instead");
        return *folder;
    }
    const StoredEntry* find(std::string_view name) const {
        const auto found = entries_.find(folder_ + std::string(name));
        return found == entries_.end() ? nullptr : &found->second;
    }
    const StoredEntry& at(std::string_view name) const {
        if (const StoredEntry* entry = find(name)) return *entry;
        fail(name, "is missing");
    }
    static std::string_view text_of(const StoredEntry& entry) {
        return {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()};
    }
    void check_crc(const StoredEntry& entry) const {
        if (!options_.check_crc) return;
        const auto* bytes = reinterpret_cast<const Bytef*>(entry.bytes.data());
        if (crc32_z(0, bytes, entry.bytes.size()) != entry.crc)
            throw FileError(
                str("entry ", in_quotes(entry.name), ": is corrupt: the checksum does not match"));
    }

    // --- storages
    struct Memory {
        std::shared_ptr<Storage> storage;
        std::int64_t bytes = 0;
        bool are_booleans_checked = false;  // bytes were checked to be 0 or 1
    };
    struct StorageRef {
        Memory* memory;
        std::optional<DType> dtype;  // nullopt if the storage is untyped
        std::string entry;
    };

    const Value& value(std::uint32_t id) const { return pickle_.values[id]; }
    const Value& item(const Value& of, std::size_t index, Kind kind) const {
        if (index >= of.items.size() || value(of.items[index]).kind != kind)
            refuse("a tensor description has an unexpected structure");
        return value(of.items[index]);
    }

    // Returns the storage described by ('storage', type, key, location, size). The location is
    // ignored, because tensors are loaded to the CPU.
    StorageRef storage_of(const Value& reference) {
        const Value& fields = item(reference, 0, Kind::tuple);
        if (fields.items.size() != 5 || item(fields, 0, Kind::text).text != "storage")
            refuse("a persistent reference is not a storage");
        const std::string& type = item(fields, 1, Kind::name).text;
        StorageRef made{nullptr, dtype_of_storage(type),
                        "data/" + item(fields, 2, Kind::text).text};
        if (!made.dtype && type != kBytes) refuse(str("unknown storage type: ", printable(type)));
        made.memory = &memory_of(made.entry);
        const std::int64_t size = made.dtype ? size_of(*made.dtype) : 1;
        if (made.memory->bytes % size != 0 ||
            item(fields, 4, Kind::integer).integer != made.memory->bytes / size)
            fail(made.entry,
                 str("its size does not match the storage: ", made.memory->bytes, " bytes, ",
                     item(fields, 4, Kind::integer).integer, " elements of ", size, " bytes"));
        return made;
    }
    Memory& memory_of(const std::string& name) {
        const auto [found, is_new] = memories_.try_emplace(name);
        Memory& memory = found->second;
        if (!is_new) return memory;
        const StoredEntry& entry = at(name);
        check_crc(entry);
        memory.bytes = std::ssize(entry.bytes);
        if (memory.bytes == 0) return memory;
        if (reinterpret_cast<std::uintptr_t>(entry.bytes.data()) % sizeof(double) == 0) {
            memory.storage = std::make_shared<Storage>(entry.bytes.data(), entry.bytes.size(),
                                                       Device::cpu(), [keep = map_] {});
        } else {
            const Tensor copy = Tensor::empty({memory.bytes}, {.dtype = u8});
            std::ranges::copy(entry.bytes, static_cast<std::byte*>(copy.raw_data()));
            memory.storage = copy.impl()->storage;
        }
        return memory;
    }
    // Throws FileError if a boolean has another byte than 0 or 1, because it is not a valid C++
    // bool.
    void check_booleans(const StorageRef& storage) {
        if (std::exchange(storage.memory->are_booleans_checked, true)) return;
        if (std::ranges::any_of(at(storage.entry).bytes,
                                [](std::byte b) { return std::to_integer<unsigned>(b) > 1; }))
            fail(storage.entry, "contains booleans that are neither 0 nor 1");
    }

    // --- tensors
    template <class Sizes>
    Sizes sizes_of(const Value& tuple, const char* what) const {
        if (tuple.items.size() > kMaxDims)
            refuse(str("a tensor has more than ", kMaxDims, " ", what));
        Sizes sizes;
        for (std::size_t i = 0; i < tuple.items.size(); ++i) {
            sizes.push_back(item(tuple, i, Kind::integer).integer);
            if (sizes[static_cast<int>(i)] < 0) refuse(str("a tensor has negative ", what));
        }
        return sizes;
    }
    // Returns the number of elements from the first to the last, or nullopt if it overflows int64.
    static std::optional<std::int64_t> element_span(const Shape& shape, const Strides& strides) {
        std::int64_t end = 1;
        for (int d = 0; d < shape.size(); ++d) {
            std::int64_t length = 0;
            if (__builtin_mul_overflow(shape[d] - 1, strides[d], &length) ||
                __builtin_add_overflow(end, length, &end))
                return std::nullopt;
        }
        return end;
    }
    // Returns the tensor described by (storage, offset, size, stride, requires_grad, hooks). In v3,
    // the dtype follows.
    Tensor tensor_of(const Value& arguments, bool is_v3) {
        const StorageRef storage = storage_of(item(arguments, 0, Kind::reference));
        const std::int64_t offset = item(arguments, 1, Kind::integer).integer;
        const auto shape = sizes_of<Shape>(item(arguments, 2, Kind::tuple), "sizes");
        const auto strides = sizes_of<Strides>(item(arguments, 3, Kind::tuple), "strides");
        const std::optional<DType> dtype =
            is_v3 ? dtype_named(item(arguments, 6, Kind::name).text) : storage.dtype;
        if (!dtype || is_v3 == storage.dtype.has_value())
            refuse("a tensor must have exactly one dtype");
        if (shape.size() != strides.size())
            refuse(str("a tensor has different numbers of sizes and strides: shape ", shape,
                       ", strides ", strides));
        const std::int64_t count = numel(shape);
        if (count == 0) return Tensor::empty(shape, {.dtype = *dtype});
        const std::int64_t capacity = storage.memory->bytes / size_of(*dtype);
        const std::optional<std::int64_t> length = element_span(shape, strides);
        if (offset < 0 || offset > capacity || !length || *length > capacity - offset)
            fail(storage.entry, str("a tensor with shape ", shape, " and strides ", strides,
                                    " at element ", offset, " is out of bounds"));
        if (count > capacity)
            fail(storage.entry,
                 str("a tensor with shape ", shape, " repeats its elements; save it contiguous()"));
        if (*dtype == DType::boolean) check_booleans(storage);
        auto impl = std::make_shared<Impl>();
        impl->shape = shape;
        impl->strides = strides;
        impl->offset = offset;
        impl->dtype = *dtype;
        impl->storage = storage.memory->storage;
        return Tensor(std::move(impl));
    }

    // --- the tree
    Tree call_result(std::uint32_t id, int depth) {
        if (const auto known = tensors_.find(id); known != tensors_.end()) return known->second;
        const std::string& function = value(value(id).items[0]).text;
        if (!is_known(function)) return {};  // options.unknown_as_null is set
        const Value& arguments = value(value(id).items[1]);
        if (function == kSize) {
            static_cast<void>(item(arguments, 0, Kind::tuple));
            return tree_of(arguments.items[0], depth);
        }
        Tensor tensor;
        if (function == kTensor || function == kTensorOfBytes) {
            tensor = tensor_of(arguments, function == kTensorOfBytes);
        } else if (function == kParameter) {
            static_cast<void>(item(arguments, 0, Kind::call));
            const Tree data = tree_of(arguments.items[0], depth);
            if (!data.is_tensor()) refuse("a parameter is not a tensor");
            tensor = data.tensor();
        } else {
            refuse(str("unexpected call of ", printable(function)));
        }
        return tensors_.emplace(id, tensor).first->second;
    }
    std::string key_of(const Value& key) const {
        if (key.kind == Kind::text) return key.text;
        if (key.kind != Kind::integer) refuse("a dict has keys that are neither text nor integers");
        return std::to_string(key.integer);
    }
    Tree tree_of(std::uint32_t id, int depth) {
        if (depth > kMaxTreeDepth)
            refuse(str("containers are nested deeper than ", kMaxTreeDepth, " levels"));
        const Value& v = value(id);
        charge(sizeof(Tree) + v.text.size());
        switch (v.kind) {
            case Kind::none:
                return {};
            case Kind::flag:
                return v.integer != 0;
            case Kind::integer:
                return v.integer;
            case Kind::number:
                return v.number;
            case Kind::text:
                return v.text;
            case Kind::name:
                if (!is_known(v.text)) return {};  // options.unknown_as_null is set
                if (!dtype_named(v.text)) refuse(str("unexpected value: ", printable(v.text)));
                return v.text;
            case Kind::call:
                return call_result(id, depth + 1);
            case Kind::reference:
                refuse("a storage is not part of a tensor");
            case Kind::tuple:
            case Kind::list: {
                Tree list = Tree::list();
                for (const std::uint32_t element : v.items)
                    list.push_back(tree_of(element, depth + 1));
                return list;
            }
            case Kind::dict:
                return map_of(v, depth);
        }
        refuse("a value has an invalid kind");
    }
    Tree map_of(const Value& dict, int depth) {
        Tree map = Tree::map();
        std::unordered_set<std::string> keys;
        for (std::size_t i = 0; i < dict.items.size(); i += 2) {
            std::string key = key_of(value(dict.items[i]));
            charge(sizeof(Tree::Entry) + key.size());
            if (!keys.insert(key).second) refuse(str("duplicate key: ", in_quotes(key)));
            Tree element = tree_of(dict.items[i + 1], depth + 1);
            map.entries().push_back({std::move(key), std::move(element)});
        }
        return map;
    }
    void charge(std::size_t size) {
        if (size > copy_budget_) refuse("repeated containers exceed the copy limit");
        copy_budget_ -= size;
    }

    TorchFileOptions options_;
    std::shared_ptr<MappedFile> map_;
    std::map<std::string, StoredEntry> entries_;
    std::string folder_;  // such as "archive/"
    Pickle pickle_;
    std::size_t copy_budget_ = 0;
    std::map<std::string, Memory> memories_;
    std::unordered_map<std::uint32_t, Tensor> tensors_;  // by the id of the call that creates them
};

}  // namespace

Tree load_torch_file(const std::string& path, TorchFileOptions options) {
    const auto map = std::make_shared<MappedFile>(path);
    try {
        return TorchFile(map, options).read();
    } catch (const FileError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    } catch (const ShapeError& error) {  // thrown if numel overflows int64
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

}  // namespace axle
