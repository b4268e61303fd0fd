// An op described once: how to call it and on what. tests/ops/ runs every description in every
// mode, bench/ times its `large` row, and core/ops.h is compared with the list of names.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace axle::tests {

// What one operand holds. Floating operands take the dtype of the run, the others their own.
struct Input {
    enum class Kind { floats, distinct, ties, specials, ints };
    Shape shape = {};
    Kind kind = Kind::floats;
    double low = -2, high = 2;
    DType dtype = f64;    // f64 stands for the dtype of the run
    bool frozen = false;  // a floating operand that takes no gradient

    bool floating() const { return kind != Kind::ints; }
};
// On a grid between low and high that avoids multiples of 1/64 (where formulas have their kinks)
// and that no two operands of a row share.
Input floats(const Shape& shape, double low = -2, double high = 2);
// No value twice.
Input distinct(const Shape& shape);
// Whole numbers from -2 to 2.
Input ties(const Shape& shape);
// Signed zeros, ones, huge, tiny, infinities and NaN, in turn.
Input specials(const Shape& shape);
// The operand without a gradient.
Input frozen(Input input);
// In [low, high).
Input ints(const Shape& shape, std::int64_t low, std::int64_t high, DType dtype = i64);
Input mask(const Shape& shape);

using Row = std::vector<Input>;
using In = const std::vector<Tensor>&;

struct Outputs : std::vector<Tensor> {
    Outputs(Tensor y) : vector{std::move(y)} {}                          // NOLINT
    Outputs(std::vector<Tensor> y) : vector(std::move(y)) {}             // NOLINT
    Outputs(std::pair<Tensor, Tensor> y) : vector{y.first, y.second} {}  // NOLINT
};

// Largest errors against f64, relative to the largest magnitude in the result (at least 1).
struct Tolerances {
    double f32 = 4e-6, f16 = 4e-3, bf16 = 3e-2;
    double of(DType dtype) const;
};

struct OpCase {
    std::string name = {};  // the function's name in core/ops.h; a variant is "gelu/tanh"
    std::function<Outputs(In x)> call = {};
    std::vector<Row> rows = {};
    Row large = {};           // enough work for several threads; benchmarks time it
    bool golden = true;       // PyTorch's values are recorded in tests/golden/ops.safetensors
    bool values = true;       // the result is defined at all (empty() only promises a shape)
    bool gradient = true;     // has one with respect to every floating input
    bool smooth = true;       // finite differences see the gradient: no rounding, no ties
    bool twice = false;       // must have a second derivative; others may refuse it
    bool strided = true;      // takes any layout
    bool own_dtype = false;   // the result's dtype doesn't follow the operands'
    bool layout_bits = true;  // f32 bits don't depend on the layout; f64 agrees to 1e-12 anyway
    Tolerances tolerance = {};
    double (*flops)(In x) = nullptr;  // of a forward call, where that is its measure
    // What else must hold of the outputs: returns a complaint, or nothing.
    std::function<std::string(In x, const Outputs& y)> check = {};

    std::string op() const { return name.substr(0, name.find('/')); }
};

// All of them, family by family in the order of core/ops.h.
const std::vector<OpCase>& op_cases();

// The same numbers for the same (case, row) at every call.
std::vector<Tensor> make_inputs(const OpCase& c, const Row& row, DType dtype,
                                Device device = Device::cpu());

struct Result {
    std::vector<Tensor> outputs;
    std::vector<Tensor> grads;  // one per input; undefined where none was asked for
};
// Calls with the default generator seeded.
Outputs forward(const OpCase& c, In x);
// forward, and the gradient of sum(outputs * cotangents) with respect to the inputs `wanted`; one
// that the result doesn't depend on has zeros.
Result forward_backward(const OpCase& c, In x, const std::vector<int>& wanted);
// The inputs of a row that a gradient can be asked for.
std::vector<int> differentiable(const OpCase& c, const Row& row);

// The fixed weights that the k-th output is multiplied with; a multiple of 1/8 below 1.
double cotangent_value(std::int64_t i, int k);
Tensor cotangent(const Tensor& output, int k);

// contiguous; dimensions in reverse order in memory; every second element of the last dimension;
// or the first slice of the first dimension larger than 1, repeated by stride 0.
enum class Layout { contiguous, transposed, sliced, expanded };
// A copy of x in that layout, at an odd offset, the gaps filled with NaN or wild indices.
Tensor with_layout(const Tensor& x, Layout layout);

}  // namespace axle::tests
