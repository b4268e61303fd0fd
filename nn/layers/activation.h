// Modules without parameters that call one function, for use in Sequential.
#pragma once

#include <cstdint>

#include "nn/module.h"

namespace axle::nn {

class ReLU : public Model<ReLU> {
  public:
    Tensor forward(const Tensor& x) { return relu(x); }
    void visit(Visitor&) override {}
};

class GELU : public Model<GELU> {
  public:
    explicit GELU(Gelu form_ = Gelu::erf) : form(form_) {}
    Tensor forward(const Tensor& x) { return gelu(x, form); }
    void visit(Visitor&) override {}

    Gelu form;
};

class SiLU : public Model<SiLU> {
  public:
    Tensor forward(const Tensor& x) { return silu(x); }
    void visit(Visitor&) override {}
};

class Tanh : public Model<Tanh> {
  public:
    Tensor forward(const Tensor& x) { return tanh(x); }
    void visit(Visitor&) override {}
};

class Sigmoid : public Model<Sigmoid> {
  public:
    Tensor forward(const Tensor& x) { return sigmoid(x); }
    void visit(Visitor&) override {}
};

// Merges the dimensions `from` to `to` (inclusive) into one dimension. The default merges all
// dimensions except the batch. forward() throws the errors of axle::flatten().
class Flatten : public Model<Flatten> {
  public:
    explicit Flatten(std::int64_t from_ = 1, std::int64_t to_ = -1) : from(from_), to(to_) {}
    Tensor forward(const Tensor& x) { return flatten(x, from, to); }
    void visit(Visitor&) override {}

    std::int64_t from, to;
};

// Replaces a dimension by dimensions of the given sizes. One size can be -1. forward() throws
// ShapeError if the sizes do not fit the dimension, and IndexError if the dimension does not exist.
class Unflatten : public Model<Unflatten> {
  public:
    Unflatten(std::int64_t dim_, const Shape& sizes_) : dim(dim_), sizes(sizes_) {}
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    std::int64_t dim;
    Shape sizes;
};

// Apply axle::pixel_shuffle and axle::pixel_unshuffle. forward() throws their errors.
class PixelShuffle : public Model<PixelShuffle> {
  public:
    explicit PixelShuffle(std::int64_t upscale_factor_) : upscale_factor(upscale_factor_) {}
    Tensor forward(const Tensor& x) { return pixel_shuffle(x, upscale_factor); }
    void visit(Visitor&) override {}

    std::int64_t upscale_factor;
};
class PixelUnshuffle : public Model<PixelUnshuffle> {
  public:
    explicit PixelUnshuffle(std::int64_t downscale_factor_) : downscale_factor(downscale_factor_) {}
    Tensor forward(const Tensor& x) { return pixel_unshuffle(x, downscale_factor); }
    void visit(Visitor&) override {}

    std::int64_t downscale_factor;
};

}  // namespace axle::nn
