#include "dist/ops/collective_ops.h"

#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle::dist {
namespace {

using Group = std::shared_ptr<ProcessGroup>;

constinit thread_local CollectiveCounts thread_counts;

void count(std::int64_t CollectiveCounts::*kind, const Tensor& whole) {
    ++(thread_counts.*kind);
    thread_counts.bytes += whole.numel() * size_of(whole.dtype());
}

// Returns the index of the dimension. Throws IndexError if it is out of range, and ShapeError for a
// 0-d tensor.
int dimension_of(const char* op, const Tensor& x, std::int64_t dim) {
    if (x.dim() == 0) throw ShapeError(str(op, ": a 0-d tensor has no dimension ", dim));
    return wrap_dim(op, dim, x.dim());
}

void check_divides(const char* op, const Tensor& x, int d, const Group& group) {
    if (x.shape()[d] % group->size() != 0)
        throw ShapeError(str(op, ": the size of dimension ", d, " is not a multiple of the ",
                             group->size(), " ranks: x ", x.shape()));
}

// Returns x [..., P n, ...] as [P, ..., n, ...], where d is the divided dimension of x.
Tensor parts_in_front(const Tensor& x, int d, int parts) {
    Dims sizes, order = {d};
    for (int i = 0; i < x.dim(); ++i) {
        if (i == d) sizes.push_back(parts);
        sizes.push_back(i == d ? x.size(i) / parts : x.size(i));
        order.push_back(i < d ? i : i + 1);
    }
    return permute(reshape(x, Shape(sizes)), order);
}

// Returns x [P, ..., n, ...] as [..., P n, ...], where d is the dimension of the result.
Tensor parts_joined(const Tensor& x, int d) {
    Dims sizes, order;
    for (int i = 0; i + 1 < x.dim(); ++i) {
        if (i == d) order.push_back(0);
        order.push_back(i + 1);
        sizes.push_back(i == d ? x.size(0) * x.size(i + 1) : x.size(i + 1));
    }
    return reshape(permute(x, order), Shape(sizes));
}

}  // namespace

Tensor copy_to_group(const Tensor& x, const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("copy_to_group");
    check_device("copy_to_group", {&x});
    return record("copy_to_group", x.detach(), {x}, [group](const Grads& dy, Needs) -> Grads {
        return {reduce_from_group(dy[0], group)};
    });
}

namespace {

// Returns the sums of the tensors over all ranks. All tensors must have one dtype. Calls all_reduce
// once, unless the sums are recorded.
Grads summed(const Grads& tensors, const Group& group) {
    if (grad_enabled()) {
        Grads sums;
        for (const Tensor& x : tensors) sums.push_back(reduce_from_group(x, group));
        return sums;
    }
    std::vector<Tensor> flat;
    for (const Tensor& x : tensors) flat.push_back(x.reshape({-1}));
    const Tensor all = cat(flat, 0);
    group->all_reduce(all);
    count(&CollectiveCounts::all_reduces, all);
    Grads sums;
    std::int64_t begin = 0;
    for (const Tensor& x : tensors) {
        sums.push_back(all.narrow(0, begin, x.numel()).view(x.shape()));
        begin += x.numel();
    }
    return sums;
}

}  // namespace

std::vector<Tensor> copy_to_group(const std::vector<Tensor>& tensors, const Group& group) {
    std::vector<Tensor> result = tensors, inputs;
    if (group->size() == 1) return result;
    std::vector<Tensor*> outputs;
    bool has_one_dtype = true;
    for (Tensor& y : result) {
        if (!y.defined() || !y.requires_grad()) continue;
        inputs.push_back(y);
        has_one_dtype = has_one_dtype && y.dtype() == inputs[0].dtype();
        outputs.push_back(&y);
    }
    if (outputs.size() < 2 || !has_one_dtype) {
        for (Tensor* const y : outputs) *y = copy_to_group(*y, group);
        return result;
    }
    const profiler::OpScope scope("copy_to_group");
    for (Tensor* const y : outputs) *y = y->detach();
    if (!grad_enabled()) return result;
    const std::vector<autograd::Input> from(inputs.begin(), inputs.end());
    autograd::attach("copy_to_group", outputs, from, [group](const Grads& dy, Needs) -> Grads {
        Grads present;
        for (const Tensor& g : dy)
            if (g.defined()) present.push_back(g);
        Grads sums = summed(present, group), dx(dy.size());
        for (std::size_t i = 0, next = 0; i < dy.size(); ++i)
            if (dy[i].defined()) dx[i] = sums[next++];
        return dx;
    });
    return result;
}

Tensor reduce_from_group(const Tensor& x, const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("reduce_from_group");
    check_device("reduce_from_group", {&x});
    Tensor y;
    {
        const NoGrad no_grad;
        y = x.clone();
        group->all_reduce(y);
        count(&CollectiveCounts::all_reduces, y);
    }
    return record("reduce_from_group", y, {x}, [group](const Grads& dy, Needs) -> Grads {
        return {copy_to_group(dy[0], group)};
    });
}

Tensor all_gather_along(const Tensor& x, std::int64_t dim, const Group& group, GradientKind kind) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("all_gather_along");
    check_device("all_gather_along", {&x});
    const int d = dimension_of("all_gather_along", x, dim);
    Tensor y;
    {
        const NoGrad no_grad;
        y = parts_joined(group->all_gather(x.detach()), d);
        count(&CollectiveCounts::all_gathers, y);
    }
    return record("all_gather_along", y, {x}, [group, kind, d](const Grads& dy, Needs) -> Grads {
        return {kind == GradientKind::partial ? reduce_scatter_along(dy[0], d, group)
                                              : split_along(dy[0], d, group)};
    });
}

Tensor split_along(const Tensor& x, std::int64_t dim, const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("split_along");
    check_device("split_along", {&x});
    const int d = dimension_of("split_along", x, dim);
    check_divides("split_along", x, d, group);
    const std::int64_t part = x.size(d) / group->size();
    Tensor y;
    {
        const NoGrad no_grad;
        y = narrow(x, d, group->rank() * part, part);
    }
    return record("split_along", y, {x}, [group, d](const Grads& dy, Needs) -> Grads {
        return {all_gather_along(dy[0], d, group, GradientKind::same)};
    });
}

Tensor reduce_scatter_along(const Tensor& x, std::int64_t dim, const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("reduce_scatter_along");
    check_device("reduce_scatter_along", {&x});
    const int d = dimension_of("reduce_scatter_along", x, dim);
    check_divides("reduce_scatter_along", x, d, group);
    Tensor y;
    {
        const NoGrad no_grad;
        y = group->reduce_scatter(parts_in_front(x.detach(), d, group->size()));
        count(&CollectiveCounts::reduce_scatters, x);
    }
    return record("reduce_scatter_along", y, {x}, [group, d](const Grads& dy, Needs) -> Grads {
        return {all_gather_along(dy[0], d, group, GradientKind::partial)};
    });
}

Tensor all_to_all_along(const Tensor& x, std::int64_t split_dim, std::int64_t concat_dim,
                        const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("all_to_all_along");
    check_device("all_to_all_along", {&x});
    const int from = dimension_of("all_to_all_along", x, split_dim);
    const int to = dimension_of("all_to_all_along", x, concat_dim);
    check_divides("all_to_all_along", x, from, group);
    Tensor y;
    {
        const NoGrad no_grad;
        const Tensor parts = parts_in_front(x.detach(), from, group->size());
        y = parts_joined(group->all_to_all(parts), to);
        count(&CollectiveCounts::all_to_alls, x);
    }
    return record("all_to_all_along", y, {x}, [group, from, to](const Grads& dy, Needs) -> Grads {
        return {all_to_all_along(dy[0], to, from, group)};
    });
}

Tensor exchange_rows(const Tensor& x, const std::vector<std::int64_t>& sends,
                     const std::vector<std::int64_t>& receives, const Group& group) {
    if (group->size() == 1) return x;
    const profiler::OpScope scope("exchange_rows");
    check_device("exchange_rows", {&x});
    std::int64_t total = 0;
    for (const std::int64_t count : sends) total += count;
    if (x.dim() == 0 || total != x.size(0) || std::ssize(sends) != group->size())
        throw ShapeError(str("exchange_rows: sends must have one number for each of ",
                             group->size(), " ranks, with the number of rows of x as their sum: ",
                             sends.size(), " numbers with the sum ", total, ", x ", x.shape()));
    Tensor y;
    {
        const NoGrad no_grad;
        std::vector<Tensor> parts;
        std::int64_t begin = 0;
        for (const std::int64_t count : sends) {
            parts.push_back(x.detach().narrow(0, begin, count).contiguous());
            begin += count;
        }
        y = cat(group->all_to_all_uneven(parts), 0);
        count(&CollectiveCounts::all_to_alls, x);
    }
    return record("exchange_rows", y, {x},
                  [group, sends, receives](const Grads& dy, Needs) -> Grads {
                      return {exchange_rows(dy[0], receives, sends, group)};
                  });
}

CollectiveCounts collective_counts() { return thread_counts; }
void reset_collective_counts() { thread_counts = {}; }

}  // namespace axle::dist
