// Private to accel: the names of the files of a state, and StateFolder, which reads state
// directories of Axle and of Accelerate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "accel/state/checkpoint.h"
#include "core/files/sharded_folder.h"
#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::accel {

// Returns the stem of the i-th file, counting from 0: "model", "model_1", "model_2". These are
// Accelerate's file names.
std::string numbered(const char* stem, std::size_t i);
// Returns the stem of the file with a model's gradients: "gradients" or "gradients_1" for rank 0,
// "gradients_rank2" or "gradients_1_rank2" for rank 2.
std::string gradients_stem(std::size_t model, std::size_t rank);
// Return the name of the folder with the parts of the i-th model or optimizer in a checkpoint.
// Accelerate's FSDP checkpoints use the same names.
std::string folder_of_model(std::size_t i);
std::string folder_of_optimizer(std::size_t i);

// A checkpoint of Axle, or a directory written by Accelerate's save_state.
class StateFolder {
  public:
    // Opens a directory. Throws FileError if it is not a checkpoint of Axle or Accelerate, or if it
    // is a damaged checkpoint of Axle. The contents of parts() are verified when they are read.
    explicit StateFolder(std::string path);
    StateFolder(const StateFolder&) = delete;
    StateFolder& operator=(const StateFolder&) = delete;
    // Returns whether Accelerate's save_state has written the directory. Such a directory is not a
    // checkpoint of Axle, and has a file with one of the names that save_state gives.
    static bool is_of_accelerate(const std::string& path);

    const std::string& path() const { return path_; }
    // Returns whether Axle has written the directory.
    bool is_axle() const { return axle_.has_value(); }
    // Returns the number of the state: the saved number for Axle, or the number in the directory's
    // name for Accelerate (nullopt if the name has none).
    std::optional<std::int64_t> iteration() const;
    // Returns the label of Axle's checkpoint, or nullptr for a directory of Accelerate.
    const CheckpointLabel* label() const { return axle_ ? &axle_->label() : nullptr; }
    bool contains(const std::string& stem) const;
    // has_parts() returns whether Axle's checkpoint has a subfolder in which processes have written
    // their parts (core/files/sharded_folder.h), and parts() opens it. The ShardedFolder verifies
    // the bytes that it reads, and must not outlive this object.
    bool has_parts(const std::string& name) const;
    ShardedFolder parts(const std::string& name) const;
    // Returns the path of the file with this stem. The file need not exist.
    std::string file(const std::string& stem) const;
    // Reads a file with this stem. Throws FileError if the file is missing, or has objects other
    // than tensors and plain values.
    Tree read(const std::string& stem) const;
    // Returns the tensors of a file, which are memory-mapped (core/files/file.h). Throws FileError
    // if the file is missing or invalid.
    nn::StateDict tensors(const std::string& stem) const;
    // Return the weights of the i-th model and the state of the i-th optimizer. Accelerate may have
    // written them in parts, as a distributed checkpoint of PyTorch. Axle's parts are read with
    // parts(). Throw FileError if the files are missing or invalid.
    nn::StateDict weights(std::size_t i) const;
    Tree optimizer(std::size_t i) const;
    // Returns the number of files whose stems consist of the prefix and a number, from 0 up to the
    // first number without a file. For example, "random_states_0" and "random_states_1" count for
    // "random_states_".
    std::size_t count(const std::string& prefix) const;
    // Returns the number of micro-batches (Accelerator::step) from Accelerate's
    // random_states_<rank>.pkl. If this file is missing or can't be read, returns the number from
    // the file of rank 0, or nullopt if that can't be read either.
    std::optional<std::int64_t> step_of(std::size_t rank) const;

  private:
    std::string path_;
    std::optional<CheckpointReader> axle_;
};

}  // namespace axle::accel
