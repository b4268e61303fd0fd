// index and index_put_. Integers, slices, None and Ellipsis make a view of the tensor. The indexed
// dimensions of the view are merged. Index tensors and masks become one linear index into the
// merged dimension.
#include "core/indexing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/in_place.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/ops/selection/indices.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/index.h"

namespace axle {

std::vector<Tensor> positions_of_true(const char* op, const Tensor& mask) {
    if (mask.device().is_meta())
        throw DeviceError(
            str(op, ": a mask on the meta device has no values: mask ", mask.shape()));
    const Tensor host = contiguous(mask.detach().cpu());
    const bool* values = host.data<bool>();
    std::vector<std::vector<std::int64_t>> positions(static_cast<std::size_t>(mask.dim()));
    for (std::int64_t i = 0; i < host.numel(); ++i) {
        if (!values[i]) continue;
        std::int64_t rest = i;
        for (int d = mask.dim() - 1; d >= 0; --d) {
            positions[static_cast<std::size_t>(d)].push_back(rest % mask.shape()[d]);
            rest /= mask.shape()[d];
        }
    }
    std::vector<Tensor> result;
    result.reserve(positions.size());
    for (const auto& p : positions)
        result.push_back(tensor(p, static_cast<std::int64_t>(p.size())).to(mask.device()));
    return result;
}

Tensor wrapped_index(const char* op, const Tensor& index, const Shape& shape, int dim) {
    const std::int64_t size = shape[dim];
    const Tensor i = to(index.detach(), i64);
    if (!i.device().is_cpu()) {
        const Tensor result = where(i < 0, i + size, i);
        launch(i.device(), [&]<class On>(On& on) {
            if constexpr (!std::is_same_v<On, kernels::Cpu>)
                kernels::check_index(on, std::as_const(result).view(), size);
        });
        return result;
    }
    Tensor result = clone(i);
    auto* values = result.data<std::int64_t>();
    for (std::int64_t k = 0; k < result.numel(); ++k) {
        if (values[k] < -size || values[k] >= size)
            throw IndexError(str(op, ": index ", values[k],
                                 " is out of range for a dimension of size ", size, ": dimension ",
                                 dim, " of ", shape));
        if (values[k] < 0) values[k] += size;
    }
    return result;
}

namespace {

using IndexKind = TensorIndex::Kind;

// The view that integers, slices, None and Ellipsis select, and the remaining index tensors.
struct Plan {
    Tensor view;
    struct Indexed {
        int dim;       // a dimension of the view
        Tensor index;  // i64, in [0, size of the dimension)
    };
    std::vector<Indexed> tensors = {};
};

std::int64_t dims_taken(const TensorIndex& i) {
    if (i.kind == IndexKind::none || i.kind == IndexKind::ellipsis) return 0;
    const bool is_mask = i.kind == IndexKind::tensor && i.tensor.dtype() == boolean;
    return is_mask ? i.tensor.dim() : 1;
}

void add_tensor(const char* op, Plan& plan, int dim, const Tensor& t) {
    const Shape& shape = plan.view.shape();
    if (t.dtype() != boolean) {
        plan.tensors.push_back({dim, wrapped_index(op, t, shape, dim)});
        return;
    }
    if (t.dim() == 0)
        throw IndexError(str(op, ": a mask must have at least one dimension: the mask is []"));
    for (int d = 0; d < t.dim(); ++d)
        if (t.shape()[d] != shape[dim + d])
            throw IndexError(str(op, ": the shape of a mask differs from the indexed dimensions: ",
                                 "mask ", t.shape(), " at dimension ", dim, " of ", shape));
    for (const Tensor& position : positions_of_true(op, t))
        plan.tensors.push_back({dim++, position});
}

Plan make_plan(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices) {
    check_device(op, {&x});
    std::int64_t taken = 0, ellipses = 0;
    for (const TensorIndex& i : indices) {
        if (i.kind == IndexKind::tensor) {
            if (!i.tensor.defined() || !i.tensor.device().is_cpu())
                check_device(op, {&x, &i.tensor});
            if (i.tensor.dtype() != boolean) check_index_dtype(op, i.tensor);
        }
        ellipses += i.kind == IndexKind::ellipsis;
        taken += dims_taken(i);
    }
    if (ellipses > 1)
        throw IndexError(
            str(op, ": Ellipsis can be used only once: it is used ", ellipses, " times"));
    if (taken > x.dim())
        throw IndexError(
            str(op, ": too many indices: ", taken, " for a tensor of shape ", x.shape()));
    Plan plan{x};
    int dim = 0;  // the next dimension of plan.view
    for (const TensorIndex& i : indices) {
        switch (i.kind) {
            case IndexKind::integer: {
                const std::int64_t size = plan.view.shape()[dim];
                if (i.integer < -size || i.integer >= size)
                    throw IndexError(str(op, ": index ", i.integer,
                                         " is out of range for a dimension of size ", size, ": x ",
                                         x.shape()));
                plan.view = select(plan.view, dim, i.integer);
                break;
            }
            case IndexKind::slice:
                if (i.slice.step < 1)
                    throw ValueError(
                        str(op, ": the step of a slice must be positive: ", i.slice.step));
                plan.view = slice(plan.view, dim++, i.slice.start, i.slice.stop, i.slice.step);
                break;
            case IndexKind::none:
                plan.view = unsqueeze(plan.view, dim++);
                break;
            case IndexKind::ellipsis:
                dim += static_cast<int>(x.dim() - taken);
                break;
            case IndexKind::tensor:  // as in PyTorch, indices on the CPU work on every device
                add_tensor(op, plan, dim, i.tensor.to(x.device()));
                dim += static_cast<int>(dims_taken(i));
        }
    }
    return plan;
}

// The view of a plan with the indexed dimensions next to each other, beginning at dimension `dim`.
// They keep their places if they are adjacent, and are moved to the front otherwise.
struct Merged {
    Tensor view;
    int dim = 0;    // the first indexed dimension of view
    int count = 0;  // number of indexed dimensions
    Shape index_shape = {};
    Tensor linear = {};  // 1-d index into the merged dimension

    // Returns the view with one dimension in place of the indexed dimensions.
    Tensor rows() const {
        Shape shape;
        std::int64_t size = 1;
        for (int d = 0; d < view.dim(); ++d) {
            if (d < dim || d >= dim + count) {
                shape.push_back(view.shape()[d]);
                continue;
            }
            size *= view.shape()[d];
            if (d == dim + count - 1) shape.push_back(size);
        }
        return reshape(view, shape);
    }
    // Returns the shape of the indexed elements.
    Shape result_shape() const {
        Shape shape;
        for (int d = 0; d < dim; ++d) shape.push_back(view.shape()[d]);
        for (const std::int64_t size : index_shape) shape.push_back(size);
        for (int d = dim + count; d < view.dim(); ++d) shape.push_back(view.shape()[d]);
        return shape;
    }
};

Merged merge(const char* op, const Plan& plan) {
    Merged m{plan.view, plan.tensors[0].dim, static_cast<int>(plan.tensors.size())};
    for (const auto& t : plan.tensors)
        m.index_shape = broadcast_shapes(op, m.index_shape, t.index.shape());
    if (plan.tensors.back().dim - m.dim != m.count - 1) {
        Dims order;
        for (const auto& t : plan.tensors) order.push_back(t.dim);
        for (int d = 0; d < plan.view.dim(); ++d)
            if (std::find(order.begin(), order.begin() + m.count, d) == order.begin() + m.count)
                order.push_back(d);
        m.view = permute(plan.view, order);
        m.dim = 0;
    }
    const NoGrad no_grad;
    for (int k = 0; k < m.count; ++k) {
        const Tensor& index = plan.tensors[static_cast<std::size_t>(k)].index;
        m.linear =
            m.linear.defined() ? m.linear * m.view.shape()[m.dim + k] + index : Tensor(index);
    }
    m.linear = reshape(expand(m.linear, m.index_shape), -1);
    return m;
}

// Returns a copy of `rows` with the values written to the positions `linear` along dim. If several
// values have the same position, the last value is written.
Tensor replaced(const Tensor& rows, int dim, const Tensor& linear, const Tensor& values) {
    return scatter(rows, dim, broadcast_index(linear, dim, values.shape()), values);
}

// Removes leading dimensions of size 1 until the value has at most `dims` dimensions.
Tensor without_leading_ones(const Tensor& value, int dims) {
    Tensor v = value;
    while (v.dim() > dims && v.shape()[0] == 1) v = select(v, 0, 0);
    return v;
}

// Returns index(x, indices). Errors name the op `op`.
Tensor indexed(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices) {
    const Plan plan = make_plan(op, x, indices);
    if (plan.tensors.empty()) return plan.view;
    const Merged m = merge(op, plan);
    return reshape(index_select(m.rows(), m.dim, m.linear), m.result_shape());
}

// Throws ShapeError unless a value of shape `value` can be broadcast to the indexed elements.
void check_value(const char* op, const Shape& value, const Shape& elements) {
    if (broadcast_shapes(op, elements, value) != elements)
        throw ShapeError(str(op, ": the value cannot be broadcast to the indexed elements: value ",
                             value, ", elements ", elements));
}

// Returns x with the value written, or added, to the elements that the indices select. This is the
// recorded form of index_put_, which has a gradient. Throws ShapeError unless the value can be
// broadcast to these elements.
Tensor with_values(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices,
                   const Tensor& value, bool accumulate) {
    const Tensor numbers = axle::reshape(arange(x.numel(), {.device = x.device()}), x.shape());
    const Tensor selected = indexed(op, numbers, indices);
    const Tensor source =
        axle::to(axle::to(without_leading_ones(value, selected.dim()), x.device()), x.dtype());
    check_value(op, source.shape(), selected.shape());
    const Tensor values = axle::reshape(axle::expand(source, selected.shape()), -1);
    const Tensor places = axle::reshape(selected, -1), flat = axle::reshape(x, -1);
    return axle::reshape(
        accumulate ? scatter_add(flat, 0, places, values) : replaced(flat, 0, places, values),
        x.shape());
}

}  // namespace

TensorIndex::TensorIndex(std::initializer_list<std::int64_t> list)
    : kind(IndexKind::tensor),
      tensor(axle::tensor(std::span(list.begin(), list.size()),
                          {static_cast<std::int64_t>(list.size())})) {}

Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices) {
    const profiler::OpScope scope("index");
    return indexed("index", x, indices);
}

void put_values(const char* op, const Tensor& x, const std::vector<TensorIndex>& indices,
                const Tensor& value, bool accumulate) {
    const bool recorded = autograd::records_change(op, x, value.defined() && value.requires_grad());
    if (!recorded) check_in_place(op, x);
    check_compute(op, x, "the tensor");
    if (!value.defined()) throw UsageError(str(op, ": the value is undefined"));
    if (recorded)
        return autograd::replace(x, [&](const Tensor& before) {
            return with_values(op, before, indices, value, accumulate);
        });
    const NoGrad no_grad;
    const Plan plan = make_plan(op, x.detach(), indices);
    Tensor part = plan.view;
    if (plan.tensors.empty()) {
        const Tensor source = without_leading_ones(value, part.dim());
        check_value(op, source.shape(), part.shape());
        accumulate ? part.add_(axle::to(axle::to(source, x.device()), x.dtype()))
                   : part.copy_(source);
        return;
    }
    Merged m = merge(op, plan);
    const Shape shape = m.result_shape();
    const Tensor source = without_leading_ones(value, shape.size());
    check_value(op, source.shape(), shape);
    const Tensor rows = m.rows();
    Shape values_shape = rows.shape();
    values_shape[m.dim] = m.linear.numel();
    const Tensor values = axle::reshape(
        axle::expand(axle::to(axle::to(source, x.device()), x.dtype()), shape), values_shape);
    Shape aligned = values_shape;
    for (int d = 0; d < aligned.size(); ++d)
        if (d != m.dim) aligned[d] = 1;
    const Tensor result =
        accumulate
            ? scatter_add(rows, m.dim, axle::expand(axle::reshape(m.linear, aligned), values_shape),
                          values)
            : replaced(rows, m.dim, m.linear, values);
    m.view.copy_(axle::reshape(result, m.view.shape()));
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value,
                           bool accumulate) {
    const profiler::OpScope scope("index_put_");
    put_values("index_put_", *this, indices, value, accumulate);
    return *this;
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, Scalar value, bool accumulate) {
    if (!defined()) throw UsageError("index_put_: the tensor is undefined");
    const DType as = promote(dtype(), value);
    return index_put_(indices, full({}, value, {.dtype = as, .device = device()}), accumulate);
}

}  // namespace axle
