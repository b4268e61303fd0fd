// Private to the library: a thread-safe list of hooks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace axle {

// A list of functions to call. Thread-safe.
template <class Hook>
class HookList {
  public:
    // Adds a hook and returns a function that removes it. The returned function can be called
    // several times, and after the list was destroyed.
    std::function<void()> add(Hook hook) {
        const std::lock_guard lock(hooks_->mutex);
        const std::uint64_t id = ++hooks_->last_id;
        hooks_->by_id.emplace(id, std::move(hook));
        return [weak = std::weak_ptr(hooks_), id] {
            const auto hooks = weak.lock();
            if (hooks == nullptr) return;
            const std::lock_guard guard(hooks->mutex);
            hooks->by_id.erase(id);
        };
    }
    // Returns copies of the hooks in the order of registration. A hook can remove itself when it is
    // called.
    std::vector<Hook> all() const {
        const std::lock_guard lock(hooks_->mutex);
        std::vector<Hook> copies;
        copies.reserve(hooks_->by_id.size());
        for (const auto& [id, hook] : hooks_->by_id) copies.push_back(hook);
        return copies;
    }

  private:
    struct Hooks {
        std::mutex mutex;
        std::map<std::uint64_t, Hook> by_id;
        std::uint64_t last_id = 0;
    };
    std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
};

}  // namespace axle
