// Splitting, concatenation and stacking. All views of one split share a node. The gradient of cat
// is computed with narrow.
#include <algorithm>
#include <cstdint>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"

namespace axle {
namespace {

// Returns a view of the contiguous tensor of the given shape whose consecutive slices along d are
// `parts`, or an undefined tensor if the parts are not such slices.
Tensor joined(const std::vector<Tensor>& parts, int d, const Shape& shape) {
    Strides strides = contiguous_strides(shape);
    std::int64_t next = parts[0].impl()->offset;
    for (const Tensor& part : parts) {
        if (part.impl()->storage != parts[0].impl()->storage || part.dtype() != parts[0].dtype() ||
            part.impl()->offset != next)
            return {};
        for (int i = 0; i < part.dim(); ++i)
            if (part.size(i) != 1 && part.strides()[i] != strides[i]) return {};
        next += part.size(d) * strides[d];
    }
    return make_view(parts[0], shape, strides, parts[0].impl()->offset);
}

}  // namespace

std::vector<Tensor> split_views(const Tensor& x, int d, const std::vector<std::int64_t>& sizes) {
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
            // Ops that split their own gradients, such as attention, need no copy.
            if (!grad_enabled())
                if (const Tensor whole = joined(all, d, shape); whole.defined()) return {whole};
            return {cat(all, d)};
        });
    return parts;
}

std::vector<Tensor> split(const Tensor& x, const Dims& sizes, std::int64_t dim) {
    const profiler::OpScope scope("split");
    check_device("split", {&x});
    const int d = wrap_dim("split", dim, x.dim());
    if (x.dim() == 0) throw ShapeError("split: a 0-d tensor cannot be split");
    std::int64_t left = x.shape()[d];
    for (const std::int64_t size : sizes) {
        if (size < 0 || size > left) left = -1;
        if (left < 0) break;
        left -= size;
    }
    if (left != 0)
        throw ShapeError(
            str("split: sizes ", sizes, " do not add up to dimension ", dim, " of x ", x.shape()));
    return split_views(x, d, {sizes.begin(), sizes.end()});
}

std::vector<Tensor> split(const Tensor& x, std::int64_t size, std::int64_t dim) {
    const profiler::OpScope scope("split");
    check_device("split", {&x});
    const int d = wrap_dim("split", dim, x.dim());
    if (x.dim() == 0) throw ShapeError("split: a 0-d tensor cannot be split");
    if (size < 1) throw ValueError(str("split: the size must be positive: ", size));
    const std::int64_t n = x.shape()[d];
    std::vector<std::int64_t> sizes;
    for (std::int64_t start = 0; start < n || sizes.empty(); start += size)
        sizes.push_back(std::min(size, n - start));
    return split_views(x, d, sizes);
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
    const profiler::OpScope scope("chunk");
    check_device("chunk", {&x});
    if (chunks < 1) throw ValueError(str("chunk: the number of chunks must be positive: ", chunks));
    const int d = wrap_dim("chunk", dim, x.dim());
    if (x.dim() == 0) throw ShapeError("chunk: a 0-d tensor cannot be split");
    const std::int64_t n = x.size(d);
    if (n == 0) return split_views(x, d, std::vector<std::int64_t>(chunks, 0));
    return split(x, (n - 1) / chunks + 1, dim);
}

Tensor concatenated(const char* op, const std::vector<Tensor>& tensors, std::int64_t dim) {
    if (tensors.empty()) throw ValueError(str(op, ": needs at least 1 tensor: the list is empty"));
    check_defined(op, tensors);
    DType dtype = tensors[0].dtype();
    bool are_vectors = true;
    for (const Tensor& t : tensors) {
        check_device(op, {&tensors[0], &t});
        dtype = promote(dtype, t.dtype());
        are_vectors &= t.dim() == 1;
    }
    const auto is_left_out = [are_vectors](const Tensor& t) {
        return !are_vectors && t.shape() == Shape{0};
    };
    const Tensor& first = *std::find_if_not(tensors.begin(), tensors.end(), is_left_out);
    if (first.dim() == 0)
        throw ShapeError(str(op, ": 0-d tensors cannot be concatenated; use stack"));
    const int d = wrap_dim(op, dim, first.dim());
    Shape shape = first.shape();
    shape[d] = 0;
    Dims unsized = shape;
    std::vector<std::int64_t> sizes;  // -1 for a tensor that is left out
    for (const Tensor& t : tensors) {
        if (is_left_out(t)) {
            sizes.push_back(-1);
            continue;
        }
        Shape other = t.shape();
        if (other.size() == shape.size()) other[d] = 0;
        if (other != unsized)
            throw ShapeError(str(op, ": shapes differ outside dimension ", dim, ": tensor ",
                                 &first - tensors.data(), " is ", first.shape(), ", tensor ",
                                 &t - tensors.data(), " is ", t.shape()));
        sizes.push_back(t.shape()[d]);
        shape[d] += sizes.back();
    }
    Tensor y = Tensor::empty(shape, {.dtype = dtype, .device = first.device()});
    {
        const NoGrad no_grad;
        std::int64_t start = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (sizes[i] < 0) continue;
            Tensor part = narrow(y, d, start, sizes[i]);
            launch(y.device(),
                   [&](auto& on) { kernels::copy(on, tensors[i].view(), part.view()); });
            start += sizes[i];
        }
    }
    return record("cat", y, tensors, [sizes, d](const Grads& dy, Needs needs) -> Grads {
        Grads dx(sizes.size());
        std::int64_t start = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const bool is_needed = i >= 64 || needs[static_cast<int>(i)];
            const Tensor part =
                is_needed ? narrow(dy[0], d, start, std::max<std::int64_t>(sizes[i], 0)) : Tensor();
            dx[i] = is_needed && sizes[i] < 0 ? reshape(part, {0}) : part;
            start += std::max<std::int64_t>(sizes[i], 0);
        }
        return dx;
    });
}

Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim) {
    const profiler::OpScope scope("cat");
    return concatenated("cat", tensors, dim);
}

Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim) {
    const profiler::OpScope scope("stack");
    if (tensors.empty()) throw ValueError("stack: needs at least 1 tensor: the list is empty");
    std::vector<Tensor> rows;
    for (const Tensor& t : tensors) {
        check_device("stack", {&tensors[0], &t});
        if (t.shape() != tensors[0].shape())
            throw ShapeError(str("stack: shapes differ: tensor 0 is ", tensors[0].shape(),
                                 ", tensor ", &t - tensors.data(), " is ", t.shape()));
        rows.push_back(unsqueeze(t, wrap_dim("stack", dim, t.dim() + 1)));
    }
    return cat(rows, wrap_dim("stack", dim, tensors[0].dim() + 1));
}

}  // namespace axle
