// Hooks that a program can run when a checkpoint is saved or loaded.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace axle::accel {

// A hook that is called on each process before anything is written. `weights` has the weights of
// `models`, in the same order. They are empty for models that are saved in parts. If processes
// shard or divide a model, and save_on_each_node is off, they are also empty on all processes
// except the main process. Weights that the hook removes are not written, and the files of the
// remaining weights are numbered without gaps. If the hook removes the empty weights of a model,
// the parts of the model are not written either. It must remove them for all models that are saved
// in parts or for none (else UsageError). The list on the main process determines what is written.
// `output_dir` has a temporary name until the checkpoint is complete. Files and folders that the
// hook writes to it become part of the checkpoint; only one process may write each of them. An
// exception on one process is thrown on all processes, and nothing is saved.
using SaveStatePreHook =
    std::function<void(const std::vector<nn::Module*>& models, std::vector<nn::StateDict>& weights,
                       const std::string& output_dir)>;
// A hook that is called on each process after the checkpoint was verified and before anything is
// loaded. Models that the hook removes from `models` are not loaded; the remaining models are
// loaded from the first files of models, in the same order.
using LoadStatePreHook =
    std::function<void(std::vector<nn::Module*>& models, const std::string& input_dir)>;

// A handle that can remove a hook. Destroying the handle does not remove the hook. Copies refer to
// the same hook.
class HookHandle {
  public:
    HookHandle() = default;
    explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

    // Removes the hook. Further calls, and calls after the Accelerator was destroyed, do nothing.
    // Not thread-safe.
    void remove() noexcept {
        if (const auto remove = std::exchange(remove_, nullptr)) remove();
    }

  private:
    std::function<void()> remove_;
};

}  // namespace axle::accel
