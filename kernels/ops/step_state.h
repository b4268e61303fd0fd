// Values that a training step updates on the device: the loss scale of f16 training, and the
// learning rates of captured steps that can be skipped. All pointers, and the pointer of GroupRows,
// point to memory of the device. The functions do not wait for these values: only the device reads
// them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/optimizer.h"

namespace axle::kernels {

// Computes *scalars = {1 / *scale, 1, 0}, which sets the unscaling factor and clears found_inf.
void begin_unscale(Cpu& on, const float* scale, StepScalars* scalars);
void begin_unscale(Cuda& on, const float* scale, StepScalars* scalars);

struct ScaleRule {
    double growth_factor = 2, backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
};

// Updates the scale in the same way as torch.amp.GradScaler.update. If *found_inf is not 0,
// multiplies the scale by backoff_factor and resets the growth counter. After growth_interval steps
// in a row in which *found_inf is 0, multiplies the scale by growth_factor, unless the result is
// not a finite f32.
void update_scale(Cpu& on, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker);
void update_scale(Cuda& on, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker);

// Increments *count if skipped is null or *skipped is 0.
void count_unless(Cpu& on, const double* skipped, std::int64_t* count);
void count_unless(Cuda& on, const double* skipped, std::int64_t* count);

// The memory of an array of parameter groups (kernels/ops/optimizer.h).
struct GroupRows {
    template <class Rows>
        requires requires(Rows& rows) { rows.data(), rows.size(); }
    GroupRows(Rows&& rows)  // NOLINT: an array of groups is the memory of its groups
        : data(reinterpret_cast<std::byte*>(rows.data())),
          count(static_cast<std::int64_t>(rows.size())),
          size(static_cast<std::int64_t>(sizeof(*rows.data()))) {}

    std::byte* data;
    std::int64_t count, size;  // the number of groups, and the bytes of each group
};

// Sets the first two doubles of each group, which are its learning rate and its momentum or beta1,
// to rates[*row][group] = {lr, momentum or beta1}.
void take_rates(Cpu& on, const double* rates, const std::int64_t* row, GroupRows groups);
void take_rates(Cuda& on, const double* rates, const std::int64_t* row, GroupRows groups);

}  // namespace axle::kernels
