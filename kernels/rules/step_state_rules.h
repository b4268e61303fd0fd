// Private to kernels: updates the loss scale, and the learning rate and momentum of one group
// (kernels/ops/step_state.h). CPU and GPU share these functions.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"
#include "kernels/ops/step_state.h"

namespace axle::kernels {

AXLE_HOST_DEVICE inline StepScalars unscaling(float scale) {
    return {1 / static_cast<double>(scale), 1, 0};
}

AXLE_HOST_DEVICE inline void update_scale_by(const ScaleRule& rule, bool found_inf, float* scale,
                                             std::int32_t* growth_tracker) {
    if (found_inf) {
        *scale = static_cast<float>(*scale * rule.backoff_factor);
        *growth_tracker = 0;
        return;
    }
    if (*growth_tracker + 1 < rule.growth_interval) {
        ++*growth_tracker;
        return;
    }
    const double grown = *scale * rule.growth_factor;
    // The smallest number that is rounded to infinity in f32: the largest finite number plus half a
    // step.
    constexpr double kInfinite = FLT_MAX + 0x1p103;
    if (grown < kInfinite) *scale = static_cast<float>(grown);
    *growth_tracker = 0;
}

// Copies the rates of one group from a row of the table to the group.
AXLE_HOST_DEVICE inline void set_rates(const GroupRows& groups, std::int64_t group,
                                       const double* rates, std::int64_t row) {
    memcpy(groups.data + group * groups.size, rates + (row * groups.count + group) * 2,
           2 * sizeof(double));
}

}  // namespace axle::kernels
