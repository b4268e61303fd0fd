// Ops that change shapes, composed of view, reshape and expand.
#include <cstdint>
#include <vector>

#include "core/check.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {

Tensor unflatten(const Tensor& x, std::int64_t dim, const Dims& sizes) {
    const profiler::OpScope scope("unflatten");
    check_device("unflatten", {&x});
    const int d = wrap_dim("unflatten", dim, x.dim());
    if (x.dim() == 0 || sizes.empty())
        throw ShapeError(
            str("unflatten: x must have a dimension, and sizes must not be empty: sizes ", sizes,
                ", x ", x.shape()));
    const std::int64_t size = x.shape()[d];
    std::int64_t known = 1;
    int unknown = -1;
    bool fits = true;
    for (int i = 0; i < sizes.size(); ++i) {
        fits = fits && (sizes[i] >= 0 || (sizes[i] == -1 && unknown < 0));
        if (sizes[i] == -1)
            unknown = i;
        else
            known *= sizes[i];
    }
    fits = fits && (unknown < 0 ? known == size : known != 0 && size % known == 0);
    if (!fits)
        throw ShapeError(str("unflatten: the sizes do not multiply to the size of dimension ", dim,
                             ": sizes ", sizes, ", x ", x.shape()));
    Shape shape = x.shape();
    shape.erase(d);
    for (int i = 0; i < sizes.size(); ++i)
        shape.insert(d + i, i == unknown ? size / known : sizes[i]);
    return view(x, shape);
}

Tensor view_as(const Tensor& x, const Tensor& other) {
    const profiler::OpScope scope("view_as");
    check_device("view_as", {&x});
    check_device("view_as", {&other});
    return viewed("view_as", x, other.shape());
}

Tensor reshape_as(const Tensor& x, const Tensor& other) {
    const profiler::OpScope scope("reshape_as");
    check_device("reshape_as", {&x});
    check_device("reshape_as", {&other});
    return reshaped("reshape_as", x, other.shape());
}

Tensor expand_as(const Tensor& x, const Tensor& other) {
    const profiler::OpScope scope("expand_as");
    check_device("expand_as", {&x});
    check_device("expand_as", {&other});
    return expanded("expand_as", x, other.shape());
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
    const profiler::OpScope scope("broadcast_to");
    check_device("broadcast_to", {&x});
    return expanded("broadcast_to", x, shape);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("broadcast_tensors");
    Shape shape;
    for (const Tensor& x : tensors) {
        check_device("broadcast_tensors", {&tensors[0], &x});
        shape = broadcast_shapes("broadcast_tensors", shape, x.shape());
    }
    std::vector<Tensor> result;
    for (const Tensor& x : tensors) result.push_back(expand(x, shape));
    return result;
}

Tensor ravel(const Tensor& x) {
    const profiler::OpScope scope("ravel");
    check_device("ravel", {&x});
    return reshape(x, -1);
}

Tensor atleast_1d(const Tensor& x) {
    const profiler::OpScope scope("atleast_1d");
    check_device("atleast_1d", {&x});
    return x.dim() == 0 ? reshape(x, 1) : x;
}

Tensor atleast_2d(const Tensor& x) {
    const profiler::OpScope scope("atleast_2d");
    check_device("atleast_2d", {&x});
    return x.dim() < 2 ? unsqueeze(atleast_1d(x), 0) : x;
}

Tensor atleast_3d(const Tensor& x) {
    const profiler::OpScope scope("atleast_3d");
    check_device("atleast_3d", {&x});
    return x.dim() < 3 ? unsqueeze(atleast_2d(x), -1) : x;
}

}  // namespace axle
