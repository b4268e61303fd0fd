// A multilayer perceptron.
#pragma once

#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/linear.h"

namespace axle::inline v0::nn {

// Linear layers of the widths given with an activation between them: x [..., widths.front()] to
// [..., widths.back()]. Named layers.0, layers.1, ...
class Mlp : public Model<Mlp> {
  public:
    // At least two widths (ValueError).
    explicit Mlp(const std::vector<std::int64_t>& widths, Activation activation = Activation::relu);
    Tensor forward(Tensor x);
    void visit(Visitor& v) override { v("layers", layers); }

    ModuleList<Linear> layers;

  private:
    Activation activation_;
};

}  // namespace axle::inline v0::nn
