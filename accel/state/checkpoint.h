// Checkpoint directories. A checkpoint is complete or absent, and is verified before it is read.
//
// A checkpoint is written to a hidden directory next to its path. commit() writes manifest.json,
// which lists each file with its size and CRC-32 and has a CRC-32 of its own, syncs all files to
// disk and renames the directory. If anything fails before the rename, the earlier checkpoint is
// not changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::accel {

// A writer of one checkpoint.
class CheckpointWriter {
  public:
    // Throws FileError if `path` exists and is neither a checkpoint nor an empty folder.
    explicit CheckpointWriter(const std::string& path);
    // Removes the files unless commit() has succeeded.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // Returns the directory to write files and folders to.
    const std::string& directory() const { return temporary_; }
    // Writes stem.json, and stem.safetensors if the tree has tensors. Throws FileError if writing
    // fails.
    void write(const std::string& stem, const Tree& tree) const;
    // Completes the checkpoint and moves it to its path, where it replaces an existing checkpoint.
    // `iteration` is the number by which the checkpoints of a folder are ordered. Throws FileError
    // if the checkpoint can't be written.
    void commit(std::int64_t iteration);

  private:
    std::string path_, temporary_;
};

// A reader of a checkpoint that CheckpointWriter has written.
class CheckpointReader {
  public:
    // Verifies all files against the manifest. Throws FileError with the name of a file that is
    // missing, truncated or changed.
    explicit CheckpointReader(std::string path);

    const std::string& path() const { return path_; }
    std::int64_t iteration() const { return iteration_; }
    // Returns whether the manifest lists a file, given by its path in the directory, such as
    // "unet/config.json".
    bool contains(std::string_view file) const;
    // Returns the path of a file. Throws FileError if the manifest does not list it.
    std::string file(std::string_view name) const;
    // Returns the tree that CheckpointWriter::write() has written under this stem. Throws FileError
    // if there is none.
    Tree read(const std::string& stem) const;

  private:
    std::string path_;
    std::int64_t iteration_ = 0;
    std::vector<std::string> files_;
};

// Returns whether a directory has Axle's manifest, valid or damaged.
bool is_checkpoint(const std::string& path);

// Returns the first number in a directory's name: 12 for "runs/3/checkpoint_12". Returns nullopt if
// the name has no number.
std::optional<std::int64_t> checkpoint_number(const std::string& path);

// Returns the path of the checkpoint in a folder whose manifest has the highest iteration, or
// nullopt if there is none. The names of checkpoints have no effect. Ignores symbolic links,
// temporary directories of writers, and folders without Axle's manifest. Throws FileError for a
// damaged manifest, because that checkpoint could be the latest.
std::optional<std::string> latest_checkpoint(const std::string& folder);

// Removes the oldest checkpoints in a folder until `keep` checkpoints remain, and temporary
// directories of writers that have crashed. Does not remove the checkpoint `newest`, or checkpoints
// with a damaged manifest. Failures to remove are reported by the error policy (core/log.h).
void rotate_checkpoints(const std::string& folder, std::size_t keep,
                        const std::string& newest = {});

}  // namespace axle::accel
