// Private to data: gathers rows of a tensor.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace axle::data {

// Returns a copy of the rows t[indices], like index_select(t, 0, indices), but faster on the CPU.
// Indices must be in [0, t.size(0)), which is not checked in all cases.
Tensor select_rows(const Tensor& t, std::span<const std::int64_t> indices);

}  // namespace axle::data
