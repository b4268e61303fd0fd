// Checkpoint directories: whole or absent, and verified before anything is loaded.
//
// A checkpoint is written into a hidden directory beside its place. commit() lists every file with
// size and CRC-32 in manifest.json, which has a CRC-32 of its own, forces all to disk and renames
// the directory. Whatever happens before that leaves the earlier checkpoint as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tree/tree.h"

namespace axle::accel {

class CheckpointWriter {
  public:
    // FileError if `path` exists and is not a checkpoint (then it is not ours to replace).
    explicit CheckpointWriter(const std::string& path);
    // Without a commit, removes what was written.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // Where to write files, and folders with files.
    const std::string& directory() const { return temporary_; }
    // stem.json, and stem.safetensors if there are tensors in the tree.
    void write(const std::string& stem, const Tree& tree) const;
    // `iteration` orders the checkpoints of a folder.
    void commit(std::int64_t iteration);

  private:
    std::string path_, temporary_;
};

class CheckpointReader {
  public:
    // Reads the manifest and compares every file with it: FileError names the file that is missing,
    // cut or changed.
    explicit CheckpointReader(std::string path);

    const std::string& path() const { return path_; }
    std::int64_t iteration() const { return iteration_; }
    // By its path in the directory, "unet/config.json".
    bool contains(std::string_view file) const;
    std::string file(std::string_view name) const;
    // What CheckpointWriter::write wrote.
    Tree read(const std::string& stem) const;

  private:
    std::string path_;
    std::int64_t iteration_ = 0;
    std::vector<std::string> files_;
};

// Whether a directory has a manifest of ours, perhaps a damaged one.
bool is_checkpoint(const std::string& path);

// The first number in a directory's own name: 12 of "runs/3/checkpoint_12".
std::optional<std::int64_t> checkpoint_number(const std::string& path);

// The checkpoint with the highest iteration directly below a folder, by its manifest and whatever
// its name. Symbolic links and folders without a manifest of ours are passed over; a missing folder
// has none. FileError for a damaged manifest: an older checkpoint might not be what is wanted.
std::optional<std::string> latest_checkpoint(const std::string& folder);

// Removes the oldest checkpoints directly below a folder until `keep` are left, and what writers
// that died have left behind. `newest`, if it is one of them, stays whatever its iteration. Touches
// nothing else, nor a checkpoint with a damaged manifest. What can't be removed is trouble that
// need not stop the work (core/log.h).
void rotate_checkpoints(const std::string& folder, std::size_t keep,
                        const std::string& newest = {});

}  // namespace axle::accel
