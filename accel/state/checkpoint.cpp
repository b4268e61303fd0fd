#include "accel/state/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <zlib.h>

#include "core/files/folder.h"
#include "core/files/safetensors.h"
#include "core/system/log.h"
#include "core/text/text.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFamily = "axle checkpoint";
// Manifests of format 1 lack the run, the metric, the identity and the name.
constexpr const char* kFormat = "axle checkpoint 2";
constexpr const char* kFormat1 = "axle checkpoint 1";
// The maximum size of a manifest in bytes. Each file takes about 100 bytes, and the checksums of
// all blocks at most 8 MiB.
constexpr std::int64_t kLongestManifest = std::int64_t{16} << 20;
// Prefixes of directories that contain a checkpoint which is being written or removed. The prefix
// is followed by kDigits hexadecimal digits.
constexpr std::array<std::string_view, 2> kTemporary = {".axle-save-", ".axle-trash-"};
constexpr std::size_t kDigits = 16;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
    throw FileError(str(printable(path.string()), ": ", reason));
}

std::string child(const std::string& folder, std::string_view name) {
    return (fs::path(folder) / name).string();
}

// Returns a path in a folder with a prefix and random digits.
std::string random_path(const std::string& folder, std::string_view prefix) {
    return child(folder, std::string(prefix) + random_hex(kDigits));
}

bool is_temporary(const std::string& name) {
    return std::any_of(kTemporary.begin(), kTemporary.end(), [&](std::string_view prefix) {
        return name.starts_with(prefix) && name.size() == prefix.size() + kDigits &&
               name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
    });
}

std::int64_t crc_of_text(const std::string& text) {
    return static_cast<std::int64_t>(
        crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

Tree read_manifest(const std::string& path) {
    const std::string file = child(path, kManifest);
    if (!kind_of(path)) fail(path, "the folder does not exist");
    if (!kind_of(file)) fail(path, "not a checkpoint: manifest.json is missing");
    try {
        const std::string text = InputFile(path, kManifest).read(kLongestManifest);
        Tree manifest = from_json(text);
        // The CRC-32 is computed from the parsed manifest, so it does not cover the newline at the
        // end of the file.
        if (!text.ends_with("}\n")) throw_changed(file);
        const std::string& format = manifest["format"].string();
        if (format != kFormat && format != kFormat1)
            fail(file, str("the format must be '", kFormat, "' or '", kFormat1, "': '",
                           printable(format), "'"));
        const std::int64_t crc = manifest["crc32"].integer();
        std::erase_if(manifest.entries(), [](const auto& entry) { return entry.key == "crc32"; });
        if (crc_of_text(to_json(manifest)) != crc) throw_changed(file);
        for (const auto& [name, entry] : manifest["files"].entries())
            static_cast<void>(block_checksums(entry));
        return manifest;
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        fail(file, error.what());
    }
}

CheckpointLabel label_of(const std::string& path, const Tree& manifest) {
    try {
        CheckpointLabel label{.iteration = manifest["iteration"].integer()};
        if (manifest["format"].string() == kFormat1) return label;
        label.run = manifest["run"].string();
        label.identity = manifest["identity"];
        label.name = manifest["name"].string();
        if (const Tree* const metric = manifest.find("metric")) label.metric = metric->number();
        return label;
    } catch (const Error& error) {
        fail(child(path, kManifest), error.what());
    }
}

// Removes a path. Reports a failure without throwing, because the caller is a destructor, or the
// new checkpoint is already complete.
void try_to_remove(const std::string& path) {
    try {
        remove_all(path);
    } catch (const FileError&) {
        report_error_noexcept(std::current_exception());
    }
}

// Removes temporary directories from a folder if their writers have ended. A running writer holds
// the lock of its directory. On a file system without locks, nothing is removed.
void remove_abandoned_directories(const std::string& folder) {
    for (const std::string& name : list_folder(folder)) {
        const std::string path = child(folder, name);
        if (!is_temporary(name) || kind_of(path) != FileKind::folder) continue;
        try {
            const auto lock = PathLock::try_folder(path);
            if (lock && lock->excludes_others()) remove_all(path);
        } catch (const FileError&) {  // for example a folder of another user
            report_error_noexcept(std::current_exception());
        }
    }
}

// The key of a reference to a tensor. JSON can't contain tensors, so each tensor is replaced by
// {"tensor": name}.
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
            throw ValueError(str("the tensor '", printable(reference->string()),
                                 "' is not in the .safetensors file of the same name"));
        return found->second;
    }
    Tree result = Tree::map();
    for (const auto& [key, value] : tree.entries()) result.set(key, restore(value, tensors));
    return result;
}

// Returns whether a path is relative, normalized and not empty, and does not start with "..".
bool stays_below(const std::string& name) {
    const fs::path path(name);
    return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
           *path.begin() != "..";
}

}  // namespace

// Checks the contents of manifest.json, because other programs also write files with this name.
bool is_checkpoint(const std::string& path) {
    if (kind_of(child(path, kManifest)) != FileKind::file) return false;
    const InputFile file(path, kManifest);
    return file.size() <= kLongestManifest && file.read().find(kFamily) != std::string::npos;
}

CheckpointLabel checkpoint_label(const std::string& path) {
    return label_of(path, read_manifest(path));
}

void remove_checkpoint(const std::string& path) {
    const Tree manifest = read_manifest(path);
    std::set<std::string> folders, files = {kManifest};
    for (const auto& [name, entry] : manifest["files"].entries()) {
        if (!stays_below(name))
            fail(path, "a file in the manifest is not within the checkpoint: " + in_quotes(name));
        files.insert(name);
        for (fs::path folder = fs::path(name).parent_path(); !folder.empty();
             folder = folder.parent_path())
            folders.insert(folder.string());
    }
    const auto lock = PathLock::try_folder(path);
    if (!lock) return;
    const auto has_others = [&](const std::string& folder) {
        const FolderContents found = contents_of(folder);
        return !found.others.empty() ||
               std::any_of(found.files.begin(), found.files.end(),
                           [&](const std::string& name) { return !files.contains(name); }) ||
               std::any_of(found.folders.begin(), found.folders.end(),
                           [&](const std::string& name) { return !folders.contains(name); });
    };
    if (!has_others(path)) {
        // The checkpoint is renamed before it is removed, and the rename is synced. Otherwise a
        // power failure could leave a partial checkpoint with the original name.
        const std::string trash = random_path(folder_of(path), kTemporary[1]);
        rename_path(path, trash);
        sync_folder(folder_of(path));
        if (!has_others(trash)) return remove_all(trash);
        rename_path(trash, path);  // a file was added before the checkpoint was renamed
    }
    // The manifest is removed first: without it, the folder is not a checkpoint.
    remove_file(path, kManifest);
    sync_folder(path);
    for (const std::string& name : files) remove_file(path, name);
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
        remove_if_empty(path, *folder);
}

CheckpointWriter::CheckpointWriter(const std::string& path, Durability durability)
    : path_(absolute_path(path)), durability_(durability) {
    const std::optional<FileKind> there = kind_of(path_);
    if (there == FileKind::link)
        fail(path_,
             "can't be replaced by a checkpoint: it is a symbolic link, which is not followed; "
             "pass the folder to which it refers, or remove the link");
    if (there &&
        !(there == FileKind::folder && (is_checkpoint(path_) || list_folder(path_).empty())))
        fail(path_, "can't be replaced by a checkpoint: it exists and is not a checkpoint");
    const std::string parent = folder_of(path_);
    create_directories(parent, durability_);
    remove_abandoned_directories(parent);
    // Another process may remove the new directory before it is locked, because it looks like the
    // directory of a writer that has ended. In that case a new directory is created.
    static constexpr int kAttempts = 100;
    for (int attempt = 0; !lock_; ++attempt) {
        if (attempt == kAttempts)
            fail(parent, "can't lock a temporary folder in it after 100 attempts");
        temporary_ = random_path(parent, kTemporary[0]);
        try {
            create_directories(temporary_);
        } catch (const FileError& error) {
            fail(path_, str("can't be written: ", error.what()));
        }
        if (auto lock = PathLock::try_folder(temporary_))
            lock_ = make_owning<PathLock>(std::move(*lock));
    }
}

CheckpointWriter::~CheckpointWriter() {
    if (!temporary_.empty()) try_to_remove(temporary_);
}

void CheckpointWriter::check_space(std::int64_t bytes) const {
    const std::int64_t free = free_space(folder_of(path_));
    if (free < bytes)
        fail(path_, str("the checkpoint needs ", bytes, " bytes, but the disk has only ", free,
                        " bytes free"));
}

void CheckpointWriter::write(const std::string& stem, const Tree& tree) const {
    NamedTensors tensors;
    const Tree structure = extract(tree, "", tensors);
    const std::string base = child(temporary_, stem);
    write_file_atomically(base + ".json", to_json(structure) + "\n", Durability::none);
    if (!tensors.empty()) save_safetensors(base + ".safetensors", tensors, {}, Durability::none);
}

void CheckpointWriter::commit(CheckpointLabel label) {
    const FolderContents contents = contents_of(temporary_);
    if (!contents.others.empty())
        fail(child(temporary_, contents.others.front()),
             "can't be saved in a checkpoint: it is neither a regular file nor a folder");
    std::vector<std::int64_t> sizes;
    for (const std::string& name : contents.files) {
        if (name == kManifest)
            fail(child(temporary_, name),
                 "the name is reserved by the checkpoint format; use another name");
        sizes.push_back(InputFile(temporary_, name).size());
    }
    const std::int64_t block_size = block_size_for(sizes);
    Tree files = Tree::map();
    for (const std::string& name : contents.files) {
        const InputFile file(temporary_, name);
        files.set(name, describe_file(file, block_size));
        if (durability_ == Durability::full) file.sync();
    }
    if (durability_ == Durability::full)
        for (const std::string& name : contents.folders) sync_folder(child(temporary_, name));
    label.name = fs::path(path_).filename().string();
    Tree manifest{{"format", kFormat}, {"iteration", label.iteration}, {"name", label.name},
                  {"run", label.run},  {"identity", label.identity},   {"files", files}};
    if (label.metric) manifest.set("metric", *label.metric);
    manifest.set("crc32", crc_of_text(to_json(manifest)));
    const std::string text = to_json(manifest) + "\n";
    if (std::cmp_greater(text.size(), kLongestManifest))
        fail(path_, str("the manifest would have ", text.size(), " bytes, but readers accept only ",
                        kLongestManifest, "; save fewer files, or a shorter identity"));
    // With Durability::full, write_file_atomically() syncs the manifest and then the directory.
    write_file_atomically(child(temporary_, kManifest), text, durability_);
    const std::string old = put_in_place(temporary_, path_, durability_);
    temporary_.clear();
    if (!old.empty()) try_to_remove(old);
}

CheckpointReader::CheckpointReader(std::string path,
                                   const std::function<bool(const std::string&)>& is_checked_on_use,
                                   std::string_view prefix)
    : path_(std::move(path)) {
    const Tree manifest = read_manifest(path_);
    label_ = label_of(path_, manifest);
    for (const auto& [name, entry] : manifest["files"].entries()) {
        if (!name.starts_with(prefix)) continue;
        if (!stays_below(name))
            fail(path_, "a file in the manifest is not within the checkpoint: " + in_quotes(name));
        const InputFile file(path_, name);
        if (file.size() != entry["size"].integer())
            fail(file.path(), str("has ", file.size(), " bytes, but was saved with ",
                                  entry["size"].integer(), " bytes"));
        files_.push_back(name);
        if (is_checked_on_use && is_checked_on_use(name))
            if (auto blocks = block_checksums(entry); !blocks.checksums.empty()) {
                unchecked_.emplace(name, FileBlocks(path_, name, std::move(blocks)));
                continue;
            }
        if (describe_file(file)["crc32"].integer() != entry["crc32"].integer())
            throw_changed(file.path());
    }
}

void CheckpointReader::check(const std::string& file, std::int64_t begin, std::int64_t end) const {
    if (const auto found = unchecked_.find(file); found != unchecked_.end())
        found->second.check(begin, end);
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

}  // namespace axle::accel
