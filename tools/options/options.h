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

// One declared option. A small handle to an object of Options.
class Option {
  public:
    explicit Option(CLI::Option* option) : option_(option) {}

    // Restricts the value. A value outside is a UsageError of Options::parse().
    Option range(int low, int high);
    Option range(std::int64_t low, std::int64_t high);
    Option range(double low, double high);
    Option one_of(const std::vector<std::string>& values);
    Option at_least_zero();
    Option required();
    // Lets the option be given several times, with one value each.
    Option repeatable();
    // Sets the heading of --help that lists the option; "" hides it.
    Option group(const std::string& heading);

    bool was_given() const;
    bool takes_value() const;

  private:
    CLI::Option* option_;
};

// Declares options together with the variables that they fill, and parses arguments. `--a-b` and
// `--a_b` are the same option.
class Options {
  public:
    // `usage` is the command as --help shows it, "" for the name of the program.
    explicit Options(std::string about, std::string usage = "");
    ~Options();
    Options(const Options&) = delete;
    Options& operator=(const Options&) = delete;

    // `names` is as in "-q,--quiet"; without a dash it is a positional argument. The variable must
    // outlive parse().
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
    Option add_flag(const std::string& names, bool& value, const std::string& help);

    // Lets the last value win if an option that is declared afterwards is given twice. By default
    // that is an error.
    void let_last_win();
    // Makes --help show the variables' values for options that are declared afterwards.
    void show_defaults();
    void add_version(const std::string& version);
    void set_footer(const std::string& text);

    // Returns the option called `name` ("--cpu"), if it is declared.
    std::optional<Option> find(const std::string& name) const;
    // Fills the variables. Returns false if --help or --version was given; their text is then
    // printed. Throws UsageError for wrong arguments, with the nearest name for an unknown option.
    bool parse(std::vector<std::string> arguments);
    // Returns name (without dashes) and value of each option as text, after parse(). A flag is
    // "true" or "false".
    std::vector<std::pair<std::string, std::string>> values() const;

  private:
    template <class T>
    Option declare(const std::string& names, T& value, const std::string& help);

    std::unique_ptr<CLI::App> app_;
    bool show_defaults_ = false;
};

}  // namespace axle::tools
