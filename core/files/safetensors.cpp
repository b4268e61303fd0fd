#include "core/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <numeric>
#include <tuple>

#include "core/check.h"
#include "core/files/file.h"
#include "core/files/safetensors_header.h"
#include "core/ops.h"

namespace axle {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

using Entry = SafetensorsFile::Entry;

constexpr std::int64_t kLengthBytes = 8;

// Sorts the entries by position. Throws FileError unless their data fill the `data_bytes` bytes
// after the header, without gaps or overlaps.
void check_layout(const std::string& path, std::vector<Entry>& entries, std::int64_t data_bytes) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::int64_t end = 0;
    for (const Entry& entry : entries) {
        const auto fail = [&](const std::string& what) {
            throw FileError(str(path, ": tensor ", in_quotes(entry.name), ": ", what,
                                ": data_offsets [", entry.begin, ", ", entry.end, "]"));
        };
        const std::int64_t bytes = checked_bytes(entry.shape, entry.dtype);
        if (bytes < 0)
            fail(str("the shape must have less than 2^63 bytes: ", entry.shape, " of ",
                     entry.dtype));
        if (entry.begin != end)
            fail(str("the data must begin at ", end, ", without a gap or an overlap"));
        if (entry.end < entry.begin || entry.end - entry.begin != bytes)
            fail(str(entry.shape, " of ", entry.dtype, " needs ", bytes, " bytes"));
        if (entry.end > data_bytes)
            fail(str("the data must end within the ", data_bytes, " bytes of data in the file"));
        end = entry.end;
    }
    if (end != data_bytes)
        throw FileError(
            str(path, ": ", data_bytes - end, " unexpected bytes after the last tensor"));
}

// Throws FileError if a byte of a boolean tensor is neither 0 nor 1, because other values are not
// valid bools.
void check_booleans(const std::string& path, const Entry& entry, const void* data) {
    if (entry.dtype != DType::boolean) return;
    const auto* bytes = static_cast<const unsigned char*>(data);
    const auto* const end = bytes + (entry.end - entry.begin);
    const auto* const bad = std::find_if(bytes, end, [](unsigned b) { return b > 1; });
    if (bad != end)
        throw FileError(str(path, ": tensor ", in_quotes(entry.name), ": byte ", bad - bytes,
                            " of a BOOL tensor must be 0 or 1: ", static_cast<int>(*bad)));
}

}  // namespace

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata, Durability durability) {
    write_file_atomically(
        path, [&](AtomicFile& file) { save_safetensors(file, tensors, metadata); }, durability);
}

void save_safetensors(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata,
                      const TensorReader& read) {
    for (const auto& [name, tensor] : tensors) {
        if (!tensor.defined())
            throw UsageError(str("save_safetensors: the tensor is undefined: ", in_quotes(name)));
        if (tensor.device().is_meta() && !read)
            throw DeviceError(
                str("save_safetensors: a tensor is on the meta device and has no data: ",
                    in_quotes(name)));
    }
    NamedTensors sorted = tensors;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        const int rank_a = safetensors_rank(a.second.dtype()),
                  rank_b = safetensors_rank(b.second.dtype());
        return rank_a != rank_b ? rank_a > rank_b : a.first < b.first;
    });
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : sorted) names.push_back(name);
    std::sort(names.begin(), names.end());
    if (const auto duplicate = std::adjacent_find(names.begin(), names.end());
        duplicate != names.end())
        throw ValueError(str("save_safetensors: duplicate name: ", in_quotes(*duplicate)));

    const std::string header = write_safetensors_header(sorted, metadata);
    const auto length = static_cast<std::uint64_t>(header.size());
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (const auto& [name, tensor] : sorted) {
        const Tensor values = tensor.device().is_meta() ? read(name) : tensor;
        if (values.dtype() != tensor.dtype() || values.shape() != tensor.shape())
            throw FileError(str("save_safetensors: ", in_quotes(name), " is ", values.dtype(), ' ',
                                values.shape(), " instead of ", tensor.dtype(), ' ',
                                tensor.shape()));
        const Tensor dense = contiguous(to(values.detach(), Device::cpu()));
        const auto bytes = static_cast<std::size_t>(dense.numel() * size_of(dense.dtype()));
        file.write({static_cast<const std::byte*>(dense.raw_data()), bytes});
    }
}

struct SafetensorsFile::State {
    explicit State(const std::string& name) : file(name) {}

    void read_header();
    void read_text(const std::string& header);
    const Entry* find(const std::string& name) const;
    const Entry& at(const std::string& name) const;

    InputFile file;
    std::string path = printable(file.path());
    std::vector<Entry> entries;
    std::vector<std::uint32_t> by_name;  // indices of entries, sorted by name
    Metadata metadata;
    mutable std::once_flag mapped;
    mutable std::unique_ptr<MappedFile> map;
};

void SafetensorsFile::State::read_text(const std::string& header) {
    try {
        SafetensorsHeader parsed = read_safetensors_header(header);
        entries = std::move(parsed.entries);
        metadata = std::move(parsed.metadata);
    } catch (const FileError& error) {
        throw FileError(path + ": " + error.what());
    }
}

void SafetensorsFile::State::read_header() {
    if (file.size() < kLengthBytes)
        throw FileError(str(path, ": a safetensors file must have at least ", kLengthBytes,
                            " bytes: it has ", file.size()));
    std::uint64_t length = 0;
    file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > kMaxSafetensorsHeader)
        throw FileError(str(path, ": header length ", length, " exceeds the limit of ",
                            kMaxSafetensorsHeader, " bytes; is it a safetensors file?"));
    const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(length);
    if (data_begin > file.size())
        throw FileError(str(path, ": the file ends within its header: ", file.size(), " of ",
                            data_begin, " bytes"));
    try {
        std::string header(length, '\0');
        file.read_at(kLengthBytes, std::as_writable_bytes(std::span(header)));
        read_text(header);
    } catch (const std::bad_alloc&) {
        throw FileError(str(path, ": not enough memory for a header of ", length, " bytes"));
    }
    check_layout(path, entries, file.size() - data_begin);
    for (Entry& entry : entries) entry.begin += data_begin, entry.end += data_begin;

    by_name.resize(entries.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    const auto name_of_index = [&](std::uint32_t i) -> const std::string& {
        return entries[i].name;
    };
    std::ranges::sort(by_name, {}, name_of_index);
    const auto duplicate = std::ranges::adjacent_find(by_name, {}, name_of_index);
    if (duplicate != by_name.end())
        throw FileError(
            str(path, ": duplicate tensor name: ", in_quotes(entries[*duplicate].name)));
}

const Entry* SafetensorsFile::State::find(const std::string& name) const {
    const auto found = std::ranges::lower_bound(
        by_name, name, {}, [&](std::uint32_t i) -> const std::string& { return entries[i].name; });
    if (found == by_name.end() || entries[*found].name != name) return nullptr;
    return &entries[*found];
}

const Entry& SafetensorsFile::State::at(const std::string& name) const {
    if (const Entry* entry = find(name)) return *entry;
    throw FileError(str(path, ": no tensor has this name: ", in_quotes(name)));
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
    const auto state = std::make_shared<State>(path);
    state->read_header();
    state_ = state;
}

const std::vector<Entry>& SafetensorsFile::entries() const { return state_->entries; }
const Metadata& SafetensorsFile::metadata() const { return state_->metadata; }
bool SafetensorsFile::contains(const std::string& name) const {
    return state_->find(name) != nullptr;
}

const Entry& SafetensorsFile::entry(const std::string& name) const { return state_->at(name); }

Tensor SafetensorsFile::tensor(const std::string& name) const { return tensor(state_->at(name)); }

Tensor SafetensorsFile::tensor(const Entry& entry) const {
    Tensor y = Tensor::empty(entry.shape, {.dtype = entry.dtype});
    const auto bytes = static_cast<std::size_t>(entry.end - entry.begin);
    state_->file.read_at(entry.begin, {static_cast<std::byte*>(y.raw_data()), bytes});
    check_booleans(state_->path, entry, y.raw_data());
    return y;
}

Tensor SafetensorsFile::mapped_tensor(const std::string& name) const {
    const Entry& entry = state_->at(name);
    if (entry.begin == entry.end || entry.begin % size_of(entry.dtype) != 0) return tensor(entry);
    std::call_once(state_->mapped,
                   [&] { state_->map = std::make_unique<MappedFile>(state_->file); });
    std::byte* data = state_->map->bytes().data() + entry.begin;
    check_booleans(state_->path, entry, data);
    return Tensor::from_blob(data, entry.shape, entry.dtype, [keep = state_] {});
}

Safetensors load_safetensors(const std::string& path) {
    const SafetensorsFile file(path);
    Safetensors all;
    all.metadata = file.metadata();
    for (const Entry& entry : file.entries()) all.tensors.emplace(entry.name, file.tensor(entry));
    return all;
}

}  // namespace axle
