#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/elementwise/promotion.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Throws ShapeError unless `other` has the shape of x in all dimensions except d.
void check_extends(const char* name, const Tensor& other, const Tensor& x, int d) {
    check_device("diff", {&x, &other});
    bool fits = other.dim() == x.dim();
    for (int i = 0; fits && i < x.dim(); ++i) fits = i == d || other.shape()[i] == x.shape()[i];
    if (!fits)
        throw ShapeError(str("diff: ", name, " must have the shape of x outside dimension ", d,
                             ": ", name, " ", other.shape(), ", x ", x.shape()));
}

// Returns the sums of adjacent elements along d.
Tensor pair_sums(const Tensor& y, int d) {
    const std::int64_t n = y.shape()[d] - 1;
    return add(narrow(y, d, 1, n), narrow(y, d, 0, n));
}

// Checks the operand of trapezoid() and returns it as floating. Sets d to the wrapped dimension.
Tensor integrand(const Tensor& y, std::int64_t dim, int& d) {
    check_device("trapezoid", {&y});
    if (y.dim() == 0) throw ShapeError("trapezoid: y must have at least one dimension: y []");
    d = wrap_dim("trapezoid", dim, y.dim());
    return as_wide(y);
}

// Returns the integral over zero intervals.
Tensor no_integral(const Tensor& y, int d) { return sum(narrow(y, d, 0, 0), d); }

}  // namespace

Tensor diff(const Tensor& x, std::int64_t n, std::int64_t dim, const Tensor& prepend,
            const Tensor& append) {
    const profiler::OpScope scope("diff");
    check_device("diff", {&x});
    check_compute("diff", x);
    if (x.dim() == 0) throw ShapeError("diff: x must have at least one dimension: x []");
    if (n < 0) throw ValueError(str("diff: n must not be negative: ", n));
    const int d = wrap_dim("diff", dim, x.dim());
    std::vector<Tensor> parts;
    if (prepend.defined()) check_extends("prepend", prepend, x, d), parts.push_back(prepend);
    parts.push_back(x);
    if (append.defined()) check_extends("append", append, x, d), parts.push_back(append);
    Tensor y = parts.size() > 1 ? cat(parts, d) : x;
    if (n == 0) return clone(x);  // as in PyTorch, ignores prepend and append
    for (; n > 0 && y.shape()[d] > 0; --n) {
        const std::int64_t count = y.shape()[d] - 1;
        const Tensor next = narrow(y, d, 1, count), here = narrow(y, d, 0, count);
        y = y.dtype() == boolean ? logical_xor(next, here) : sub(next, here);
    }
    return y.is_same(x) ? clone(y) : y;
}

Tensor trapezoid(const Tensor& input, double dx, std::int64_t dim) {
    const profiler::OpScope scope("trapezoid");
    int d = 0;
    const Tensor y = integrand(input, dim, d);
    if (y.shape()[d] == 0) return no_integral(y, d);
    return mul(sum(pair_sums(y, d), d), dx / 2);
}

Tensor trapezoid(const Tensor& input, const Tensor& coordinates, std::int64_t dim) {
    const profiler::OpScope scope("trapezoid");
    check_device("trapezoid", {&input, &coordinates});
    int d = 0;
    const Tensor y = integrand(input, dim, d);
    Tensor x = as_wide(coordinates);
    if (x.dim() == 1 || x.dim() < y.dim()) {
        Shape aligned;
        for (int i = 0; i < y.dim(); ++i) {
            const int from = i - (y.dim() - x.dim());
            aligned.push_back(x.dim() == 1 ? (i == d ? x.numel() : 1)
                                           : (from < 0 ? 1 : x.shape()[from]));
        }
        x = reshape(x, aligned);
    }
    if (x.dim() != y.dim() || x.shape()[d] != y.shape()[d])
        throw ShapeError(
            str("trapezoid: x must have at most as many dimensions as y, and as many elements "
                "along dimension ",
                d, ": x ", coordinates.shape(), ", y ", y.shape()));
    broadcast_shapes("trapezoid", x.shape(), y.shape());
    if (y.shape()[d] == 0) return no_integral(mul(x, y), d);
    const std::int64_t n = x.shape()[d] - 1;
    const Tensor widths = sub(narrow(x, d, 1, n), narrow(x, d, 0, n));
    return mul(sum(mul(widths, pair_sums(y, d)), d), 0.5);
}

}  // namespace axle
