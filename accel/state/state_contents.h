// Private to accel: the contents of a checkpoint before they are written.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accel/state/checkpoint.h"
#include "core/files/safetensors.h"
#include "core/tree/tree.h"
#include "dist/sharding/sharded_state.h"

namespace axle::accel {

// Memory into which the tensors of a checkpoint are copied. It is reused for the next checkpoint,
// because the first use of new memory is slow.
class Staging {
  public:
    // Makes `bytes` bytes available. If `pinned` is true, the memory is page-locked, which makes
    // copies from a GPU fast. Earlier copies in the memory must no longer be in use.
    void reserve(std::int64_t bytes, bool pinned);
    // Copies a tensor into the memory and returns the copy. All copies together must fit into the
    // memory.
    Tensor copy(const Tensor& tensor);

  private:
    Tensor memory_;
    std::int64_t used_ = 0;
};

// Trees and tensors to save, each with the stem of its file. Before copy_to(), the tensors share
// memory with the objects of the program.
struct StateContents {
    std::vector<std::pair<std::string, Tree>> trees;  // stem.json, and stem.safetensors if needed
    std::vector<std::pair<std::string, NamedTensors>> tensors;  // stem.safetensors
    // The parts of this process, with the folders to which all processes add their parts.
    std::vector<std::pair<std::string, dist::ShardedState>> parts;
    CheckpointLabel label;

    // Replaces all tensors by copies in host memory, which later training steps do not change.
    void copy_to(Staging& staging);
    // Returns the number of bytes of all tensors, each rounded up to a multiple of 64.
    std::int64_t bytes() const;
    // Returns whether a tensor is on a GPU.
    bool has_gpu_tensors() const;
    // Writes `parts` into the folder of an incomplete checkpoint. All processes of the group must
    // call this function. An error on one process is thrown on all processes.
    void write_parts(const std::string& directory, dist::ProcessGroup& group) const;
    // Writes the other files and completes the checkpoint. Throws FileError if writing fails, or,
    // before a file is written, if the disk has too little free space for their tensors.
    void write(CheckpointWriter& writer);

  private:
    template <class F>
    void for_each_whole(F&& f) const;  // calls f with all tensors except those of `parts`
    template <class F>
    void for_each(F&& f) const;  // calls f with all tensors
};

}  // namespace axle::accel
