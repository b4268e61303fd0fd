// The subcommands of the program axle. Each takes the arguments behind its name and returns the
// exit code. What it throws becomes a line on stderr: UsageError ends with 2, others with 1.
#pragma once

#include <string>
#include <vector>

namespace axle::launcher {

int run_launch(std::vector<std::string> arguments);
int run_config(std::vector<std::string> arguments);
int run_env(std::vector<std::string> arguments);
int run_test(std::vector<std::string> arguments);
int run_estimate_memory(std::vector<std::string> arguments);

}  // namespace axle::launcher
