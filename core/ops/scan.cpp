#include "kernels/ops/scan.h"

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/walk.h"

namespace axle {
namespace {

// Reverses the last dimension of a view.
template <class V>
V reversed(V x) {
    if (x.numel() == 0) return x;
    std::int64_t& stride = x.stride[x.ndim - 1];
    x.data = kernels::at(x.data, x.dtype, (x.back(1) - 1) * stride);
    stride = -stride;
    return x;
}

Tensor cumulative_sum(const Tensor& x, int dim, bool reverse) {
    Tensor y = empty_like(x);
    const Tensor rows = transpose(x.detach(), dim, -1);
    Tensor rows_of_y = transpose(y, dim, -1);
    launch(x.device(), [&](auto& on) {
        const ConstView from = rows.view();
        const View to = rows_of_y.view();
        kernels::cumsum(on, reverse ? reversed(from) : from, reverse ? reversed(to) : to);
    });
    return record("cumsum", y, {x}, [dim, reverse](const Grads& dy, Needs) -> Grads {
        return {cumulative_sum(dy[0], dim, !reverse)};
    });
}

}  // namespace

Tensor cumsum(const Tensor& given, std::int64_t dim) {
    const profiler::OpScope scope("cumsum");
    check_device("cumsum", {&given});
    check_compute("cumsum", given);
    const int d = wrap_dim("cumsum", dim, given.dim());
    const Tensor x = is_floating(given.dtype()) ? autocast_to_f32(given) : to(given, i64);
    if (x.dim() == 0) return clone(x);
    return cumulative_sum(x, d, false);
}

}  // namespace axle
