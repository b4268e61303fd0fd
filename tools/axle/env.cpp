// Implements the command `axle env`, which prints versions, devices and the configuration.
#include <filesystem>
#include <iostream>
#include <utility>

#include <unistd.h>

#include "core/cuda.h"
#include "core/files/file.h"
#include "core/text/text.h"
#include "core/tree/tree.h"
#include "core/version.h"
#include "kernels/error.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/commands.h"
#include "tools/options/options.h"
#include "tools/trainer/report.h"

namespace axle::launcher {
namespace {

namespace fs = std::filesystem;

void say(const std::string& name, const std::string& value) {
    std::cout << "- " << name << ": " << value << '\n';
}

std::string gigabytes(double bytes) {
    return format_number(bytes / (1 << 30), std::chars_format::fixed, 2) + " GB";
}

std::string program_path() {
    std::error_code ignored;
    return fs::read_symlink("/proc/self/exe", ignored).string();
}

void say_gpus() {
    if (!cuda::is_available()) say("GPU", "none: " + cuda::why_unavailable());
    for (int i = 0; i < cuda::device_count(); ++i) {
        const cuda::DeviceProperties gpu = cuda::get_device_properties(i);
        say(str("GPU ", i), str(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor, ", ",
                                gigabytes(static_cast<double>(gpu.total_memory))));
    }
}

void say_config(const std::string& path) {
    const bool passed = !path.empty();
    std::cout << (passed ? "- Configuration passed:\n" : "- Default configuration:\n");
    const auto config = passed ? read_config(path) : read_default_config();
    if (!config) {
        std::cout << "    none at " << default_config_path() << '\n';
        return;
    }
    const Tree fields = to_tree(*config);
    for (const auto& [key, value] : fields.entries())
        std::cout << "    - " << key << ": "
                  << (value.is_string() ? printable(value.string()) : to_json(value, -1)) << '\n';
}

}  // namespace

int run_env(std::vector<std::string> arguments) {
    tools::Options options(
        "Shows the information for a bug report: versions, this machine, configuration.",
        "axle env");
    std::string path;
    options.add("--config_file", path, "The configuration to show instead of the default one");
    if (!options.parse(std::move(arguments))) return 0;

    const Tree environment = trainer::environment();
    say("Axle", kVersion);
    say("Program", program_path());
    say("Platform", environment["system"].string());
    say("Compiler", environment["compiler"].string());
    say("CPU", environment["cpu"].string());
    say("Threads", str(environment["threads"].integer()));
    const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
    say("System RAM", gigabytes(pages * static_cast<double>(sysconf(_SC_PAGE_SIZE))));
    say_gpus();
    for (const auto& [name, place] : cuda::find_libraries()) say(name, place);
    say_config(path);
    return 0;
}

}  // namespace axle::launcher
