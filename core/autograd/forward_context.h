// ForwardContext: settings of this thread that change how modules compute, such as the division of
// sequences among processes (nn/layers/sequence_policy.h).
#pragma once

#include <memory>

namespace axle {

struct ForwardContext {
    virtual ~ForwardContext() = default;
};

// Returns the context of this thread, or null. checkpoint() runs a function again in the context of
// its first run.
const std::shared_ptr<ForwardContext>& forward_context();

// Sets the context of this thread while the guard exists.
class ForwardContextGuard {
  public:
    [[nodiscard]] explicit ForwardContextGuard(std::shared_ptr<ForwardContext> context);
    ~ForwardContextGuard();
    ForwardContextGuard(const ForwardContextGuard&) = delete;
    ForwardContextGuard& operator=(const ForwardContextGuard&) = delete;

  private:
    std::shared_ptr<ForwardContext> before_;
};

}  // namespace axle
