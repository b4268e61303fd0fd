// Linear layers that multiply 8-bit floats: x and the weight in the forward pass, and dy and one of
// these two operands in the backward pass. Each operand has a single scale. Under autocast,
// results have the autocast dtype, in which the bias is added and the activation is computed.
// Parameters and their gradients keep their own dtypes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/float8.h"
#include "nn/layers/linear.h"

namespace axle::nn {

// How the scale of an operand is computed: from the largest absolute value of the operand itself,
// or from the values of earlier calls.
enum class Float8Scaling : std::uint8_t { current, delayed };

struct Float8Options {
    Float8Scaling scaling = Float8Scaling::current;
    // The dtypes of x and the weight, and of dy.
    DType forward = DType::f8_e4m3, gradient = DType::f8_e5m2;
    // One flag for each of y, dx and dw, in this order. If a flag is true, its tensor is computed
    // without fp8.
    std::array<bool, 3> high_precision = {};
    bool in_evaluation = false;  // if true, fp8 is also used in evaluation mode
    // The fp8 product for dw requires that the number of rows of x is a multiple of 16. For other
    // numbers of rows, rows of zeros are added if pad_rows is true; otherwise, dw is computed
    // without fp8.
    bool pad_rows = true;
    bool power_of_two = false;  // rounds scales to powers of two; only with current scaling
    bool emulate = false;       // if true, computes the products in f32
    // The following options apply to delayed scaling only. If most_recent is true, a scale depends
    // on the largest absolute value of the latest call; if false, on the largest absolute value of
    // the last history_length calls.
    bool most_recent = true;
    // Scales are divided by 2^margin, and updated once every `interval` calls.
    int margin = 0, interval = 1, history_length = 1024;
};

// The policy of an fp8 Linear. With delayed scaling, a layer's scales are computed from the largest
// absolute values of previous calls in training mode, every `interval` calls. The policy then has
// two f32 buffers. "amax_history" [length, 3] has columns for x, the weight and dy; row 0 contains
// the values of the latest call. "scale" [3, 2] has one row each for x, the weight and dy. If
// interval is greater than 1, the i64 buffer "calls" [1] has the number of calls since the last
// update of the scales. In data parallel training, all processes use the buffers of rank 0.
class Float8Linear : public LinearPolicy {
  public:
    // The buffers are created on `device`.
    Float8Linear(const Float8Options& options, Device device);
    // Only clone() may call this constructor (see Module).
    Float8Linear(const Float8Linear& other);
    Float8Linear& operator=(const Float8Linear&) = delete;
    ~Float8Linear() override;

    // Throws ShapeError if the last dimension of x is not `in`. Computes without fp8 in evaluation
    // mode (unless in_evaluation is true), for f64 operands and for an empty x. With fp8, second
    // derivatives throw UsageError.
    Tensor multiply(Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<LinearPolicy> clone() const override;
    void visit(Visitor& v) override;
    const Float8Options& options() const { return options_; }

  private:
    enum Role { kInput, kWeight, kGradient };

    Tensor product(const Tensor& x, const Tensor& weight, bool updates_history);
    void widen_buffers();
    void begin_call();
    // Returns a function that converts an operand with this role to fp8. Use the function only in
    // the current call and its backward pass.
    std::function<Float8Tensor(const Tensor&)> rounding(Role role, bool updates_history) const;

    Float8Options options_;
    Tensor history_, scales_;  // undefined with current scaling
    Tensor calls_;             // undefined unless scaling is delayed and interval is above 1
};

// Sets a Float8Linear as the layer's policy and returns true. Returns false and does nothing if the
// layer already has a policy or its sizes are not multiples of 16.
bool use_float8(Linear& layer, const Float8Options& options);

}  // namespace axle::nn
