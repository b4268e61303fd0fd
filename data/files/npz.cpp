#include "data/files/npz.h"

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <string_view>

#include "core/files/file.h"
#include "core/files/zip.h"
#include "data/files/npy.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::string array_name(const ZipMember& entry) {
    constexpr std::string_view kSuffix = ".npy";
    std::string_view name = entry.name;
    if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
    return std::string(name);
}

// Returns the array of an entry. Subtracts the size of a compressed entry from `bytes_left`.
Tensor read_array(const ZipMember& entry, std::int64_t& bytes_left) {
    const std::string name = "entry " + in_quotes(entry.name);
    if (!entry.is_deflated) {
        check_crc(entry);
        return parse_npy(entry.bytes, name);
    }
    if (entry.size > static_cast<std::uint64_t>(bytes_left))
        throw FileError(str(name, ": has ", entry.size, " bytes after decompression, but only ",
                            bytes_left, " bytes of NpzOptions::max_inflated are left"));
    bytes_left -= static_cast<std::int64_t>(entry.size);
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(entry.size);
    const std::span bytes(memory.get(), entry.size);
    inflate_entry(entry, bytes);
    return parse_npy(bytes, name);
}

// Throws FileError, without a path, if an array of `wanted` was not read.
void check_found(const std::map<std::string, Tensor>& arrays,
                 const std::vector<std::string>& wanted, const std::vector<ZipMember>& entries) {
    for (const std::string& name : wanted) {
        if (arrays.contains(name)) continue;
        std::string names;
        for (const ZipMember& entry : entries) {
            names += (names.empty() ? "" : ", ") + array_name(entry);
            if (names.size() > 500) break;  // printable() truncates the list
        }
        throw FileError(str("contains no array ", in_quotes(name), ", only ",
                            names.empty() ? "an empty directory" : printable(names, 500)));
    }
}

}  // namespace

std::map<std::string, Tensor> load_npz(const std::string& path, const NpzOptions& options) {
    if (options.max_inflated < 0)
        throw ValueError(
            str("load_npz: max_inflated must not be negative: ", options.max_inflated));
    const MappedFile file(path);
    try {
        const std::vector<ZipMember> entries = read_zip(file.bytes());
        const std::set<std::string> wanted(options.names.begin(), options.names.end());
        std::map<std::string, Tensor> arrays;
        std::int64_t bytes_left = options.max_inflated;
        for (const ZipMember& entry : entries) {
            const std::string name = array_name(entry);
            if (!wanted.empty() && !wanted.contains(name)) continue;
            if (arrays.contains(name))
                throw FileError(str("entry ", in_quotes(entry.name),
                                    ": another entry contains an array of the same name"));
            arrays.emplace(name, read_array(entry, bytes_left));
        }
        check_found(arrays, options.names, entries);
        return arrays;
    } catch (const FileError& error) {
        throw FileError(printable(path) + ": " + error.what());
    }
}

}  // namespace axle::data
