#include "dist/group/operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/tree/tree_utils.h"
#include "dist/group/group.h"
#include "dist/group/shared_error.h"
#include "dist/group/tree_agreement.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::array kReductions = {"none", "sum", "mean", "max", "min"};

void check_from(const OperationCall& call, int from, int size) {
    check_rank(call.op, "from", from, size);
}

// Returns the shape without its first dimension, or nullopt for a scalar.
std::optional<Shape> row_shape(const Shape& shape) {
    if (shape.size() == 0) return std::nullopt;
    return without_first_dimension(shape);
}

// --- objects

// Combines the objects that the ranks have at the same place in their trees: joins lists, combines
// maps by key, and lists other values. Throws ValueError if kinds of containers or keys differ.
Tree combine_objects(const std::vector<const Tree*>& objects, const std::string& place) {
    const Tree& first = *objects[0];
    const auto container = [](const Tree& t) { return t.is_list() || t.is_map(); };
    for (std::size_t rank = 1; rank < objects.size(); ++rank) {
        const Tree& other = *objects[rank];
        if ((container(first) || container(other)) && first.kind() != other.kind())
            throw ValueError(str("gather_object: a list or map must be one on all ranks: ", place,
                                 " is ", axle::name_of(first.kind()), " on rank 0 and ",
                                 axle::name_of(other.kind()), " on rank ", rank));
    }
    Tree result = Tree::list();
    if (first.is_list()) {
        for (const Tree* object : objects)
            for (const Tree& element : object->elements()) result.push_back(element);
        return result;
    }
    if (!first.is_map()) {
        for (const Tree* object : objects) result.push_back(*object);
        return result;
    }
    result = Tree::map();
    for (std::size_t rank = 1; rank < objects.size(); ++rank)
        for (const auto& [key, value] : objects[rank]->entries())
            if (!first.contains(key))
                throw ValueError(str("gather_object: ", member_path(place, key), " exists on rank ",
                                     rank, ", not on rank 0"));
    for (const auto& [key, value] : first.entries()) {
        std::vector<const Tree*> column;
        for (std::size_t rank = 0; rank < objects.size(); ++rank) {
            column.push_back(objects[rank]->find(key));
            if (column.back() == nullptr)
                throw ValueError(str("gather_object: ", member_path(place, key),
                                     " exists on rank 0, not on rank ", rank));
        }
        result.entries().push_back({key, combine_objects(column, member_path(place, key))});
    }
    return result;
}

// --- reductions

ReduceOp op_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::mean:
            return ReduceOp::mean;
        case Reduction::max:
            return ReduceOp::max;
        case Reduction::min:
            return ReduceOp::min;
        default:
            return ReduceOp::sum;
    }
}

void check_reduction(DType dtype, const std::string& place, Reduction reduction, double scale) {
    if (is_floating(dtype)) return;
    const auto refuse = [&](const auto&... what) {
        throw DTypeError(str("reduce: ", place, ": ", what..., ": ", dtype));
    };
    const bool picks = reduction == Reduction::max || reduction == Reduction::min;
    if (!is_integral(dtype)) refuse("storage dtypes cannot be reduced");
    if (reduction == Reduction::mean)
        refuse("integers have no mean; convert them to a floating dtype");
    if (dtype == boolean && !picks)
        refuse("booleans support only max (any) and min (all); convert them to an integer dtype");
    if (scale != 1) refuse("integers cannot be scaled; convert them to a floating dtype");
}

// --- padding

double pad_value(const char* op, const std::string& place, DType dtype, double value) {
    if (is_floating(dtype) || dtype == boolean) return value;
    if (!is_integral(dtype))
        throw DTypeError(str(op, ": ", place, ": storage dtypes cannot be padded: ", dtype));
    const double whole = std::trunc(value);
    const auto within = [&](auto low, auto high) {
        return whole >= static_cast<double>(low) && whole <= static_cast<double>(high);
    };
    const bool fits = dtype == u8    ? within(0, 255)
                      : dtype == i32 ? within(INT32_MIN, INT32_MAX)
                                     : within(-9.2e18, 9.2e18);
    if (!fits)
        throw ValueError(
            str(op, ": ", place, ": pad_index does not fit into ", dtype, ": ", value));
    return whole;
}

Tensor padded(const Tensor& t, int dim, std::int64_t missing, double value, bool first) {
    Dims sides;
    for (int d = t.dim() - 1; d >= dim; --d) {
        const std::int64_t here = d == dim ? missing : 0;
        sides.push_back(first ? here : 0);
        sides.push_back(first ? 0 : here);
    }
    return pad(t.detach(), sides, PadMode::constant, value);
}

}  // namespace

Reduction reduction_of(std::string_view name) {
    for (std::size_t i = 0; i < kReductions.size(); ++i)
        if (name == kReductions[i]) return static_cast<Reduction>(i);
    throw ValueError(
        str("reduce: unknown reduction ", in_quotes(name), ": use none, sum, mean, max or min"));
}

const char* name_of(Reduction reduction) {
    return kReductions[static_cast<std::size_t>(reduction)];
}

Tree gather(ProcessGroup& group, const Tree& tree) {
    if (group.size() == 1) return tree;
    const TreeAgreement agreement(group, {.op = "gather"}, tree);
    agreement.check_same_shapes("; use pad_across_processes first");
    std::vector<Tree> results(agreement.leaves().size());
    std::vector<Work> works;
    for (const Column& column : agreement.columns()) {
        const Tensor x = agreement.own(column).detach();
        Shape shape = x.shape();
        if (x.dim() == 0) {
            shape.push_back(group.size());
        } else {
            shape[0] *= group.size();
        }
        const Tensor all = empty(shape, {.dtype = x.dtype(), .device = x.device()});
        if (x.numel() > 0)
            works.push_back(group.all_gather_into_async(all.view({group.size(), x.numel()}),
                                                        x.reshape({x.numel()})));
        results[column.index] = all;
    }
    for (Work& work : works) work.wait();
    return with_leaves("gather", tree, results);
}

Tree gather_rows(ProcessGroup& group, const Tree& tree) {
    if (group.size() == 1) return tree;
    const TreeAgreement agreement(group, {.op = "gather_rows"}, tree);
    std::vector<Tree> results(agreement.leaves().size());
    for (const Column& column : agreement.columns()) {
        for (const Shape& shape : column.shapes)
            if (row_shape(shape) != row_shape(column.shapes[0]))
                agreement.throw_shapes(column, "; only the numbers of rows may differ");
        const Tensor x = agreement.own(column).detach();
        results[column.index] =
            x.dim() == 0 ? group.all_gather(x) : cat(group.all_gather_uneven(x), 0);
    }
    return with_leaves("gather_rows", tree, results);
}

Tree gather_object(ProcessGroup& group, const Tree& object) {
    if (group.size() == 1) return object;
    const std::vector<Tree> descriptions =
        gather_or_throw(group, "gather_object", [&]() -> Tree { return object; });
    std::vector<const Tree*> objects;
    for (const Tree& each : descriptions) objects.push_back(&each);
    return combine_objects(objects, "object");
}

Tree reduce(ProcessGroup& group, const Tree& tree, Reduction reduction, double scale) {
    if (reduction == Reduction::none) return tree;
    std::vector<Tree> results;
    std::vector<std::vector<Tensor>>
        runs;  // tensors by dtype and device, in the same order on all ranks
    const auto add = [&](const Tensor& t, const std::string& place) {
        check_reduction(t.dtype(), place, reduction, scale);
        const Tensor copy = t.detach().clone();
        const auto run = std::find_if(runs.begin(), runs.end(), [&](const auto& other) {
            return other[0].dtype() == t.dtype() && other[0].device() == t.device();
        });
        run == runs.end() ? runs.push_back({copy}) : run->push_back(copy);
        return copy;
    };
    if (group.size() == 1) {
        for (const Leaf& leaf : leaves_of("reduce", tree))
            results.push_back(leaf.value.is_tensor() ? Tree(add(leaf.value.tensor(), leaf.place))
                                                     : leaf.value);
    } else {
        const TreeAgreement agreement(group, {"reduce", str(name_of(reduction), " times ", scale)},
                                      tree);
        agreement.check_same_shapes();
        results.resize(agreement.leaves().size());
        for (const Column& column : agreement.columns())
            results[column.index] = add(agreement.own(column), column.place);
        for (const auto& run : runs) group.all_reduce(run, op_of(reduction));
    }
    if (scale != 1)
        for (auto& run : runs)
            for (Tensor& t : run) t.mul_(scale);
    return with_leaves("reduce", tree, results);
}

Tree reduce(ProcessGroup& group, const Tree& tree, std::string_view reduction, double scale) {
    return reduce(group, tree, reduction_of(reduction), scale);
}

Tree broadcast(ProcessGroup& group, const Tree& tree, int from) {
    const OperationCall call{"broadcast", str("from rank ", from)};
    if (group.size() == 1) {
        check_from(call, from, 1);
        return tree;
    }
    const TreeAgreement agreement(group, call, tree);
    check_from(call, from, group.size());
    agreement.check_same_shapes();
    std::vector<Work> works;
    for (const Column& column : agreement.columns())
        works.push_back(group.broadcast_async(agreement.own(column).detach(), from));
    for (Work& work : works) work.wait();
    return tree;
}

Tree& broadcast_object_list(ProcessGroup& group, Tree& objects, int from) {
    const OperationCall call{"broadcast_object_list", str("from rank ", from)};
    const auto descriptions = [&]() -> Tree {
        check_from(call, from, group.size());
        if (!objects.is_list())
            throw ValueError(
                str(call.op, ": expected a list, not ", axle::name_of(objects.kind())));
        return group.rank() == from ? objects : Tree();
    };
    if (group.size() == 1) {
        descriptions();
    } else {
        objects = gather_or_throw(group, call.op, descriptions,
                                  call.text())[static_cast<std::size_t>(from)];
    }
    return objects;
}

Tree pad_across_processes(ProcessGroup& group, const Tree& tree, std::int64_t dim, double pad_index,
                          bool pad_first) {
    constexpr const char* op = "pad_across_processes";
    if (group.size() == 1) return tree;
    const TreeAgreement agreement(
        group, {op, str("dim ", dim, ", ", pad_index, pad_first ? " first" : " last")}, tree);
    std::vector<Tree> results(agreement.leaves().size());
    for (const Column& column : agreement.columns()) {
        const Tensor& own = agreement.own(column);
        results[column.index] = own.detach();
        for (const Shape& shape : column.shapes)
            if (shape.size() != own.dim())
                agreement.throw_shapes(column, "; the number of dimensions must be the same");
        if (dim < -own.dim() || dim >= own.dim()) continue;
        const int d = static_cast<int>(dim < 0 ? dim + own.dim() : dim);
        std::int64_t longest = 0, shortest = own.shape()[d];
        for (const Shape& shape : column.shapes) {
            longest = std::max(longest, shape[d]);
            shortest = std::min(shortest, shape[d]);
        }
        if (longest == shortest) continue;
        const double value = pad_value(op, column.place, own.dtype(), pad_index);
        if (own.shape()[d] < longest)
            results[column.index] = padded(own, d, longest - own.shape()[d], value, pad_first);
    }
    return with_leaves(op, tree, results);
}

Tensor copy_tensor_to_devices(ProcessGroup& group, const std::optional<Tensor>& tensor,
                              Device device) {
    constexpr const char* op = "copy_tensor_to_devices";
    const OperationCall call{op, str("to a ", Device{device.type})};
    const auto own = [&]() -> Tree {
        if (!tensor || !tensor->defined()) return {};
        if (tensor->device().is_meta())
            throw DeviceError(
                str(op, ": the tensor is on the meta device and has no data: ", tensor->shape()));
        return LeafDescription(Leaf{op, *tensor}).to_tree();
    };
    const std::vector<Tree> descriptions = gather_or_throw(group, op, own, call.text());
    std::string holders;
    std::size_t from = 0;
    int count = 0;
    for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
        if (descriptions[rank].is_null()) continue;
        holders += str(count++ > 0 ? ", " : "", rank);
        from = rank;
    }
    if (count != 1)
        throw ValueError(str(op, ": exactly one process must pass a tensor, but ",
                             count == 0 ? "none does" : "several do: ranks " + holders));
    const LeafDescription held(descriptions[from]);
    const bool holds = static_cast<int>(from) == group.rank();
    const Tensor copy = holds ? tensor->detach().to(device).contiguous()
                              : empty(held.shape, {.dtype = held.dtype, .device = device});
    group.broadcast(copy, static_cast<int>(from));
    return copy;
}

}  // namespace axle::dist
