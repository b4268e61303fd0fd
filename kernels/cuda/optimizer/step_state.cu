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

template <class Group>
__global__ void take_row(const double* rates, const std::int64_t* row, std::int64_t n,
                         Group* groups) {
    const double* const mine = rates + *row * 2 * n;
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid())
        set_rates(groups + i, mine + 2 * i);
}

template <class Group>
void take(Cuda& on, const double* rates, const std::int64_t* row, std::span<Group> groups) {
    const auto n = static_cast<std::int64_t>(groups.size());
    start(on, {grid_for(on, n, kWarp), kWarp}, &take_row<Group>, rates, row, n, groups.data());
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

void take_rates(Cuda& on, const double* rates, const std::int64_t* row,
                std::span<SgdGroup> groups) {
    take(on, rates, row, groups);
}
void take_rates(Cuda& on, const double* rates, const std::int64_t* row,
                std::span<AdamGroup> groups) {
    take(on, rates, row, groups);
}

}  // namespace axle::kernels
