// The command line of a trainer: options with defaults, a YAML file, and help.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/options/options.h"

namespace axle::trainer {

// Options are bound to variables, whose values are the defaults shown by --help. Throws UsageError
// for invalid arguments, with the nearest name for an unknown option. --help, --version and
// --config FILE are built in; the keys of the file are option names without dashes, and the command
// line takes precedence.
class CommandLine {
  public:
    // Reads the --config file if one is given (FileError).
    CommandLine(std::string about, std::vector<std::string> arguments);
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;

    // Returns the last value of --name before parsing, for defaults that depend on it.
    std::optional<std::string> peek(const std::string& name) const;

    void add(const std::string& name, std::string& value, const std::string& help,
             bool required = false);
    void add_flag(const std::string& name, bool& value, const std::string& help);
    // Declares a number from `low` to `high`.
    void add(const std::string& name, double& value, const std::string& help, double low = 0,
             double high = std::numeric_limits<double>::max());
    void add(const std::string& name, std::int64_t& value, const std::string& help,
             std::int64_t low = 0, std::int64_t high = std::int64_t{1} << 40);
    void add(const std::string& name, std::uint64_t& value, const std::string& help);

    // Fills the variables. Returns false if it printed --help or --version instead.
    bool parse();
    // Returns the values of all options after parse(), by name, as text.
    Tree values() const;

  private:
    tools::Options options_;
    std::string config_;
    std::vector<std::string> arguments_;
};

// Throws UsageError "unknown model 'lenett'; did you mean lenet?", with the nearest known name.
[[noreturn]] void throw_unknown(const std::string& what, const std::string& name,
                                const std::vector<std::string>& known);

}  // namespace axle::trainer
