// A helper for tests that read files of texts.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

#include "tests/temporary_folder.h"

namespace axle::tests {

// Writes a file and returns its path.
inline std::string text_file(const TemporaryFolder& folder, std::string_view text,
                             const std::string& name) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
}

}  // namespace axle::tests
