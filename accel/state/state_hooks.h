// What a program may do of its own when a state is saved or loaded.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace axle::accel {

// Before anything is written, on every process. `weights` are those of `models`; what a hook takes
// out of it is not written, and those that remain are numbered anew. `output_dir` becomes the
// checkpoint when it is whole and has another name until then: files and folders that a hook writes
// there (one process each) belong to it.
using SaveStatePreHook =
    std::function<void(const std::vector<nn::Module*>& models, std::vector<nn::StateDict>& weights,
                       const std::string& output_dir)>;
// When the files have been found whole, before anything is loaded, on every process. Models that a
// hook takes out of `models` are not loaded.
using LoadStatePreHook =
    std::function<void(std::vector<nn::Module*>& models, const std::string& input_dir)>;

// Takes a hook away again; one that is dropped leaves it where it is. Copies are of the same hook.
class HookHandle {
  public:
    HookHandle() = default;
    explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

    // At any time, also behind the Accelerator's death, and again. Not on two threads at once.
    void remove() noexcept {
        if (const auto remove = std::exchange(remove_, nullptr)) remove();
    }

  private:
    std::function<void()> remove_;
};

}  // namespace axle::accel
