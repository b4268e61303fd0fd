#include "tools/trainer/command_line.h"

#include "accel/config/config.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "core/version.h"
#include "kernels/error.h"

namespace axle::trainer {

CommandLine::CommandLine(std::string about, std::vector<std::string> arguments)
    : options_(std::move(about)), arguments_(std::move(arguments)) {
    options_.let_last_win();
    options_.show_defaults();
    options_.add_version(std::string(kVersion));
    add("config", config_,
        "YAML file with these options as keys; the command line takes precedence");
    const auto path = peek("config");
    if (!path) return;
    std::vector<std::string> from_file;
    for (const auto& [key, value] : accel::read_config(*path))
        from_file.push_back(str("--", key, "=", value));
    arguments_.insert(arguments_.begin(), from_file.begin(), from_file.end());
}

std::optional<std::string> CommandLine::peek(const std::string& name) const {
    const std::string option = "--" + name;
    std::optional<std::string> value;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
        if (arguments_[i] == option && i + 1 < arguments_.size()) value = arguments_[i + 1];
        if (arguments_[i].starts_with(option + "="))
            value = arguments_[i].substr(option.size() + 1);
    }
    return value;
}

void CommandLine::add(const std::string& name, std::string& value, const std::string& help,
                      bool required) {
    auto option = options_.add("--" + name, value, help);
    if (required) option.required();
}

void CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
    options_.add_flag("--" + name, value, help);
}

void CommandLine::add(const std::string& name, double& value, const std::string& help, double low,
                      double high) {
    auto option = options_.add("--" + name, value, help);
    if (high == std::numeric_limits<double>::max() && low == 0)
        option.at_least_zero();
    else
        option.range(low, high);
}

void CommandLine::add(const std::string& name, std::int64_t& value, const std::string& help,
                      std::int64_t low, std::int64_t high) {
    options_.add("--" + name, value, help).range(low, high);
}

void CommandLine::add(const std::string& name, std::uint64_t& value, const std::string& help) {
    options_.add("--" + name, value, help);
}

bool CommandLine::parse() { return options_.parse(arguments_); }

Tree CommandLine::values() const {
    Tree values = Tree::map();
    for (const auto& [name, value] : options_.values())
        if (name != "config") values.set(name, value);
    return values;
}

void throw_unknown(const std::string& what, const std::string& name,
                   const std::vector<std::string>& known) {
    const std::string near = nearest(name, known);
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    throw UsageError("unknown " + what + " " + in_quotes(name) +
                     (near.empty() ? "; expected one of " + all : "; did you mean " + near + "?"));
}

}  // namespace axle::trainer
