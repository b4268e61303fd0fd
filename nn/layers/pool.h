// Modules that pool images [N, C, H, W] or [C, H, W], or resize signals, images and volumes. Each
// calls the op of the same name (Upsample and Upsampling...2d: interpolate) in core/functional.h,
// which documents options and errors.
#pragma once

#include "nn/module.h"

namespace axle::nn {

class MaxPool2d : public Model<MaxPool2d> {
  public:
    explicit MaxPool2d(Size2 kernel_, MaxPoolOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return max_pool2d(x, kernel, options); }
    void visit(Visitor&) override {}

    Size2 kernel;
    MaxPoolOptions options;
};

class AvgPool2d : public Model<AvgPool2d> {
  public:
    explicit AvgPool2d(Size2 kernel_, AvgPoolOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return avg_pool2d(x, kernel, options); }
    void visit(Visitor&) override {}

    Size2 kernel;
    AvgPoolOptions options;
};

class AdaptiveAvgPool2d : public Model<AdaptiveAvgPool2d> {
  public:
    explicit AdaptiveAvgPool2d(Size2 size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_avg_pool2d(x, size); }
    void visit(Visitor&) override {}

    Size2 size;
};

class AdaptiveMaxPool2d : public Model<AdaptiveMaxPool2d> {
  public:
    explicit AdaptiveMaxPool2d(Size2 size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_max_pool2d(x, size); }
    void visit(Visitor&) override {}

    Size2 size;
};

class Upsample : public Model<Upsample> {
  public:
    explicit Upsample(InterpolateOptions options_) : options(options_) {}
    Tensor forward(const Tensor& x) { return interpolate(x, options); }
    void visit(Visitor&) override {}

    InterpolateOptions options;
};

// Upsample in mode nearest. The options are the size or the scale factor. forward() throws the
// errors of interpolate().
class UpsamplingNearest2d : public Model<UpsamplingNearest2d> {
  public:
    explicit UpsamplingNearest2d(InterpolateOptions options_) : options(options_) {
        options.mode = Interpolation::nearest;
        options.align_corners = false;
    }
    Tensor forward(const Tensor& x) { return interpolate(x, options); }
    void visit(Visitor&) override {}

    InterpolateOptions options;
};

// Upsample in mode bilinear with align_corners, with the options and errors of UpsamplingNearest2d.
class UpsamplingBilinear2d : public Model<UpsamplingBilinear2d> {
  public:
    explicit UpsamplingBilinear2d(InterpolateOptions options_) : options(options_) {
        options.mode = Interpolation::bilinear;
        options.align_corners = true;
    }
    Tensor forward(const Tensor& x) { return interpolate(x, options); }
    void visit(Visitor&) override {}

    InterpolateOptions options;
};

}  // namespace axle::nn
