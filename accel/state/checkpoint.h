// Checkpoint directories. A checkpoint is complete or absent, and its contents are verified before
// they are used.
//
// A checkpoint is written to a hidden directory next to its path. commit() syncs all files to disk
// (unless Durability::none is given), writes manifest.json and renames the directory. The manifest
// lists each file with its size and CRC-32, and has its own CRC-32. For large files, it also has
// the CRC-32 of each block (accel/state/file_checksums.h). If anything fails before the rename, the
// earlier checkpoint is not changed. The order of operations and the manifest are described in
// docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accel/state/file_checksums.h"
#include "core/files/durability.h"
#include "core/memory/owning_ptr.h"
#include "core/tree/tree.h"

namespace axle {
class PathLock;
}

namespace axle::accel {

// The data of a manifest, except the list of files.
struct CheckpointLabel {
    std::int64_t iteration = 0;         // orders the checkpoints of a folder
    std::string run = {};               // the id of the run; "" if unknown
    std::optional<double> metric = {};  // SaveStateOptions::metric
    Tree identity = Tree::map();        // the identity of the run (ProjectConfiguration::identity)
    // The directory's name when it was written, or "" if the manifest has no such field (format 1).
    // A copy with another name is not counted among the checkpoints of a folder.
    std::string name = {};
};

// A writer of one checkpoint.
class CheckpointWriter {
  public:
    // Creates the missing parents of `path`, and removes temporary directories next to it whose
    // writers have ended. Throws FileError if `path` exists and is neither a checkpoint nor an
    // empty folder, if it is a symbolic link, or if the temporary directory cannot be created.
    explicit CheckpointWriter(const std::string& path, Durability durability = Durability::full);
    // Removes the files unless commit() has succeeded.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // Returns the directory to write files and folders to. Files need no sync: commit() syncs them.
    const std::string& directory() const { return temporary_; }
    // Throws FileError if the disk has less than `bytes` bytes free.
    void check_space(std::int64_t bytes) const;
    // Writes stem.json, and stem.safetensors if the tree has tensors. Throws FileError if writing
    // fails.
    void write(const std::string& stem, const Tree& tree) const;
    // Completes the checkpoint and moves it to its path, where it replaces an existing checkpoint.
    // The label's name is set to the last part of the path. Throws FileError if the checkpoint
    // can't be written, if directory() has a manifest.json or something that is neither a file nor
    // a folder, or if the manifest would be too long to be read (16 MiB).
    void commit(CheckpointLabel label);

  private:
    std::string path_, temporary_;
    Durability durability_;
    OwningPtr<PathLock> lock_;  // shows other processes that the writer is running
};

// A reader of a checkpoint that CheckpointWriter has written.
class CheckpointReader {
  public:
    // Verifies all files against the manifest. Throws FileError if the manifest is missing or
    // damaged, and FileError with the name of a file that is missing, truncated, changed or a
    // symbolic link. If `is_checked_on_use` returns true for a name, only the size of this file is
    // verified now, and check() verifies its contents. A large file without checksums of blocks is
    // always verified now. Ignores files whose names do not start with `prefix`, as if the manifest
    // did not list them.
    explicit CheckpointReader(std::string path,
                              const std::function<bool(const std::string&)>& is_checked_on_use = {},
                              std::string_view prefix = "");

    const std::string& path() const { return path_; }
    const CheckpointLabel& label() const { return label_; }
    // Returns whether the manifest lists a file, given by its path in the directory, such as
    // "unet/config.json".
    bool contains(std::string_view file) const;
    // Returns the path of a file. Throws FileError if the manifest does not list it.
    std::string file(std::string_view name) const;
    // Returns the tree that CheckpointWriter::write() has written under this stem. Throws FileError
    // if the checkpoint has no such tree or the tree can't be read. Does not call check().
    Tree read(const std::string& stem) const;
    // Verifies the bytes [begin, end) of a file. Reads the blocks that contain them, each at most
    // once in the life of the reader. Does nothing for a file that the constructor has verified.
    // Throws FileError if the bytes have changed. Not thread-safe.
    void check(const std::string& file, std::int64_t begin, std::int64_t end) const;

  private:
    std::string path_;
    CheckpointLabel label_;
    std::vector<std::string> files_;
    mutable std::map<std::string, FileBlocks> unchecked_;
};

// Returns whether a directory has Axle's manifest, valid or damaged. Throws FileError if
// manifest.json exists but can't be read.
bool is_checkpoint(const std::string& path);
// Returns the label of a checkpoint, without verifying its files. Throws FileError if the manifest
// is missing or damaged.
CheckpointLabel checkpoint_label(const std::string& path);
// Removes the files of a checkpoint that its manifest lists. Also removes the folder, unless it
// contains other files, which stay. Does nothing if a process is writing the checkpoint. Throws
// FileError if the manifest is missing or damaged, if it lists a file outside of the checkpoint, or
// if a file can't be removed.
void remove_checkpoint(const std::string& path);

}  // namespace axle::accel
