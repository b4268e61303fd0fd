// The figures that the long reliability tests record.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/files/file.h"
#include "nlohmann/json.hpp"

namespace axle::tests {

// Sets the figure `name` in the JSON file that the variable AXLE_FIGURES names, and keeps the other
// figures. Without this variable, only prints the figure.
inline void record_figure(const std::string& name, const nlohmann::ordered_json& values) {
    std::printf("%s: %s\n", name.c_str(), values.dump().c_str());
    std::fflush(stdout);  // otherwise a child that is forked later would print it too
    const char* const path = std::getenv("AXLE_FIGURES");
    if (path == nullptr) return;
    nlohmann::ordered_json all = nlohmann::ordered_json::object();
    if (std::ifstream file(path); file) all = nlohmann::ordered_json::parse(file);
    all[name] = values;
    write_file_atomically(path, all.dump(1) + "\n");
}

}  // namespace axle::tests
