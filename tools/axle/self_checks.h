// Private to tools: the checks of `axle test`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "accel/accelerator.h"

namespace axle::launcher {

// A check that runs on all processes and throws if it fails. It may create Accelerators. No other
// Accelerator may exist while it runs, because all Accelerators of a thread share one precision.
struct Check {
    std::string name;
    std::function<void(const PartialState&)> run;
};

// Checks of execution, collectives, splitting, random numbers, triggers and a second Accelerator.
std::vector<Check> process_checks();
std::vector<Check> data_checks();  // the samples of each process, and their order
// Checks that compare training on all processes with training on one process.
std::vector<Check> training_checks();

// --- helpers for checks

// Throws Error with the text `wrong` if `holds` is false.
void expect(bool holds, const std::string& wrong);
// Throws Error, which names the two lists, unless they are equal. The message begins with `what`.
void expect_equal(const std::vector<double>& found, const std::vector<double>& wanted,
                  const std::string& what);
// Returns the elements of a tensor of any dtype and device.
std::vector<double> numbers(const Tensor& x);
// Concatenates the values of all processes in rank order.
std::vector<double> of_all(const PartialState& state, const std::vector<double>& mine);
// Returns options for an Accelerator with the processes and the device of `state`. Environment
// variables do not change the precision or the gradient accumulation of this Accelerator.
accel::AcceleratorOptions options_for(const PartialState& state);
// Returns a check that calls `run` with an Accelerator constructed from options_for().
Check check_with(const char* name, void (*run)(Accelerator&));

}  // namespace axle::launcher
