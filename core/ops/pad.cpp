// Padding and flipping. In constant mode, x is copied into a filled tensor, and the gradient is the
// opposite padding. In all other modes, the result is a concatenation of parts of x. The rules of
// cat, flip and the view ops compute its gradient.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"

namespace axle {
namespace {

// The padding before and after one dimension.
struct Sides {
    int dim;
    std::int64_t before, after;
};

std::vector<Sides> sides_of(const Tensor& x, const Dims& padding) {
    if (padding.size() % 2 != 0 || padding.size() / 2 > x.dim())
        throw ShapeError(
            str("pad: the padding must contain two numbers for each padded dimension, and at most ",
                2 * x.dim(), " numbers: padding ", padding, ", x ", x.shape()));
    constexpr std::int64_t kMax = INT32_MAX;  // a size plus such a number cannot overflow
    for (const std::int64_t n : padding)
        if (n > kMax || n < -kMax)
            throw ValueError(
                str("pad: the magnitude of each number must be below 2^31: padding is ", padding));
    std::vector<Sides> all;
    for (int i = 0; i < padding.size(); i += 2)
        all.push_back({x.dim() - 1 - i / 2, padding[i], padding[i + 1]});
    return all;
}

// Returns the part of x that remains after negative padding. Throws ShapeError if more than a whole
// dimension is cropped.
Tensor cropped(const Tensor& x, const Dims& padding, const std::vector<Sides>& all) {
    Tensor y = x;
    for (const auto& [d, before, after] : all) {
        const std::int64_t start = std::max<std::int64_t>(-before, 0);
        const std::int64_t end = x.shape()[d] - std::max<std::int64_t>(-after, 0);
        if (end < start || x.shape()[d] + before + after < 0)
            throw ShapeError(str("pad: cannot crop more than the size of a dimension: padding is ",
                                 padding, ", x is ", x.shape()));
        y = narrow(y, d, start, end - start);
    }
    return y;
}

Tensor constant_pad(const Tensor& x, const Dims& padding, Scalar value) {
    const std::vector<Sides> all = sides_of(x, padding);
    Shape shape = x.shape();
    for (const auto& [d, before, after] : all) shape[d] += before + after;
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor inner = cropped(x, padding, all);
        y = full(shape, value, {.dtype = x.dtype(), .device = x.device()});
        Tensor inner_part = y;
        for (const auto& [d, before, after] : all)
            inner_part = narrow(inner_part, d, std::max<std::int64_t>(before, 0), inner.shape()[d]);
        launch(x.device(), [&](auto& on) { kernels::copy(on, inner.view(), inner_part.view()); });
    }
    Dims opposite = padding;
    for (std::int64_t& n : opposite) n = -n;
    return record("pad", y, {x}, [opposite](const Grads& dy, Needs) -> Grads {
        return {constant_pad(dy[0], opposite, 0)};
    });
}

// Returns `count` copies of the element at `from` along dimension d.
Tensor repeated(const Tensor& x, int d, std::int64_t from, std::int64_t count) {
    Shape shape = x.shape();
    shape[d] = count;
    return expand(narrow(x, d, from, 1), shape);
}

void check_room(PadMode mode, const Dims& padding, std::int64_t limit, const Tensor& x,
                const Sides& sides) {
    if (sides.before <= limit && sides.after <= limit) return;
    const char* names[] = {"constant", "reflect", "replicate", "circular"};
    throw ShapeError(
        str("pad: ", names[static_cast<int>(mode)], " mode supports a padding of at most ", limit,
            " on either side of dimension ", sides.dim, ": padding ", padding, ", x ", x.shape()));
}

// Pads one dimension in a mode that repeats elements of x. `body` is `source` after cropping.
Tensor pad_dim(const Tensor& source, const Tensor& body, const Sides& sides, PadMode mode) {
    const auto& [d, before, after] = sides;
    const std::int64_t size = source.shape()[d];
    std::vector<Tensor> parts;
    if (before > 0) {
        if (mode == PadMode::reflect) parts.push_back(flip(narrow(source, d, 1, before), {d}));
        if (mode == PadMode::replicate) parts.push_back(repeated(source, d, 0, before));
        if (mode == PadMode::circular)
            parts.push_back(narrow(body, d, body.shape()[d] - before, before));
    }
    parts.push_back(body);
    if (after > 0) {
        if (mode == PadMode::reflect)
            parts.push_back(flip(narrow(source, d, size - 1 - after, after), {d}));
        if (mode == PadMode::replicate) parts.push_back(repeated(source, d, size - 1, after));
        if (mode == PadMode::circular) parts.push_back(narrow(body, d, 0, after));
    }
    return parts.size() == 1 ? body : cat(parts, d);
}

}  // namespace

Tensor pad(const Tensor& x, const Dims& padding, PadMode mode, Scalar value) {
    const profiler::OpScope scope("pad");
    check_device("pad", {&x});
    if (mode == PadMode::constant) return constant_pad(x, padding, value);
    if (value.to_double() != 0)
        throw ValueError(str("pad: only constant mode supports a value other than 0: value is ",
                             value.to_double()));
    Tensor y = x;
    bool is_view = true;
    for (const Sides& sides : sides_of(x, padding)) {
        const Tensor body = cropped(y, padding, {sides});
        const std::int64_t size = y.shape()[sides.dim];
        const std::int64_t limit = mode == PadMode::circular ? body.shape()[sides.dim]
                                   : mode == PadMode::reflect || size == 0
                                       ? std::max<std::int64_t>(size - 1, 0)
                                       : INT64_MAX;
        check_room(mode, padding, limit, x, sides);
        y = pad_dim(y, body, sides, mode);
        is_view = is_view && sides.before <= 0 && sides.after <= 0;
    }
    return is_view ? clone(y) : y;
}

Tensor flip(const Tensor& x, const Dims& dims) {
    const profiler::OpScope scope("flip");
    check_device("flip", {&x});
    unsigned flipped = 0;
    for (const std::int64_t dim : dims) {
        const unsigned bit = 1u << wrap_dim("flip", dim, x.dim());
        if (flipped & bit) throw ValueError(str("flip: duplicate dimension: dims is ", dims));
        flipped |= bit;
    }
    Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
    if (x.numel() > 0)
        launch(x.device(), [&](auto& on) {
            ConstView from = x.view();
            std::int64_t start = 0;
            for (int d = 0; d < x.dim(); ++d) {
                if ((flipped >> d & 1) == 0) continue;
                start += (from.shape[d] - 1) * from.stride[d];
                from.stride[d] = -from.stride[d];
            }
            from.data = static_cast<const char*>(from.data) + start * size_of(from.dtype);
            kernels::copy(on, from, y.view());
        });
    return record("flip", y, {x},
                  [dims](const Grads& dy, Needs) -> Grads { return {flip(dy[0], dims)}; });
}

}  // namespace axle
