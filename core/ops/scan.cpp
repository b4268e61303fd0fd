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

// Returns the view with its last dimension reversed.
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

Tensor cumprod_gradient(const Tensor& dy, const Tensor& x, const Tensor& y, int dim) {
    Tensor dx = empty_like(x);
    Tensor rows_of_dx = transpose(dx, dim, -1);
    const Tensor rows[] = {transpose(dy, dim, -1), transpose(x, dim, -1), transpose(y, dim, -1)};
    launch(x.device(), [&](auto& on) {
        kernels::cumprod_backward(on, rows[0].view(), rows[1].view(), rows[2].view(),
                                  rows_of_dx.view());
    });
    return dx;
}

// Returns x in the dtype in which cumsum and cumprod compute: i64 for integers and booleans, f32
// for half precision under autocast, otherwise the dtype of x.
Tensor scanned_dtype(const char* op, const Tensor& x) {
    check_device(op, {&x});
    check_compute(op, x);
    return is_floating(x.dtype()) ? autocast_to_f32(x) : to(x, i64);
}

}  // namespace

Tensor cumsum(const Tensor& input, std::int64_t dim) {
    const profiler::OpScope scope("cumsum");
    const Tensor x = scanned_dtype("cumsum", input);
    const int d = wrap_dim("cumsum", dim, x.dim());
    if (x.dim() == 0) return clone(x);
    return cumulative_sum(x, d, false);
}

Tensor cumprod(const Tensor& input, std::int64_t dim) {
    const profiler::OpScope scope("cumprod");
    const Tensor x = scanned_dtype("cumprod", input);
    const int d = wrap_dim("cumprod", dim, x.dim());
    if (x.dim() == 0) return clone(x);
    Tensor y = empty_like(x);
    const Tensor rows = transpose(x.detach(), d, -1);
    Tensor rows_of_y = transpose(y, d, -1);
    launch(x.device(), [&](auto& on) { kernels::cumprod(on, rows.view(), rows_of_y.view()); });
    return record("cumprod", y, {x},
                  [x = saved(x), y = saved(y), d](const Grads& dy, Needs) -> Grads {
                      if (grad_enabled()) refuse_double_backward("cumprod");
                      return {cumprod_gradient(dy[0], x, y, d)};
                  });
}

}  // namespace axle
