// CommandLine: the options of a trainer, read from the command line and a YAML file.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "tools/options/options.h"

namespace axle::trainer {

// The options of a trainer. Each option has a variable, whose initial value is the default that
// --help prints. --help, --version and --config FILE are always options. The keys of the file are
// the names of options without the leading "--", and the command line takes precedence. Invalid
// arguments throw UsageError; for an unknown option, the message suggests a similar name, if there
// is one.
class CommandLine {
  public:
    // Reads the file of --config, if it is given. Throws FileError if the file is missing or
    // invalid.
    CommandLine(std::string about, std::vector<std::string> arguments);
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;

    // Returns the last value that the arguments or the file give to an option, or nullopt if they
    // give none. Can be called before parse(), for defaults that depend on this value.
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

    // Parses the arguments and sets the variables. If --help or --version is given, prints its text
    // and returns false.
    bool parse();
    // Returns a map from names of options, except config, help and version, to their values as
    // text. Called after parse().
    Tree values() const;

  private:
    tools::Options options_;
    std::string config_;
    std::vector<std::string> arguments_;
};

// Throws UsageError with text such as "unknown model 'lenett'; did you mean lenet?". The text
// suggests the most similar name in `known`, or lists all names if none is similar.
[[noreturn]] void throw_unknown(const std::string& what, const std::string& name,
                                const std::vector<std::string>& known);

}  // namespace axle::trainer
