// Views, which share the storage of their input. The gradient of a view is the inverse view of dy,
// or a tensor of zeros with dy in the viewed part. The gradient of expand is a sum of dy.
#include <algorithm>
#include <cstdint>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the shape with a size of -1 replaced by the missing size. Throws ShapeError for another
// negative size, for a second -1, and if the numbers of elements differ or overflow int64.
Shape resolve(const char* op, const Tensor& x, Shape shape) {
    int unknown = -1;
    std::int64_t known = 1;
    for (int d = 0; d < shape.size(); ++d) {
        if (shape[d] == -1 && unknown < 0) {
            unknown = d;
            continue;
        }
        if (shape[d] < 0)
            throw ShapeError(str(op,
                                 ": at most one size can be -1, and no other size can be negative: "
                                 "tensor ",
                                 x.shape(), ", new shape ", shape));
        if (__builtin_mul_overflow(known, shape[d], &known))
            throw ShapeError(str(op, ": the number of elements overflows int64: tensor ", x.shape(),
                                 ", new shape ", shape));
    }
    if (unknown >= 0 && known != 0 && x.numel() % known == 0) shape[unknown] = x.numel() / known;
    if (unknown >= 0 && shape[unknown] < 0)
        throw ShapeError(str(op,
                             known == 0 ? ": a size of -1 needs other sizes above 0: tensor "
                                        : ": the number of elements must be a multiple of the "
                                          "product of the other sizes: tensor ",
                             x.shape(), ", new shape ", shape));
    if (numel(shape) != x.numel())
        throw ShapeError(
            str(op, ": the numbers of elements differ: tensor ", x.shape(), ", new shape ", shape));
    return shape;
}

// Computes the strides that view x as `shape` without a copy. Returns false if there are none.
// Adjacent dimensions of x without a gap between them can be merged and then split into other
// sizes.
bool strides_for(const Tensor& x, const Shape& shape, Strides& strides) {
    strides = contiguous_strides(shape);
    if (x.numel() == 0 || x.is_contiguous()) return true;
    // Dimensions of size 1 are skipped.
    Dims from, step;
    for (int i = 0; i < x.dim(); ++i) {
        if (x.shape()[i] == 1) continue;
        from.push_back(x.shape()[i]);
        step.push_back(x.strides()[i]);
    }
    int d = shape.size() - 1;
    for (int last = from.size() - 1; last >= 0;) {
        // The dimensions `first` to `last` have no gaps between them, so they are merged into one
        // dimension with the stride of `last`.
        int first = last;
        std::int64_t count = from[last];
        while (first > 0 && step[first - 1] == from[first] * step[first]) count *= from[--first];
        const std::int64_t stride = step[last];
        std::int64_t taken = 1;
        for (; d >= 0 && (taken < count || shape[d] == 1); --d) {
            strides[d] = stride * taken;
            taken *= shape[d];
        }
        if (taken != count) return false;
        last = first - 1;
    }
    return true;
}

Tensor reshape_view(const char* op, const Tensor& x, const Shape& shape, const Strides& strides) {
    const Tensor y = make_view(x, shape, strides, x.impl()->offset);
    return record(op, y, {x}, [shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {reshape(dy[0], shape)};
    });
}

}  // namespace

Tensor viewed(const char* op, const Tensor& x, const Shape& requested) {
    check_device(op, {&x});
    const Shape shape = resolve(op, x, requested);
    Strides strides;
    if (!strides_for(x, shape, strides))
        throw ShapeError(str(op, ": x of shape ", x.shape(), " and strides ", x.strides(),
                             " cannot be viewed as ", shape, " without a copy; use reshape"));
    return reshape_view("view", x, shape, strides);
}

Tensor view(const Tensor& x, const Shape& shape) {
    const profiler::OpScope scope("view");
    return viewed("view", x, shape);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
    const profiler::OpScope scope("reshape");
    return reshaped("reshape", x, shape);
}

Tensor reshaped(const char* op, const Tensor& x, const Shape& requested) {
    check_device(op, {&x});
    const Shape shape = resolve(op, x, requested);
    Strides strides;
    if (strides_for(x, shape, strides)) return reshape_view("reshape", x, shape, strides);
    return reshape_view("reshape", contiguous(x), shape, contiguous_strides(shape));
}

Tensor flatten(const Tensor& x, std::int64_t from, std::int64_t to) {
    const profiler::OpScope scope("flatten");
    check_device("flatten", {&x});
    const int first = wrap_dim("flatten", from, x.dim());
    const int last = wrap_dim("flatten", to, x.dim());
    if (first > last)
        throw ValueError(str("flatten: start dimension ", from, " is after end dimension ", to,
                             ": x is ", x.shape()));
    Shape shape;
    std::int64_t merged = 1;
    for (int d = 0; d < std::max(x.dim(), 1); ++d) {
        const std::int64_t size = x.dim() == 0 ? 1 : x.shape()[d];
        if (d < first || d > last) {
            shape.push_back(size);
            continue;
        }
        merged *= size;
        if (d == last) shape.push_back(merged);
    }
    return reshape(x, shape);
}

Tensor permute(const Tensor& x, const Dims& order) {
    const profiler::OpScope scope("permute");
    check_device("permute", {&x});
    if (order.size() != x.dim())
        throw ShapeError(str("permute: the order must contain every dimension once: order ", order,
                             ", x ", x.shape()));
    Shape shape = x.shape();
    Strides strides = x.strides();
    Dims inverse = order;
    unsigned seen = 0;
    for (int d = 0; d < order.size(); ++d) {
        const int from = wrap_dim("permute", order[d], x.dim());
        if (seen & (1u << from))
            throw ValueError(str("permute: duplicate dimension: order ", order));
        seen |= 1u << from;
        shape[d] = x.shape()[from];
        strides[d] = x.strides()[from];
        inverse[from] = d;
    }
    const Tensor y = make_view(x, shape, strides, x.impl()->offset);
    return record("permute", y, {x},
                  [inverse](const Grads& dy, Needs) -> Grads { return {permute(dy[0], inverse)}; });
}

Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b) {
    const profiler::OpScope scope("transpose");
    check_device("transpose", {&x});
    const int da = wrap_dim("transpose", a, x.dim());
    const int db = wrap_dim("transpose", b, x.dim());
    Dims order;
    for (int d = 0; d < x.dim(); ++d) order.push_back(d == da ? db : d == db ? da : d);
    return permute(x, order);
}

Tensor expand(const Tensor& x, const Shape& shape) {
    check_device("expand", {&x});
    if (shape == x.shape()) return x;
    const profiler::OpScope scope("expand");
    return expanded("expand", x, shape);
}

Tensor expanded(const char* op, const Tensor& x, const Shape& requested) {
    Shape shape = requested;
    Strides strides = shape;
    const int added = shape.size() - x.dim();
    bool fits = added >= 0;
    for (int d = 0; fits && d < shape.size(); ++d) {
        const std::int64_t size = d < added ? 1 : x.shape()[d - added];
        if (shape[d] == -1 && d >= added) shape[d] = size;
        fits = shape[d] == size || (size == 1 && shape[d] >= 0);
        strides[d] = shape[d] == size && d >= added ? x.strides()[d - added] : 0;
    }
    if (!fits) throw ShapeError(str(op, ": x ", x.shape(), " cannot be broadcast to ", requested));
    if (shape == x.shape()) return x;
    // The engine sums the gradient to x's shape.
    return record("expand", make_view(x, shape, strides, x.impl()->offset), {x},
                  [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
}

Tensor squeeze(const Tensor& x) {
    const profiler::OpScope scope("squeeze");
    check_device("squeeze", {&x});
    Shape shape;
    Strides strides;
    for (int d = 0; d < x.dim(); ++d) {
        if (x.shape()[d] == 1) continue;
        shape.push_back(x.shape()[d]);
        strides.push_back(x.strides()[d]);
    }
    return shape.size() == x.dim() ? x : reshape_view("squeeze", x, shape, strides);
}

Tensor squeeze(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("squeeze");
    check_device("squeeze", {&x});
    const int d = wrap_dim("squeeze", dim, x.dim());
    if (x.dim() == 0 || x.shape()[d] != 1) return x;
    Shape shape = x.shape();
    Strides strides = x.strides();
    shape.erase(d);
    strides.erase(d);
    return reshape_view("squeeze", x, shape, strides);
}

Tensor unsqueeze(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("unsqueeze");
    check_device("unsqueeze", {&x});
    const int d = wrap_dim("unsqueeze", dim, x.dim() + 1);
    Shape shape = x.shape();
    Strides strides = x.strides();
    strides.insert(d, d < x.dim() ? x.shape()[d] * x.strides()[d] : 1);
    shape.insert(d, 1);
    return reshape_view("unsqueeze", x, shape, strides);
}

Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
    const profiler::OpScope scope("narrow");
    check_device("narrow", {&x});
    if (x.dim() == 0) throw ShapeError("narrow: a 0-d tensor cannot be narrowed");
    const int d = wrap_dim("narrow", dim, x.dim());
    const std::int64_t size = x.shape()[d];
    const std::int64_t first = start < 0 ? start + size : start;
    if (first < 0 || length < 0 || first > size || length > size - first)
        throw IndexError(str("narrow: the range [", first, ", ", first, " + ", length,
                             ") must be within dimension ", dim, " of size ", size, ": start ",
                             start, ", length ", length, ", x is ", x.shape()));
    if (length == size) return x;
    Shape shape = x.shape();
    shape[d] = length;
    const Tensor y = make_view(x, shape, x.strides(), x.impl()->offset + first * x.strides()[d]);
    return record_slice("narrow", y, x, [d, first, length](const Tensor& t) {
        return narrow(t, d, first, length);
    });
}

Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step) {
    return sliced("slice", x, dim, start, end, step);
}

Tensor sliced(const char* op, const Tensor& x, std::int64_t dim, std::int64_t start,
              std::int64_t end, std::int64_t step) {
    const profiler::OpScope scope("slice");
    check_device("slice", {&x});
    if (step < 1) throw ValueError(str(op, ": the step must be positive: ", step));
    if (x.dim() == 0) throw ShapeError(str(op, ": a 0-d tensor cannot be sliced"));
    const int d = wrap_dim(op, dim, x.dim());
    const std::int64_t size = x.shape()[d];
    const auto clamped = [size](std::int64_t i) {
        return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
    };
    const std::int64_t first = clamped(start);
    const std::int64_t last = std::max(first, clamped(end));
    if (step == 1) return narrow(x, d, first, last - first);
    Shape shape = x.shape();
    Strides strides = x.strides();
    shape[d] = last == first ? 0 : (last - first - 1) / step + 1;
    const Tensor y = [&] {
        const std::int64_t offset = x.impl()->offset + first * strides[d];
        // The product overflows only for steps that select at most one element. Its stride is not
        // used.
        if (std::int64_t stride = 0; !__builtin_mul_overflow(strides[d], step, &stride))
            strides[d] = stride;
        return make_view(x, shape, strides, offset);
    }();
    return record_slice("slice", y, x, [d, first, last, step](const Tensor& t) {
        return slice(t, d, first, last, step);
    });
}

Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
    return selected("select", x, dim, index);
}

Tensor selected(const char* op, const Tensor& x, std::int64_t dim, std::int64_t index) {
    const profiler::OpScope scope("select");
    check_device("select", {&x});
    if (x.dim() == 0) throw IndexError(str(op, ": a 0-d tensor cannot be indexed; use item()"));
    const int d = wrap_dim(op, dim, x.dim());
    const std::int64_t size = x.shape()[d];
    if (index < -size || index >= size)
        throw IndexError(str(op, ": the index must be in [", -size, ", ", size, ") for dimension ",
                             dim, ": index ", index, ", x is ", x.shape()));
    return squeeze(narrow(x, d, index < 0 ? index + size : index, 1), d);
}

}  // namespace axle
