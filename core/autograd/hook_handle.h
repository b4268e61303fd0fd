// HookHandle: owns a hook that was added to a tensor, to backward passes or to a module.
#pragma once

#include <functional>
#include <utility>

namespace axle::autograd {

// A handle that removes its hook when it is destroyed or when remove() is called. Move-only.
class HookHandle {
  public:
    HookHandle() = default;
    explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
    HookHandle(HookHandle&& other) noexcept : remove_(std::exchange(other.remove_, {})) {}
    HookHandle& operator=(HookHandle&& other) noexcept {
        remove();
        remove_ = std::exchange(other.remove_, {});
        return *this;
    }
    ~HookHandle() { remove(); }
    void remove() {
        if (auto f = std::exchange(remove_, {})) f();
    }

  private:
    std::function<void()> remove_;
};

}  // namespace axle::autograd
