#include "nn/layers/spatial/pads.h"

#include <string>

namespace axle::nn {
namespace {

// Returns (before, after) for each of the last `spatial` dimensions. Throws ValueError unless
// padding has one number or all of them.
Dims pad_sides(const std::string& who, const Dims& padding, int spatial) {
    if (padding.size() == 2 * spatial) return padding;
    if (padding.size() != 1)
        throw ValueError(str(who, spatial, "d: the padding must be one number or ", 2 * spatial,
                             " numbers: ", padding));
    Dims sides;
    for (int i = 0; i < 2 * spatial; ++i) sides.push_back(padding[0]);
    return sides;
}

std::string pad_name(PadMode mode) {
    return mode == PadMode::reflect     ? "ReflectionPad"
           : mode == PadMode::replicate ? "ReplicationPad"
                                        : "CircularPad";
}

}  // namespace

template <int kSpatial, PadMode kMode>
PadLayer<kSpatial, kMode>::PadLayer(const Dims& padding_)
    : padding(pad_sides(pad_name(kMode), padding_, kSpatial)) {}

template <int kSpatial, PadMode kMode>
Tensor PadLayer<kSpatial, kMode>::forward(const Tensor& x) {
    if (x.dim() != kSpatial + 1 && x.dim() != kSpatial + 2)
        throw ShapeError(str(pad_name(kMode), kSpatial, "d: x must have ", kSpatial + 1, " or ",
                             kSpatial + 2, " dimensions: x is ", x.shape()));
    return pad(x, padding, kMode);
}

template <int kSpatial>
ConstantPad<kSpatial>::ConstantPad(const Dims& padding_, Scalar value_)
    : padding(pad_sides("ConstantPad", padding_, kSpatial)), value(value_) {}

template <int kSpatial>
Tensor ConstantPad<kSpatial>::forward(const Tensor& x) {
    return pad(x, padding, PadMode::constant, value);
}

template <int kSpatial>
ZeroPad<kSpatial>::ZeroPad(const Dims& padding_)
    : padding(pad_sides("ZeroPad", padding_, kSpatial)) {}

template <int kSpatial>
Tensor ZeroPad<kSpatial>::forward(const Tensor& x) {
    return pad(x, padding);
}

template class PadLayer<1, PadMode::reflect>;
template class PadLayer<2, PadMode::reflect>;
template class PadLayer<3, PadMode::reflect>;
template class PadLayer<1, PadMode::replicate>;
template class PadLayer<2, PadMode::replicate>;
template class PadLayer<3, PadMode::replicate>;
template class PadLayer<1, PadMode::circular>;
template class PadLayer<2, PadMode::circular>;
template class PadLayer<3, PadMode::circular>;
template class ConstantPad<1>;
template class ConstantPad<2>;
template class ConstantPad<3>;
template class ZeroPad<1>;
template class ZeroPad<2>;
template class ZeroPad<3>;

}  // namespace axle::nn
