// The collectives of accelerate.utils on nested values. Each operation is applied to all tensors in
// a Tree, or in a user-defined type (core/tree/structure.h).
//
//     Tree all = dist::gather(group, batch);              // the rows of all processes, by rank
//     auto mean = dist::reduce(group, losses, dist::Reduction::mean);
//
// All processes of the group must call the same operation with values of the same structure. The
// ranks first exchange a description of the call. In operations on tensors, a leaf may be missing
// on a rank, may not be a tensor, or may have another dtype, device type or shape. All processes
// then throw the same ValueError, DTypeError, DeviceError or ShapeError, which names the leaf. If
// the processes call different operations, they throw CommError. The group can be used further
// after these errors. Nulls in lists and maps stay null. New tensors do not require gradients.
//
// In a group of one process the input is returned unchanged, including leaves that are not tensors.
// Exceptions: reduce() returns copies, multiplied by `scale`, unless it gets Reduction::none, and
// copy_tensor_to_devices() moves the tensor to `device`.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/tree/structure.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::dist {

enum class Reduction : std::uint8_t { none, sum, mean, max, min };
// Parses "none", "sum", "mean", "max" or "min". Throws ValueError for other names.
Reduction reduction_of(std::string_view name);
const char* name_of(Reduction reduction);

// Concatenates the tensors of all processes along dimension 0, in rank order. Scalars are gathered
// to a tensor of shape [number of processes].
Tree gather(ProcessGroup& group, const Tree& tree);
// Gathers as gather() does, but the number of rows may differ between processes.
Tree gather_rows(ProcessGroup& group, const Tree& tree);

// Gathers values of any type that a Tree supports. Received tensors are on the CPU. Lists are
// concatenated. Maps must have the same keys, and are gathered entry by entry. Other values are
// returned as a list indexed by rank. Throws ValueError if keys differ, or if a value is a list or
// map on one rank and of another kind on another rank.
Tree gather_object(ProcessGroup& group, const Tree& object);

// Returns new tensors with the reduction over all ranks, multiplied by `scale`. Reduction::none
// returns the input without communication and without scaling. Throws DTypeError for integers and
// booleans if the reduction is a mean or the scale is not 1, for the sum of booleans, and for
// storage dtypes. A name is parsed by reduction_of() (ValueError).
Tree reduce(ProcessGroup& group, const Tree& tree, Reduction reduction = Reduction::sum,
            double scale = 1);
Tree reduce(ProcessGroup& group, const Tree& tree, std::string_view reduction, double scale = 1);

// Overwrites the tensors of all ranks in place with the tensors of rank `from`. Returns the tree.
// Throws IndexError if `from` is not a rank of the group.
Tree broadcast(ProcessGroup& group, const Tree& tree, int from = 0);
// Replaces the list on all ranks by the list of rank `from`. Returns `objects`. Throws ValueError
// if `objects` is not a list, and IndexError if `from` is not a rank of the group.
Tree& broadcast_object_list(ProcessGroup& group, Tree& objects, int from = 0);

// Pads dimension `dim`, whose size may differ between ranks, to the largest size. Tensors without
// this dimension, or with the largest size, are not changed. The padding has the value pad_index,
// which is truncated for integer tensors. With pad_first, the padding precedes the data. If a
// tensor needs padding, throws ValueError if pad_index does not fit into its integer dtype, and
// DTypeError for a storage dtype. Throws ShapeError if the number of dimensions differs between
// ranks.
Tree pad_across_processes(ProcessGroup& group, const Tree& tree, std::int64_t dim = 0,
                          double pad_index = 0, bool pad_first = false);

// Copies a tensor to the `device` of every rank and returns the copy. Exactly one rank must pass a
// tensor. On this rank, the result shares the tensor's memory if the tensor is contiguous and on
// `device`. Throws ValueError if no rank or more than one rank passes a tensor, DeviceError for a
// meta tensor, and CommError if the ranks pass different types of devices.
Tensor copy_tensor_to_devices(ProcessGroup& group, const std::optional<Tensor>& tensor,
                              Device device = Device::cpu());

// --- user-defined types

template <StructuredType T>
T gather(ProcessGroup& group, const T& value) {
    return apply_as_tree(value, [&](const Tree& tree) { return gather(group, tree); });
}
template <StructuredType T>
T gather_rows(ProcessGroup& group, const T& value) {
    return apply_as_tree(value, [&](const Tree& tree) { return gather_rows(group, tree); });
}
// Calls f as apply_as_tree() does, but passes the members of pairs, tuples and arrays as a map.
// Otherwise operations that concatenate lists would concatenate the members.
template <StructuredType T, class F>
T through_members(const T& value, F&& f) {
    return apply_as_tree(value, [&](const Tree& tree) {
        if constexpr (structure::IsProduct<T>) {
            Tree members = Tree::map();
            for (const Tree& member : tree.elements()) members.set(str(members.size()), member);
            members = f(members);
            Tree joined = Tree::list();
            for (const auto& [index, member] : members.entries()) joined.push_back(member);
            return joined;
        } else {
            return f(tree);
        }
    });
}
// Gathers vectors by concatenation. Also gathers maps, structs, pairs, tuples and arrays of
// vectors.
template <StructuredType T>
T gather_object(ProcessGroup& group, const T& value) {
    return through_members(value, [&](const Tree& tree) { return gather_object(group, tree); });
}
template <StructuredType T>
T reduce(ProcessGroup& group, const T& value, Reduction reduction = Reduction::sum,
         double scale = 1) {
    return apply_as_tree(value,
                         [&](const Tree& tree) { return reduce(group, tree, reduction, scale); });
}
template <StructuredType T>
T reduce(ProcessGroup& group, const T& value, std::string_view reduction, double scale = 1) {
    return reduce(group, value, reduction_of(reduction), scale);
}
template <StructuredType T>
T broadcast(ProcessGroup& group, const T& value, int from = 0) {
    return apply_as_tree(value, [&](const Tree& tree) { return broadcast(group, tree, from); });
}
template <StructuredType T>
std::vector<T>& broadcast_object_list(ProcessGroup& group, std::vector<T>& objects, int from = 0) {
    Tree tree = to_tree(objects);
    return objects = from_tree(objects, broadcast_object_list(group, tree, from));
}
template <StructuredType T>
T pad_across_processes(ProcessGroup& group, const T& value, std::int64_t dim = 0,
                       double pad_index = 0, bool pad_first = false) {
    return apply_as_tree(value, [&](const Tree& tree) {
        return pad_across_processes(group, tree, dim, pad_index, pad_first);
    });
}

}  // namespace axle::dist
