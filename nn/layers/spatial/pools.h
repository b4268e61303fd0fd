// Modules that pool signals [N, C, L] or [C, L], and volumes [N, C, D, H, W] or [C, D, H, W]. Also
// declares modules for fractional max pooling, power-average pooling and max unpooling, including
// the modules for images. Each module calls the op of the same name in core/spatial.h, which
// documents options and errors. The other modules for images are in nn/layers/pool.h.
#pragma once

#include <cstdint>
#include <utility>

#include "core/spatial.h"
#include "nn/module.h"

namespace axle::nn {

class MaxPool1d : public Model<MaxPool1d> {
  public:
    explicit MaxPool1d(std::int64_t kernel_, MaxPool1dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return max_pool1d(x, kernel, options); }
    void visit(Visitor&) override {}

    std::int64_t kernel;
    MaxPool1dOptions options;
};

class MaxPool3d : public Model<MaxPool3d> {
  public:
    explicit MaxPool3d(Size3 kernel_, MaxPool3dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return max_pool3d(x, kernel, options); }
    void visit(Visitor&) override {}

    Size3 kernel;
    MaxPool3dOptions options;
};

class AvgPool1d : public Model<AvgPool1d> {
  public:
    explicit AvgPool1d(std::int64_t kernel_, AvgPool1dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return avg_pool1d(x, kernel, options); }
    void visit(Visitor&) override {}

    std::int64_t kernel;
    AvgPool1dOptions options;
};

class AvgPool3d : public Model<AvgPool3d> {
  public:
    explicit AvgPool3d(Size3 kernel_, AvgPool3dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return avg_pool3d(x, kernel, options); }
    void visit(Visitor&) override {}

    Size3 kernel;
    AvgPool3dOptions options;
};

class AdaptiveAvgPool1d : public Model<AdaptiveAvgPool1d> {
  public:
    explicit AdaptiveAvgPool1d(std::int64_t size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_avg_pool1d(x, size); }
    void visit(Visitor&) override {}

    std::int64_t size;
};

class AdaptiveAvgPool3d : public Model<AdaptiveAvgPool3d> {
  public:
    explicit AdaptiveAvgPool3d(Size3 size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_avg_pool3d(x, size); }
    void visit(Visitor&) override {}

    Size3 size;
};

class AdaptiveMaxPool1d : public Model<AdaptiveMaxPool1d> {
  public:
    explicit AdaptiveMaxPool1d(std::int64_t size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_max_pool1d(x, size); }
    void visit(Visitor&) override {}

    std::int64_t size;
};

class AdaptiveMaxPool3d : public Model<AdaptiveMaxPool3d> {
  public:
    explicit AdaptiveMaxPool3d(Size3 size_) : size(size_) {}
    Tensor forward(const Tensor& x) { return adaptive_max_pool3d(x, size); }
    void visit(Visitor&) override {}

    Size3 size;
};

// Fractional max pooling. The options have the size or the ratio of the result.
class FractionalMaxPool2d : public Model<FractionalMaxPool2d> {
  public:
    FractionalMaxPool2d(Size2 kernel_, FractionalMaxPool2dOptions options_)
        : kernel(kernel_), options(std::move(options_)) {}
    Tensor forward(const Tensor& x) { return fractional_max_pool2d(x, kernel, options); }
    void visit(Visitor& v) override { v.ignore(options.random_samples); }

    Size2 kernel;
    FractionalMaxPool2dOptions options;
};

class FractionalMaxPool3d : public Model<FractionalMaxPool3d> {
  public:
    FractionalMaxPool3d(Size3 kernel_, FractionalMaxPool3dOptions options_)
        : kernel(kernel_), options(std::move(options_)) {}
    Tensor forward(const Tensor& x) { return fractional_max_pool3d(x, kernel, options); }
    void visit(Visitor& v) override { v.ignore(options.random_samples); }

    Size3 kernel;
    FractionalMaxPool3dOptions options;
};

// Power-average pooling: the norms of windows. norm_type is the exponent.
class LPPool1d : public Model<LPPool1d> {
  public:
    LPPool1d(double norm_type_, std::int64_t kernel_, LpPool1dOptions options_ = {})
        : norm_type(norm_type_), kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return lp_pool1d(x, norm_type, kernel, options); }
    void visit(Visitor&) override {}

    double norm_type;
    std::int64_t kernel;
    LpPool1dOptions options;
};

class LPPool2d : public Model<LPPool2d> {
  public:
    LPPool2d(double norm_type_, Size2 kernel_, LpPool2dOptions options_ = {})
        : norm_type(norm_type_), kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return lp_pool2d(x, norm_type, kernel, options); }
    void visit(Visitor&) override {}

    double norm_type;
    Size2 kernel;
    LpPool2dOptions options;
};

class LPPool3d : public Model<LPPool3d> {
  public:
    LPPool3d(double norm_type_, Size3 kernel_, LpPool3dOptions options_ = {})
        : norm_type(norm_type_), kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x) { return lp_pool3d(x, norm_type, kernel, options); }
    void visit(Visitor&) override {}

    double norm_type;
    Size3 kernel;
    LpPool3dOptions options;
};

// Max unpooling, the partial inverse of max pooling. The second argument of forward() has the
// indices of the maxima. The argument output_size takes precedence over the size in the options.
class MaxUnpool1d : public Model<MaxUnpool1d> {
  public:
    explicit MaxUnpool1d(std::int64_t kernel_, MaxUnpool1dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& indices) {
        return max_unpool1d(x, indices, kernel, options);
    }
    Tensor forward(const Tensor& x, const Tensor& indices, std::int64_t output_size) {
        MaxUnpool1dOptions sized = options;
        sized.output_size = output_size;
        return max_unpool1d(x, indices, kernel, sized);
    }
    void visit(Visitor&) override {}

    std::int64_t kernel;
    MaxUnpool1dOptions options;
};

class MaxUnpool2d : public Model<MaxUnpool2d> {
  public:
    explicit MaxUnpool2d(Size2 kernel_, MaxUnpool2dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& indices) {
        return max_unpool2d(x, indices, kernel, options);
    }
    Tensor forward(const Tensor& x, const Tensor& indices, Size2 output_size) {
        MaxUnpool2dOptions sized = options;
        sized.output_size = output_size;
        return max_unpool2d(x, indices, kernel, sized);
    }
    void visit(Visitor&) override {}

    Size2 kernel;
    MaxUnpool2dOptions options;
};

class MaxUnpool3d : public Model<MaxUnpool3d> {
  public:
    explicit MaxUnpool3d(Size3 kernel_, MaxUnpool3dOptions options_ = {})
        : kernel(kernel_), options(options_) {}
    Tensor forward(const Tensor& x, const Tensor& indices) {
        return max_unpool3d(x, indices, kernel, options);
    }
    Tensor forward(const Tensor& x, const Tensor& indices, Size3 output_size) {
        MaxUnpool3dOptions sized = options;
        sized.output_size = output_size;
        return max_unpool3d(x, indices, kernel, sized);
    }
    void visit(Visitor&) override {}

    Size3 kernel;
    MaxUnpool3dOptions options;
};

}  // namespace axle::nn
