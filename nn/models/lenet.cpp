#include "nn/models/lenet.h"

namespace axle::nn {

LeNet::LeNet(std::int64_t num_classes)
    : conv1(1, 6, 5, {.padding = 2}),
      conv2(6, 16, 5),
      fc1(16 * 5 * 5, 120),
      fc2(120, 84),
      fc3(84, num_classes) {}

Tensor LeNet::forward(const Tensor& images) {
    if (images.dim() != 4 || images.size(1) != 1 || images.size(2) != 28 || images.size(3) != 28)
        throw ShapeError(str("LeNet: images must be [N, 1, 28, 28]: they are ", images.shape()));
    Tensor x = max_pool2d(relu(conv1(images)), 2);
    x = max_pool2d(relu(conv2(x)), 2).flatten(1);
    x = fc1(x, Activation::relu);
    x = fc2(x, Activation::relu);
    return fc3(x);
}

}  // namespace axle::nn
