// What tests/golden/record_optim.py has recorded from PyTorch.
#pragma once

#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace axle::tests {

inline nlohmann::json golden(const std::string& file) {
    std::ifstream stream(std::string(AXLE_TESTS_DIR) + "/golden/" + file);
    return nlohmann::json::parse(stream);
}

}  // namespace axle::tests
