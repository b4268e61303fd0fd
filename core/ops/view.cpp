// Views share storage and cost a few words. Each one's rule is the inverse view of the gradient, or
// zeros with the gradient written into the viewed part.
#include <algorithm>
#include <cstdint>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"

namespace axle::inline v0 {
namespace {

// Another window on x's storage.
Tensor window(const Tensor& x, const Shape& shape, const Strides& strides, std::int64_t offset) {
    auto impl = std::make_shared<Impl>();
    impl->storage = x.impl()->storage;
    impl->shape = shape;
    impl->strides = strides;
    impl->offset = offset;
    impl->dtype = x.dtype();
    return Tensor(std::move(impl));
}

// Replaces the one -1 of a shape; throws ShapeError if the element counts differ.
Shape resolve(const char* op, const Tensor& x, Shape shape) {
    int unknown = -1;
    std::int64_t known = 1;
    for (int d = 0; d < shape.size(); ++d) {
        if (shape[d] == -1 && unknown < 0) {
            unknown = d;
            continue;
        }
        if (shape[d] < 0) throw ShapeError(str(op, ": bad size in ", shape, " for ", x.shape()));
        known *= shape[d];
    }
    if (unknown >= 0 && known != 0 && x.numel() % known == 0) shape[unknown] = x.numel() / known;
    if ((unknown >= 0 && shape[unknown] < 0) || numel(shape) != x.numel())
        throw ShapeError(str(op, ": ", x.shape(), " doesn't hold the elements of ", shape));
    return shape;
}

// Strides under which `shape` shows x without a copy; false if there are none. Runs of x's
// dimensions that lie without gaps are cut anew.
bool strides_for(const Tensor& x, const Shape& shape, Strides& strides) {
    strides = contiguous_strides(shape);
    if (x.numel() == 0 || x.is_contiguous()) return true;
    // A size of 1 has no say.
    Dims from, step;
    for (int i = 0; i < x.dim(); ++i) {
        if (x.shape()[i] == 1) continue;
        from.push_back(x.shape()[i]);
        step.push_back(x.strides()[i]);
    }
    int d = shape.size() - 1;
    for (int last = from.size() - 1; last >= 0;) {
        // [first, last] is one run with the stride of its last dimension.
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
    const Tensor y = window(x, shape, strides, x.impl()->offset);
    return record(op, y, {x}, [shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {reshape(dy[0], shape)};
    });
}

// Zeros of a shape with g written into the part that `part` cuts out.
template <class F>
Tensor padded(const Tensor& g, const Shape& shape, F&& part) {
    Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
    const NoGrad no_grad;
    part(y).copy_(g);
    return y;
}

// y = part(x), a linear cut; its gradient is `padded`, whose own gradient is the cut again.
template <class F>
Tensor record_cut(const char* op, const Tensor& y, const Tensor& x, F part) {
    return record(op, y, {x}, [op, part, shape = x.shape()](const Grads& dy, Needs) -> Grads {
        return {record(op, padded(dy[0], shape, part), {dy[0]},
                       [part](const Grads& ddx, Needs) -> Grads { return {part(ddx[0])}; })};
    });
}

}  // namespace

Tensor view(const Tensor& x, const Shape& wanted) {
    const profiler::OpScope scope("view");
    check_device("view", {&x});
    const Shape shape = resolve("view", x, wanted);
    Strides strides;
    if (!strides_for(x, shape, strides))
        throw ShapeError(str("view: ", x.shape(), " with strides ", x.strides(),
                             " can't be seen as ", shape, " without a copy; use reshape"));
    return reshape_view("view", x, shape, strides);
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
    const profiler::OpScope scope("reshape");
    check_device("reshape", {&x});
    const Shape shape = resolve("reshape", x, wanted);
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
        throw ValueError(str("flatten: from ", from, " comes after to ", to, " in ", x.shape()));
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
        throw ShapeError(str("permute: ", order, " doesn't order the dimensions of ", x.shape()));
    Shape shape = x.shape();
    Strides strides = x.strides();
    Dims inverse = order;
    unsigned seen = 0;
    for (int d = 0; d < order.size(); ++d) {
        const int from = wrap_dim("permute", order[d], x.dim());
        if (seen & (1u << from)) throw ValueError(str("permute: a dimension comes twice: ", order));
        seen |= 1u << from;
        shape[d] = x.shape()[from];
        strides[d] = x.strides()[from];
        inverse[from] = d;
    }
    const Tensor y = window(x, shape, strides, x.impl()->offset);
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

Tensor expand(const Tensor& x, const Shape& wanted) {
    check_device("expand", {&x});
    if (wanted == x.shape()) return x;
    const profiler::OpScope scope("expand");
    Shape shape = wanted;
    Strides strides = shape;
    const int added = shape.size() - x.dim();
    bool fits = added >= 0;
    for (int d = 0; fits && d < shape.size(); ++d) {
        const std::int64_t size = d < added ? 1 : x.shape()[d - added];
        if (shape[d] == -1 && d >= added) shape[d] = size;
        fits = shape[d] == size || (size == 1 && shape[d] >= 0);
        strides[d] = shape[d] == size && d >= added ? x.strides()[d - added] : 0;
    }
    if (!fits) throw ShapeError(str("expand: ", x.shape(), " doesn't broadcast to ", wanted));
    if (shape == x.shape()) return x;
    // The engine sums the gradient to x's shape.
    return record("expand", window(x, shape, strides, x.impl()->offset), {x},
                  [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
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
    if (x.dim() == 0) throw ShapeError("narrow: a 0-d tensor has no dimension to cut");
    const int d = wrap_dim("narrow", dim, x.dim());
    const std::int64_t size = x.shape()[d];
    const std::int64_t first = start < 0 ? start + size : start;
    if (first < 0 || length < 0 || first > size || length > size - first)
        throw IndexError(str("narrow: [", start, ", ", start, " + ", length,
                             ") is outside dimension ", dim, " of ", x.shape()));
    if (length == size) return x;
    Shape shape = x.shape();
    shape[d] = length;
    const Tensor y = window(x, shape, x.strides(), x.impl()->offset + first * x.strides()[d]);
    return record_cut("narrow", y, x,
                      [d, first, length](const Tensor& t) { return narrow(t, d, first, length); });
}

Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step) {
    const profiler::OpScope scope("slice");
    check_device("slice", {&x});
    if (step < 1) throw ValueError(str("slice: the step must be positive: ", step));
    if (x.dim() == 0) throw ShapeError("slice: a 0-d tensor has no dimension to cut");
    const int d = wrap_dim("slice", dim, x.dim());
    const std::int64_t size = x.shape()[d];
    const auto clamped = [size](std::int64_t i) {
        return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
    };
    const std::int64_t first = clamped(start);
    const std::int64_t last = std::max(first, clamped(end));
    if (step == 1) return narrow(x, d, first, last - first);
    Shape shape = x.shape();
    Strides strides = x.strides();
    shape[d] = (last - first + step - 1) / step;
    const Tensor y = [&] {
        const std::int64_t offset = x.impl()->offset + first * strides[d];
        strides[d] *= step;
        return window(x, shape, strides, offset);
    }();
    return record_cut("slice", y, x, [d, first, last, step](const Tensor& t) {
        return slice(t, d, first, last, step);
    });
}

Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
    const profiler::OpScope scope("select");
    check_device("select", {&x});
    if (x.dim() == 0) throw IndexError("select: a 0-d tensor can't be indexed; use item()");
    const int d = wrap_dim("select", dim, x.dim());
    const std::int64_t size = x.shape()[d];
    if (index < -size || index >= size)
        throw IndexError(
            str("select: index ", index, " is outside dimension ", dim, " of ", x.shape()));
    return squeeze(narrow(x, d, index < 0 ? index + size : index, 1), d);
}

namespace {

// Neighbouring views along d that share one node, so that their gradients are joined by one cat.
std::vector<Tensor> cut(const Tensor& x, int d, const std::vector<std::int64_t>& sizes) {
    std::vector<Tensor> parts;
    std::vector<Tensor*> outputs;
    std::int64_t start = 0;
    {
        const NoGrad no_grad;
        for (const std::int64_t size : sizes) {
            parts.push_back(narrow(x, d, start, size));
            start += size;
        }
    }
    outputs.reserve(parts.size());
    for (Tensor& part : parts) outputs.push_back(&part);
    record_outputs(
        "split", outputs, {x}, [d, sizes, shape = x.shape()](const Grads& dy, Needs) -> Grads {
            std::vector<Tensor> all = dy;
            Tensor known;
            for (const Tensor& g : dy)
                if (g.defined()) known = g;
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (all[i].defined()) continue;
                Shape missing = shape;
                missing[d] = sizes[i];
                all[i] = zeros(missing, {.dtype = known.dtype(), .device = known.device()});
            }
            return {cat(all, d)};
        });
    return parts;
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, const Dims& sizes, std::int64_t dim) {
    const profiler::OpScope scope("split");
    check_device("split", {&x});
    const int d = wrap_dim("split", dim, x.dim());
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) total += size;
    if (x.dim() == 0 || total != x.shape()[d])
        throw ShapeError(
            str("split: sizes ", sizes, " don't add up to dimension ", dim, " of ", x.shape()));
    return cut(x, d, {sizes.begin(), sizes.end()});
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim) {
    const profiler::OpScope scope("split");
    check_device("split", {&x});
    const int d = wrap_dim("split", dim, x.dim());
    if (x.dim() == 0) throw ShapeError("split: a 0-d tensor has no dimension to cut");
    if (size < 1) throw ValueError(str("split: the size must be positive: ", size));
    const std::int64_t n = x.shape()[d];
    std::vector<std::int64_t> sizes;
    for (std::int64_t start = 0; start < n || sizes.empty(); start += size)
        sizes.push_back(std::min(size, n - start));
    return cut(x, d, sizes);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
    const profiler::OpScope scope("chunk");
    check_device("chunk", {&x});
    if (chunks < 1) throw ValueError(str("chunk: the number of chunks must be positive: ", chunks));
    const std::int64_t n = x.size(dim);
    if (n == 0)
        return cut(x, wrap_dim("chunk", dim, x.dim()), std::vector<std::int64_t>(chunks, 0));
    return split(x, std::max<std::int64_t>(1, (n + chunks - 1) / chunks), dim);
}

Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim) {
    const profiler::OpScope scope("cat");
    if (tensors.empty()) throw ValueError("cat: no tensors");
    const Tensor& first = tensors[0];
    DType dtype = first.dtype();
    for (const Tensor& t : tensors) {
        check_device("cat", {&first, &t});
        dtype = promote(dtype, t.dtype());
    }
    if (first.dim() == 0) throw ShapeError("cat: 0-d tensors can't be concatenated; use stack");
    const int d = wrap_dim("cat", dim, first.dim());
    Shape shape = first.shape();
    shape[d] = 0;
    Dims unsized = shape;
    for (const Tensor& t : tensors) {
        Shape other = t.shape();
        if (other.size() == shape.size()) other[d] = 0;
        if (other != unsized)
            throw ShapeError(str("cat: shapes differ beyond dimension ", dim, ": ", first.shape(),
                                 " and ", t.shape()));
        shape[d] += t.shape()[d];
    }
    Tensor y = Tensor::empty(shape, {.dtype = dtype, .device = first.device()});
    std::vector<std::int64_t> sizes;
    {
        const NoGrad no_grad;
        std::int64_t start = 0;
        for (const Tensor& t : tensors) {
            Tensor part = narrow(y, d, start, t.shape()[d]);
            launch(y.device(), [&](auto& on) { kernels::copy(on, t.view(), part.view()); });
            sizes.push_back(t.shape()[d]);
            start += t.shape()[d];
        }
    }
    return record("cat", y, tensors, [sizes, d](const Grads& dy, Needs needs) -> Grads {
        Grads dx(sizes.size());
        std::int64_t start = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (i >= 64 || needs[static_cast<int>(i)]) dx[i] = narrow(dy[0], d, start, sizes[i]);
            start += sizes[i];
        }
        return dx;
    });
}

Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim) {
    const profiler::OpScope scope("stack");
    if (tensors.empty()) throw ValueError("stack: no tensors");
    std::vector<Tensor> rows;
    for (const Tensor& t : tensors) {
        if (t.shape() != tensors[0].shape())
            throw ShapeError(str("stack: shapes differ: ", tensors[0].shape(), " and ", t.shape()));
        rows.push_back(unsqueeze(t, dim));
    }
    return cat(rows, wrap_dim("stack", dim, tensors[0].dim() + 1));
}

}  // namespace axle::inline v0
