// Convolutions as cuDNN graphs of one operation, or of two operations for a forward convolution
// with a bias. Operands with a layout that cuDNN supports (all NCHW or all NHWC) are used without a
// copy; operands with another layout are copied to scratch memory.
#include "kernels/cuda/conv/cudnn_conv.h"

#include <algorithm>

#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"

namespace axle::kernels::cudnn {
namespace {

// Returns the stride along a dimension in which `out` windows fit in `in` elements. If there is a
// single window, any stride is correct, but cuDNN requires a stride that leaves no space for a
// second window.
std::int64_t stride_of(const ConvAxis& axis, std::int64_t in, std::int64_t kernel,
                       std::int64_t out) {
    const std::int64_t room = in + 2 * axis.padding - axis.dilation * (kernel - 1) - 1;
    return out == 1 ? std::max(axis.stride, room + 1) : axis.stride;
}

}  // namespace

Graph conv_graph(ConvResult result, const ConstView& x, const ConstView& w, const ConstView& y,
                 const ConvGeometry& geometry, bool has_bias) {
    Graph graph;
    const Value xv = graph.tensor(x), wv = graph.tensor(w), yv = graph.tensor(y);
    const ConvAxis &v = geometry.h, &h = geometry.w;
    const Dims padding = {v.padding, h.padding};
    Descriptor& conv = graph.part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    conv.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    conv.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    conv.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding);
    conv.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
    conv.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Dims{v.dilation, h.dilation});
    conv.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
             Dims{stride_of(v, x.shape[2], w.shape[2], y.shape[2]),
                  stride_of(h, x.shape[3], w.shape[3], y.shape[3])});
    conv.finalize();

    switch (result) {
        case ConvResult::y: {
            // The sums stay in f32 until the bias is added.
            const Dims dims(y.shape, y.shape + 4), steps(y.stride, y.stride + 4);
            const std::int64_t channels = y.shape[1];
            const Value bias = has_bias ? graph.tensor(data_type(y.dtype), {1, channels, 1, 1},
                                                       {channels, 1, 1, 1}, size_of(y.dtype))
                                        : Value();
            const Value sum = has_bias ? graph.temporary(CUDNN_DATA_FLOAT, dims, steps) : yv;
            Descriptor& op =
                graph.operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, graph[xv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, graph[wv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, graph[sum]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F);
            op.finalize();
            if (has_bias) graph.pointwise(CUDNN_POINTWISE_ADD, {sum, bias}, yv);
            break;
        }
        case ConvResult::x: {
            Descriptor& op =
                graph.operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, conv);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, graph[xv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, graph[wv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, graph[yv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F);
            op.finalize();
            break;
        }
        case ConvResult::w: {
            Descriptor& op =
                graph.operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, conv);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, graph[xv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, graph[wv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, graph[yv]);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F);
            op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F);
            op.finalize();
            break;
        }
    }
    return graph;
}

Limits conv_limits(DType t, bool deterministic, bool allow_tf32) {
    Limits limits;
    limits.deterministic = deterministic;
    limits.workspace = std::int64_t{1} << 30;
    limits.avoided = 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    if (t == DType::f32 && !allow_tf32)  // tensor cores would round f32 to TF32
        limits.avoided |=
            1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return limits;
}

namespace {

// Returns the cache of plans. It is never destroyed because cuDNN can be unloaded before static
// objects are destroyed.
PlanCache& plans() {
    static auto* const cache = new PlanCache;
    return *cache;
}

// The order of dimensions in memory.
enum class Layout { nchw, nhwc };

// Returns a view of dense memory at `data` with v's shape and the given layout.
View dense(const ConstView& v, Layout layout, void* data) {
    View y;
    y.data = data, y.dtype = v.dtype, y.ndim = 4;
    for (int d = 0; d < 4; ++d) y.shape[d] = v.shape[d];
    const std::int64_t c = v.shape[1], h = v.shape[2], w = v.shape[3];
    const bool last = layout == Layout::nhwc;
    y.stride[0] = c * h * w;
    y.stride[1] = last ? 1 : h * w;
    y.stride[2] = last ? w * c : w;
    y.stride[3] = last ? c : 1;
    return y;
}

bool has_layout(const ConstView& v, Layout layout) {
    const View y = dense(v, layout, nullptr);
    for (int d = 0; d < 4; ++d)
        if (v.shape[d] != 1 && v.stride[d] != y.stride[d]) return false;
    return true;
}

// Returns NHWC if both images have this layout and do not both have the layout NCHW as well.
// Otherwise returns NCHW, which most kernels of Axle read and write.
Layout common_layout(const ConstView& x, const ConstView& y) {
    const bool nchw = has_layout(x, Layout::nchw) && has_layout(y, Layout::nchw);
    const bool nhwc = has_layout(x, Layout::nhwc) && has_layout(y, Layout::nhwc);
    return nhwc && !nchw ? Layout::nhwc : Layout::nchw;
}

// Returns v in the given layout. If v has another layout, returns a view of scratch memory without
// copying the elements.
View in_layout(DeviceScratch& scratch, const ConstView& v, Layout layout) {
    if (has_layout(v, layout)) return dense(v, layout, const_cast<void*>(v.data));
    return dense(v, layout, scratch.take<char>(v.numel() * size_of(v.dtype)));
}

void copy_if_needed(Cuda& on, const ConstView& from, const View& to) {
    if (from.data != to.data) copy(on, from, to);
}

// The operands of one convolution. `result` selects which of x, w and y is computed from the other
// two.
struct Conv {
    ConvResult result;
    ConstView x, w, y;
    ConstView bias;  // one number per channel of the result, or without data
    const ConvGeometry& geometry;

    const Plan* plan(Cuda& on) const {
        const bool has_bias = bias.data != nullptr;
        Key key = {static_cast<std::int64_t>(result), has_bias, geometry.groups};
        for (const ConvAxis& axis : {geometry.h, geometry.w})
            key.insert(key.end(), {axis.stride, axis.padding, axis.dilation});
        append(key, x), append(key, w), append(key, y);
        return plans().find(on, std::move(key),
                            conv_limits(x.dtype, on.deterministic, on.allow_tf32),
                            [&] { return conv_graph(result, x, w, y, geometry, has_bias); });
    }
    bool run(Cuda& on, const Plan& plan) const {
        const Binding bindings[] = {{ConvValues::x, x.data},
                                    {ConvValues::w, w.data},
                                    {ConvValues::y, y.data},
                                    {ConvValues::bias, bias.data}};
        return plan.run(on, std::span(bindings, bias.data == nullptr ? 3 : 4));
    }
};

// Returns the bias as a view that broadcasts to y's shape.
ConstView spread(const ConstView& bias, const View& y) {
    ConstView v = y;
    v.data = bias.data;
    for (int d = 0; d < 4; ++d) v.stride[d] = d == 1 ? bias.stride[0] : 0;
    return v;
}

// Computes the convolution `given` after converting its tensors to a common layout, and writes the
// result to `out`. Returns false if out is f64, or if cuDNN is missing, does not support the
// convolution or cannot run it.
bool convolve(Cuda& on, const Conv& given, const View& out) {
    if (out.dtype == DType::f64 || handle_for(on) == nullptr) return false;
    DeviceScratch scratch(on);
    const Layout layout = common_layout(given.x, given.y);
    const View x = in_layout(scratch, given.x, layout), w = in_layout(scratch, given.w, layout),
               y = in_layout(scratch, given.y, layout);
    Conv conv = {given.result, x, w, y, {}, given.geometry};
    // In a forward convolution, the bias is added to the unrounded sums if cuDNN supports it. In
    // all other cases, it is added to the rounded result.
    const bool has_bias = given.bias.data != nullptr;
    const Plan* plan = nullptr;
    if (has_bias && given.result == ConvResult::y) {
        conv.bias = given.bias;
        plan = conv.plan(on);
    }
    const bool adds_later = has_bias && plan == nullptr;
    if (adds_later) conv.bias = {};
    if (plan == nullptr) plan = conv.plan(on);
    if (plan == nullptr) return fall_back_to_own_kernels();

    if (given.result != ConvResult::x) copy_if_needed(on, given.x, x);
    if (given.result != ConvResult::w) copy_if_needed(on, given.w, w);
    if (given.result != ConvResult::y) copy_if_needed(on, given.y, y);
    conv.bias = as_contiguous(on, scratch, conv.bias);
    if (!conv.run(on, *plan)) return false;
    const View& result = given.result == ConvResult::y ? y : given.result == ConvResult::x ? x : w;
    if (adds_later) binary(on, formula::Add(), result, spread(given.bias, result), result);
    copy_if_needed(on, result, out);
    return true;
}

}  // namespace

bool conv2d(Cuda& on, ConstView x, ConstView w, ConstView bias, const ConvGeometry& geometry,
            View y) {
    return convolve(on, {ConvResult::y, x, w, y, bias, geometry}, y);
}

bool conv2d_transposed(Cuda& on, ConstView dy, ConstView w, ConstView bias,
                       const ConvGeometry& geometry, View dx) {
    return convolve(on, {ConvResult::x, dx, w, dy, bias, geometry}, dx);
}

bool conv2d_weight_gradient(Cuda& on, ConstView dy, ConstView x, const ConvGeometry& geometry,
                            View dw) {
    return convolve(on, {ConvResult::w, x, dw, dy, {}, geometry}, dw);
}

}  // namespace axle::kernels::cudnn
