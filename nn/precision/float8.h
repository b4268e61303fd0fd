// Linear layers that multiply in 8-bit floats: x and the weight in the forward pass, dy and one of
// them in the backward pass. Each operand has one scale for the whole tensor. Results, biases and
// activations have the autocast dtype; parameters and their gradients keep their own dtypes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/float8.h"
#include "nn/layers/linear.h"

namespace axle::nn {

enum class Float8Scaling : std::uint8_t { current, delayed };

struct Float8Options {
    Float8Scaling scaling = Float8Scaling::current;
    DType forward = DType::f8_e4m3, gradient = DType::f8_e5m2;
    // The products to compute without fp8: y, dx, dw.
    std::array<bool, 3> high_precision = {};
    bool in_evaluation = false;  // also in layers that are in evaluation mode
    // Used if the number of rows, over which dw is summed, is not a multiple of 16. If true, rows
    // are padded with zeros; if false, dw is computed without fp8.
    bool pad_rows = true;
    bool power_of_two = false;  // current scales only
    bool emulate = false;       // as in Float8MatmulOptions
    // Options of delayed scaling.
    bool most_recent = true;  // if false, uses the largest value of the history
    int margin = 0, interval = 1, history_length = 1024;
};

// The policy of an fp8 Linear. With delayed scaling, a layer's scales are computed from the largest
// values of previous calls, and each call in training updates them. The policy then has the buffers
// "amax_history" [length, 3] and "scale" [3, 2], with columns and rows for x, the weight and dy;
// row 0 of the history belongs to the latest call. Processes that train one model share the buffers
// of rank 0.
class Float8Linear : public LinearPolicy {
  public:
    Float8Linear(const Float8Options& options, Device device);
    // Used by clone().
    Float8Linear(const Float8Linear&) = default;
    Float8Linear& operator=(const Float8Linear&) = delete;
    ~Float8Linear() override = default;

    Tensor multiply(Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<LinearPolicy> clone() const override {
        return std::make_shared<Float8Linear>(*this);
    }
    void visit(Visitor& v) override {
        v.buffer("amax_history", history_);
        v.buffer("scale", scales_);
    }
    const Float8Options& options() const { return options_; }

  private:
    enum Role { kInput, kWeight, kGradient };

    Tensor product(const Tensor& x, const Tensor& weight, bool updates_history);
    void widen_buffers();
    void begin_call();
    // Returns the function that converts a tensor of this role to fp8 in this call.
    std::function<Float8Tensor(const Tensor&)> rounding(Role role, bool updates_history) const;

    Float8Options options_;
    Tensor history_, scales_;  // undefined with current scaling
    std::int64_t calls_ = 0;
};

// Installs Float8Linear as the layer's policy. Returns false without doing anything if the layer
// already has a policy or its sizes are not multiples of 16.
bool use_float8(Linear& layer, const Float8Options& options);

}  // namespace axle::nn
