// Reads distributed checkpoints of PyTorch (torch.distributed.checkpoint, "DCP"), which FSDP writes
// for SHARDED_STATE_DICT: a folder in which each process has stored chunks of tensors.
//
//     .metadata         the tensors and their chunks (core/files/distributed_metadata.h)
//     __0_0.distcp      the chunks of rank 0, each as a file of torch.save, without gaps
//     __1_0.distcp      ...
//
// Nothing in the files is executed. The reading program does not need PyTorch, and can have another
// number of processes than the writing program.
//
// Limits: see core/files/distributed_metadata.h and core/files/torch_file.h. Reading a tensor needs
// the memory of its elements, and of the stored bytes of one chunk at a time. A checkpoint
// is rejected (FileError) if finding overlaps of a tensor's chunks needs more than 2^24
// comparisons.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/files/distributed_metadata.h"
#include "core/files/safetensors.h"
#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle {

// An open checkpoint. The constructor checks that all files exist and are long enough, and that no
// two items share bytes of a file. It also checks that the chunks of each tensor contain every
// element exactly once. So the size of the files limits the size of the tensors. Files are opened
// when they are read, and must not be symbolic links. Functions throw FileError with the path and
// the reason if the checkpoint is invalid or does not contain the name. Several threads can read
// concurrently.
class DistributedCheckpoint {
  public:
    explicit DistributedCheckpoint(std::string folder);

    // Returns whether a folder has a file .metadata.
    static bool is_one(const std::string& folder);

    const std::string& path() const { return path_; }
    const std::map<std::string, DistributedTensor>& tensors() const { return metadata_.tensors; }
    const std::map<std::string, DistributedValue>& values() const { return metadata_.values; }
    // Returns the checkpoint's file names: .metadata, then the other files, sorted.
    std::vector<std::string> files() const;

    // Returns a map from the keys of each tensor in the saved state dict, joined by dots, to the
    // name of the tensor. Keys that are not known are replaced by the name. A first key that all
    // entries of the checkpoint share is left out, if each entry has more keys. For example, FSDP
    // checkpoints of Accelerate contain {"model": model.state_dict()}, so the result contains
    // {"linear.weight", "model.linear.weight"}. Throws FileError if two tensors have the same keys.
    std::map<std::string, std::string> names_in_state() const;

    // Returns a whole tensor on the CPU.
    Tensor read(const std::string& name) const;
    // Returns elements [begin, begin + count) of a tensor, in row-major order, as a 1-d CPU tensor.
    // Reads only the chunks that contain elements of the same rows (indices of the first
    // dimension). Throws IndexError for a range outside of the tensor.
    Tensor read(const std::string& name, std::int64_t begin, std::int64_t count) const;
    // Returns a value. Throws FileError for a value of a type that load_torch_file() rejects.
    Tree read_value(const std::string& name) const;

  private:
    const DistributedTensor& at(const std::string& name) const;
    Tree load(const StoredItem& item, const std::string& name) const;
    Tensor load_chunk(const DistributedTensor& tensor, const DistributedTensor::Chunk& chunk,
                      const std::string& name) const;
    Tensor read_rows(const std::string& name, std::int64_t begin, std::int64_t end) const;

    std::string path_;
    DistributedMetadata metadata_;
};

// Returns all tensors of a checkpoint on the CPU, with their names in the checkpoint. Throws
// FileError as DistributedCheckpoint does.
NamedTensors read_distributed_checkpoint(const std::string& folder);

}  // namespace axle
