// Fixtures and helpers for tests of the op cases. The parameter of a test is the name of a case.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/op_case.h"

namespace axle::tests {

// Returns the names of the cases for which selected(case) is true.
inline std::vector<std::string> names_of(bool (*selected)(const OpCase&)) {
    std::vector<std::string> names;
    for (const OpCase& c : op_cases())
        if (selected(c)) names.push_back(c.name);
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

// Returns the outputs, and the gradients if the case has any.
inline Result run(const OpCase& c, const Row& row, In x) {
    const std::vector<int> selected = differentiable(c, row);
    if (selected.empty()) return {forward(c, x), {}};
    return forward_backward(c, x, selected);
}

class OpTest : public testing::TestWithParam<std::string> {
  protected:
    const OpCase& op_case() const {
        for (const OpCase& c : op_cases())
            if (c.name == GetParam()) return c;
        throw UsageError("op case: no case has this name: " + GetParam());
    }
};

// Returns the result dtype of a case for operands of the dtype `operands`, given the result dtype
// for f64 operands.
inline DType expected_dtype(const OpCase& c, const Row& row, DType in_f64, DType operands) {
    const bool follows = in_f64 == f64 && has_floats(row) && !c.own_dtype;
    return follows ? operands : in_f64;
}

inline void expect_result(const OpCase& c, const Row& row, const Result& actual,
                          const Result& expected, DType dtype) {
    ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
    for (std::size_t k = 0; k < expected.outputs.size(); ++k) {
        SCOPED_TRACE(str("output ", k, " in ", dtype));
        const Tensor &a = actual.outputs[k], &e = expected.outputs[k];
        const DType expected_type = expected_dtype(c, row, e.dtype(), dtype);
        EXPECT_EQ(a.dtype(), expected_type);
        // The expected values are rounded before the comparison, because f64 values can become
        // infinite in this dtype. PyTorch's f32 results for integer operands are only as precise as
        // f32.
        const double reference_tolerance = is_floating(e.dtype()) ? c.tolerance.of(e.dtype()) : 0;
        expect_close(a, to(e, expected_type), std::max(c.tolerance.of(dtype), reference_tolerance));
    }
    for (std::size_t i = 0; i < expected.grads.size(); ++i) {
        SCOPED_TRACE(str("gradient of operand ", i, " in ", dtype));
        if (!expected.grads[i].defined()) continue;
        ASSERT_TRUE(i < actual.grads.size() && actual.grads[i].defined());
        EXPECT_EQ(actual.grads[i].dtype(),
                  is_half(dtype) ? f32 : dtype);  // gradients of half-precision leaves are f32
        expect_close(actual.grads[i], expected.grads[i], c.tolerance.of(dtype));
    }
}

inline std::string describe(const Row& row) {
    std::string text = "operands";
    for (const Input& input : row) text += str(" ", input.shape);
    return text;
}

}  // namespace axle::tests
