#include "kernels/ops/step_state.h"

#include "kernels/rules/step_state_rules.h"

namespace axle::kernels {
void begin_unscale(Cpu&, const float* scale, StepScalars* scalars) { *scalars = unscaling(*scale); }

void update_scale(Cpu&, const ScaleRule& rule, const double* found_inf, float* scale,
                  std::int32_t* growth_tracker) {
    update_scale_by(rule, *found_inf != 0, scale, growth_tracker);
}

void count_unless(Cpu&, const double* skipped, std::int64_t* count) {
    if (skipped == nullptr || *skipped == 0) ++*count;
}

void take_rates(Cpu&, const double* rates, const std::int64_t* row, GroupRows groups) {
    for (std::int64_t g = 0; g < groups.count; ++g) set_rates(groups, g, rates, *row);
}

}  // namespace axle::kernels
