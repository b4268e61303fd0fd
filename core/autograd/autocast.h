// Automatic mixed precision: a thread-local dtype for matrix products.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace axle {

// Returns the autocast dtype of this thread, or nullopt if autocast is off.
std::optional<DType> autocast_dtype();

// Sets autocast for this thread while the guard exists: to f16 or bf16, or off (nullopt).
// cache_enabled sets whether casts of leaves are cached; if omitted, the setting stays as it is
// (initially true). Guards nest.
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

// Casts to the autocast dtype. Called by ops that gain from low precision, on their floating
// inputs. The cast of a leaf is cached and reused for the leaf and its views until the leaf
// changes. f64 stays f64.
Tensor autocast(const Tensor& x);
// Casts f16 and bf16 to f32 under autocast. Called by ops that need f32 precision.
Tensor autocast_to_f32(const Tensor& x);

}  // namespace axle
