#include "tools/trainer/command_line.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "accel/config/config.h"
#include "core/text/text.h"
#include "core/version.h"
#include "kernels/error.h"

namespace axle::trainer {

struct CommandLine::Parser {
    explicit Parser(std::string about) : app(std::move(about)) {}

    template <class T>
    CLI::Option* add(const std::string& name, T& value, const std::string& help) {
        return app.add_option("--" + name, value, help)->capture_default_str();
    }

    CLI::App app;
    std::string config;
};

CommandLine::CommandLine(std::string about, std::vector<std::string> arguments)
    : parser_(std::make_unique<Parser>(std::move(about))), arguments_(std::move(arguments)) {
    parser_->app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    parser_->app.allow_extras();
    parser_->app.set_version_flag("--version", std::string(kVersion));
    parser_->app.get_formatter()->column_width(34);
    add("config", parser_->config, "YAML file with these options as keys; the command line wins");
    const auto path = peek("config");
    if (!path) return;
    std::vector<std::string> from_file;
    for (const auto& [key, value] : accel::read_config(*path))
        from_file.push_back(str("--", key, "=", value));
    arguments_.insert(arguments_.begin(), from_file.begin(), from_file.end());
}

CommandLine::~CommandLine() = default;

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
    parser_->add(name, value, help)->required(required);
}

void CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
    parser_->app.add_flag("--" + name, value, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void CommandLine::add(const std::string& name, double& value, const std::string& help, double low,
                      double high) {
    auto* option = parser_->add(name, value, help);
    if (high == std::numeric_limits<double>::max() && low == 0)
        option->check(CLI::NonNegativeNumber);
    else
        option->check(CLI::Range(low, high));
}

void CommandLine::add(const std::string& name, std::int64_t& value, const std::string& help,
                      std::int64_t low, std::int64_t high) {
    parser_->add(name, value, help)->check(CLI::Range(low, high));
}

void CommandLine::add(const std::string& name, std::uint64_t& value, const std::string& help) {
    parser_->add(name, value, help);
}

bool CommandLine::parse() {
    CLI::App& app = parser_->app;
    try {
        std::vector<std::string> from_the_back(arguments_.rbegin(), arguments_.rend());
        app.parse(from_the_back);
    } catch (const CLI::Success& success) {
        app.exit(success);
        return false;
    } catch (const CLI::Error& error) {
        throw UsageError(error.what());
    }
    const auto unknown = app.remaining();
    if (unknown.empty()) return true;
    const std::string name = unknown[0].substr(0, unknown[0].find('='));
    std::vector<std::string> names;
    for (const CLI::Option* known : app.get_options()) names.push_back(known->get_name());
    const std::string near = did_you_mean(name, names);
    throw UsageError("unknown option '" + name + "'" + (near.empty() ? "; see --help" : near));
}

Tree CommandLine::values() const {
    Tree values = Tree::map();
    for (const CLI::Option* option : parser_->app.get_options()) {
        const std::string name = option->get_single_name();
        if (name == "help" || name == "version" || name == "config") continue;
        const auto& given = option->results();
        const bool flag = option->get_expected_max() == 0;
        const std::string standard = flag ? "false" : option->get_default_str();
        values.set(name, given.empty() ? standard : given.back());
    }
    return values;
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
    const std::string near = nearest(name, known);
    return near.empty() ? "" : "; did you mean " + near + "?";
}

}  // namespace axle::trainer
