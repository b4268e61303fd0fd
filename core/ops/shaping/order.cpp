// Ops that change the order of dimensions or elements, composed of views, cat and flip.
#include <cstdint>

#include "core/check.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns x with the elements moved cyclically by `shift` along d.
Tensor rolled(const Tensor& x, std::int64_t shift, int d) {
    const std::int64_t size = x.shape()[d];
    const std::int64_t moved = size == 0 ? 0 : (shift % size + size) % size;
    if (moved == 0) return x;
    return cat({narrow(x, d, size - moved, moved), narrow(x, d, 0, size - moved)}, d);
}

// The sizes of the dimensions before the last `last` dimensions of x, and their product.
struct Batch {
    Shape shape = {};
    std::int64_t size = 1;
};
Batch batch_of(const Tensor& x, int last) {
    Batch batch;
    for (int d = 0; d < x.dim() - last; ++d) {
        batch.shape.push_back(x.shape()[d]);
        batch.size *= x.shape()[d];
    }
    return batch;
}

void check_pixels(const char* op, const Tensor& x, std::int64_t factor, const char* name) {
    check_device(op, {&x});
    if (factor < 1 || factor > INT32_MAX)
        throw ValueError(str(op, ": ", name, " must be in [1, 2^31): ", factor));
    if (x.dim() < 3) throw ShapeError(str(op, ": needs at least 3 dimensions: x ", x.shape()));
}

}  // namespace

Tensor movedim(const Tensor& x, const Dims& from, const Dims& to) {
    const profiler::OpScope scope("movedim");
    check_device("movedim", {&x});
    if (from.size() != to.size())
        throw ShapeError(
            str("movedim: the numbers of dimensions differ: from ", from, ", to ", to));
    Dims order;  // order[d] is the dimension of x at position d, or -1
    for (int d = 0; d < x.dim(); ++d) order.push_back(-1);
    unsigned moved = 0;
    for (int i = 0; i < from.size(); ++i) {
        const int source = wrap_dim("movedim", from[i], x.dim());
        const int target = wrap_dim("movedim", to[i], x.dim());
        if (x.dim() == 0) continue;
        if ((moved >> source & 1) != 0 || order[target] >= 0)
            throw ValueError(str("movedim: duplicate dimension: from ", from, ", to ", to));
        moved |= 1u << source;
        order[target] = source;
    }
    int next = 0;  // the next dimension of x that is not moved
    for (std::int64_t& source : order) {
        if (source >= 0) continue;
        while ((moved >> next & 1) != 0) ++next;
        source = next++;
    }
    return permute(x, order);
}

Tensor swapaxes(const Tensor& x, std::int64_t a, std::int64_t b) {
    const profiler::OpScope scope("swapaxes");
    check_device("swapaxes", {&x});
    return transpose(x, wrap_dim("swapaxes", a, x.dim()), wrap_dim("swapaxes", b, x.dim()));
}

Tensor t(const Tensor& x) {
    const profiler::OpScope scope("t");
    check_device("t", {&x});
    if (x.dim() > 2) throw ShapeError(str("t: needs at most 2 dimensions: x ", x.shape()));
    return x.dim() == 2 ? transpose(x, 0, 1) : x;
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
    const profiler::OpScope scope("roll");
    check_device("roll", {&x});
    if (shifts.size() != dims.size() && (shifts.size() != 1 || !dims.empty()))
        throw ShapeError(
            str("roll: needs one shift per dimension: shifts ", shifts, ", dims ", dims));
    Tensor y = x;
    if (shifts.size() == 1 && dims.empty())
        y = reshape(rolled(reshape(x, -1), shifts[0], 0), x.shape());
    for (int i = 0; i < dims.size(); ++i) {
        const int d = wrap_dim("roll", dims[i], x.dim());
        if (x.dim() > 0) y = rolled(y, shifts[i], d);
    }
    return y.impl()->storage == x.impl()->storage ? clone(y) : y;
}

Tensor rot90(const Tensor& x, std::int64_t k, const Dims& dims) {
    const profiler::OpScope scope("rot90");
    check_device("rot90", {&x});
    if (dims.size() != 2 || x.dim() < 2)
        throw ShapeError(
            str("rot90: dims must contain two dimensions, and x must have at least two: dims ",
                dims, ", x ", x.shape()));
    const int a = wrap_dim("rot90", dims[0], x.dim()), b = wrap_dim("rot90", dims[1], x.dim());
    if (a == b) throw ValueError(str("rot90: the dimensions must be different: dims ", dims));
    switch ((k % 4 + 4) % 4) {
        case 1:
            return transpose(flip(x, b), a, b);
        case 2:
            return flip(x, {a, b});
        case 3:
            return transpose(flip(x, a), a, b);
        default:
            return clone(x);
    }
}

Tensor fliplr(const Tensor& x) {
    const profiler::OpScope scope("fliplr");
    check_device("fliplr", {&x});
    if (x.dim() < 2) throw ShapeError(str("fliplr: needs at least 2 dimensions: x ", x.shape()));
    return flip(x, 1);
}

Tensor flipud(const Tensor& x) {
    const profiler::OpScope scope("flipud");
    check_device("flipud", {&x});
    if (x.dim() < 1) throw ShapeError(str("flipud: needs at least 1 dimension: x ", x.shape()));
    return flip(x, 0);
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
    const profiler::OpScope scope("pixel_shuffle");
    const std::int64_t r = upscale_factor;
    check_pixels("pixel_shuffle", x, r, "upscale_factor");
    const std::int64_t channels = x.size(-3), h = x.size(-2), w = x.size(-1);
    if (channels % (r * r) != 0)
        throw ShapeError(str(
            "pixel_shuffle: the number of channels must be divisible by upscale_factor^2 = ", r * r,
            ": x ", x.shape()));
    Batch batch = batch_of(x, 3);
    const Tensor blocks = reshape(x, {batch.size, channels / (r * r), r, r, h, w});
    batch.shape.push_back(channels / (r * r));
    batch.shape.push_back(h * r);
    batch.shape.push_back(w * r);
    return reshape(permute(blocks, {0, 1, 4, 2, 5, 3}), batch.shape);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
    const profiler::OpScope scope("pixel_unshuffle");
    const std::int64_t r = downscale_factor;
    check_pixels("pixel_unshuffle", x, r, "downscale_factor");
    const std::int64_t channels = x.size(-3), h = x.size(-2), w = x.size(-1);
    if (h % r != 0 || w % r != 0)
        throw ShapeError(
            str("pixel_unshuffle: height and width must be divisible by downscale_factor = ", r,
                ": x ", x.shape()));
    Batch batch = batch_of(x, 3);
    const Tensor blocks = reshape(x, {batch.size, channels, h / r, r, w / r, r});
    batch.shape.push_back(channels * r * r);
    batch.shape.push_back(h / r);
    batch.shape.push_back(w / r);
    return reshape(permute(blocks, {0, 1, 3, 5, 2, 4}), batch.shape);
}

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
    const profiler::OpScope scope("channel_shuffle");
    check_device("channel_shuffle", {&x});
    if (x.dim() < 3) throw ShapeError(str("channel_shuffle: x must be [N, C, ...]: x ", x.shape()));
    const std::int64_t channels = x.size(1);
    if (groups < 1 || channels % groups != 0)
        throw ShapeError(str("channel_shuffle: groups must be positive and divide C: groups ",
                             groups, ", x ", x.shape()));
    std::int64_t pixels = 1;
    for (int d = 2; d < x.dim(); ++d) pixels *= x.shape()[d];
    const Tensor grouped = reshape(x, {x.size(0), groups, channels / groups, pixels});
    return reshape(transpose(grouped, 1, 2), x.shape());
}

}  // namespace axle
