// Private to tools: the command line options of a program. CLI11 is included by options.cpp only,
// because it takes seconds to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
class Option;
}  // namespace CLI

namespace axle::tools {

// A declared option: a handle to an object that Options owns.
class Option {
  public:
    explicit Option(CLI::Option* option) : option_(option) {}

    // Restricts the value to [low, high]. For other values Options::parse() throws UsageError.
    Option range(int low, int high);
    Option range(std::int64_t low, std::int64_t high);
    Option range(double low, double high);
    Option one_of(const std::vector<std::string>& values);
    Option at_least_zero();
    Option required();
    // Allows the option to be given several times, each time with one value.
    Option repeatable();
    // Sets the heading of --help that lists the option; "" hides it.
    Option group(const std::string& heading);

    bool was_given() const;
    bool takes_value() const;

  private:
    CLI::Option* option_;
};

// The options of a program. parse() writes their values to variables. `--a-b` and `--a_b` are the
// same option.
class Options {
  public:
    // `about` is the description in --help. `usage` is the command in --help, or "" for the name of
    // the program.
    explicit Options(std::string about, std::string usage = "");
    ~Options();
    Options(const Options&) = delete;
    Options& operator=(const Options&) = delete;

    // Declares an option. `names` are names such as "-q,--quiet"; a name without a dash declares a
    // positional argument. The variable `value` must outlive parse().
    Option add(const std::string& names, std::string& value, const std::string& help);
    Option add(const std::string& names, int& value, const std::string& help);
    Option add(const std::string& names, std::int64_t& value, const std::string& help);
    Option add(const std::string& names, std::uint64_t& value, const std::string& help);
    Option add(const std::string& names, double& value, const std::string& help);
    Option add(const std::string& names, std::optional<std::string>& value,
               const std::string& help);
    Option add(const std::string& names, std::optional<int>& value, const std::string& help);
    Option add(const std::string& names, std::optional<double>& value, const std::string& help);
    Option add(const std::string& names, std::vector<std::string>& values, const std::string& help);
    Option add(const std::string& names, std::vector<int>& values, const std::string& help);
    Option add_flag(const std::string& names, bool& value, const std::string& help);

    // Allows options that are declared afterwards to be given several times; the last value is
    // used. By default this is an error.
    void let_last_win();
    // Makes --help show the current values of options that are declared afterwards.
    void show_defaults();
    void add_version(const std::string& version);
    void set_footer(const std::string& text);

    // Returns the option with a name such as "--cpu", or nullopt if it is not declared.
    std::optional<Option> find(const std::string& name) const;
    // Parses the arguments and sets the variables. If --help or --version is given, prints its text
    // and returns false. Throws UsageError for invalid arguments. For an unknown option, the
    // message suggests a similar name, if there is one.
    bool parse(std::vector<std::string> arguments);
    // Returns the name (without dashes) and the value of each option except help and version as
    // text. The value of a flag is "true" or "false". The value of an option that was not given is
    // the default that --help shows, or "". Of several given values, only the last is returned.
    // Called after parse().
    std::vector<std::pair<std::string, std::string>> values() const;

  private:
    template <class T>
    Option declare(const std::string& names, T& value, const std::string& help);

    std::unique_ptr<CLI::App> app_;
    bool show_defaults_ = false;
};

}  // namespace axle::tools
