// Private to accel: a directory that a state is loaded from, and the names of its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "accel/state/checkpoint.h"
#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::accel {

// "model", "model_1", ...: Accelerate's stems.
std::string numbered(const char* stem, std::size_t i);
// "gradients", "gradients_1", ... of the main process; other processes' end with their rank.
std::string gradients_stem(std::size_t model, std::size_t rank);

// A checkpoint of ours, or the directory that save_state of Accelerate has written.
class StateFolder {
  public:
    // FileError for what is neither, and for a damaged one of ours.
    explicit StateFolder(std::string path);
    // Whether a directory looks like one of the two.
    static bool is_state(const std::string& path);

    const std::string& path() const { return path_; }
    bool is_ours() const { return ours_.has_value(); }
    // The number of the state: of ours as it was saved, else by the name.
    std::optional<std::int64_t> iteration() const;
    bool contains(const std::string& stem) const;
    // The path of what has this stem, whether it is there or not.
    std::string file(const std::string& stem) const;
    // FileErrors name what is missing or says more than tensors and plain values.
    Tree read(const std::string& stem) const;
    // Of the file, under the conditions that core/files/file.h states for mapped files.
    nn::StateDict tensors(const std::string& stem) const;
    // Of "custom_checkpoint_": how many there are, numbered from 0 on.
    std::size_t count(const std::string& prefix) const;
    // Of Accelerate's: the micro-batches since the last update that random_states_<rank>.pkl
    // counts. Nothing where there is none, or none that can be read.
    std::optional<std::int64_t> step_of(std::size_t rank) const;

  private:
    std::string path_;
    std::optional<CheckpointReader> ours_;
};

}  // namespace axle::accel
