#include "core/files/sharded_folder.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/files/folder.h"
#include "core/files/safetensors_header.h"
#include "core/ops.h"

namespace axle {
namespace {

constexpr const char* kFormat = "axle.sharded";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxIndex = std::int64_t{256} << 20;
constexpr std::size_t kIndexMemoryPerByte = 16;
constexpr std::size_t kIndexMemory = std::size_t{16} << 20;

std::string file_of(int rank) {
    char name[32];
    std::snprintf(name, sizeof name, "rank_%05d.safetensors", rank);
    return name;
}

bool is_file_name(const std::string& name) {
    constexpr std::string_view kBegin = "rank_", kEnd = ".safetensors";
    if (name.size() <= kBegin.size() + kEnd.size() || name.size() > 64) return false;
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
    return std::all_of(name.begin() + kBegin.size(), name.end() - kEnd.size(),
                       [](char c) { return c >= '0' && c <= '9'; });
}

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw FileError(str(printable(path), ": ", reason));
}

Tree tree_of(const Shape& shape) {
    Tree list = Tree::list();
    for (const std::int64_t size : shape) list.push_back(size);
    return list;
}

// Sorts the parts by their first element. Throws an error of type E unless they contain all
// elements of the tensor.
template <class E>
void sort_parts(const std::string& context, const std::string& name, ShardedFolder::Entry& entry) {
    std::ranges::sort(entry.parts, {}, &ShardedFolder::Entry::Part::begin);
    std::int64_t next = 0;
    for (const ShardedFolder::Entry::Part& part : entry.parts) {
        if (part.begin > next) break;
        next = std::max(next, part.end);
    }
    if (next < numel(entry.shape))
        throw E(str(context, ": element ", next, " of ", printable(name), ' ', entry.shape,
                    " is in no file"));
}

// Reads the entry of one tensor. Throws ValueError, or IndexError for a missing key, if it is
// invalid.
ShardedFolder::Entry entry_from(const Tree& tree) {
    ShardedFolder::Entry entry;
    const std::string& dtype = tree["dtype"].string();
    const std::optional<DType> known = dtype_named(dtype);
    if (!known)
        throw ValueError(
            str("the dtype must be one of safetensors, such as F32: ", in_quotes(dtype)));
    entry.dtype = *known;
    if (tree["shape"].size() > kMaxDims)
        throw ValueError(
            str("the shape has more than ", kMaxDims, " dimensions: ", tree["shape"].size()));
    for (const Tree& size : tree["shape"].elements()) {
        if (size.integer() < 0)
            throw ValueError(str("the shape has a negative size: ", size.integer()));
        entry.shape.push_back(size.integer());
    }
    if (checked_bytes(entry.shape, entry.dtype) < 0)
        throw ValueError(
            str("the shape must have less than 2^63 bytes: ", entry.shape, " of ", entry.dtype));
    const std::int64_t all = numel(entry.shape);
    for (const Tree& tree_of_part : tree["parts"].elements()) {
        ShardedFolder::Entry::Part part{tree_of_part[0].string(), tree_of_part[1].integer(),
                                        tree_of_part[2].integer()};
        if (!is_file_name(part.file))
            throw ValueError(
                str("a file name must be rank_<number>.safetensors: ", in_quotes(part.file)));
        if (part.begin < 0 || part.end < part.begin || part.end > all)
            throw ValueError(str("the range [", part.begin, ", ", part.end, ") must be within [0, ",
                                 all, "), the elements of the shape ", entry.shape));
        entry.parts.push_back(std::move(part));
    }
    // A file contains at most one part of a tensor, so the tensor is not larger than its files.
    std::set<std::string_view> files;
    for (const ShardedFolder::Entry::Part& part : entry.parts)
        if (!files.insert(part.file).second)
            throw ValueError(
                str("a file must have at most one part: two parts are in ", part.file));
    return entry;
}

}  // namespace

Tree entries_of(int rank, const std::vector<TensorPart>& parts) {
    Tree entries = Tree::map();
    for (const TensorPart& part : parts) {
        Tree ranges = Tree::list();
        if (const std::int64_t count = part.values.numel(); count > 0)
            ranges.push_back(Tree::list({file_of(rank), part.begin, part.begin + count}));
        entries.set(part.name, {{"dtype", name_in_safetensors(part.values.dtype())},
                                {"shape", tree_of(part.shape)},
                                {"parts", std::move(ranges)}});
    }
    return entries;
}

void write_tensor_parts(const std::string& folder, int rank, const std::vector<TensorPart>& parts,
                        Durability durability) {
    NamedTensors tensors;
    for (const TensorPart& part : parts)
        if (part.values.numel() > 0) tensors.emplace_back(part.name, part.values);
    save_safetensors(folder + "/" + file_of(rank), tensors, {{"format", "pt"}}, durability);
}

void write_sharded_index(const std::string& folder, const std::vector<Tree>& entries,
                         const Tree& extra, Durability durability) {
    const std::string path = folder + "/" + kShardedIndexName;
    std::map<std::string, ShardedFolder::Entry> all;
    for (std::size_t rank = 0; rank < entries.size(); ++rank)
        for (const auto& [name, tree] : entries[rank].entries()) {
            ShardedFolder::Entry entry;
            try {
                entry = entry_from(tree);
            } catch (const ValueError& error) {
                throw ValueError(str("write_sharded_index: ", printable(name), ": ", error.what()));
            } catch (const IndexError& error) {
                throw IndexError(str("write_sharded_index: ", printable(name), ": ", error.what()));
            }
            const auto [known, is_new] = all.try_emplace(name, entry);
            if (is_new) continue;
            if (known->second.shape != entry.shape || known->second.dtype != entry.dtype)
                throw ValueError(
                    str("write_sharded_index: the ranks must have the same dtype and "
                        "shape: rank ",
                        rank, " has ", printable(name), ' ', entry.dtype, ' ', entry.shape,
                        ", another rank has ", known->second.dtype, ' ', known->second.shape));
            std::ranges::move(entry.parts, std::back_inserter(known->second.parts));
        }
    Tree tensors = Tree::map();
    for (auto& [name, entry] : all) {
        sort_parts<ValueError>("write_sharded_index", name, entry);
        Tree parts = Tree::list();
        for (const ShardedFolder::Entry::Part& part : entry.parts)
            parts.push_back(Tree::list({part.file, part.begin, part.end}));
        tensors.set(name, {{"dtype", name_in_safetensors(entry.dtype)},
                           {"shape", tree_of(entry.shape)},
                           {"parts", std::move(parts)}});
    }
    AtomicFile file(path, durability);
    file.write(to_json({{"format", kFormat},
                        {"version", kVersion},
                        {"tensors", std::move(tensors)},
                        {"extra", extra}},
                       -1));
    file.commit();
}

bool ShardedFolder::is_one(const std::string& path) {
    return kind_of(path + "/" + kShardedIndexName) == FileKind::file;
}

ShardedFolder::ShardedFolder(std::string path, ByteCheck check)
    : path_(std::move(path)), check_(std::move(check)) {
    const InputFile index(path_, kShardedIndexName);
    try {
        const std::string text = index.read(kMaxIndex);
        Tree tree = from_json(text, kIndexMemory + kIndexMemoryPerByte * text.size());
        if (tree["format"].string() != kFormat)
            throw ValueError(str("the format is ", in_quotes(tree["format"].string()),
                                 " instead of '", kFormat, "'"));
        if (tree["version"].integer() > kVersion)
            throw ValueError(str("the version ", tree["version"].integer(),
                                 " is newer than this library's ", kVersion, "; update Axle"));
        for (const auto& [name, entry] : tree["tensors"].entries()) try {
                entries_.emplace(name, entry_from(entry));
            } catch (const ValueError& error) {
                throw ValueError(str(printable(name), ": ", error.what()));
            } catch (const IndexError& error) {
                throw IndexError(str(printable(name), ": ", error.what()));
            }
        extra_ = std::move(tree["extra"]);
    } catch (const ValueError& error) {
        fail(index.path(), error.what());
    } catch (const IndexError& error) {
        fail(index.path(), error.what());
    }
    for (auto& [name, entry] : entries_)
        sort_parts<FileError>(printable(index.path()), name, entry);
}

const SafetensorsFile& ShardedFolder::file(const std::string& name) const {
    auto found = files_.find(name);
    if (found == files_.end()) {
        const InputFile without_links(path_, name);
        if (check_) {
            std::uint64_t length = 0;
            constexpr std::int64_t kBytes = sizeof length;
            check_(name, 0, kBytes);
            if (without_links.size() >= kBytes)
                without_links.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
            const auto rest = static_cast<std::uint64_t>(without_links.size());
            check_(name, 0, kBytes + static_cast<std::int64_t>(std::min(length, rest)));
        }
        found = files_.emplace(name, SafetensorsFile(without_links.path())).first;
    }
    return found->second;
}

const ShardedFolder::Entry& ShardedFolder::entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) fail(path_, str("contains no tensor ", in_quotes(name)));
    return found->second;
}

// Returns the elements [begin, begin + count) of a tensor as parts, in the order of their elements.
// The parts are mapped into memory if they are aligned, and verified if check_ is set.
std::vector<Tensor> ShardedFolder::pieces(const std::string& name, std::int64_t begin,
                                          std::int64_t count) const {
    const Entry& entry = this->entry(name);
    if (begin < 0 || count < 0 || begin > numel(entry.shape) - count)
        throw IndexError(str("ShardedFolder: the range [", begin, ", ", begin, " + ", count,
                             ") must be within [0, ", numel(entry.shape), "), the elements of ",
                             printable(name), ' ', entry.shape));
    // The parts are sorted by their first element and contain all elements.
    std::vector<Tensor> pieces;
    std::int64_t at = begin;
    for (const Entry::Part& part : entry.parts) {
        if (at >= begin + count) break;
        if (part.end <= at) continue;
        const SafetensorsFile& stored = file(part.file);
        const Tensor values = stored.mapped_tensor(name);
        if (values.dtype() != entry.dtype || values.shape() != Shape{part.end - part.begin})
            fail(path_ + "/" + part.file,
                 str(printable(name), " is ", values.dtype(), ' ', values.shape(), " instead of ",
                     entry.dtype, " [", part.end - part.begin, "]"));
        const std::int64_t end = std::min(begin + count, part.end);
        if (check_) {
            const std::int64_t size = size_of(entry.dtype);
            const std::int64_t first = stored.entry(name).begin;
            check_(part.file, first + (at - part.begin) * size, first + (end - part.begin) * size);
        }
        pieces.push_back(values.narrow(0, at - part.begin, end - at));
        at = end;
    }
    return pieces;
}

Tensor ShardedFolder::read(const std::string& name, std::int64_t begin, std::int64_t count) const {
    const NoGrad no_grad;
    // The pieces are found before the result is allocated, so that a damaged index does not cause a
    // large allocation.
    const std::vector<Tensor> parts = pieces(name, begin, count);
    Tensor result = Tensor::empty({count}, {.dtype = entry(name).dtype});
    std::int64_t at = 0;
    for (const Tensor& part : parts) {
        result.narrow(0, at, part.numel()).copy_(part);
        at += part.numel();
    }
    return result;
}

Tensor ShardedFolder::read(const std::string& name) const {
    const Shape& shape = entry(name).shape;
    return read(name, 0, numel(shape)).view(shape);
}

void ShardedFolder::verify(const std::string& name, std::int64_t begin, std::int64_t count) const {
    static_cast<void>(pieces(name, begin, count));
}

}  // namespace axle
