// Private to optim: the functions of RuleOptimizer. The source of an optimizer specializes Rule for
// its options and then instantiates RuleOptimizer.
#pragma once

#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/launch.h"
#include "optim/rule_optimizer.h"

namespace axle::optim {

// The properties that most optimizers have. A Rule also has
//     kBuffers                            the names of the buffers of a state
//     row(options)                        the kernel's form of the options
//     step(on, slots, rows, scalars)      calls the kernel
template <class Options>
struct CommonRule {
    static constexpr bool kSavesStep = true;
    static bool needs(const Options&, std::size_t) { return true; }
    static bool is_number(std::size_t) { return false; }
    static double initial_value(const Options&, std::size_t) { return 0; }
};

template <class Options>
struct Rule;

template <class Options, class Row>
std::span<const char* const> RuleOptimizer<Options, Row>::buffer_names() const {
    return Rule<Options>::kBuffers;
}

template <class Options, class Row>
bool RuleOptimizer<Options, Row>::needs_buffer(std::size_t group, std::size_t buffer) const {
    return buffer < std::size(Rule<Options>::kBuffers) &&
           Rule<Options>::needs(this->groups_[group], buffer);
}

template <class Options, class Row>
bool RuleOptimizer<Options, Row>::is_number(std::size_t buffer) const {
    return Rule<Options>::is_number(buffer);
}

template <class Options, class Row>
double RuleOptimizer<Options, Row>::initial_value(std::size_t group, std::size_t buffer) const {
    return Rule<Options>::initial_value(this->groups_[group], buffer);
}

template <class Options, class Row>
bool RuleOptimizer<Options, Row>::saves_step() const {
    return Rule<Options>::kSavesStep;
}

template <class Options, class Row>
void RuleOptimizer<Options, Row>::fill_groups(Device device) {
    table_.clear();
    for (const Group& group : this->groups_) table_.push_back(Rule<Options>::row(group));
    table_.upload_to(device, this->upload_plan());
}

template <class Options, class Row>
void RuleOptimizer<Options, Row>::update(Device device, std::span<const kernels::Slot> slots,
                                         const kernels::StepScalars* scalars) {
    launch(device, [&](auto& on) { Rule<Options>::step(on, slots, table_.data(), scalars); });
}

// Throw ValueError, with a message that begins with `op`, unless the options are in range.
inline void check_not_negative(const char* op,
                               std::initializer_list<std::pair<const char*, double>> options) {
    for (const auto& [name, value] : options)
        if (!(value >= 0)) throw ValueError(str(op, ": ", name, " must be 0 or more: ", value));
}
inline void check_betas(const char* op, const std::array<double, 2>& betas) {
    for (const double beta : betas)
        if (!(beta >= 0 && beta < 1))
            throw ValueError(
                str(op, ": betas must be in [0, 1): [", betas[0], ", ", betas[1], "]"));
}

}  // namespace axle::optim
