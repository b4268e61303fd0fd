// The command line of a trainer: options with defaults, a YAML file behind them, and help.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle::trainer {

// Options are declared with the variable that they fill, whose value is the default shown by
// --help. What is wrong with the arguments is a UsageError, with the nearest name for an unknown
// option. --help, --version and --config FILE come by themselves: the keys of the file are options
// without their dashes, and the command line wins.
class CommandLine {
  public:
    // Reads the --config file, if one is named (FileError).
    CommandLine(std::string about, std::vector<std::string> arguments);
    ~CommandLine();
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;

    // The last value of --name, before anything is parsed: for what other defaults depend on.
    std::optional<std::string> peek(const std::string& name) const;

    void add(const std::string& name, std::string& value, const std::string& help,
             bool required = false);
    void add_flag(const std::string& name, bool& value, const std::string& help);
    // A number from low to high.
    void add(const std::string& name, double& value, const std::string& help, double low = 0,
             double high = std::numeric_limits<double>::max());
    void add(const std::string& name, std::int64_t& value, const std::string& help,
             std::int64_t low = 0, std::int64_t high = std::int64_t{1} << 40);
    void add(const std::string& name, std::uint64_t& value, const std::string& help);

    // Fills the variables. False if it printed --help or --version instead.
    bool parse();
    // All options as they are after parse(), by name, as text.
    Tree values() const;

  private:
    struct Parser;
    std::unique_ptr<Parser> parser_;
    std::vector<std::string> arguments_;
};

// The text nearest to what was meant, as "; did you mean lenet?", or nothing.
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

}  // namespace axle::trainer
