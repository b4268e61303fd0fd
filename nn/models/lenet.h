// LeNet-5 for images of one channel and 28 x 28 pixels, with ReLU and max pooling (LeCun et al.,
// "Gradient-based learning applied to document recognition", 1998).
#pragma once

#include <cstdint>

#include "nn/layers/conv.h"
#include "nn/layers/linear.h"

namespace axle::nn {

struct LeNet : Model<LeNet> {
    // Throws ValueError unless num_classes is positive.
    explicit LeNet(std::int64_t num_classes = 10);

    // Maps images [N, 1, 28, 28] to logits [N, num_classes]. Throws ShapeError for other shapes.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override {
        v("conv1", conv1), v("conv2", conv2), v("fc1", fc1), v("fc2", fc2), v("fc3", fc3);
    }

    Conv2d conv1, conv2;
    Linear fc1, fc2, fc3;
};

}  // namespace axle::nn
