// Implements the command `axle to-fsdp2`.
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "core/files/file.h"
#include "core/system/log.h"
#include "kernels/error.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/commands.h"
#include "tools/axle/flags/fsdp_flags.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

bool is_version_2(const Tree& section) {
    const Tree* const version = section.find("fsdp_version");
    if (version == nullptr) return false;
    return version->is_string() ? version->string() == "2"
                                : version->is_integer() && version->integer() == 2;
}

}  // namespace

int run_to_fsdp2(std::vector<std::string> arguments) {
    tools::Options options(
        "Converts a configuration for version 1 of FSDP to version 2. Options that version 2 does "
        "not have are removed with a warning.",
        "axle to-fsdp2");
    std::string path;
    std::optional<std::string> output;
    bool overwrite = false;
    options.add("--config_file", path, "The configuration to convert").required();
    options.add("--output_file", output, "The converted file; default: the configuration itself");
    options.add_flag("--overwrite", overwrite, "Replace the output file if it exists");
    if (!options.parse(std::move(arguments))) return 0;
    if (!output && !overwrite)
        throw UsageError(
            "to-fsdp2: pass --output_file, or --overwrite to replace the configuration");
    const std::string target = output.value_or(path);
    ClusterConfig config = read_config(path);
    if (!overwrite && std::filesystem::exists(target))
        throw FileError(printable(target) +
                        ": the file exists and was not changed; pass --overwrite to replace it");
    const Tree section = fsdp_section(config.fsdp_config);
    if (section.empty())
        throw ValueError(printable(path) + ": the configuration has no fsdp_config to convert");
    if (is_version_2(section))
        log(LogLevel::warning, printable(path), ": the configuration is for version 2 already");
    else
        config.fsdp_config = to_fsdp2(section);
    write_config(config, target);
    std::cout << "Wrote the configuration to " << target << ".\n";
    return 0;
}

}  // namespace axle::launcher
