// The fixtures of the tests that run every case: the parameter is a case's name.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/op_case.h"

namespace axle::tests {

// Names of the cases that pass the filter.
inline std::vector<std::string> names_of(bool (*wanted)(const OpCase&)) {
    std::vector<std::string> names;
    for (const OpCase& c : op_cases())
        if (wanted(c)) names.push_back(c.name);
    return names;
}

inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    for (char& letter : name)
        if (letter == '/') letter = '_';
    return name;
}

inline bool has_floats(const Row& row) {
    for (const Input& input : row)
        if (input.floating()) return true;
    return false;
}

class OpTest : public testing::TestWithParam<std::string> {
  protected:
    const OpCase& op_case() const {
        for (const OpCase& c : op_cases())
            if (c.name == GetParam()) return c;
        throw UsageError("no case is called " + GetParam());
    }

    // What a mode compares: outputs, and gradients where the case has them.
    static Result run(const OpCase& c, const Row& row, In x) {
        const std::vector<int> wanted = differentiable(c, row);
        if (wanted.empty()) return {forward(c, x), {}};
        return forward_backward(c, x, wanted);
    }
};

inline std::string describe(const Row& row) {
    std::string text = "operands";
    for (const Input& input : row) text += str(" ", input.shape);
    return text;
}

}  // namespace axle::tests
