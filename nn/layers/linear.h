// Linear: y = activation(x W^T + b), and LinearPolicy, the extension point for other products.
#pragma once

#include <memory>

#include "core/ops.h"
#include "nn/module.h"

namespace axle::nn {

class Linear;

// Replaces the matrix product of a Linear, for example to implement LoRA, quantized or fp8 weights,
// or tensor parallelism. The parameters of a policy are named "policy.<name>" in its Linear.
struct LinearPolicy : Module {
    // Returns activation(x W^T + bias) [..., out] for x [..., in], where the policy defines the
    // product. Called by layer.forward().
    virtual Tensor multiply(Linear& layer, const Tensor& x, Activation activation) = 0;
    // Returns whether the policy adds trained updates to the weight, as an adapter does.
    // save_pretrained() then throws UsageError, because its files could not be loaded.
    virtual bool is_adapter() const { return false; }
    // Returns a copy for a cloned Linear. Implementations return std::make_shared<Derived>(*this).
    virtual std::shared_ptr<LinearPolicy> clone() const = 0;
    void visit(Visitor&) override {}
};

struct LinearOptions {
    bool bias = true;
    // If true, the weight is stored as [in, out] instead of PyTorch's [out, in], as in GPT-2's
    // Conv1D.
    bool transposed = false;
};

class Linear : public Model<Linear> {
  public:
    // Initializes weight and bias from a uniform distribution in [-b, b) with b = 1 / sqrt(in), as
    // PyTorch does. Throws ValueError unless both sizes are positive.
    Linear(std::int64_t in, std::int64_t out, LinearOptions options = {});
    Linear(Linear&&) = default;
    Linear& operator=(Linear&&) = default;
    // Copies the policy; only clone() may call this constructor (see Module).
    Linear(const Linear& other);

    // Returns activation(x W^T + b) [..., out] for x [..., in]. A policy replaces the product.
    // Throws ShapeError if the last dimension of x is not `in`.
    Tensor forward(const Tensor& x, Activation activation = Activation::none);
    void visit(Visitor& v) override;

    // [out, in], or [in, out] if options().transposed; undefined if the policy has the weight
    Tensor weight;
    Tensor bias;                           // [out], undefined if there is no bias
    std::shared_ptr<LinearPolicy> policy;  // replaces the product; null by default

    const LinearOptions& options() const { return options_; }

  private:
    LinearOptions options_;
};

// Returns activation(x), for policies whose product has no fused activation.
Tensor apply_activation(const Tensor& x, Activation activation);
// Returns second(first(x, activation)). Uses the fused op axle::feed_forward unless a layer has a
// policy, ForwardHooks, CallHooks, registered hooks or a LayerCast.
Tensor feed_forward(Linear& first, Linear& second, const Tensor& x, Activation activation);

}  // namespace axle::nn
