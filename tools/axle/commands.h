// The subcommands of the program axle. Each function gets the arguments after the name of its
// command and returns the exit code. main() prints exceptions to stderr and exits with 2 for a
// UsageError, else with 1.
#pragma once

#include <string>
#include <vector>

namespace axle::launcher {

int run_launch(std::vector<std::string> arguments);
int run_config(std::vector<std::string> arguments);
int run_env(std::vector<std::string> arguments);
int run_test(std::vector<std::string> arguments);
int run_generate(std::vector<std::string> arguments);
int run_merge_weights(std::vector<std::string> arguments);
int run_to_fsdp2(std::vector<std::string> arguments);
int run_estimate_memory(std::vector<std::string> arguments);
int run_plan(std::vector<std::string> arguments);
int run_tokenize(std::vector<std::string> arguments);
int run_bench(std::vector<std::string> arguments);

}  // namespace axle::launcher
