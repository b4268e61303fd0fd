// What a training step decides while it runs: the loss scale of f16 training, and the learning
// rates of a captured step that may be skipped. All pointers are to memory of the device; nothing
// is read on the host.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops/optimizer.h"

namespace axle::inline v0::kernels {

// *scalars = {1 / *scale, 1, 0}: the gradients are scaled and nothing bad has been found.
void begin_unscale(Cpu& on, const float* scale, StepScalars* scalars);
void begin_unscale(Cuda& on, const float* scale, StepScalars* scalars);

struct ScaleRule {
    double growth_factor = 2, backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
};

// As torch.amp.GradScaler.update: where *found_inf is not 0, the scale backs off and counting
// starts anew; after growth_interval steps without, it grows, unless the result is no finite f32.
void update_scale(Cpu& on, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker);
void update_scale(Cuda& on, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker);

// ++*count unless *skipped is something else than 0; skipped may be null.
void count_unless(Cpu& on, const double* skipped, std::int64_t* count);
void count_unless(Cuda& on, const double* skipped, std::int64_t* count);

// rates[row][group] = {lr, momentum}: each group takes those of row *row. Adam's momentum is beta1.
void take_rates(Cpu& on, const double* rates, const std::int64_t* row, std::span<SgdGroup> groups);
void take_rates(Cuda& on, const double* rates, const std::int64_t* row, std::span<SgdGroup> groups);
void take_rates(Cpu& on, const double* rates, const std::int64_t* row, std::span<AdamGroup> groups);
void take_rates(Cuda& on, const double* rates, const std::int64_t* row,
                std::span<AdamGroup> groups);

}  // namespace axle::inline v0::kernels
