#include "tools/axle/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "core/files/file.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::launcher {

bool parse_options(CLI::App& app, std::vector<std::string> arguments) {
    for (std::string& argument : arguments) {
        if (!argument.starts_with("--") || argument.size() < 3) continue;
        const std::size_t end = std::min(argument.find('='), argument.size());
        std::replace(argument.begin() + 2, argument.begin() + static_cast<std::ptrdiff_t>(end), '-',
                     '_');
    }
    app.allow_extras();
    app.get_formatter()->column_width(34);
    std::reverse(arguments.begin(), arguments.end());
    try {
        app.parse(arguments);
    } catch (const CLI::Success& success) {
        app.exit(success);
        return false;
    } catch (const CLI::Error& error) {
        throw UsageError(error.what());
    }
    const std::vector<std::string> extra = app.remaining();
    if (extra.empty()) return true;
    const std::string name = extra[0].substr(0, extra[0].find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) known.push_back(option->get_name());
    const std::string near = name.starts_with("-") ? nearest(name, known) : "";
    throw UsageError((name.starts_with("-") ? "unknown option " : "unexpected ") + in_quotes(name) +
                     (near.empty() ? "; see --help" : "; did you mean " + near + "?"));
}

}  // namespace axle::launcher
