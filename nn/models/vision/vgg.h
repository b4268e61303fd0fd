// VGG-11, -13, -16 and -19, with and without batch normalization (Simonyan and Zisserman,
// arXiv:1409.1556). They have torchvision's parameter names, so that weights can be exchanged in
// both directions.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"

namespace axle::nn {

struct VggConfig {
    // Each number adds a 3 x 3 convolution with this number of output channels; 0 adds a max
    // pooling with stride 2.
    std::vector<std::int64_t> layers = {};
    bool batch_norm = false;  // whether batch normalization follows each convolution
    std::int64_t num_classes = 1000;
    std::int64_t in_channels = 3;
    double dropout = 0.5;        // dropout probability of the classifier
    std::int64_t hidden = 4096;  // the width of the two hidden layers of the classifier
};

struct Vgg : Model<Vgg> {
    // Initializes the weights as torchvision does. Throws ValueError unless all sizes are positive
    // and below 2^31 (except 0 in layers), there is at least one convolution, and dropout is in
    // [0, 1].
    explicit Vgg(const VggConfig& config);

    // Maps images [N, in_channels, H, W] to logits [N, num_classes]. The features are averaged to 7
    // x 7. Throws ShapeError for other shapes and for images that are too small for the poolings.
    Tensor forward(const Tensor& images);
    void visit(Visitor& v) override;

    VggConfig config;
    Sequential features;   // with torchvision's indices
    Linear fc1, fc2, fc3;  // classifier.0, classifier.3 and classifier.6
    Dropout dropout;
};

// Return the configurations of the paper, whose fields can be changed before building the model.
VggConfig vgg11();
VggConfig vgg13();
VggConfig vgg16();
VggConfig vgg19();
VggConfig vgg11_bn();
VggConfig vgg13_bn();
VggConfig vgg16_bn();
VggConfig vgg19_bn();

}  // namespace axle::nn
