// Utilities of accelerate.utils for nested values: batches, metrics, states.
//
//     Tree half = slice_tensors(batch, 0, find_batch_size(batch) / 2);
//     Tree on_gpu = send_to_device(batch, Device::cuda());
//
// A leaf is any value that is not a list or a map. Errors name a leaf by its path, such as
// batch["meta"][1]. A null inside a list or map is an absent member, which is skipped and stays
// null. core/tree/structure.h has the same functions for user types.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle {

// Returns "a string", "a list", ...
const char* name_of(Tree::Kind kind);
// Returns the path of a member of the value at `place`: batch["key"], batch[2].
std::string member_path(const std::string& path, const std::string& key);
std::string member_path(const std::string& path, std::size_t index);

// Returns the tree with every leaf replaced by f(leaf, place). Throws ValueError, starting with op,
// beyond kMaxTreeDepth.
using LeafFunction = std::function<Tree(const Tree& leaf, const std::string& path)>;
Tree map_leaves(const char* op, const Tree& tree, const LeafFunction& f);

// Returns the tree with every leaf that passes the test replaced by f(leaf). Other leaves are kept,
// or throw ValueError if error_on_other_type is set.
Tree recursively_apply(
    const std::function<Tree(const Tree&)>& f, const Tree& tree,
    const std::function<bool(const Tree&)>& test =
        [](const Tree& leaf) { return leaf.is_tensor(); },
    bool error_on_other_type = false);

// Merges trees of the same structure: tensors are concatenated along `dim`. Throws ShapeError if
// tensors do not fit, and ValueError for other leaves. A single tree is returned unchanged.
Tree concatenate(const std::vector<Tree>& trees, std::int64_t dim = 0);
// Returns views of rows [begin, end) of every tensor. Negative indices count from the end and
// bounds are clamped, as in Python. Other leaves are kept. Throws ShapeError for a 0-d tensor.
Tree slice_tensors(const Tree& tree, std::int64_t begin, std::int64_t end);

// Returns the first dimension of the first leaf. Throws ValueError if there is no leaf, or if the
// first leaf is not a tensor or is 0-d.
std::int64_t find_batch_size(const Tree& tree);
// Like find_batch_size, but returns nullopt instead of throwing.
std::optional<std::int64_t> ignorant_find_batch_size(const Tree& tree);
// Returns the device of the first tensor, or nullopt if there is none.
std::optional<Device> find_device(const Tree& tree);

// Moves all tensors to a device. With non_blocking, copies from pinned memory to a GPU are only
// queued. Map entries with a key in skip_keys, at any depth, are not moved.
Tree send_to_device(const Tree& tree, Device device, bool non_blocking = false,
                    const std::vector<std::string>& skip_keys = {});
// Converts f16 and bf16 tensors to f32.
Tree convert_to_fp32(const Tree& tree);

// Returns the tree with its tensors on the meta device, where they have shape and dtype but no
// memory. Other leaves are kept.
Tree get_data_structure(const Tree& tree);
// Returns uninitialized CPU tensors with the shapes and dtypes of get_data_structure().
Tree initialize_tensors(const Tree& structure);
// Replaces tensors by lists of their sizes. Other leaves are kept.
Tree get_shape(const Tree& tree);
// Replaces tensors by nested lists of numbers. Reads device memory. Other leaves are kept.
Tree listify(const Tree& tree);

// Repeats the last row of every tensor until the number of rows is a multiple of num_processes.
// Throws ValueError for leaves that are not tensors, and ShapeError unless all have batch_size
// rows.
Tree pad_input_tensors(const Tree& tree, std::int64_t batch_size, int num_processes,
                       std::int64_t dim = 0);

}  // namespace axle
