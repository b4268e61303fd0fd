// Ops that join and split tensors, composed of cat and views.
#include <cstdint>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/shaping/views.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

using Indices = std::vector<std::int64_t>;

// Returns with_dims(tensor) for all tensors. Throws ValueError if the list is empty.
std::vector<Tensor> aligned(const char* op, const std::vector<Tensor>& tensors,
                            Tensor (*with_dims)(const Tensor&)) {
    if (tensors.empty()) throw ValueError(str(op, ": needs at least 1 tensor: the list is empty"));
    std::vector<Tensor> result;
    for (const Tensor& x : tensors) {
        check_device(op, {&tensors[0], &x});
        result.push_back(with_dims(x));
    }
    return result;
}

Tensor as_column(const Tensor& x) { return x.dim() < 2 ? reshape(x, {x.numel(), 1}) : x; }

// Throws ShapeError unless x has at least `dims` dimensions, and the errors of check_device().
void check_dims(const char* op, const Tensor& x, int dims) {
    check_device(op, {&x});
    if (x.dim() < dims)
        throw ShapeError(str(op, ": needs at least ", dims,
                             dims == 1 ? " dimension" : " dimensions", ": x ", x.shape()));
}

void check_divisible(const char* op, const Tensor& x, std::int64_t sections, int d) {
    if (sections < 1)
        throw ValueError(str(op, ": the number of sections must be positive: ", sections));
    if (x.shape()[d] % sections != 0)
        throw ShapeError(str(op, ": the size of dimension ", d, " must be divisible by ", sections,
                             ": x ", x.shape()));
}

std::vector<Tensor> equal_parts(const char* op, const Tensor& x, std::int64_t sections, int d) {
    check_divisible(op, x, sections, d);
    return tensor_split(x, sections, d);
}

}  // namespace

Tensor hstack(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("hstack");
    const std::vector<Tensor> rows = aligned("hstack", tensors, atleast_1d);
    return concatenated("hstack", rows, rows[0].dim() == 1 ? 0 : 1);
}
Tensor vstack(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("vstack");
    return concatenated("vstack", aligned("vstack", tensors, atleast_2d), 0);
}
Tensor dstack(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("dstack");
    return concatenated("dstack", aligned("dstack", tensors, atleast_3d), 2);
}
Tensor column_stack(const std::vector<Tensor>& tensors) {
    const profiler::OpScope scope("column_stack");
    return concatenated("column_stack", aligned("column_stack", tensors, as_column), 1);
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
    const profiler::OpScope scope("unbind");
    check_dims("unbind", x, 1);
    const int d = wrap_dim("unbind", dim, x.dim());
    std::vector<Tensor> slices;
    {
        const NoGrad no_grad;
        for (std::int64_t i = 0; i < x.shape()[d]; ++i) slices.push_back(select(x, d, i));
    }
    if (slices.empty()) return slices;
    std::vector<Tensor*> outputs;
    outputs.reserve(slices.size());
    for (Tensor& slice : slices) outputs.push_back(&slice);
    record_outputs("unbind", outputs, {x}, [d](const Grads& dy, Needs) -> Grads {
        std::vector<Tensor> all = dy;
        Tensor known;
        for (const Tensor& g : dy)
            if (g.defined()) known = g;
        for (Tensor& g : all)
            if (!g.defined()) g = zeros_like(known);
        return {stack(all, d)};
    });
    return slices;
}

std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t sections, std::int64_t dim) {
    const profiler::OpScope scope("tensor_split");
    check_dims("tensor_split", x, 1);
    const int d = wrap_dim("tensor_split", dim, x.dim());
    if (sections < 1)
        throw ValueError(str("tensor_split: the number of sections must be positive: ", sections));
    const std::int64_t size = x.shape()[d];
    std::vector<std::int64_t> sizes;
    for (std::int64_t i = 0; i < sections; ++i)
        sizes.push_back(size / sections + (i < size % sections ? 1 : 0));
    return split_views(x, d, sizes);
}

std::vector<Tensor> tensor_split(const Tensor& x, const Indices& indices, std::int64_t dim) {
    const profiler::OpScope scope("tensor_split");
    check_dims("tensor_split", x, 1);
    const int d = wrap_dim("tensor_split", dim, x.dim());
    std::vector<Tensor> parts;
    std::int64_t start = 0;
    for (const std::int64_t end : indices) {
        parts.push_back(slice(x, d, start, end));
        start = end;
    }
    parts.push_back(slice(x, d, start, x.shape()[d]));
    return parts;
}

std::vector<Tensor> hsplit(const Tensor& x, std::int64_t sections) {
    const profiler::OpScope scope("hsplit");
    check_dims("hsplit", x, 1);
    return equal_parts("hsplit", x, sections, x.dim() == 1 ? 0 : 1);
}
std::vector<Tensor> hsplit(const Tensor& x, const Indices& indices) {
    const profiler::OpScope scope("hsplit");
    check_dims("hsplit", x, 1);
    return tensor_split(x, indices, x.dim() == 1 ? 0 : 1);
}
std::vector<Tensor> vsplit(const Tensor& x, std::int64_t sections) {
    const profiler::OpScope scope("vsplit");
    check_dims("vsplit", x, 2);
    return equal_parts("vsplit", x, sections, 0);
}
std::vector<Tensor> vsplit(const Tensor& x, const Indices& indices) {
    const profiler::OpScope scope("vsplit");
    check_dims("vsplit", x, 2);
    return tensor_split(x, indices, 0);
}
std::vector<Tensor> dsplit(const Tensor& x, std::int64_t sections) {
    const profiler::OpScope scope("dsplit");
    check_dims("dsplit", x, 3);
    return equal_parts("dsplit", x, sections, 2);
}
std::vector<Tensor> dsplit(const Tensor& x, const Indices& indices) {
    const profiler::OpScope scope("dsplit");
    check_dims("dsplit", x, 3);
    return tensor_split(x, indices, 2);
}

}  // namespace axle
