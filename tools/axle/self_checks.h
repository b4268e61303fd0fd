// Private to tools: what `axle test` checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/accelerator.h"

namespace axle::launcher {

// All processes run it; it throws where something is wrong. No Accelerator lives meanwhile but its
// own: all that live have one precision.
struct Check {
    std::string name;
    std::function<void(const PartialState&)> run;
};

std::vector<Check> process_checks();   // who runs what, what they say to each other
std::vector<Check> data_checks();      // which samples come where, in which order
std::vector<Check> training_checks();  // the same model as from one process

// --- for those who write checks

// Error with what is wrong.
void expect(bool holds, const std::string& wrong);
// Of a tensor of any dtype and device.
std::vector<double> numbers(const Tensor& x);
// What every process has, joined in the order of ranks.
std::vector<double> of_all(const PartialState& state, const std::vector<double>& mine);
// Options of an Accelerator with these processes and their device, whatever the environment says.
accel::AcceleratorOptions options_for(const PartialState& state);
// A check that has such an Accelerator.
Check check_with(const char* name, void (*run)(Accelerator&));

}  // namespace axle::launcher
