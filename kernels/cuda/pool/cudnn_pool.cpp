// Pooling, as cuDNN graphs of one operation.
#include "kernels/cuda/pool/cudnn_pool.h"

#include <algorithm>
#include <utility>

namespace axle::kernels::cudnn {
namespace {

// Calls with fewer than kMinWork elements use Axle's own kernels, because creating a plan for cuDNN
// costs more. Calls with kMax or more elements also use these kernels.
constexpr std::int64_t kMinWork = 1 << 20;
constexpr std::int64_t kMax = std::int64_t{1} << 31;

// The windows along one axis. `before` and `after` are the padding on each side. If the last window
// extends beyond the padding, `after` is increased so that the window fits.
struct Windows {
    std::int64_t kernel, stride, before, after;

    Windows(const Pool& pool, PoolAxis axis, std::int64_t in, std::int64_t out) {
        if (pool.adaptive) axis = {.kernel = in / out, .stride = in / out};
        kernel = axis.kernel, stride = axis.stride, before = axis.padding;
        after = std::max(axis.padding, (out - 1) * stride + kernel - in - before);
    }
};

struct Geometry {
    Windows h, w;

    Geometry(const Pool& pool, const ConstView& x, const ConstView& y)
        : h(pool, pool.h, x.back(2), y.back(2)), w(pool, pool.w, x.back(1), y.back(1)) {}
};

// Returns x, which has dense planes, as a view [N, C, H, W].
ConstView planes_of(const ConstView& x) {
    ConstView y;
    y.data = x.data, y.dtype = x.dtype, y.ndim = 4;
    y.shape[0] = 1, y.shape[1] = x.ndim > 2 ? x.back(3) : 1;
    for (int d = 0; d + 3 < x.ndim; ++d) y.shape[0] *= x.shape[d];
    y.shape[2] = x.back(2), y.shape[3] = x.back(1);
    const Dims strides = row_major(Dims(y.shape, y.shape + 4));
    std::copy(strides.begin(), strides.end(), y.stride);
    return y;
}

cudnnResampleMode_t mode_of(PoolResult result, const Pool& pool) {
    if (result == PoolResult::maximum) return CUDNN_RESAMPLE_MAXPOOL;
    return pool.count_padding ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                              : CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
}

// Returns the cache of plans. It is never destroyed because cuDNN can be unloaded before static
// objects are destroyed.
PlanCache& plans() {
    static auto* const cache = new PlanCache;
    return *cache;
}

bool run(Cuda& on, PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y) {
    const std::int64_t n = x.numel();
    if (n < kMinWork || n >= kMax || y.numel() == 0 || x.dtype != y.dtype ||
        x.dtype == DType::f64 || !x.contiguous() || !y.contiguous() ||
        !has_pool_rules(result, pool, x, y) || handle_for(on) == nullptr)
        return false;
    const Geometry at(pool, x, y);
    Key key = {static_cast<std::int64_t>(result), static_cast<std::int64_t>(mode_of(result, pool))};
    for (const Windows& side : {at.h, at.w})
        key.insert(key.end(), {side.kernel, side.stride, side.before, side.after});
    append(key, planes_of(x)), append(key, planes_of(y));
    Limits limits;
    limits.deterministic = on.deterministic;
    const Plan* const plan =
        plans().find(on, std::move(key), limits, [&] { return pool_graph(result, pool, x, y); });
    if (plan == nullptr) return fall_back_to_own_kernels();
    const Binding bindings[] = {{PoolValues::x, x.data}, {PoolValues::y, y.data}};
    return plan->run(on, bindings);
}

}  // namespace

bool has_pool_rules(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y) {
    const auto divides = [](std::int64_t in, std::int64_t out) { return in % out == 0; };
    if (pool.adaptive) return divides(x.back(2), y.back(2)) && divides(x.back(1), y.back(1));
    if (pool.h.dilation != 1 || pool.w.dilation != 1) return false;
    if (result == PoolResult::maximum) return true;
    if (pool.divisor != 0) return false;
    // For the divisor, cuDNN counts all elements of a window, including elements beyond the
    // padding.
    const Geometry at(pool, x, y);
    return !pool.count_padding || (at.h.after == at.h.before && at.w.after == at.w.before);
}

Graph pool_graph(PoolResult result, const Pool& pool, const ConstView& x, const ConstView& y) {
    Graph graph;
    const Value xv = graph.tensor(planes_of(x)), yv = graph.tensor(planes_of(y));
    const Geometry at(pool, x, y);
    Descriptor& windows = graph.part(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    const auto set = [&](cudnnBackendAttributeName_t name, std::int64_t h, std::int64_t w) {
        const cudnnFraction_t sizes[] = {{h, 1}, {w, 1}};
        windows.set(name, CUDNN_TYPE_FRACTION, 2, sizes);
    };
    windows.set(CUDNN_ATTR_RESAMPLE_MODE, mode_of(result, pool));
    windows.set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT);
    windows.set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
    windows.set(CUDNN_ATTR_RESAMPLE_PADDING_MODE,
                result == PoolResult::maximum ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD);
    windows.set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, std::int64_t{2});
    set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, at.h.kernel, at.w.kernel);
    set(CUDNN_ATTR_RESAMPLE_STRIDES, at.h.stride, at.w.stride);
    set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, at.h.before, at.w.before);
    set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, at.h.after, at.w.after);
    windows.finalize();
    if (result == PoolResult::mean_gradient) {
        Descriptor& op = graph.operation(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, windows);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, graph[xv]);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, graph[yv]);
        op.finalize();
    } else {
        Descriptor& op = graph.operation(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, windows);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, graph[xv]);
        op.set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, graph[yv]);
        op.finalize();
    }
    return graph;
}

bool max_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y) {
    return run(on, PoolResult::maximum, pool, x, y);
}

bool avg_pool2d(Cuda& on, const Pool& pool, const ConstView& x, const View& y) {
    return run(on, PoolResult::mean, pool, x, y);
}

bool avg_pool2d_backward(Cuda& on, const Pool& pool, const ConstView& dy, const View& dx) {
    return run(on, PoolResult::mean_gradient, pool, dx, dy);
}

}  // namespace axle::kernels::cudnn
