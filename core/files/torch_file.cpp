#include "core/files/torch_file.h"

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/files/pickle.h"
#include "core/files/torch_names.h"
#include "core/files/zip.h"
#include "core/storage.h"

namespace axle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;

// Returns the memory that the values of a pickle may need (see the header).
MemoryBudget budget_for(std::size_t bytes) {
    const std::size_t first = std::min(bytes, std::size_t{4} << 20);
    return MemoryBudget((std::size_t{64} << 20) + 64 * first + 8 * (bytes - first));
}
// The memory of a tensor and of a storage, each with its entry in a map.
constexpr std::size_t kTensorBytes = sizeof(Impl) + 128, kStorageBytes = sizeof(Storage) + 256;

// An open checkpoint file. Its functions throw FileError with the reason but without a path.
class TorchFile {
  public:
    TorchFile(std::span<std::byte> bytes, std::shared_ptr<const void> owner,
              TorchFileOptions options)
        : options_(options), owner_(std::move(owner)) {
        if (!bytes.empty() && bytes[0] == kPickleStart)
            throw FileError(
                "the file is a bare pickle, from PyTorch before 1.6 or another program; load it "
                "with "
                "torch.load and save it again with torch.save");
        entries_ = read_stored_zip(bytes);
        folder_ = find_folder();
        if (find("constants.pkl") != nullptr)
            throw FileError(
                "the file is a TorchScript program, which is not supported; save its state_dict "
                "instead");
        if (const ZipMember* order = find("byteorder"); order != nullptr)
            if (!std::ranges::equal(order->bytes, std::as_bytes(std::span("little", 6))))
                fail("byteorder",
                     "only little-endian is supported; save the file on a little-endian computer");
    }

    Tree read() {
        const ZipMember& entry = at(kPickle);
        check(entry);
        budget_ = budget_for(entry.bytes.size());
        try {
            pickle_ = read_pickle(entry.bytes, budget_, [&](std::string_view name) {
                return options_.unknown_as_null || is_torch_name(name);
            });
        } catch (const FileError& error) {
            refuse(error.what());
        }
        return tree_of(pickle_.root(), 0);
    }

  private:
    static constexpr std::byte kPickleStart{0x80};
    static constexpr std::string_view kPickle = "data.pkl";

    [[noreturn]] void fail(std::string_view entry, std::string_view reason) const {
        throw FileError(str("entry ", in_quotes(folder_ + std::string(entry)), ": ", reason));
    }
    [[noreturn]] void refuse(std::string_view reason) const { fail(kPickle, reason); }
    std::string find_folder() const {
        static constexpr std::string_view kEnd = "/data.pkl";
        std::optional<std::string> folder;
        for (const ZipMember& entry : entries_) {
            const std::string_view name = entry.name;
            if (!name.ends_with(kEnd) || name.find('/') != name.size() - kEnd.size()) continue;
            if (folder) throw FileError("the zip file has several entries named data.pkl");
            folder = name.substr(0, name.size() - kPickle.size());
        }
        if (!folder)
            throw FileError("the zip file is not from torch.save: it has no entry data.pkl");
        return *folder;
    }
    const ZipMember* find(std::string_view name) const {
        return find_entry(entries_, folder_ + std::string(name));
    }
    const ZipMember& at(std::string_view name) const {
        if (const ZipMember* entry = find(name)) return *entry;
        fail(name, "is missing");
    }
    void check(const ZipMember& entry) const {
        if (options_.check_crc) check_crc(entry);
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

    const Value& value(Pickle::Id id) const { return pickle_.value(id); }
    const Value& item(const Value& of, std::size_t index, Kind kind) const {
        const auto items = pickle_.items(of);
        if (index >= items.size() || value(items[index]).kind != kind)
            refuse("a tensor description does not have the structure that torch.save writes");
        return value(items[index]);
    }
    std::string_view text(const Value& of, std::size_t index, Kind kind = Kind::text) const {
        return pickle_.text(item(of, index, kind));
    }
    std::int64_t integer(const Value& of, std::size_t index) const {
        return item(of, index, Kind::integer).integer();
    }

    // Returns the storage described by ('storage', type, key, location, size). The location is
    // ignored, because tensors are loaded to the CPU.
    StorageRef storage_of(const Value& reference) {
        const Value& fields = item(reference, 0, Kind::tuple);
        if (pickle_.items(fields).size() != 5 || text(fields, 0) != "storage")
            refuse("a persistent reference is not a storage");
        const std::string_view type = text(fields, 1, Kind::name), key = text(fields, 2);
        charge(key.size());  // each tensor copies the key, which can be long
        StorageRef made{nullptr, dtype_of_torch_storage(type), "data/" + std::string(key)};
        if (!made.dtype && type != torch_names::kBytes)
            refuse(
                str("the type of a storage must be one of torch's storages, such as "
                    "torch.FloatStorage: ",
                    printable(type)));
        made.memory = &memory_of(made.entry);
        const std::int64_t size = made.dtype ? size_of(*made.dtype) : 1;
        if (made.memory->bytes % size != 0 || integer(fields, 4) != made.memory->bytes / size)
            fail(made.entry, str("its size does not match the storage: ", made.memory->bytes,
                                 " bytes, ", integer(fields, 4), " elements of ", size, " bytes"));
        return made;
    }
    Memory& memory_of(const std::string& name) {
        const auto [found, is_new] = memories_.try_emplace(name);
        Memory& memory = found->second;
        if (!is_new) return memory;
        charge(kStorageBytes + name.size());
        const ZipMember& entry = at(name);
        check(entry);
        memory.bytes = std::ssize(entry.bytes);
        if (memory.bytes == 0) return memory;
        if (reinterpret_cast<std::uintptr_t>(entry.bytes.data()) % sizeof(double) == 0) {
            memory.storage = std::make_shared<Storage>(entry.bytes.data(), entry.bytes.size(),
                                                       Device::cpu(), [keep = owner_] {});
        } else {
            const Tensor copy = Tensor::empty({memory.bytes}, {.dtype = u8});
            std::ranges::copy(entry.bytes, static_cast<std::byte*>(copy.raw_data()));
            memory.storage = copy.impl()->storage;
        }
        return memory;
    }
    // Throws FileError if a byte of a boolean storage is neither 0 nor 1, because other values are
    // not valid bools.
    void check_booleans(const StorageRef& storage) {
        if (std::exchange(storage.memory->are_booleans_checked, true)) return;
        if (std::ranges::any_of(at(storage.entry).bytes,
                                [](std::byte b) { return std::to_integer<unsigned>(b) > 1; }))
            fail(storage.entry, "contains booleans that are neither 0 nor 1");
    }

    // --- tensors
    template <class Sizes>
    Sizes sizes_of(const Value& tuple, const char* what) const {
        const std::size_t count = pickle_.items(tuple).size();
        if (count > kMaxDims) refuse(str("a tensor has more than ", kMaxDims, " ", what));
        Sizes sizes;
        for (std::size_t i = 0; i < count; ++i) {
            sizes.push_back(integer(tuple, i));
            if (const std::int64_t size = sizes[static_cast<int>(i)]; size < 0)
                refuse(str("a tensor has negative ", what, ": ", size));
        }
        return sizes;
    }
    // Returns the number of storage elements between the first and the last element of a tensor,
    // including both elements and all gaps. Returns nullopt if the number overflows int64. The
    // tensor must not be empty.
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
        const std::int64_t offset = integer(arguments, 1);
        const auto shape = sizes_of<Shape>(item(arguments, 2, Kind::tuple), "sizes");
        const auto strides = sizes_of<Strides>(item(arguments, 3, Kind::tuple), "strides");
        const std::optional<DType> dtype =
            is_v3 ? dtype_of_torch_name(text(arguments, 6, Kind::name)) : storage.dtype;
        if (is_v3 && !dtype)
            refuse(str("the dtype of a tensor is not supported: ",
                       printable(text(arguments, 6, Kind::name))));
        if (!dtype || is_v3 == storage.dtype.has_value())
            refuse(str("either a tensor or its storage must have a dtype: ",
                       is_v3 ? "both have one" : "neither has one"));
        if (shape.size() != strides.size())
            refuse(str("a tensor has different numbers of sizes and strides: shape ", shape,
                       ", strides ", strides));
        const std::int64_t count = numel(shape);
        if (count == 0) return Tensor::empty(shape, {.dtype = *dtype});
        const std::int64_t capacity = storage.memory->bytes / size_of(*dtype);
        const std::optional<std::int64_t> length = element_span(shape, strides);
        if (offset < 0 || offset > capacity || !length || *length > capacity - offset)
            fail(storage.entry,
                 str("a tensor with shape ", shape, " and strides ", strides, " at element ",
                     offset, " is out of bounds: the storage has ", capacity, " elements"));
        if (count > capacity)
            fail(storage.entry, str("a tensor with shape ", shape,
                                    " repeats its elements; save its contiguous() copy"));
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
    Tree call_result(Pickle::Id id, int depth) {
        if (const auto known = tensors_.find(id); known != tensors_.end()) return known->second;
        const auto call = pickle_.items(value(id));
        const std::string_view function = pickle_.text(value(call[0]));
        if (!is_torch_name(function)) return {};  // options.unknown_as_null is set
        if (value(id).kind == Kind::object)
            refuse(str("objects of this type are not supported: ", printable(function)));
        const Value& arguments = value(call[1]);
        if (function == torch_names::kSize) {
            static_cast<void>(item(arguments, 0, Kind::tuple));
            return tree_of(pickle_.items(arguments)[0], depth);
        }
        charge(kTensorBytes);
        Tensor tensor;
        if (function == torch_names::kTensor || function == torch_names::kTensorOfBytes) {
            tensor = tensor_of(arguments, function == torch_names::kTensorOfBytes);
        } else if (function == torch_names::kFromType) {
            const std::string_view rebuild = text(arguments, 0, Kind::name);
            const std::string_view type = text(arguments, 1, Kind::name);
            if ((rebuild != torch_names::kTensor && rebuild != torch_names::kTensorOfBytes) ||
                (type != torch_names::kTensorType && type != torch_names::kParameterType))
                refuse(str(
                    "the type of a tensor, or the function that rebuilds it, is not supported: ",
                    printable(type), ", ", printable(rebuild)));
            tensor =
                tensor_of(item(arguments, 2, Kind::tuple), rebuild == torch_names::kTensorOfBytes);
        } else if (function == torch_names::kParameter) {
            static_cast<void>(item(arguments, 0, Kind::call));
            const Tree data = tree_of(pickle_.items(arguments)[0], depth);
            if (!data.is_tensor()) refuse("a parameter is not a tensor");
            tensor = data.tensor();
        } else {
            refuse(str("only functions that rebuild tensors can be called: ", printable(function)));
        }
        return tensors_.emplace(id, tensor).first->second;
    }
    std::string key_of(const Value& key) const {
        if (key.kind == Kind::text) return std::string(pickle_.text(key));
        if (key.kind != Kind::integer) refuse("a dict has keys that are neither text nor integers");
        return std::to_string(key.integer());
    }
    // Returns a value as a Tree. Charges its text, tensors and elements, but not the Tree itself.
    Tree tree_of(Pickle::Id id, int depth) {
        if (depth > kMaxTreeDepth)
            refuse(str("containers are nested deeper than ", kMaxTreeDepth, " levels"));
        const Value& v = value(id);
        switch (v.kind) {
            case Kind::none:
                return {};
            case Kind::flag:
                return v.integer() != 0;
            case Kind::integer:
                return v.integer();
            case Kind::number:
                return v.number();
            case Kind::text:
                charge(v.size);
                return pickle_.text(v);
            case Kind::name:
                return name_of_dtype(pickle_.text(v));
            case Kind::call:
            case Kind::object:
                return call_result(id, depth + 1);
            case Kind::reference:
                refuse("a storage is not part of a tensor");
            case Kind::tuple:
            case Kind::list:
                return list_of(v, depth);
            case Kind::dict:
                return map_of(v, depth);
        }
        refuse("a value has an invalid kind");
    }
    Tree name_of_dtype(std::string_view name) const {
        if (!is_torch_name(name)) return {};  // options.unknown_as_null is set
        if (!dtype_of_torch_name(name))
            refuse(
                str("a value of torch must be a dtype, such as torch.float32: ", printable(name)));
        return name;
    }
    Tree list_of(const Value& list, int depth) {
        const auto items = pickle_.items(list);
        charge(items.size() * sizeof(Tree));
        Tree::List elements;
        elements.reserve(items.size());
        for (const Pickle::Id id : items) elements.push_back(tree_of(id, depth + 1));
        return elements;
    }
    Tree map_of(const Value& dict, int depth) {
        const auto items = pickle_.items(dict);
        charge(items.size() / 2 * (sizeof(Tree::Entry) + sizeof(std::string_view)));
        Tree map = Tree::map();
        map.entries().reserve(items.size() / 2);
        std::vector<std::string_view> keys;
        keys.reserve(items.size() / 2);
        for (std::size_t i = 0; i < items.size(); i += 2) {
            std::string key = key_of(value(items[i]));
            charge(key.size());
            Tree element = tree_of(items[i + 1], depth + 1);
            map.entries().push_back({std::move(key), std::move(element)});
            keys.push_back(map.entries().back().key);
        }
        std::ranges::sort(keys);
        if (const auto repeated = std::ranges::adjacent_find(keys); repeated != keys.end())
            refuse(str("duplicate key: ", in_quotes(*repeated)));
        return map;
    }
    void charge(std::size_t bytes) {
        try {
            budget_.charge(bytes);
        } catch (const FileError& error) {
            refuse(error.what());
        }
    }

    TorchFileOptions options_;
    std::shared_ptr<const void> owner_;  // keeps the file's bytes valid
    std::vector<ZipMember> entries_;
    std::string folder_;  // such as "archive/"
    Pickle pickle_;
    MemoryBudget budget_{0};
    std::map<std::string, Memory> memories_;
    std::unordered_map<Pickle::Id, Tensor> tensors_;  // by the id of the call that creates them
};

}  // namespace

Tree load_torch_file(std::span<std::byte> bytes, std::shared_ptr<const void> owner,
                     TorchFileOptions options) {
    try {
        return TorchFile(bytes, std::move(owner), options).read();
    } catch (const ShapeError& error) {  // thrown if numel overflows int64
        throw FileError(error.what());
    } catch (const std::bad_alloc&) {
        throw FileError("not enough memory to read the file");
    }
}

Tree load_torch_file(const std::string& path, TorchFileOptions options) {
    const auto map = std::make_shared<MappedFile>(path);
    try {
        return load_torch_file(map->bytes(), map, options);
    } catch (const FileError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

}  // namespace axle
