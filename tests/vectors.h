// Reads values computed by other programs, as JSON.
#pragma once

#include <cstdlib>
#include <string>

#include "core/files/file.h"
#include "kernels/error.h"
#include "nlohmann/json.hpp"

namespace axle::tests {

inline nlohmann::json read_json(const std::string& path) {
    const std::string text = read_file(path);
    try {
        return nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
        throw FileError(str(path, ": ", error.what()));
    }
}

// Returns the recorded cases in a file of tests/vectors/. If the variable AXLE_VECTORS is set,
// reads the file with the same name in the folder that it names instead.
inline nlohmann::json vectors(const std::string& file) {
    const char* folder = std::getenv("AXLE_VECTORS");
    return read_json(std::string(folder != nullptr ? folder : AXLE_TESTS_DIR "/vectors") + "/" +
                     file);
}

// Returns values recorded by a script in tests/golden/.
inline nlohmann::json golden_json(const std::string& file) {
    return read_json(std::string(AXLE_TESTS_DIR "/golden/") + file);
}

}  // namespace axle::tests
