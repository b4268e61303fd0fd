// The program axle: launches training on one or several processes, writes and converts its
// configuration, describes the machine, runs a self-test, estimates memory, plans meshes, measures
// kernels, generates text, encodes texts and trains tokenizers, and merges weights.
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/text/text.h"
#include "core/version.h"
#include "kernels/error.h"
#include "tools/axle/commands.h"

using namespace axle;

namespace {

struct Subcommand {
    const char* name;
    const char* help;
    int (*run)(std::vector<std::string> arguments);
};

constexpr Subcommand kSubcommands[] = {
    {"launch", "Start a program on one or several processes", launcher::run_launch},
    {"config", "Write a configuration file with defaults for launch", launcher::run_config},
    {"env", "Show versions, this machine and the configuration", launcher::run_env},
    {"test", "Check that training on several processes works here", launcher::run_test},
    {"estimate-memory", "Show how much memory a model takes", launcher::run_estimate_memory},
    {"plan", "Show the meshes with which a model can be trained", launcher::run_plan},
    {"bench", "Measure kernels, and compare them with other libraries", launcher::run_bench},
    {"generate", "Continue a text with a language model", launcher::run_generate},
    {"tokenize", "Encode texts to token files, and train tokenizers", launcher::run_tokenize},
    {"merge-weights", "Merge the parts of a sharded model", launcher::run_merge_weights},
    {"to-fsdp2", "Convert a configuration to version 2 of FSDP", launcher::run_to_fsdp2},
};

void print_help(std::ostream& out) {
    out << "Usage: axle <command> [options]; `axle <command> --help` shows its options.\n\n";
    for (const Subcommand& known : kSubcommands)
        out << "  " << known.name << std::string(18 - std::string(known.name).size(), ' ')
            << known.help << '\n';
}

int run(std::vector<std::string> arguments) {
    const std::string name = arguments.empty() ? "" : arguments[0];
    if (name.empty()) {
        print_help(std::cerr);
        return 2;
    }
    if (name == "--help" || name == "-h" || name == "help") {
        print_help(std::cout);
        return 0;
    }
    if (name == "--version") {
        std::cout << kVersion << '\n';
        return 0;
    }
    arguments.erase(arguments.begin());
    std::vector<std::string> names;
    for (const Subcommand& known : kSubcommands) {
        if (name == known.name) return known.run(std::move(arguments));
        names.emplace_back(known.name);
    }
    const std::string near = nearest(name, names);
    throw UsageError("unknown command " + in_quotes(name) +
                     (near.empty() ? "; see axle --help" : "; did you mean " + near + "?"));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const int code = run({argv + 1, argv + argc});
        if (!std::cout.flush()) throw FileError("stdout: can't be written");
        return code;
    } catch (const UsageError& error) {
        std::cerr << "axle: " << error.what() << '\n';
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "axle: " << error.what() << '\n';
        return 1;
    }
}
