// Private to accel: what save_state() and load_state() share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/state/state_folder.h"
#include "core/random.h"
#include "dist/group/shared_error.h"

namespace axle::inline v0::accel {

// Those that handles remove from, which may outlive the Accelerator.
template <class Hook>
class Hooks {
  public:
    HookHandle add(Hook hook) {
        const int id = next_++;
        list_->emplace(id, std::move(hook));
        return HookHandle([list = std::weak_ptr(list_), id] {
            if (const auto alive = list.lock()) alive->erase(id);
        });
    }
    // In the order of registration, as they are now: a hook may remove itself.
    std::vector<Hook> all() const {
        std::vector<Hook> hooks;
        for (const auto& [id, hook] : *list_) hooks.push_back(hook);
        return hooks;
    }

  private:
    std::shared_ptr<std::map<int, Hook>> list_ = std::make_shared<std::map<int, Hook>>();
    int next_ = 0;
};

struct Accelerator::StateHooks {
    Hooks<SaveStatePreHook> save;
    Hooks<LoadStatePreHook> load;
};

// All that a state says, before anything takes it.
struct Accelerator::LoadedState {
    std::unique_ptr<const StateFolder> folder;
    std::vector<nn::Module*> models;     // that no hook took over
    std::vector<nn::StateDict> weights;  // of models
    std::vector<std::map<std::string, Tensor>> gradients;
    std::vector<Tree> optimizers, schedulers, loaders, custom;
    Tree scaler;
    std::optional<GeneratorState> generator;
    std::int64_t step = 0;
    bool sync_gradients = true;
    std::int64_t window = 0;
    std::vector<Tree> divisions;  // of what was accumulated, by process
};

// Calls f; what it throws on one process is thrown on all of them.
template <class F>
void Accelerator::together(const char* what, F&& f) const {
    dist::gather_or_throw(*processes_.process_group(), what, [&] {
        f();
        return Tree();
    });
}

}  // namespace axle::inline v0::accel
