// Kernels of the step state, which use one thread, or one thread per parameter group.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/step_state.h"
#include "kernels/rules/step_state_rules.h"

namespace axle::kernels {
namespace {

__global__ void unscaling_of(const float* scale, StepScalars* scalars) {
    *scalars = unscaling(*scale);
}

__global__ void update_by_rule(ScaleRule rule, const double* found_inf, float* scale,
                               std::int32_t* growth_tracker) {
    update_scale_by(rule, *found_inf != 0, scale, growth_tracker);
}

__global__ void count_one(const double* skipped, std::int64_t* count) {
    if (skipped == nullptr || *skipped == 0) ++*count;
}

__global__ void take_row(const double* rates, const std::int64_t* row, GroupRows groups) {
    for (std::int64_t g = thread_in_grid(); g < groups.count; g += threads_in_grid())
        set_rates(groups, g, rates, *row);
}

}  // namespace

void begin_unscale(Cuda& on, const float* scale, StepScalars* scalars) {
    start(on, {{1}, 1}, &unscaling_of, scale, scalars);
}

void update_scale(Cuda& on, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker) {
    start(on, {{1}, 1}, &update_by_rule, rule, found_inf, scale, growth_tracker);
}

void count_unless(Cuda& on, const double* skipped, std::int64_t* count) {
    start(on, {{1}, 1}, &count_one, skipped, count);
}

void take_rates(Cuda& on, const double* rates, const std::int64_t* row, GroupRows groups) {
    start(on, {grid_for(on, groups.count, kWarp), kWarp}, &take_row, rates, row, groups);
}

}  // namespace axle::kernels
