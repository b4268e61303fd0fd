// Modules that pad the last dimensions (one to three) of a tensor with pad() in core/functional.h,
// which documents errors.
#pragma once

#include <cstdint>

#include "core/ops.h"
#include "nn/module.h"

namespace axle::nn {

// Pads the last kSpatial dimensions of x, which has one or two further dimensions: channels, and
// the batch before them.
template <int kSpatial, PadMode kMode>
class PadLayer : public Model<PadLayer<kSpatial, kMode>> {
  public:
    // The padding is one number for all sides, or (before, after) for the last dimension, then for
    // the dimension before it, and so on. Throws ValueError for a list of another length.
    explicit PadLayer(const Dims& padding);
    // Throws ShapeError if x has another number of dimensions.
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    Dims padding;  // 2 * kSpatial numbers
};

// Pads the last kSpatial dimensions of x, which can have any number of further dimensions, with a
// value.
template <int kSpatial>
class ConstantPad : public Model<ConstantPad<kSpatial>> {
  public:
    ConstantPad(const Dims& padding, Scalar value);  // padding as in PadLayer
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    Dims padding;
    Scalar value;
};

// A ConstantPad with the value 0.
template <int kSpatial>
class ZeroPad : public Model<ZeroPad<kSpatial>> {
  public:
    explicit ZeroPad(const Dims& padding);
    Tensor forward(const Tensor& x);
    void visit(Visitor&) override {}

    Dims padding;
};

extern template class PadLayer<1, PadMode::reflect>;
extern template class PadLayer<2, PadMode::reflect>;
extern template class PadLayer<3, PadMode::reflect>;
extern template class PadLayer<1, PadMode::replicate>;
extern template class PadLayer<2, PadMode::replicate>;
extern template class PadLayer<3, PadMode::replicate>;
extern template class PadLayer<1, PadMode::circular>;
extern template class PadLayer<2, PadMode::circular>;
extern template class PadLayer<3, PadMode::circular>;
extern template class ConstantPad<1>;
extern template class ConstantPad<2>;
extern template class ConstantPad<3>;
extern template class ZeroPad<1>;
extern template class ZeroPad<2>;
extern template class ZeroPad<3>;

using ReflectionPad1d = PadLayer<1, PadMode::reflect>;
using ReflectionPad2d = PadLayer<2, PadMode::reflect>;
using ReflectionPad3d = PadLayer<3, PadMode::reflect>;
using ReplicationPad1d = PadLayer<1, PadMode::replicate>;
using ReplicationPad2d = PadLayer<2, PadMode::replicate>;
using ReplicationPad3d = PadLayer<3, PadMode::replicate>;
using CircularPad1d = PadLayer<1, PadMode::circular>;
using CircularPad2d = PadLayer<2, PadMode::circular>;
using CircularPad3d = PadLayer<3, PadMode::circular>;
using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;
using ZeroPad1d = ZeroPad<1>;
using ZeroPad2d = ZeroPad<2>;
using ZeroPad3d = ZeroPad<3>;

}  // namespace axle::nn
