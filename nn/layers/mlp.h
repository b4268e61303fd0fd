// Mlp: a multilayer perceptron.
#pragma once

#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/linear.h"

namespace axle::nn {

// A sequence of Linear layers with an activation between them. Layer i maps widths[i] to
// widths[i + 1] features; the layers are named layers.0, layers.1, ... Maps x [..., widths.front()]
// to [..., widths.back()].
class Mlp : public Model<Mlp> {
  public:
    // Throws ValueError unless there are at least two widths, all positive.
    explicit Mlp(const std::vector<std::int64_t>& widths, Activation activation = Activation::relu);
    // Throws ShapeError if the last dimension of x is not widths.front().
    Tensor forward(Tensor x);
    void visit(Visitor& v) override { v("layers", layers); }

    ModuleList<Linear> layers;

  private:
    Activation activation_;
};

}  // namespace axle::nn
