// Private to tools: the options of a subcommand.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}

namespace axle::launcher {

// Fills the variables that the app's options name: --num_processes and --num-processes are the
// same. False if it printed the help instead; UsageError for what is wrong, with the nearest name
// for an unknown option.
bool parse_options(CLI::App& app, std::vector<std::string> arguments);

}  // namespace axle::launcher
