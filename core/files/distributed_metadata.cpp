#include "core/files/distributed_metadata.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/files/file.h"
#include "core/files/pickle.h"
#include "core/files/torch_file.h"
#include "kernels/error.h"

namespace axle {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;
using Id = Pickle::Id;

// The modules of the classes of the metadata: the first since PyTorch 2.0, the second before.
constexpr std::string_view kModules[] = {"torch.distributed.checkpoint.",
                                         "torch.distributed._shard.checkpoint."};
constexpr std::string_view kClasses[] = {
    "metadata.Metadata",
    "metadata.TensorStorageMetadata",
    "metadata.BytesStorageMetadata",
    "metadata.ChunkStorageMetadata",
    "metadata.MetadataIndex",
    "metadata.StorageMeta",
    "metadata.TensorProperties",
    "metadata._MEM_FORMAT_ENCODING",
    "filesystem._StorageInfo",
};
// Names that describe sizes, layouts, tensor properties and memory formats (before PyTorch 2.3) and
// the folder. Python 3.11 stores a member of an enumeration as a call of getattr, which is not
// executed.
constexpr std::string_view kOtherNames[] = {
    "torch.Size",
    "torch.serialization._get_layout",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "builtins.getattr",
    "__builtin__.getattr",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
};
constexpr std::size_t kMaxAttributes = 64;  // per object
constexpr std::size_t kNodeBytes = 128;     // memory of an entry of a map, without its text
constexpr std::size_t kLongestFileName = 255;

bool is_known(std::string_view name) {
    if (std::ranges::find(kOtherNames, name) != std::end(kOtherNames)) return true;
    for (const std::string_view module : kModules)
        if (name.starts_with(module) &&
            std::ranges::find(kClasses, name.substr(module.size())) != std::end(kClasses))
            return true;
    return dtype_of_torch_name(name).has_value();
}

// Returns the memory that the values of a pickle may need (see the header).
MemoryBudget budget_for(std::size_t bytes) {
    const std::size_t first = std::min(bytes, std::size_t{4} << 20);
    return MemoryBudget((std::size_t{64} << 20) + 64 * first + 32 * (bytes - first));
}

bool is_file_name(std::string_view name) {
    return name.ends_with(".distcp") && name.size() <= kLongestFileName && name[0] != '.' &&
           std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
           });
}

class MetadataReader {
  public:
    explicit MetadataReader(std::span<const std::byte> bytes)
        : budget_(budget_for(bytes.size())), pickle_(read_pickle(bytes, budget_, is_known)) {}

    DistributedMetadata read() {
        const Value& root = object(pickle_.root(), "Metadata");
        read_items(required(root, "storage_data"));
        read_paths(field(root, "planner_data"));
        DistributedMetadata metadata;
        for_each_entry(required(root, "state_dict_metadata"), [&](Id key, Id entry) {
            const std::string name(text(key));
            const bool is_value = class_of(value(entry)) == "BytesStorageMetadata";
            subject_ = str(is_value ? "value " : "tensor ", in_quotes(name));
            charge(kNodeBytes + sizeof(DistributedTensor) + 2 * name.size());
            bool is_new = false;
            if (is_value) {
                DistributedValue found{item_of(name, no_offsets()), path_of(name)};
                is_new = metadata.values.emplace(name, std::move(found)).second;
            } else {
                is_new = metadata.tensors.emplace(name, tensor_of(name, entry)).second;
            }
            if (!is_new) fail("is listed twice");
        });
        return metadata;
    }

  private:
    // The name of a tensor and the offsets of one of its chunks, or no_offsets() for other values.
    using Key = std::pair<std::string_view, std::vector<std::int64_t>>;
    static std::vector<std::int64_t> no_offsets() { return {-1}; }

    [[noreturn]] void fail(std::string_view reason) const {
        throw FileError(subject_.empty() ? std::string(reason) : str(subject_, ": ", reason));
    }
    [[noreturn]] void fail_structure() const {
        fail("the metadata does not have the structure that torch.distributed.checkpoint writes");
    }
    void charge(std::size_t bytes) { budget_.charge(bytes); }

    // --- values of the pickle
    const Value& value(Id id) const { return pickle_.value(id); }
    std::string_view text(Id id) const {
        if (value(id).kind != Kind::text) fail_structure();
        return pickle_.text(value(id));
    }
    std::int64_t size(Id id) const {
        if (value(id).kind != Kind::integer || value(id).integer() < 0) fail_structure();
        return value(id).integer();
    }
    // Returns the name of an object's class or of a called function, without its module, or "" for
    // other values.
    std::string_view class_of(const Value& v) const {
        if (v.kind != Kind::object && v.kind != Kind::call) return "";
        const std::string_view name = pickle_.text(value(pickle_.items(v)[0]));
        return name.substr(name.rfind('.') + 1);
    }
    const Value& object(Id id, std::string_view name) const {
        const Value& v = value(id);
        if (v.kind != Kind::object || class_of(v) != name)
            fail(str("the metadata has no ", name, " where it is expected"));
        return v;
    }
    // Returns the state of an object, or null if it was not set.
    const Value* state_of(const Value& v) const {
        const auto items = pickle_.items(v);
        if (items.size() > 3) fail_structure();
        return items.size() == 3 ? &value(items[2]) : nullptr;
    }
    // Returns an attribute of an object, or nullopt if it is missing or None.
    std::optional<Id> field(const Value& v, std::string_view name) const {
        const Value* const state = state_of(v);
        if (state == nullptr) return std::nullopt;
        if (state->kind != Kind::dict) fail_structure();
        const auto items = pickle_.items(*state);
        if (items.size() > 2 * kMaxAttributes) fail_structure();
        for (std::size_t i = 0; i < items.size(); i += 2)
            if (text(items[i]) == name && value(items[i + 1]).kind != Kind::none)
                return items[i + 1];
        return std::nullopt;
    }
    Id required(const Value& v, std::string_view name) const {
        const std::optional<Id> found = field(v, name);
        if (!found) fail(str("the metadata has no ", name));
        return *found;
    }
    template <class F>
    void for_each_entry(Id dict, F&& f) const {
        if (value(dict).kind != Kind::dict) fail_structure();
        const auto items = pickle_.items(value(dict));
        for (std::size_t i = 0; i < items.size(); i += 2) f(items[i], items[i + 1]);
    }
    // Returns the only argument of a call.
    Id argument(const Value& call) const {
        const auto arguments = pickle_.items(value(pickle_.items(call)[1]));
        if (arguments.size() != 1) fail_structure();
        return arguments[0];
    }
    // Returns the numbers of a torch.Size.
    Shape shape_of(Id id) const {
        const Value& v = value(id);
        if (v.kind != Kind::call || class_of(v) != "Size") fail_structure();
        const Value& tuple = value(argument(v));
        if (tuple.kind != Kind::tuple) fail_structure();
        if (tuple.size > kMaxDims)
            fail(str("has more than ", kMaxDims, " dimensions: ", tuple.size));
        Shape shape;
        for (const Id number : pickle_.items(tuple)) shape.push_back(size(number));
        return shape;
    }

    // --- locations and paths
    void read_items(Id storage_data) {
        for_each_entry(storage_data, [&](Id key, Id info) {
            const Value& index = object(key, "MetadataIndex");
            const std::string_view name = text(required(index, "fqn"));
            const std::optional<Id> offset = field(index, "offset");
            const Shape offsets = offset ? shape_of(*offset) : Shape();
            charge(kNodeBytes + sizeof(Key) + kMaxDims * sizeof(std::int64_t) + name.size());
            const bool is_new =
                items_
                    .emplace(Key(name, offset ? std::vector(offsets.begin(), offsets.end())
                                              : no_offsets()),
                             info)
                    .second;
            if (!is_new)
                fail(str(in_quotes(name), offset ? str(": the chunk at ", offsets) : std::string(),
                         " is stored twice"));
        });
    }
    void read_paths(std::optional<Id> planner_data) {
        if (!planner_data || value(*planner_data).kind != Kind::dict) return;
        for_each_entry(*planner_data, [&](Id key, Id path) {
            if (value(key).kind != Kind::text) return;
            charge(kNodeBytes + text(key).size());
            paths_.emplace(text(key), path);
        });
    }
    StoredItem item_of(std::string_view name, const std::vector<std::int64_t>& offsets) {
        const auto found = items_.find(Key(name, offsets));
        if (found == items_.end()) {
            const bool is_value = offsets == no_offsets();
            fail(is_value ? "is in no file"
                          : str("the chunk at ", Shape(std::span(offsets)), " is in no file"));
        }
        const Value& info = object(found->second, "_StorageInfo");
        const std::string_view file = text(required(info, "relative_path"));
        if (!is_file_name(file))
            fail(str("a file name must be <name>.distcp, without folders: ", in_quotes(file)));
        if (const auto transforms = field(info, "transform_descriptors");
            transforms && !pickle_.items(value(*transforms)).empty())
            fail("is compressed or otherwise transformed; save it without extensions");
        charge(file.size());
        StoredItem item{std::string(file), size(required(info, "offset")),
                        size(required(info, "length"))};
        if (item.offset > INT64_MAX - item.length) fail_structure();
        return item;
    }
    std::vector<std::string> path_of(std::string_view name) {
        const auto found = paths_.find(name);
        if (found == paths_.end()) return {};
        const Value& keys = value(found->second);
        if (keys.kind != Kind::tuple && keys.kind != Kind::list) return {};
        std::vector<std::string> path;
        for (const Id id : pickle_.items(keys)) {
            const Value& key = value(id);
            if (key.kind != Kind::text && key.kind != Kind::integer) return {};
            charge(2 * sizeof(std::string) + (key.kind == Kind::text ? key.size : 0));
            path.push_back(key.kind == Kind::text ? std::string(pickle_.text(key))
                                                  : std::to_string(key.integer()));
        }
        return path;
    }

    // --- tensors
    // Returns the dtype in TensorProperties, whose state is the tuple (dtype, layout, ...).
    DType dtype_of(const Value& properties) const {
        const Value* const state = state_of(properties);
        if (state == nullptr || state->kind != Kind::tuple || state->size < 2) fail_structure();
        const Value& dtype = value(pickle_.items(*state)[0]);
        const Value& layout = value(pickle_.items(*state)[1]);
        if (dtype.kind != Kind::name || class_of(layout) != "_get_layout") fail_structure();
        if (const std::string_view name = text(argument(layout)); name != "torch.strided")
            fail(str("has the layout ", printable(name), "; only torch.strided is supported"));
        const std::optional<DType> known = dtype_of_torch_name(pickle_.text(dtype));
        if (!known) fail(str(printable(pickle_.text(dtype)), " is not a supported dtype"));
        return *known;
    }
    DistributedTensor tensor_of(const std::string& name, Id id) {
        const Value& entry = object(id, "TensorStorageMetadata");
        DistributedTensor tensor;
        tensor.dtype = dtype_of(object(required(entry, "properties"), "TensorProperties"));
        tensor.shape = shape_of(required(entry, "size"));
        tensor.path = path_of(name);
        const Value& chunks = value(required(entry, "chunks"));
        if (chunks.kind != Kind::list) fail_structure();
        for (const Id chunk_id : pickle_.items(chunks)) {
            charge(2 * sizeof(DistributedTensor::Chunk) + name.size());
            const Value& chunk = object(chunk_id, "ChunkStorageMetadata");
            const Shape offsets = shape_of(required(chunk, "offsets"));
            const Shape sizes = shape_of(required(chunk, "sizes"));
            if (std::ranges::find(sizes, 0) != sizes.end()) continue;
            tensor.chunks.push_back(
                {offsets, sizes, item_of(name, {offsets.begin(), offsets.end()})});
        }
        return tensor;
    }

    MemoryBudget budget_;
    Pickle pickle_;
    std::map<Key, Id> items_;  // _StorageInfo of each chunk and value
    std::map<std::string_view, Id> paths_;
    std::string subject_;  // names the tensor or value that is being read
};

}  // namespace

DistributedMetadata read_distributed_metadata(std::span<const std::byte> pickle) {
    return MetadataReader(pickle).read();
}

}  // namespace axle
