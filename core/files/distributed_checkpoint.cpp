#include "core/files/distributed_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/files/pickle.h"
#include "core/files/torch_file.h"
#include "core/ops.h"

namespace axle {
namespace {

using Chunk = DistributedTensor::Chunk;

constexpr const char* kMetadataName = ".metadata";
constexpr std::int64_t kMaxComparisons = std::int64_t{16} << 20;  // for the chunks of one tensor

[[noreturn]] void fail(const std::string& path, const std::string& name,
                       const std::string& reason) {
    throw FileError(str(printable(path), ": tensor ", in_quotes(name), ": ", reason));
}

// Throws FileError about the data of a tensor or of another value.
[[noreturn]] void fail_item(const std::string& path, const std::string& name,
                            const std::string& reason) {
    throw FileError(str(printable(path), ": the data of ", in_quotes(name), ": ", reason));
}

// Calls f. If it throws a FileError, adds the name of the tensor or value to the message.
template <class F>
void naming(const std::string& name, F&& f) {
    try {
        f();
    } catch (const FileError& error) {
        throw FileError(str(error.what(), "; the file must contain ", in_quotes(name)));
    }
}

// Returns the dimension in which the chunks have the largest number of different offsets.
int dimension_of_most_cuts(const std::vector<const Chunk*>& chunks, int dimensions) {
    int best = 0;
    std::size_t most = 0;
    for (int d = 0; d < dimensions; ++d) {
        std::set<std::int64_t> offsets;
        for (const Chunk* chunk : chunks) offsets.insert(chunk->offsets[d]);
        if (offsets.size() > most) best = d, most = offsets.size();
    }
    return best;
}

bool overlap(const Chunk& a, const Chunk& b) {
    for (int d = 0; d < a.sizes.size(); ++d)
        if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d])
            return false;
    return true;
}

// Throws FileError unless the chunks of a tensor contain every element exactly once, and their
// items are long enough.
class ChunkCheck {
  public:
    explicit ChunkCheck(std::string path) : path_(std::move(path)) {}

    void operator()(const std::string& name, const DistributedTensor& tensor) const {
        if (checked_bytes(tensor.shape, tensor.dtype) < 0)
            fail(path_, name,
                 str("the shape must have less than 2^63 bytes: ", tensor.shape, " of ",
                     tensor.dtype));
        std::int64_t count = 0;
        for (const Chunk& chunk : tensor.chunks) {
            check_bounds(name, tensor, chunk);
            if (__builtin_add_overflow(count, numel(chunk.sizes), &count))
                fail(path_, name, "the chunks have more than 2^63 - 1 elements");
        }
        check_separate(name, tensor);
        if (count != numel(tensor.shape))
            fail(path_, name,
                 str("the chunks must have the ", numel(tensor.shape), " elements of the shape ",
                     tensor.shape, ": they have ", count));
    }

  private:
    void check_bounds(const std::string& name, const DistributedTensor& tensor,
                      const Chunk& chunk) const {
        const int dimensions = tensor.shape.size();
        bool is_inside = chunk.offsets.size() == dimensions && chunk.sizes.size() == dimensions;
        for (int d = 0; is_inside && d < dimensions; ++d)
            is_inside = chunk.sizes[d] <= tensor.shape[d] &&
                        chunk.offsets[d] <= tensor.shape[d] - chunk.sizes[d];
        if (!is_inside)
            fail(path_, name,
                 str("the chunk ", chunk.sizes, " at ", chunk.offsets, " must be within the shape ",
                     tensor.shape));
        const std::int64_t bytes = numel(chunk.sizes) * size_of(tensor.dtype);
        if (bytes > chunk.item.length)
            fail(path_, name,
                 str("the chunk ", chunk.sizes, " at ", chunk.offsets, " needs ", bytes,
                     " bytes, but has ", chunk.item.length));
    }
    void check_separate(const std::string& name, const DistributedTensor& tensor) const {
        std::int64_t comparisons = 0;
        std::vector<const Chunk*> sorted;
        for (const Chunk& chunk : tensor.chunks) sorted.push_back(&chunk);
        const int cut = dimension_of_most_cuts(sorted, tensor.shape.size());
        const bool is_scalar = tensor.shape.empty();
        const auto begin = [&](const Chunk* chunk) { return is_scalar ? 0 : chunk->offsets[cut]; };
        std::ranges::sort(sorted, {}, begin);
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            const std::int64_t end = begin(sorted[i]) + (is_scalar ? 1 : sorted[i]->sizes[cut]);
            for (std::size_t j = i + 1; j < sorted.size() && begin(sorted[j]) < end; ++j) {
                if (overlap(*sorted[i], *sorted[j]))
                    fail(path_, name,
                         str("the chunks at ", sorted[i]->offsets, " and ", sorted[j]->offsets,
                             " overlap"));
                if (++comparisons > kMaxComparisons)
                    fail(path_, name,
                         str("there are too many chunks to compare them: more than ",
                             kMaxComparisons, " comparisons"));
            }
        }
    }

    std::string path_;
};

// Checks that items are within their files (add) and share no bytes (check_separate). Both
// functions throw FileError otherwise.
class ItemCheck {
  public:
    explicit ItemCheck(const std::string& folder) : folder_(folder) {}

    void add(const std::string& name, const StoredItem& item) {
        const auto [file, is_new] = sizes_.try_emplace(item.file, 0);
        std::int64_t& size = file->second;
        if (is_new) naming(name, [&] { size = InputFile(folder_, item.file).size(); });
        if (item.offset + item.length > size)
            fail_item(path_of(item), name,
                      str("bytes [", item.offset, ", ", item.offset + item.length,
                          ") are beyond the end of the file, which has ", size, " bytes"));
        items_.push_back({&item, &name});
    }
    void check_separate() {
        std::ranges::sort(items_, [](const Named& a, const Named& b) {
            return std::tie(a.item->file, a.item->offset) < std::tie(b.item->file, b.item->offset);
        });
        for (std::size_t i = 1; i < items_.size(); ++i) {
            const StoredItem &before = *items_[i - 1].item, &item = *items_[i].item;
            if (before.file == item.file && before.offset + before.length > item.offset)
                fail_item(path_of(item), *items_[i].name,
                          str("its bytes overlap the bytes of ", in_quotes(*items_[i - 1].name)));
        }
    }

  private:
    struct Named {
        const StoredItem* item;
        const std::string* name;
    };
    std::string path_of(const StoredItem& item) const { return folder_ + "/" + item.file; }

    const std::string& folder_;
    std::map<std::string, std::int64_t> sizes_;
    std::vector<Named> items_;
};

DistributedMetadata read_metadata(const std::string& folder) {
    const InputFile file(folder, kMetadataName);
    const std::string bytes = file.read(kMaxPickle);
    try {
        return read_distributed_metadata(std::as_bytes(std::span(bytes)));
    } catch (const FileError& error) {
        throw FileError(str(printable(file.path()), ": ", error.what()));
    }
}

}  // namespace

bool DistributedCheckpoint::is_one(const std::string& folder) {
    return kind_of(folder + "/" + kMetadataName) == FileKind::file;
}

DistributedCheckpoint::DistributedCheckpoint(std::string folder)
    : path_(std::move(folder)), metadata_(read_metadata(path_)) {
    const ChunkCheck check_chunks(path_ + "/" + kMetadataName);
    ItemCheck items(path_);
    for (const auto& [name, tensor] : metadata_.tensors) {
        check_chunks(name, tensor);
        for (const Chunk& chunk : tensor.chunks) items.add(name, chunk.item);
    }
    for (const auto& [name, value] : metadata_.values) items.add(name, value.item);
    items.check_separate();
}

std::vector<std::string> DistributedCheckpoint::files() const {
    std::set<std::string> names;
    for (const auto& [name, tensor] : metadata_.tensors)
        for (const Chunk& chunk : tensor.chunks) names.insert(chunk.item.file);
    for (const auto& [name, value] : metadata_.values) names.insert(value.item.file);
    std::vector<std::string> all = {kMetadataName};
    all.insert(all.end(), names.begin(), names.end());
    return all;
}

std::map<std::string, std::string> DistributedCheckpoint::names_in_state() const {
    // The first key, if it is the same in all entries and each entry has further keys.
    const std::string* common = nullptr;
    bool has_common = true;
    const auto add = [&](const std::vector<std::string>& path) {
        has_common = has_common && path.size() > 1 && (common == nullptr || path[0] == *common);
        if (has_common) common = &path[0];
    };
    for (const auto& [name, tensor] : metadata_.tensors) add(tensor.path);
    for (const auto& [name, value] : metadata_.values) add(value.path);
    std::map<std::string, std::string> names;
    for (const auto& [name, tensor] : metadata_.tensors) {
        std::string key = tensor.path.empty() ? name : "";
        for (std::size_t i = has_common ? 1 : 0; i < tensor.path.size(); ++i)
            key += (key.empty() ? "" : ".") + tensor.path[i];
        const auto [known, is_new] = names.emplace(key, name);
        if (!is_new)
            fail(path_, name,
                 str("has the same keys as ", in_quotes(known->second), ": ", in_quotes(key)));
    }
    return names;
}

const DistributedTensor& DistributedCheckpoint::at(const std::string& name) const {
    const auto found = metadata_.tensors.find(name);
    if (found == metadata_.tensors.end())
        throw FileError(str(printable(path_), ": contains no tensor ", in_quotes(name)));
    return found->second;
}

Tree DistributedCheckpoint::load(const StoredItem& item, const std::string& name) const {
    const auto bytes = std::make_shared<const Tensor>(Tensor::empty({item.length}, {.dtype = u8}));
    const std::span<std::byte> span(static_cast<std::byte*>(bytes->raw_data()),
                                    static_cast<std::size_t>(item.length));
    naming(name, [&] { InputFile(path_, item.file).read_at(item.offset, span); });
    try {
        return load_torch_file(span, bytes);
    } catch (const FileError& error) {
        fail_item(path_ + "/" + item.file, name, error.what());
    }
}

Tensor DistributedCheckpoint::load_chunk(const DistributedTensor& tensor, const Chunk& chunk,
                                         const std::string& name) const {
    const Tree loaded = load(chunk.item, name);
    const std::string path = path_ + "/" + chunk.item.file;
    if (!loaded.is_tensor()) fail(path, name, "the item is not a tensor");
    const Tensor& values = loaded.tensor();
    if (values.dtype() != tensor.dtype || values.shape() != chunk.sizes)
        fail(path, name,
             str("the chunk is ", values.dtype(), ' ', values.shape(), " instead of ", tensor.dtype,
                 ' ', chunk.sizes));
    return values;
}

// Returns rows [begin, end) of the first dimension, or the value of a 0-d tensor.
Tensor DistributedCheckpoint::read_rows(const std::string& name, std::int64_t begin,
                                        std::int64_t end) const {
    const NoGrad no_grad;
    const DistributedTensor& tensor = at(name);
    Shape shape = tensor.shape;
    if (!shape.empty()) shape[0] = end - begin;
    Tensor rows;  // allocated only if no chunk contains all of the rows
    for (const Chunk& chunk : tensor.chunks) {
        std::int64_t first = 0, last = 0;  // the rows of the chunk that are read
        if (!shape.empty()) {
            first = std::max(begin, chunk.offsets[0]);
            last = std::min(end, chunk.offsets[0] + chunk.sizes[0]);
            if (first >= last) continue;
        }
        Tensor values = load_chunk(tensor, chunk, name);
        if (!shape.empty()) values = values.narrow(0, first - chunk.offsets[0], last - first);
        if (values.shape() == shape) return contiguous(values);
        if (!rows.defined()) rows = Tensor::empty(shape, {.dtype = tensor.dtype});
        Tensor target = rows.narrow(0, first - begin, last - first);
        for (int d = 1; d < shape.size(); ++d)
            target = target.narrow(d, chunk.offsets[d], chunk.sizes[d]);
        target.copy_(values);
    }
    return rows.defined() ? rows : Tensor::empty(shape, {.dtype = tensor.dtype});
}

Tensor DistributedCheckpoint::read(const std::string& name) const {
    const Shape& shape = at(name).shape;
    return read_rows(name, 0, shape.empty() ? 1 : shape[0]);
}

Tensor DistributedCheckpoint::read(const std::string& name, std::int64_t begin,
                                   std::int64_t count) const {
    const Shape& shape = at(name).shape;
    const std::int64_t all = numel(shape);
    if (begin < 0 || count < 0 || begin > all - count)
        throw IndexError(str("DistributedCheckpoint::read: the range [", begin, ", ", begin, " + ",
                             count, ") must be within [0, ", all, "), the elements of ",
                             printable(name), ' ', shape));
    if (count == 0) return Tensor::empty({0}, {.dtype = at(name).dtype});
    if (shape.empty()) return read(name).reshape({1});
    const std::int64_t row = all / shape[0], first = begin / row;
    const Tensor rows = read_rows(name, first, (begin + count - 1) / row + 1);
    return rows.reshape({-1}).narrow(0, begin - first * row, count);
}

Tree DistributedCheckpoint::read_value(const std::string& name) const {
    const auto found = metadata_.values.find(name);
    if (found == metadata_.values.end())
        throw FileError(str(printable(path_), ": contains no value ", in_quotes(name)));
    return load(found->second.item, name);
}

NamedTensors read_distributed_checkpoint(const std::string& folder) {
    const DistributedCheckpoint checkpoint(folder);
    NamedTensors tensors;
    for (const auto& [name, tensor] : checkpoint.tensors())
        tensors.emplace_back(name, checkpoint.read(name));
    return tensors;
}

}  // namespace axle
