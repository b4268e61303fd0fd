#include "kernels/ops/softmax.h"

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the view with dimension dim moved to the end. A 0-d view becomes 1-d, as the kernels
// require.
template <class AnyView>
AnyView dim_last(AnyView v, int dim) {
    if (v.ndim == 0) {
        v.ndim = 1, v.shape[0] = 1, v.stride[0] = 1;
        return v;
    }
    const std::int64_t size = v.shape[dim], stride = v.stride[dim];
    for (int d = dim; d + 1 < v.ndim; ++d)
        v.shape[d] = v.shape[d + 1], v.stride[d] = v.stride[d + 1];
    v.shape[v.ndim - 1] = size, v.stride[v.ndim - 1] = stride;
    return v;
}

Tensor softmax_gradient(const Tensor& dy, const Tensor& y, int dim) {
    if (grad_enabled()) return mul(y, sub(dy, sum(mul(dy, y), {dim}, true)));
    Tensor dx = empty_like(y);
    launch(y.device(), [&](auto& on) {
        kernels::softmax_backward(on, dim_last(dy.view(), dim), dim_last(y.view(), dim),
                                  dim_last(dx.view(), dim));
    });
    return dx;
}

Tensor log_softmax_gradient(const Tensor& dy, const Tensor& y, int dim) {
    if (grad_enabled()) return sub(dy, mul(exp(y), sum(dy, {dim}, true)));
    Tensor dx = empty_like(y);
    launch(y.device(), [&](auto& on) {
        kernels::log_softmax_backward(on, dim_last(dy.view(), dim), dim_last(y.view(), dim),
                                      dim_last(dx.view(), dim));
    });
    return dx;
}

}  // namespace

Tensor softmax(const Tensor& input, std::int64_t dim) {
    const profiler::OpScope scope("softmax");
    check_device("softmax", {&input});
    check_floating("softmax", input);
    const Tensor x = autocast_to_f32(input);
    const int d = wrap_dim("softmax", dim, x.dim());
    Tensor y = empty_like(x);
    launch(x.device(),
           [&](auto& on) { kernels::softmax(on, dim_last(x.view(), d), dim_last(y.view(), d)); });
    return record("softmax", y, {x}, [y = saved(y), d](const Grads& dy, Needs) -> Grads {
        return {softmax_gradient(dy[0], y, d)};
    });
}

Tensor log_softmax(const Tensor& input, std::int64_t dim) {
    const profiler::OpScope scope("log_softmax");
    check_device("log_softmax", {&input});
    check_floating("log_softmax", input);
    const Tensor x = autocast_to_f32(input);
    const int d = wrap_dim("log_softmax", dim, x.dim());
    Tensor y = empty_like(x);
    launch(x.device(), [&](auto& on) {
        kernels::log_softmax(on, dim_last(x.view(), d), dim_last(y.view(), d));
    });
    return record("log_softmax", y, {x}, [y = saved(y), d](const Grads& dy, Needs) -> Grads {
        return {log_softmax_gradient(dy[0], y, d)};
    });
}

}  // namespace axle
