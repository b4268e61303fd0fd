// Automatic mixed precision: a thread-local dtype that matrix products run in.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace axle::inline v0 {

// The dtype of this thread's autocast, or nothing.
std::optional<DType> autocast_dtype();

// For a scope: sets (f16, bf16) or switches off (nullopt) autocast on this thread, and whether the
// casts of leaves are kept; what isn't said stays, and at first they are. Nests.
class AutocastGuard {
  public:
    explicit AutocastGuard(std::optional<DType> dtype, std::optional<bool> cache_enabled = {});
    ~AutocastGuard();
    AutocastGuard(const AutocastGuard&) = delete;
    AutocastGuard& operator=(const AutocastGuard&) = delete;

  private:
    std::optional<DType> before_;
    bool cached_before_;
};

// What an op that gains from low precision does with its floating inputs: cast to the autocast
// dtype (a leaf's cast is kept beside it, and reused for the leaf and its views until it changes).
// f64 stays f64.
Tensor autocast(const Tensor& x);
// What an op that suffers from low precision does: f16 and bf16 become f32 under autocast.
Tensor keep_f32(const Tensor& x);

}  // namespace axle::inline v0
