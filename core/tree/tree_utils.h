// The functions of accelerate.utils on nested values, such as batches, metrics and states, and
// helpers for functions that visit the leaves of a tree.
//
//     Tree half = slice_tensors(batch, 0, find_batch_size(batch) / 2);
//     Tree on_gpu = send_to_device(batch, Device::cuda());
//
// A leaf is any value that is not a list or a map. Errors name a leaf by its path, such as
// batch["meta"][1]. A null inside a list or map is an absent value, which is skipped and stays
// null. core/tree/structure.h defines the same functions for user types.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle {

// Returns the name of a kind for messages: "a string", "a list", "null", ...
const char* name_of(Tree::Kind kind);
// Return the path of a member of the value at `path`, such as batch["key"] or batch[2].
std::string member_path(const std::string& path, const std::string& key);
std::string member_path(const std::string& path, std::size_t index);

using LeafFunction = std::function<Tree(const Tree& leaf, const std::string& path)>;
// Returns the tree with every leaf replaced by f(leaf, path). Throws ValueError, with a message
// that starts with op, if the tree is deeper than kMaxTreeDepth.
Tree map_leaves(const char* op, const Tree& tree, const LeafFunction& f);

// Returns the tree with every leaf for which the test returns true replaced by f(leaf). An empty
// test selects the tensors. All other leaves are kept; if error_on_other_type is true, ValueError
// is thrown for them instead.
Tree recursively_apply(const std::function<Tree(const Tree&)>& f, const Tree& tree,
                       const std::function<bool(const Tree&)>& test = {},
                       bool error_on_other_type = false);

// Merges trees of the same structure by concatenating their tensors along `dim`. Throws ValueError
// if the structures differ, a leaf is not a tensor or there are no trees. Throws ShapeError if the
// shapes of tensors do not match, and DeviceError if their devices differ. For a single tree,
// returns a copy, in which leaves that are not tensors are kept.
Tree concatenate(const std::vector<Tree>& trees, std::int64_t dim = 0);
// Returns views of rows [begin, end) of every tensor. Negative indices count from the end and
// bounds are clamped, as in Python. Other leaves are kept. Throws ShapeError for a 0-d tensor.
Tree slice_tensors(const Tree& tree, std::int64_t begin, std::int64_t end);

// Returns the size of the first dimension of the first leaf. Throws ValueError if there is no leaf,
// if an empty list or map is before it, or if the first leaf is not a tensor or is 0-d.
std::int64_t find_batch_size(const Tree& tree);
// Returns the result of find_batch_size, or nullopt if find_batch_size would throw. Throws
// ValueError if the tree is deeper than kMaxTreeDepth.
std::optional<std::int64_t> ignorant_find_batch_size(const Tree& tree);
// Returns the device of the first tensor, or nullopt if there is none.
std::optional<Device> find_device(const Tree& tree);

// Returns the tree with all tensors moved to a device. If non_blocking is true, copies from pinned
// memory to a GPU are only queued. Map entries with a key in skip_keys, at any depth, are not
// moved.
Tree send_to_device(const Tree& tree, Device device, bool non_blocking = false,
                    const std::vector<std::string>& skip_keys = {});
// Returns the tree with f16 and bf16 tensors converted to f32.
Tree convert_to_fp32(const Tree& tree);

// Returns the tree with its tensors on the meta device, where they have shape and dtype but no
// memory. Other leaves are kept.
Tree get_data_structure(const Tree& tree);
// Returns uninitialized CPU tensors with the shapes and dtypes in the result of
// get_data_structure().
Tree initialize_tensors(const Tree& structure);
// Returns the tree with every tensor replaced by the list of its sizes. Other leaves are kept.
Tree get_shape(const Tree& tree);
// Returns the tree with every tensor replaced by nested lists of numbers or booleans. Other leaves
// are kept. Waits for GPU tensors. Throws the errors of Tensor::to_vector().
Tree listify(const Tree& tree);

// Returns the tree with the last row (along dim) of every tensor repeated until the number of rows
// is a multiple of num_processes. Throws ValueError for leaves that are not tensors, for a negative
// batch_size, and unless num_processes is positive. Throws ShapeError for a tensor that does not
// have batch_size rows.
Tree pad_input_tensors(const Tree& tree, std::int64_t batch_size, int num_processes,
                       std::int64_t dim = 0);

}  // namespace axle
