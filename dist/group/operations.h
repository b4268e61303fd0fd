// Collectives of accelerate.utils on nested values, Trees or types of the user's own
// (core/tree/structure.h): every tensor in them at once.
//
//     Tree all = dist::gather(group, batch);              // rows of every process, in their order
//     auto mean = dist::reduce(group, losses, dist::Reduction::mean);
//
// Every process of the group calls the same with values that are built alike. They tell each other
// first, in one message, what they call and with what: a leaf that is missing somewhere, is no
// tensor, or has another dtype or shape throws the same ValueError, DTypeError, DeviceError or
// ShapeError in every process, with its place and what each rank has, and the group stays usable.
// Nulls in lists and maps are members that aren't there and stay null. Results carry no gradient.
//
// A process that is alone gets back what it gave, other leaves than tensors too.
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

namespace axle::inline v0::dist {

enum class Reduction : std::uint8_t { none, sum, mean, max, min };
// "none", "sum", "mean", "max", "min"; ValueError for another text.
Reduction reduction_of(std::string_view name);
const char* name_of(Reduction reduction);

// Every process's rows, along dimension 0; a 0-d tensor becomes [P].
Tree gather(ProcessGroup& group, const Tree& tree);
// The same of tensors that need not have as many rows in every process.
Tree gather_rows(ProcessGroup& group, const Tree& tree);

// Of anything that a Tree holds; tensors arrive on the CPU. Lists are joined; maps, which must have
// the same keys, are gathered entry by entry; of anything else there is a list, by rank. So a list
// comes back flat, and a map of lists as such a map.
Tree gather_object(ProcessGroup& group, const Tree& object);

// New tensors, times `scale`. none is the identity: nothing is exchanged, nor scaled. DTypeError
// for the mean of integers, for integers that would be scaled, and for the sum or mean of booleans.
Tree reduce(ProcessGroup& group, const Tree& tree, Reduction reduction = Reduction::sum,
            double scale = 1);
Tree reduce(ProcessGroup& group, const Tree& tree, std::string_view reduction, double scale = 1);

// Everybody's tensors take the values of one rank's, in place. Returns the tree.
Tree broadcast(ProcessGroup& group, const Tree& tree, int from = 0);
// Everybody's list becomes that of one rank.
Tree& broadcast_object_list(ProcessGroup& group, Tree& objects, int from = 0);

// Makes a dimension, of sizes that may differ, as long as the longest. Tensors without that
// dimension stay as they are, and so do tensors that are long enough. Dtypes stay: pad_index is
// cut to an integer where it must be (ValueError if none is near).
Tree pad_across_processes(ProcessGroup& group, const Tree& tree, std::int64_t dim = 0,
                          double pad_index = 0, bool pad_first = false);

// The tensor of the one process that has one, on everybody's `device`. ValueError if several have
// one, or none.
Tensor copy_tensor_to_devices(ProcessGroup& group, const std::optional<Tensor>& tensor,
                              Device device = Device::cpu());

// --- types of the user's own

template <StructuredType T>
T gather(ProcessGroup& group, const T& value) {
    return through_tree(value, [&](const Tree& tree) { return gather(group, tree); });
}
template <StructuredType T>
T gather_rows(ProcessGroup& group, const T& value) {
    return through_tree(value, [&](const Tree& tree) { return gather_rows(group, tree); });
}
// through_tree() of what joins lists: members of pairs, tuples and arrays stay apart, as a map's.
template <StructuredType T, class F>
T through_members(const T& value, F&& f) {
    return through_tree(value, [&](const Tree& tree) {
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
// Of vectors, and of maps, structs, pairs, tuples and arrays of such.
template <StructuredType T>
T gather_object(ProcessGroup& group, const T& value) {
    return through_members(value, [&](const Tree& tree) { return gather_object(group, tree); });
}
template <StructuredType T>
T reduce(ProcessGroup& group, const T& value, Reduction reduction = Reduction::sum,
         double scale = 1) {
    return through_tree(value,
                        [&](const Tree& tree) { return reduce(group, tree, reduction, scale); });
}
template <StructuredType T>
T reduce(ProcessGroup& group, const T& value, std::string_view reduction, double scale = 1) {
    return reduce(group, value, reduction_of(reduction), scale);
}
template <StructuredType T>
T broadcast(ProcessGroup& group, const T& value, int from = 0) {
    return through_tree(value, [&](const Tree& tree) { return broadcast(group, tree, from); });
}
template <StructuredType T>
std::vector<T>& broadcast_object_list(ProcessGroup& group, std::vector<T>& objects, int from = 0) {
    Tree tree = to_tree(objects);
    return objects = from_tree(objects, broadcast_object_list(group, tree, from));
}
template <StructuredType T>
T pad_across_processes(ProcessGroup& group, const T& value, std::int64_t dim = 0,
                       double pad_index = 0, bool pad_first = false) {
    return through_tree(value, [&](const Tree& tree) {
        return pad_across_processes(group, tree, dim, pad_index, pad_first);
    });
}

}  // namespace axle::inline v0::dist
