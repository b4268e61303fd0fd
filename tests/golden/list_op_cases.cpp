// Prints the op cases as JSON, for tests/golden/record_ops.py.
#include <iostream>

#include "kernels/dtype.h"
#include "nlohmann/json.hpp"
#include "tests/op_case.h"

namespace axle::tests {
namespace {

const char* name_of_kind(Input::Kind kind) {
    switch (kind) {
        case Input::Kind::floats:
            return "floats";
        case Input::Kind::distinct:
            return "distinct";
        case Input::Kind::ties:
            return "ties";
        case Input::Kind::specials:
            return "specials";
        case Input::Kind::ints:
            return "ints";
    }
    return "";
}

nlohmann::json to_json(const OpCase& c) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : c.rows) {
        nlohmann::json operands = nlohmann::json::array();
        for (const Input& input : row)
            operands.push_back({{"kind", name_of_kind(input.kind)},
                                {"shape", std::vector(input.shape.begin(), input.shape.end())},
                                {"low", input.low},
                                {"high", input.high},
                                {"dtype", std::string(name_of(input.dtype))},
                                {"frozen", input.frozen}});
        rows.push_back(operands);
    }
    return {{"name", c.name},
            {"family", c.family},
            {"torch", c.torch},
            {"gradient", c.gradient},
            {"rows", rows}};
}

}  // namespace
}  // namespace axle::tests

int main() {
    nlohmann::json cases = nlohmann::json::array();
    for (const auto& c : axle::tests::op_cases()) cases.push_back(axle::tests::to_json(c));
    std::cout << cases.dump(1) << '\n';
}
