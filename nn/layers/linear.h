// Linear: y = activation(x W^T + b), and the door for those who multiply another way.
#pragma once

#include <memory>

#include "core/ops.h"
#include "nn/module.h"

namespace axle::inline v0::nn {

class Linear;

// Takes over the product of a Linear: LoRA, quantised or fp8 weights, tensor parallel. It may hold
// parameters of its own, which appear below the Linear under "policy".
struct LinearPolicy : Module {
    virtual Tensor multiply(Linear& layer, const Tensor& x, Activation activation) = 0;
    // For clone() of the Linear: std::make_shared<Derived>(*this).
    virtual std::shared_ptr<LinearPolicy> twin() const = 0;
    void visit(Visitor&) override {}
};

struct LinearOptions {
    bool bias = true;
    // The weight is stored [in, out] instead of PyTorch's [out, in]: GPT-2's Conv1D.
    bool transposed = false;
};

class Linear : public Model<Linear> {
  public:
    // Weight and bias uniform in +-1/sqrt(in), as PyTorch. Sizes are positive (ValueError).
    Linear(std::int64_t in, std::int64_t out, LinearOptions options = {});
    Linear(Linear&&) = default;
    Linear& operator=(Linear&&) = default;
    // For clone(), as Module's.
    Linear(const Linear& other);

    // x [..., in] to [..., out].
    Tensor forward(const Tensor& x, Activation activation = Activation::none);
    void visit(Visitor& v) override;

    Tensor weight;
    Tensor bias;  // [out], undefined without
    std::shared_ptr<LinearPolicy> policy;

    const LinearOptions& options() const { return options_; }

  private:
    LinearOptions options_;
};

// second(first(x, activation)), as the one op feed_forward where no policy or gate has a say.
Tensor feed_forward(Linear& first, Linear& second, const Tensor& x, Activation activation);

}  // namespace axle::inline v0::nn
