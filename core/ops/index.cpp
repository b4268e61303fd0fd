#include "kernels/ops/index.h"

#include <string>
#include <utility>

#include "core/autograd/accumulation.h"
#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/index_checks.h"
#include "core/ops/selection/indices.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/sort.h"

namespace axle {

void check_fits(const char* op, int dim, const Tensor& index, const Tensor& x) {
    bool fits = index.dim() == x.dim();
    for (int d = 0; fits && d < x.dim(); ++d) fits = d == dim || index.shape()[d] <= x.shape()[d];
    if (fits) return;
    const std::string free = dim < 0 ? "" : str(" outside dimension ", dim);
    throw ShapeError(
        str(op, ": the index must have as many dimensions as the tensor, and no larger size", free,
            ": index ", index.shape(), ", tensor ", x.shape()));
}

Tensor broadcast_index(const Tensor& index, int dim, const Shape& shape) {
    Shape aligned = shape;
    for (std::int64_t& size : aligned) size = 1;
    aligned[dim] = index.numel();
    return expand(reshape(index, aligned), shape);
}

namespace {

// Adds dy at index to zeros of `shape` and returns the sum. This is the gradient of reading at
// index. Indices must be valid. f16 and bf16 are accumulated and returned in f32.
Tensor scatter_to_zeros(const Shape& shape, int dim, const Tensor& index, const Tensor& dy) {
    const Tensor src = is_half(dy.dtype()) ? to(dy, f32) : dy;
    Tensor y = zeros(shape, {.dtype = src.dtype(), .device = src.device()});
    launch(y.device(),
           [&](auto& on) { kernels::scatter_add(on, dim, index.view(), src.view(), y.view()); });
    return record("scatter", y, {src},
                  [dim, index = saved(index)](const Grads& dz, Needs) -> Grads {
                      return {gather(dz[0], dim, index)};
                  });
}

// Computes the gradient of embedding in dweight, [rows, width], or adds it to dweight. Throws
// ValueError if ids on a GPU have more than kMaxSortedElements elements.
void write_embedding_gradient(const Tensor& dy, const Tensor& ids, std::int64_t padding,
                              Tensor& dweight, bool accumulate) {
    const std::int64_t n = ids.numel(), width = dy.size(-1);
    if (dy.device().is_cuda() && n > kernels::kMaxSortedElements)
        throw ValueError(str("embedding: backward on a GPU supports at most ",
                             kernels::kMaxSortedElements, " ids: ids ", ids.shape(),
                             "; use a smaller batch"));
    const Tensor flat_ids = reshape(ids, {n}), flat_dy = reshape(dy.detach(), {n, width});
    launch(dy.device(), [&](auto& on) {
        kernels::embedding_backward(on, flat_dy.view(), flat_ids.view(), padding, dweight.view(),
                                    accumulate);
    });
}

// Returns the gradient of embedding, [rows, width], in f32 if dy is f16 or bf16. This gradient can
// itself be differentiated.
Tensor embedding_gradient(const Tensor& dy, const Tensor& ids, std::int64_t rows,
                          std::int64_t padding) {
    const DType dtype = is_half(dy.dtype()) ? f32 : dy.dtype();
    // If the weight has another gradient, as a head with the same weight does, only the rows of the
    // ids change.
    Tensor* const sum = autograd::sum_to_extend(0);
    if (sum != nullptr && sum->dtype() == dtype) {
        write_embedding_gradient(dy, ids, padding, *sum, true);
        return {};
    }
    Tensor dweight = empty({rows, dy.size(-1)}, {.dtype = dtype, .device = dy.device()});
    write_embedding_gradient(dy, ids, padding, dweight, false);
    return record("embedding_gradient", dweight, {dy},
                  [ids = saved(ids), padding](const Grads& dz, Needs) -> Grads {
                      const Tensor rows_of_dz = embedding(ids, dz[0]);
                      if (padding < 0) return {rows_of_dz};
                      return {masked_fill(rows_of_dz, unsqueeze(eq(ids, padding), -1), 0)};
                  });
}

}  // namespace

void check_index_range(const char* op, const Tensor& index, std::int64_t size) {
    kernels::BadIndex bad;
    launch(index.device(), [&]<class On>(On& on) {
        if constexpr (std::is_same_v<On, kernels::Cpu>)
            bad = kernels::find_bad_index(on, index.view(), size);
        else
            kernels::check_index(on, index.view(), size);
    });
    if (bad.position < 0) return;
    Dims position = index.shape();
    for (int d = index.dim() - 1; d >= 0; --d) {
        position[d] = bad.position % index.shape()[d];
        bad.position /= index.shape()[d];
    }
    throw IndexError(str(op, ": index out of range: ", bad.value, " at ", position,
                         " for a dimension of size ", size));
}

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
    const profiler::OpScope scope("gather");
    check_device("gather", {&x, &index});
    check_index_dtype("gather", index);
    if (x.dim() == 0 || index.dim() == 0)
        return reshape(gather(at_least_1d(x), dim, at_least_1d(index)), index.shape());
    const int d = wrap_dim("gather", dim, x.dim());
    check_fits("gather", d, index, x);
    check_index_range("gather", index, x.shape()[d]);
    Tensor y = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::gather(on, d, x.view(), index.view(), y.view()); });
    return record("gather", y, {x},
                  [d, index = saved(index), shape = x.shape()](const Grads& dy, Needs) -> Grads {
                      return {scatter_to_zeros(shape, d, index, dy[0])};
                  });
}

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
    const profiler::OpScope scope("index_select");
    check_device("index_select", {&x, &index});
    check_index_dtype("index_select", index);
    if (index.dim() > 1)
        throw ShapeError(str("index_select: needs a 1-d index: shape ", index.shape()));
    if (x.dim() == 0) return reshape(index_select(reshape(x, {1}), dim, index), {});
    const int d = wrap_dim("index_select", dim, x.dim());
    check_index_range("index_select", index, x.shape()[d]);
    Shape shape = x.shape();
    shape[d] = index.numel();
    Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    const Tensor slices = broadcast_index(index, d, shape);
    launch(x.device(),
           [&](auto& on) { kernels::gather(on, d, x.view(), slices.view(), y.view()); });
    return record(
        "index_select", y, {x},
        [d, index = saved(index), shape = x.shape()](const Grads& dy, Needs) -> Grads {
            return {scatter_to_zeros(shape, d, broadcast_index(index, d, dy[0].shape()), dy[0])};
        });
}

Tensor scatter_add(const Tensor& input, std::int64_t dim, const Tensor& index,
                   const Tensor& added) {
    const profiler::OpScope scope("scatter_add");
    check_device("scatter_add", {&input, &index, &added});
    check_index_dtype("scatter_add", index);
    check_compute("scatter_add", input);
    // Under autocast, x and src can have different floating dtypes.
    const bool differ = autocast_dtype() && input.dtype() != added.dtype();
    const Tensor x = differ ? autocast_to_f32(input) : input,
                 src = differ ? autocast_to_f32(added) : added;
    check_same_dtype("scatter_add", x, src, "x", "src");
    if (x.dim() == 0)
        return reshape(scatter_add(reshape(x, {1}), dim, at_least_1d(index), at_least_1d(src)), {});
    const int d = wrap_dim("scatter_add", dim, x.dim());
    check_fits("scatter_add", d, index, x);
    check_fits("scatter_add", -1, index, src);
    check_index_range("scatter_add", index, x.shape()[d]);
    Tensor from = src;
    for (int i = 0; i < src.dim(); ++i)
        if (src.shape()[i] > index.shape()[i]) from = narrow(from, i, 0, index.shape()[i]);
    Tensor y = clone(x.detach());
    launch(x.device(),
           [&](auto& on) { kernels::scatter_add(on, d, index.view(), from.view(), y.view()); });
    return record("scatter_add", y, {x, from},
                  [d, index = saved(index)](const Grads& dy, Needs needs) -> Grads {
                      return {dy[0], needs[1] ? gather(dy[0], d, index) : Tensor()};
                  });
}

Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
    const profiler::OpScope scope("embedding");
    check_device("embedding", {&ids, &weight});
    check_index_dtype("embedding", ids, "ids");
    check_floating("embedding", weight, "weight");
    if (weight.dim() != 2)
        throw ShapeError(
            str("embedding: the weight must be [rows, width]: weight ", weight.shape()));
    const std::int64_t rows = weight.size(0), n = ids.numel(), width = weight.size(1);
    std::int64_t padding = padding_idx.value_or(-1);
    if (padding_idx && (padding < -rows || padding >= rows))
        throw ValueError(
            str("embedding: padding_idx must be in [", -rows, ", ", rows, "): ", padding));
    if (padding_idx && padding < 0) padding += rows;
    check_index_range("embedding", ids, rows);
    Shape shape = ids.shape();
    shape.push_back(width);
    Tensor y = empty(shape, {.dtype = weight.dtype(), .device = weight.device()});
    Tensor flat_y = reshape(y, {n, width});
    const Tensor row_of = broadcast_index(reshape(ids, {n}), 0, {n, width});
    launch(weight.device(),
           [&](auto& on) { kernels::gather(on, 0, weight.view(), row_of.view(), flat_y.view()); });
    return record("embedding", y, {weight},
                  [ids = saved(ids), rows, padding](const Grads& dy, Needs) -> Grads {
                      return {embedding_gradient(dy[0], ids, rows, padding)};
                  });
}

Tensor one_hot(const Tensor& ids, std::int64_t classes) {
    const profiler::OpScope scope("one_hot");
    check_device("one_hot", {&ids});
    check_index_dtype("one_hot", ids, "ids");
    if (classes < 1)
        throw ValueError(str("one_hot: the number of classes must be positive: ", classes));
    check_index_range("one_hot", ids, classes);
    Shape shape = ids.shape();
    shape.push_back(classes);
    Tensor y = zeros(shape, {.dtype = i64, .device = ids.device()});
    const Tensor index = unsqueeze(ids, -1);
    const Tensor one = expand(ones({1}, {.dtype = i64, .device = ids.device()}), index.shape());
    launch(ids.device(), [&](auto& on) {
        kernels::scatter_add(on, ids.dim(), index.view(), one.view(), y.view());
    });
    return y;
}

namespace {

Tensor triangle(const char* op, const Tensor& x, bool lower, std::int64_t diagonal) {
    const profiler::OpScope scope(op);
    check_device(op, {&x});
    if (x.dim() < 2) throw ShapeError(str(op, ": needs at least 2 dimensions: x ", x.shape()));
    Tensor y = empty_like(x);
    launch(x.device(),
           [&](auto& on) { kernels::triangle(on, lower, diagonal, x.view(), y.view()); });
    return record(op, y, {x}, [op, lower, diagonal](const Grads& dy, Needs) -> Grads {
        return {triangle(op, dy[0], lower, diagonal)};
    });
}

}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal) { return triangle("tril", x, true, diagonal); }
Tensor triu(const Tensor& x, std::int64_t diagonal) { return triangle("triu", x, false, diagonal); }

namespace {

// Runs a kernel that selects k elements of x along d. Returns the values and their indices. Throws
// ValueError if d has more than kMaxSortedElements elements on a GPU.
template <class Kernel>
std::pair<Tensor, Tensor> select_along(const char* op, const Tensor& x, int d, std::int64_t k,
                                       Kernel kernel) {
    if (x.dim() == 0) {
        const auto [values, indices] = select_along(op, reshape(x, {1}), d, k, kernel);
        return k == 0 ? std::pair(values, indices)
                      : std::pair(reshape(values, {}), reshape(indices, {}));
    }
    if (x.device().is_cuda() && x.shape()[d] > kernels::kMaxSortedElements)
        throw ValueError(str(op, ": a GPU supports at most ", kernels::kMaxSortedElements,
                             " elements along the dimension: x ", x.shape(),
                             "; move the tensor to the CPU"));
    Shape shape = x.shape();
    shape[d] = k;
    Tensor values = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    Tensor indices = empty(shape, {.dtype = i64, .device = x.device()});
    const Tensor rows = transpose(x.detach(), d, -1);
    Tensor rows_of_values = transpose(values, d, -1), rows_of_indices = transpose(indices, d, -1);
    launch(x.device(), [&](auto& on) {
        kernel(on, rows.view(), rows_of_values.view(), rows_of_indices.view());
    });
    values =
        record(op, values, {x},
               [d, indices = saved(indices), shape = x.shape()](const Grads& dy, Needs) -> Grads {
                   return {scatter_to_zeros(shape, d, indices, dy[0])};
               });
    return {values, indices};
}

// Returns sort(x, dim, descending). Errors name the op `op`.
std::pair<Tensor, Tensor> sort_along(const char* op, const Tensor& x, std::int64_t dim,
                                     bool descending) {
    check_device(op, {&x});
    check_compute(op, x);
    const int d = wrap_dim(op, dim, x.dim());
    const std::int64_t n = x.dim() == 0 ? 1 : x.shape()[d];
    return select_along(op, x, d, n, [&](auto& on, ConstView from, View values, View indices) {
        kernels::sort(on, descending, from, values, indices);
    });
}

}  // namespace

std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, std::int64_t dim, bool largest) {
    const profiler::OpScope scope("topk");
    check_device("topk", {&x});
    check_compute("topk", x);
    const int d = wrap_dim("topk", dim, x.dim());
    const std::int64_t n = x.dim() == 0 ? 1 : x.shape()[d];
    if (k < 0 || k > n)
        throw ValueError(
            str("topk: k must be in [0, ", n, "]: ", k, " along dimension ", d, " of ", x.shape()));
    return select_along("topk", x, d, k, [&](auto& on, ConstView from, View values, View indices) {
        kernels::topk(on, largest, from, values, indices);
    });
}

std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim, bool descending) {
    const profiler::OpScope scope("sort");
    return sort_along("sort", x, dim, descending);
}

Tensor argsort(const Tensor& x, std::int64_t dim, bool descending) {
    const profiler::OpScope scope("argsort");
    return sort_along("argsort", x.defined() ? x.detach() : x, dim, descending).second;
}

}  // namespace axle
