#include "kernels/ops/step_state.h"

#include "kernels/rules/step_state_rules.h"

namespace axle::kernels {
namespace {

template <class Group>
void take(const double* rates, std::int64_t row, std::span<Group> groups) {
    const double* next = rates + row * 2 * static_cast<std::int64_t>(groups.size());
    for (Group& group : groups) {
        set_rates(&group, next);
        next += 2;
    }
}

}  // namespace

void begin_unscale(Cpu&, const float* scale, StepScalars* scalars) { *scalars = unscaling(*scale); }

void update_scale(Cpu&, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker) {
    update_scale_by(rule, *found_inf != 0, scale, growth_tracker);
}

void count_unless(Cpu&, const double* skipped, std::int64_t* count) {
    if (skipped == nullptr || *skipped == 0) ++*count;
}

void take_rates(Cpu&, const double* rates, const std::int64_t* row, std::span<SgdGroup> groups) {
    take(rates, *row, groups);
}
void take_rates(Cpu&, const double* rates, const std::int64_t* row, std::span<AdamGroup> groups) {
    take(rates, *row, groups);
}

}  // namespace axle::kernels
