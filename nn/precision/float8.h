// Linear layers that multiply in 8-bit floats: x and the weight forward, dy and either of them in
// backward, each as one tensor with one scale. Results, biases and activations are of the autocast
// dtype, parameters and their gradients of their own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/float8.h"
#include "nn/layers/linear.h"

namespace axle::inline v0::nn {

enum class Float8Scaling : std::uint8_t { current, delayed };

struct Float8Options {
    Float8Scaling scaling = Float8Scaling::current;
    DType forward = DType::f8_e4m3, gradient = DType::f8_e5m2;
    // The products that stay as they are: y, dx, dw.
    std::array<bool, 3> high_precision = {};
    bool in_evaluation = false;  // in layers that don't train, too
    // dw is a sum over rows: where they are not a multiple of 16 it is filled up with zeros, or
    // else stays as it is.
    bool pad_rows = true;
    bool power_of_two = false;  // current scales
    bool emulate = false;       // as Float8MatmulOptions'
    // Delayed scales:
    bool most_recent = true;  // else the largest of the history
    int margin = 0, interval = 1, history_length = 1024;
};

// With delayed scaling a layer's scales follow what was largest in the calls before: a call in
// training moves them on. Then it has the buffers "amax_history" [length, 3] and "scale" [3, 2], of
// x, the weight and dy; the history's first row is of the latest call. Processes that train one
// model share rank 0's.
class Float8Linear : public LinearPolicy {
  public:
    Float8Linear(const Float8Options& options, Device device);
    // For clone().
    Float8Linear(const Float8Linear&) = default;
    Float8Linear& operator=(const Float8Linear&) = delete;
    ~Float8Linear() override = default;

    Tensor multiply(Linear& layer, const Tensor& x, Activation activation) override;
    std::shared_ptr<LinearPolicy> twin() const override {
        return std::make_shared<Float8Linear>(*this);
    }
    void visit(Visitor& v) override {
        v.buffer("amax_history", history_);
        v.buffer("scale", scales_);
    }
    const Float8Options& options() const { return options_; }

  private:
    enum Role { kInput, kWeight, kGradient };

    Tensor product(const Tensor& x, const Tensor& weight, bool observes);
    void widen_buffers();
    void begin_call();
    // What rounds a tensor of that role in this call.
    std::function<Float8Tensor(const Tensor&)> rounding(Role role, bool observes) const;

    Float8Options options_;
    Tensor history_, scales_;  // undefined with current scaling
    std::int64_t calls_ = 0;
};

// Makes it the layer's policy. False, and nothing done, where the layer has one, or sizes that are
// not multiples of 16.
bool use_float8(Linear& layer, const Float8Options& options);

}  // namespace axle::inline v0::nn
