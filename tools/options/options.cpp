#include "tools/options/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::tools {

Option Option::range(int low, int high) {
    option_->check(CLI::Range(low, high));
    return *this;
}
Option Option::range(std::int64_t low, std::int64_t high) {
    option_->check(CLI::Range(low, high));
    return *this;
}
Option Option::range(double low, double high) {
    option_->check(CLI::Range(low, high));
    return *this;
}
Option Option::one_of(const std::vector<std::string>& values) {
    option_->check(CLI::IsMember(values));
    return *this;
}
Option Option::at_least_zero() {
    option_->check(CLI::NonNegativeNumber);
    return *this;
}
Option Option::required() {
    option_->required();
    return *this;
}
Option Option::repeatable() {
    option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
    return *this;
}
Option Option::group(const std::string& heading) {
    option_->group(heading);
    return *this;
}
bool Option::was_given() const { return option_->count() > 0; }
bool Option::takes_value() const { return option_->get_expected_max() > 0; }

Options::Options(std::string about, std::string usage)
    : app_(std::make_unique<CLI::App>(std::move(about), std::move(usage))) {
    app_->allow_extras();
    app_->get_formatter()->column_width(34);
}

Options::~Options() = default;

template <class T>
Option Options::declare(const std::string& names, T& value, const std::string& help) {
    CLI::Option* const option = app_->add_option(names, value, help);
    if (show_defaults_) option->capture_default_str();
    return Option(option);
}

Option Options::add(const std::string& names, std::string& value, const std::string& help) {
    return declare(names, value, help);
}
Option Options::add(const std::string& names, int& value, const std::string& help) {
    return declare(names, value, help);
}
Option Options::add(const std::string& names, std::int64_t& value, const std::string& help) {
    return declare(names, value, help);
}
Option Options::add(const std::string& names, std::uint64_t& value, const std::string& help) {
    return declare(names, value, help);
}
Option Options::add(const std::string& names, double& value, const std::string& help) {
    return declare(names, value, help);
}
Option Options::add(const std::string& names, std::optional<std::string>& value,
                    const std::string& help) {
    return Option(app_->add_option(names, value, help));
}
Option Options::add(const std::string& names, std::optional<int>& value, const std::string& help) {
    return Option(app_->add_option(names, value, help));
}
Option Options::add(const std::string& names, std::optional<double>& value,
                    const std::string& help) {
    return Option(app_->add_option(names, value, help));
}
Option Options::add(const std::string& names, std::vector<std::string>& values,
                    const std::string& help) {
    return Option(app_->add_option(names, values, help));
}
Option Options::add(const std::string& names, std::vector<int>& values, const std::string& help) {
    return Option(app_->add_option(names, values, help));
}
Option Options::add_flag(const std::string& names, bool& value, const std::string& help) {
    return Option(app_->add_flag(names, value, help));
}

void Options::let_last_win() {
    app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Options::show_defaults() { show_defaults_ = true; }

void Options::add_version(const std::string& version) {
    app_->set_version_flag("--version", version);
}

void Options::set_footer(const std::string& text) { app_->footer(text); }

std::optional<Option> Options::find(const std::string& name) const {
    CLI::Option* const option = app_->get_option_no_throw(name);
    if (option == nullptr) return std::nullopt;
    return Option(option);
}

bool Options::parse(std::vector<std::string> arguments) {
    for (std::string& argument : arguments) {
        if (!argument.starts_with("--") || argument.size() < 3) continue;
        const std::string name = argument.substr(0, argument.find('='));
        if (app_->get_option_no_throw(name) != nullptr) continue;
        std::string other = name;
        std::replace(other.begin() + 2, other.end(), '-', '_');
        if (app_->get_option_no_throw(other) == nullptr) {
            other = name;
            std::replace(other.begin() + 2, other.end(), '_', '-');
        }
        if (app_->get_option_no_throw(other) != nullptr) argument.replace(0, name.size(), other);
    }
    std::reverse(arguments.begin(), arguments.end());
    try {
        app_->parse(arguments);
    } catch (const CLI::Success& success) {
        app_->exit(success);
        return false;
    } catch (const CLI::Error& error) {
        throw UsageError(error.what());
    }
    const std::vector<std::string> extra = app_->remaining();
    if (extra.empty()) return true;
    const std::string name = extra[0].substr(0, extra[0].find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : app_->get_options()) known.push_back(option->get_name());
    const std::string near = name.starts_with("-") ? nearest(name, known) : "";
    throw UsageError((name.starts_with("-") ? "unknown option " : "unexpected argument ") +
                     in_quotes(name) +
                     (near.empty() ? "; see --help" : "; did you mean " + near + "?"));
}

std::vector<std::pair<std::string, std::string>> Options::values() const {
    std::vector<std::pair<std::string, std::string>> values;
    for (const CLI::Option* option : app_->get_options()) {
        const std::string name = option->get_single_name();
        if (name == "help" || name == "version") continue;
        const auto& given = option->results();
        const bool is_flag = option->get_expected_max() == 0;
        const std::string standard = is_flag ? "false" : option->get_default_str();
        values.emplace_back(name, given.empty() ? standard : given.back());
    }
    return values;
}

}  // namespace axle::tools
