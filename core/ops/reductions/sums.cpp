// any(), all(), count_nonzero(), nansum(), nanmean(), prod() and logsumexp().
#include <limits>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/elementwise/promotion.h"
#include "core/ops/reductions/reduced.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/reduce.h"

namespace axle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns which elements are not 0, as booleans.
Tensor nonzero_mask(const Tensor& x) { return x.dtype() == boolean ? x : ne(x, 0); }

// Converts the booleans y to the result dtype of any() and all(): u8 if x is u8, otherwise bool.
Tensor as_truth(const Tensor& y, const Tensor& x) { return x.dtype() == u8 ? to(y, u8) : y; }

// Returns, for each element, the product of all other elements along d.
Tensor products_of_others(const Tensor& x, int d) {
    const std::int64_t n = x.shape()[d];
    if (n < 2) return ones_like(x);
    Shape shape = x.shape();
    shape[d] = 1;
    const Tensor one = ones(shape, {.dtype = x.dtype(), .device = x.device()});
    const Tensor before = cat({one, cumprod(narrow(x, d, 0, n - 1), d)}, d);
    const Tensor after = flip(cumprod(flip(narrow(x, d, 1, n - 1), d), d), d);
    return mul(before, cat({after, one}, d));
}

Tensor recorded_product(const Tensor& x, int d) {
    Shape shape = x.shape();
    shape[d] = 1;
    Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::prod(on, x.view(), y.view()); });
    return record("prod", y, {x}, [x = saved(x), d](const Grads& dy, Needs) -> Grads {
        return {mul(dy[0], products_of_others(widened(x), d))};
    });
}

// Returns the operand of prod() in the dtype of the result.
Tensor product_operand(const Tensor& x) {
    check_device("prod", {&x});
    check_compute("prod", x);
    return is_floating(x.dtype()) ? autocast_to_f32(x) : to(x, i64);
}

}  // namespace

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("any");
    const Reduced r = reduced("any", x, dims, keepdim);
    return as_truth(gt(sum(nonzero_mask(x), r.dims, keepdim), 0), x);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("all");
    const Reduced r = reduced("all", x, dims, keepdim);
    return as_truth(eq(sum(nonzero_mask(x), r.dims, keepdim), r.n), x);
}
Tensor count_nonzero(const Tensor& x, const Dims& dims) {
    const profiler::OpScope scope("count_nonzero");
    const Reduced r = reduced("count_nonzero", x, dims, false);
    return sum(nonzero_mask(x), r.dims);
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("nansum");
    const Reduced r = reduced("nansum", x, dims, keepdim);
    // Under autocast, a floating result keeps the dtype of x, unlike the result of sum().
    const AutocastGuard off(std::nullopt);
    if (!is_floating(x.dtype())) return sum(x, r.dims, keepdim);
    Tensor y = empty(r.kept, {.dtype = x.dtype(), .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::nansum(on, x.view(), y.view()); });
    return record("nansum", reshape(y, r.result), {x},
                  [x = saved(x), kept = r.kept](const Grads& dy, Needs) -> Grads {
                      const Tensor at = x;
                      return {masked_fill(expand(reshape(dy[0], kept), at.shape()), isnan(at), 0)};
                  });
}

Tensor nanmean(const Tensor& input, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("nanmean");
    const Reduced r = reduced("nanmean", input, dims, keepdim);
    check_floating("nanmean", input);
    const Tensor x = widened(input);
    const Tensor count = sum(logical_not(isnan(x)), r.dims, keepdim);
    return to(div(nansum(x, r.dims, keepdim), to(count, x.dtype())), input.dtype());
}

Tensor prod(const Tensor& input) {
    const profiler::OpScope scope("prod");
    const Tensor x = product_operand(input);
    return reshape(recorded_product(reshape(x, -1), 0), Shape());
}
Tensor prod(const Tensor& input, std::int64_t dim, bool keepdim) {
    const profiler::OpScope scope("prod");
    const Tensor x = product_operand(input);
    const Reduced r = reduced("prod", x, dim, keepdim);
    const int d = wrap_dim("prod", dim, x.dim());
    return reshape(recorded_product(with_a_dimension(x), d), r.result);
}

// A finite largest element is subtracted before exp, so that the sum is finite and at least 1. An
// infinite largest element is not, because inf - inf is NaN.
Tensor logsumexp(const Tensor& input, const Dims& dims, bool keepdim) {
    const profiler::OpScope scope("logsumexp");
    check_device("logsumexp", {&input});
    const Tensor x = as_wide(input);
    const Reduced r = reduced("logsumexp", x, dims, keepdim);
    Tensor y;
    if (r.n == 0) {
        y = full(r.result, -kInfinity, {.dtype = x.dtype(), .device = x.device()});
    } else {
        const NoGrad no_grad;
        const Tensor wide = widened(x), largest = max(wide, r.dims, true);
        const Tensor shift = masked_fill(largest, isinf(largest), 0);
        const Tensor log_sum = log(sum(exp(sub(wide, shift)), r.dims, true));
        y = to(reshape(add(log_sum, shift), r.result), x.dtype());
    }
    return record("logsumexp", y, {x},
                  [x = saved(x), y = saved(y), kept = r.kept](const Grads& dy, Needs) -> Grads {
                      // If all elements are -inf, their gradient is 0.
                      const Tensor at = reshape(y, kept);
                      const Tensor finite = masked_fill(at, eq(at.detach(), -kInfinity), 0);
                      return {mul(reshape(dy[0], kept), exp(sub(x, finite)))};
                  });
}

}  // namespace axle
