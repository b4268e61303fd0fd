// Declares op cases. A case describes how to call an op and with which inputs. The tests in
// tests/core/ and tests/cuda/ run the cases, and bench/ times their `large` rows.
// tests/core/ops/coverage_test.cpp checks that the ops of core/ops.h and related headers have
// cases.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace axle::tests {

// The contents of one operand. Floating operands have the dtype of the run; other operands have
// their own dtype.
struct Input {
    enum class Kind { floats, distinct, ties, specials, ints };
    Shape shape = {};
    Kind kind = Kind::floats;
    double low = -2, high = 2;
    DType dtype = f64;    // f64 is replaced by the dtype of the run
    bool frozen = false;  // a floating operand without a gradient

    bool floating() const { return kind != Kind::ints; }
};
// Returns values between low and high on a grid that avoids multiples of 1/64 (where formulas can
// have kinks). No two operands of a row share values.
Input floats(const Shape& shape, double low = -2, double high = 2);
// Returns multiples of 1/4096 from -2 to 2 in random order. Up to 16384 values are distinct.
Input distinct(const Shape& shape);
// Returns integers from -2 to 2, so that values are repeated.
Input ties(const Shape& shape);
// Returns signed zeros, ones, infinities, NaN, huge and tiny numbers, repeated in this order.
Input specials(const Shape& shape);
// Returns the operand without a gradient.
Input frozen(Input input);
// Returns integers in [low, high).
Input ints(const Shape& shape, std::int64_t low, std::int64_t high, DType dtype = i64);
// Returns random booleans.
Input mask(const Shape& shape);

using Row = std::vector<Input>;
using In = const std::vector<Tensor>&;

struct Outputs : std::vector<Tensor> {
    Outputs(Tensor y) : vector{std::move(y)} {}                          // NOLINT
    Outputs(std::vector<Tensor> y) : vector(std::move(y)) {}             // NOLINT
    Outputs(std::pair<Tensor, Tensor> y) : vector{y.first, y.second} {}  // NOLINT
};

// Maximum errors compared with f64, relative to the largest magnitude in the result (at least 1).
struct Tolerances {
    double f32 = 4e-6, f16 = 4e-3, bf16 = 3e-2;
    double of(DType dtype) const;
};

// The dtype in which an op computes and returns its result under autocast. f64 stays f64 in every
// class.
enum class Autocast {
    unchanged,  // the same as without autocast
    low,        // the autocast dtype
    f32,
    widest,  // the widest dtype of the operands
};

// A call that must throw.
struct BadCall {
    bool (*is_expected)(const Error&);  // checks the type of the error
    std::string prefix;                 // the beginning of the error's message
    std::vector<std::string> words;     // other texts that the message contains
    std::function<void()> call;
};

struct OpCase {
    // The name of the op's function, or a variant such as "gelu/tanh".
    std::string name = {};
    // A PyTorch expression of x[0], x[1], ... that computes the same values. If it is not empty,
    // tests/golden/record_ops.py records them in tests/golden/ops/<family>.safetensors.
    std::string torch = {};
    std::function<Outputs(In x)> call = {};
    std::vector<Row> rows = {};
    Row large = {};                  // enough work for several threads; used by benchmarks
    std::vector<Row> gpu_rows = {};  // sizes that select other code paths of GPU kernels
    // The tolerances of gpu_rows, whose results are sums of many terms.
    Tolerances gpu_tolerance = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2};
    bool values = true;    // the values of the result are defined (empty() defines a shape only)
    bool gradient = true;  // has a gradient with respect to every floating input
    bool smooth = true;    // finite differences can verify the gradient (no rounding, no ties)
    bool twice = false;    // has a second derivative; other cases may throw UsageError
    bool strided = true;   // supports any layout
    bool reads_values = false;  // the shape of the result depends on values
    bool own_dtype = false;     // the result's dtype does not depend on the operands
    bool layout_bits = true;    // f32 bits do not depend on the layout; f64 always agrees to 1e-12
    Autocast autocast = Autocast::unchanged;
    Tolerances tolerance = {};
    double (*flops)(In x) = nullptr;  // operations of a forward call, if that is a useful measure
    // Checks other properties of the outputs; returns an error text, or an empty string.
    std::function<std::string(In x, const Outputs& y)> check = {};

    // Calls that the op must reject. Only the first case of an op lists them.
    std::vector<BadCall> bad_calls = {};
    std::string family = {};  // the X of add_X_cases(); set by op_cases()

    std::string op() const { return name.substr(0, name.find('/')); }
};

// Returns all cases, family by family.
const std::vector<OpCase>& op_cases();

// Returns the operands of a row on a device. Their values depend only on the case and the row.
std::vector<Tensor> make_inputs(const OpCase& c, const Row& row, DType dtype,
                                Device device = Device::cpu());

struct Result {
    std::vector<Tensor> outputs;
    std::vector<Tensor> grads;  // one per input; undefined if not requested
};
// Calls the op with a seeded default generator.
Outputs forward(const OpCase& c, In x);
// Runs forward() and computes the gradient of sum(outputs * cotangents) with respect to the inputs
// `wanted`. The gradient is zero for inputs that the result does not depend on.
Result forward_backward(const OpCase& c, In x, const std::vector<int>& wanted);
// Returns the indices of the inputs of a row that can have a gradient.
std::vector<int> differentiable(const OpCase& c, const Row& row);

// Returns element i of the fixed cotangent of output k: a multiple of 1/8 between -7/8 and 7/8.
double cotangent_value(std::int64_t i, int k);
Tensor cotangent(const Tensor& output, int k);

// The memory layout of an operand. `transposed` reverses the dimensions in memory. `sliced` uses
// every second element of the last dimension. `expanded` repeats the first slice of the first
// dimension larger than 1 by stride 0.
enum class Layout { contiguous, transposed, sliced, expanded };
// Returns a copy of x in that layout. Unless the layout is contiguous, the copy starts at an odd
// offset. Gaps are filled with NaN or invalid indices.
Tensor with_layout(const Tensor& x, Layout layout);

}  // namespace axle::tests
