#include "accel/state/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/log.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFamily = "axle checkpoint";
constexpr const char* kFormat = "axle checkpoint 1";
constexpr const char* kTemporary = ".checkpoint-";
constexpr const char* kChanged = "was changed since it was saved: the checksum differs";

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
    throw FileError(str(printable(path.string()), ": ", reason));
}

std::exception_ptr not_removed(const fs::path& path, const std::error_code& error) {
    return std::make_exception_ptr(
        FileError(str(printable(path.string()), ": can't be removed: ", error.message())));
}

// Syncs a file or a folder to disk.
void sync_path(const fs::path& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool done = descriptor >= 0 && fsync(descriptor) == 0;
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (!done) fail(path, str("can't be synced to disk: ", std::strerror(error)));
}

std::int64_t crc_of(const std::string& path) {
    const InputFile file(path);
    std::vector<std::byte> chunk(static_cast<std::size_t>(1) << 20);
    uLong crc = crc32(0, nullptr, 0);
    for (std::int64_t at = 0; at < file.size();) {
        const auto n =
            std::min<std::int64_t>(file.size() - at, static_cast<std::int64_t>(chunk.size()));
        file.read_at(at, std::span(chunk).first(static_cast<std::size_t>(n)));
        crc = crc32(crc, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(n));
        at += n;
    }
    return static_cast<std::int64_t>(crc);
}

std::int64_t crc_of_text(const std::string& text) {
    return static_cast<std::int64_t>(
        crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

Tree read_manifest(const fs::path& path) {
    const fs::path file = path / kManifest;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) fail(path, "the folder does not exist");
    if (!fs::exists(file, ignored)) fail(path, "not a checkpoint: manifest.json is missing");
    try {
        Tree manifest = from_json(read_file(file.string()));
        if (manifest["format"].string() != kFormat)
            fail(file, str("unknown format '", printable(manifest["format"].string()), "'"));
        const std::int64_t crc = manifest["crc32"].integer();
        std::erase_if(manifest.entries(), [](const auto& entry) { return entry.key == "crc32"; });
        if (crc_of_text(to_json(manifest)) != crc) fail(file, kChanged);
        for (const auto& [name, entry] : manifest["files"].entries())
            static_cast<void>(entry["size"].integer() + entry["crc32"].integer());
        static_cast<void>(manifest["iteration"].integer());
        return manifest;
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        fail(file, error.what());
    }
}

// Removes a path. Reports a failure without throwing, because the new checkpoint is complete
// already.
void try_to_remove(const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) report_error_noexcept(not_removed(path, error));
}

// Moves `from` to `to`. If `to` exists, exchanges the two atomically, so that `to` is a complete
// checkpoint at all times. If the file system can't exchange folders, `to` is missing for a moment.
void put_in_place(const fs::path& from, const fs::path& to) {
    if (rename(from.c_str(), to.c_str()) == 0) return;
    if (errno != ENOTEMPTY && errno != EEXIST)
        fail(to,
             str("can't rename the temporary folder to this checkpoint: ", std::strerror(errno)));
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
        try_to_remove(from);
        return;
    }
    const fs::path aside = from.string() + ".old";
    if (rename(to.c_str(), aside.c_str()) != 0 || rename(from.c_str(), to.c_str()) != 0)
        fail(to,
             str("can't rename the temporary folder to this checkpoint: ", std::strerror(errno)));
    try_to_remove(aside);
}

// The key of a reference to a tensor. JSON can't contain tensors, so each is replaced by {"tensor":
// name}.
constexpr const char* kReference = "tensor";

Tree extract(const Tree& tree, const std::string& name, NamedTensors& tensors) {
    if (tree.is_tensor()) {
        tensors.emplace_back(name, tree.tensor());
        return Tree{{kReference, name}};
    }
    const std::string prefix = name.empty() ? "" : name + ".";
    if (tree.is_list()) {
        Tree result = Tree::list();
        for (std::size_t i = 0; i < tree.size(); ++i)
            result.push_back(extract(tree[i], prefix + std::to_string(i), tensors));
        return result;
    }
    if (!tree.is_map()) return tree;
    Tree result = Tree::map();
    for (const auto& [key, value] : tree.entries())
        result.set(key, extract(value, prefix + key, tensors));
    return result;
}

Tree restore(const Tree& tree, const std::map<std::string, Tensor>& tensors) {
    if (tree.is_list()) {
        Tree result = Tree::list();
        for (const Tree& element : tree.elements()) result.push_back(restore(element, tensors));
        return result;
    }
    if (!tree.is_map()) return tree;
    const Tree* reference = tree.find(kReference);
    if (reference != nullptr && tree.size() == 1 && reference->is_string()) {
        const auto found = tensors.find(reference->string());
        if (found == tensors.end())
            throw ValueError(str("the tensor '", printable(reference->string()), "' is missing"));
        return found->second;
    }
    Tree result = Tree::map();
    for (const auto& [key, value] : tree.entries()) result.set(key, restore(value, tensors));
    return result;
}

// Returns the checkpoints in a folder (not in its subfolders), sorted by iteration. Throws
// FileError for a damaged manifest unless skip_damaged is true.
std::vector<std::pair<std::int64_t, fs::path>> checkpoints_in(const std::string& folder,
                                                              bool skip_damaged) {
    std::vector<std::pair<std::int64_t, fs::path>> found;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        if (entry.is_symlink() || !is_checkpoint(entry.path().string())) continue;
        if (entry.path().filename().string().starts_with(kTemporary)) continue;
        try {
            found.emplace_back(read_manifest(entry.path())["iteration"].integer(), entry.path());
        } catch (const FileError&) {
            if (!skip_damaged) throw;
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

// The paths in a directory, sorted so that a folder precedes its contents.
struct Contents {
    std::vector<std::string> folders, files;
};
Contents contents_of(const fs::path& directory) {
    Contents found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
        std::string name = entry.path().lexically_relative(directory).generic_string();
        if (entry.is_symlink() || !(entry.is_directory() || entry.is_regular_file()))
            fail(entry.path(),
                 "can't be saved in a checkpoint: it is neither a regular file nor a folder");
        (entry.is_directory() ? found.folders : found.files).push_back(std::move(name));
    }
    std::sort(found.folders.begin(), found.folders.end());
    std::sort(found.files.begin(), found.files.end());
    return found;
}

// Returns whether a path is relative and does not leave its folder through "..".
bool stays_below(const std::string& name) {
    const fs::path path(name);
    return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
           *path.begin() != "..";
}

}  // namespace

// Returns whether a path is a checkpoint. Checks the contents, because other programs write files
// named manifest.json too.
bool is_checkpoint(const std::string& path) {
    std::error_code ignored;
    const fs::path file = fs::path(path) / kManifest;
    if (!fs::is_regular_file(file, ignored)) return false;
    try {
        return read_file(file.string()).find(kFamily) != std::string::npos;
    } catch (const FileError&) {
        return false;
    }
}

std::optional<std::int64_t> checkpoint_number(const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    const std::size_t begin = name.find_first_of("0123456789");
    std::int64_t number = 0;
    if (begin == std::string::npos) return std::nullopt;
    const auto [end, error] =
        std::from_chars(name.data() + begin, name.data() + name.size(), number);
    if (error != std::errc()) return std::nullopt;
    return number;
}

CheckpointWriter::CheckpointWriter(const std::string& path)
    : path_(fs::absolute(path).lexically_normal().string()) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
    const fs::path place(path_);
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(place, ignored)) && !is_checkpoint(path_) &&
        !(fs::is_directory(place, ignored) && fs::is_empty(place, ignored)))
        fail(place, "can't be replaced by a checkpoint: it exists and is not a checkpoint");
    create_directories(place.parent_path().string());
    for (int attempt = 0;; ++attempt) {
        const std::string name = str(kTemporary, getpid(), "-", attempt);
        temporary_ = (place.parent_path() / name).string();
        if (mkdir(temporary_.c_str(), 0777) == 0) return;
        if (errno != EEXIST) fail(temporary_, str("can't be created: ", std::strerror(errno)));
    }
}

CheckpointWriter::~CheckpointWriter() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void CheckpointWriter::write(const std::string& stem, const Tree& tree) const {
    NamedTensors tensors;
    const Tree structure = extract(tree, "", tensors);
    const std::string base = (fs::path(temporary_) / stem).string();
    write_file_atomically(base + ".json", to_json(structure) + "\n");
    if (!tensors.empty()) save_safetensors(base + ".safetensors", tensors);
}

void CheckpointWriter::commit(std::int64_t iteration) {
    Tree files = Tree::map();
    const Contents contents = contents_of(temporary_);
    for (const std::string& name : contents.files) {
        const std::string file = (fs::path(temporary_) / name).string();
        if (name == kManifest)
            fail(file, "the name is reserved by the checkpoint format; use another name");
        files.set(name, Tree{{"size", InputFile(file).size()}, {"crc32", crc_of(file)}});
        // write() has synced its files already, but hooks may have written further files.
        sync_path(file);
    }
    for (const std::string& name : contents.folders) sync_path(fs::path(temporary_) / name);
    Tree manifest{{"format", kFormat}, {"iteration", iteration}, {"files", files}};
    manifest.set("crc32", crc_of_text(to_json(manifest)));
    write_file_atomically((fs::path(temporary_) / kManifest).string(), to_json(manifest) + "\n");
    sync_path(temporary_);
    put_in_place(temporary_, path_);
    temporary_.clear();
    sync_path(fs::path(path_).parent_path());
}

CheckpointReader::CheckpointReader(std::string path) : path_(std::move(path)) {
    const Tree manifest = read_manifest(path_);
    iteration_ = manifest["iteration"].integer();
    for (const auto& [name, entry] : manifest["files"].entries()) {
        if (!stays_below(name))
            fail(path_, "a file in the manifest is not within the checkpoint: " + in_quotes(name));
        const fs::path file = fs::path(path_) / name;
        const std::int64_t size = InputFile(file.string()).size();
        if (size != entry["size"].integer())
            fail(file,
                 str("is ", size, " bytes long, but was saved with ", entry["size"].integer()));
        if (crc_of(file.string()) != entry["crc32"].integer()) fail(file, kChanged);
        files_.push_back(name);
    }
}

bool CheckpointReader::contains(std::string_view file) const {
    return std::find(files_.begin(), files_.end(), file) != files_.end();
}

std::string CheckpointReader::file(std::string_view name) const {
    if (!contains(name)) fail(path_, str("the checkpoint does not contain ", name));
    return (fs::path(path_) / name).string();
}

Tree CheckpointReader::read(const std::string& stem) const {
    const std::string json = file(stem + ".json");
    try {
        const Tree structure = from_json(read_file(json));
        std::map<std::string, Tensor> tensors;
        if (contains(stem + ".safetensors"))
            tensors = load_safetensors(file(stem + ".safetensors")).tensors;
        return restore(structure, tensors);
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        fail(json, error.what());
    }
}

std::optional<std::string> latest_checkpoint(const std::string& folder) {
    const auto found = checkpoints_in(folder, false);
    if (found.empty()) return std::nullopt;
    return found.back().second.string();
}

void rotate_checkpoints(const std::string& folder, std::size_t keep, const std::string& newest) {
    auto found = checkpoints_in(folder, true);
    std::stable_partition(found.begin(), found.end(), [&](const auto& checkpoint) {
        return checkpoint.second.filename() != fs::path(newest).filename();
    });
    for (std::size_t i = 0; i + std::max<std::size_t>(keep, 1) < found.size(); ++i) {
        // The checkpoint is renamed before it is removed, so that a crash does not leave a partial
        // checkpoint with this name.
        const fs::path path = found[i].second;
        const fs::path aside =
            path.parent_path() / (kTemporary + path.filename().string() + ".old");
        std::error_code error;
        fs::rename(path, aside, error);
        if (error) report_error(not_removed(path, error));
    }
    std::error_code ignored;
    std::vector<fs::path> left;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        if (entry.is_directory(ignored) && !entry.is_symlink(ignored) &&
            entry.path().filename().string().starts_with(kTemporary))
            left.push_back(entry.path());
    for (const fs::path& path : left) try_to_remove(path);
}

}  // namespace axle::accel
