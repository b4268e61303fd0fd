// Private to tools: the checks of `axle test`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/accelerator.h"

namespace axle::launcher {

// Runs on all processes; throws if the check fails. It may create Accelerators, but no other
// Accelerator may exist meanwhile, because all Accelerators of a process share one precision.
struct Check {
    std::string name;
    std::function<void(const PartialState&)> run;
};

std::vector<Check> process_checks();   // execution on selected processes, collectives
std::vector<Check> data_checks();      // samples of each process and their order
std::vector<Check> training_checks();  // training gives the same model as one process

// --- helpers for checks

// Throws Error with `wrong` unless `holds`.
void expect(bool holds, const std::string& wrong);
// Returns the elements of a tensor of any dtype and device.
std::vector<double> numbers(const Tensor& x);
// Concatenates the values of all processes in rank order.
std::vector<double> of_all(const PartialState& state, const std::vector<double>& mine);
// Returns options for an Accelerator with these processes and their device, independent of the
// environment.
accel::AcceleratorOptions options_for(const PartialState& state);
// Returns a check that runs with such an Accelerator.
Check check_with(const char* name, void (*run)(Accelerator&));

}  // namespace axle::launcher
