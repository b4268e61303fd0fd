// Private to accel: a list of hooks that can be removed with handles.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "accel/state/state_hooks.h"

namespace axle::accel {

// Handles can outlive the list.
template <class Hook>
class HookList {
  public:
    HookHandle add(Hook hook) {
        const int id = next_++;
        hooks_->emplace(id, std::move(hook));
        return HookHandle([hooks = std::weak_ptr(hooks_), id] {
            if (const auto alive = hooks.lock()) alive->erase(id);
        });
    }
    // Returns copies in the order of registration, so that a hook can remove itself when called.
    std::vector<Hook> all() const {
        std::vector<Hook> copies;
        for (const auto& [id, hook] : *hooks_) copies.push_back(hook);
        return copies;
    }

  private:
    std::shared_ptr<std::map<int, Hook>> hooks_ = std::make_shared<std::map<int, Hook>>();
    int next_ = 0;
};

}  // namespace axle::accel
