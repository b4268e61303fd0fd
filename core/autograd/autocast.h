// Automatic mixed precision: a thread-local dtype for ops that are faster in low precision, such as
// matrix products and convolutions.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace axle {

// Returns the autocast dtype of this thread, or nullopt if autocast is off.
std::optional<DType> autocast_dtype();

// Sets autocast for this thread while the guard exists: to f16 or bf16, or off (nullopt).
// cache_enabled sets whether autocast() caches casts; if omitted, the setting does not change
// (it is initially true). Guards can be nested. The constructor throws DTypeError for other dtypes.
class AutocastGuard {
  public:
    [[nodiscard]] explicit AutocastGuard(std::optional<DType> dtype,
                                         std::optional<bool> cache_enabled = {});
    ~AutocastGuard();
    AutocastGuard(const AutocastGuard&) = delete;
    AutocastGuard& operator=(const AutocastGuard&) = delete;

  private:
    std::optional<DType> before_;
    bool cached_before_;
};

// Returns x cast to the autocast dtype, or x itself if autocast is off or x is f64, not floating or
// undefined. Ops that are faster in low precision call this function for their inputs. If caching
// is on, the cast of a leaf that requires a gradient is cached until the leaf changes. It is reused
// for the leaf and, if the leaf is contiguous, for its views.
Tensor autocast(const Tensor& x);
// Returns x cast to f32 if autocast is on and x is f16 or bf16, else x. Called by ops that need f32
// precision.
Tensor autocast_to_f32(const Tensor& x);

}  // namespace axle
