// Utilities of accelerate.utils on nested values: batches, metrics, states.
//
//     Tree half = slice_tensors(batch, 0, find_batch_size(batch) / 2);
//     Tree on_gpu = send_to_device(batch, Device::cuda());
//
// A leaf is whatever is neither a list nor a map. Errors name one by its place, as in
// batch["meta"][1]. A null within a list or a map is a member that isn't there: it is passed over
// and stays null. The same functions on types of the user's own are in core/tree/structure.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tree/tree.h"

namespace axle::inline v0 {

// "a string", "a list", ...
const char* name_of(Tree::Kind kind);
// The place of a member of what lies at `place`: batch["key"], batch[2].
std::string place_of(const std::string& place, const std::string& key);
std::string place_of(const std::string& place, std::size_t index);

// The same tree with f(leaf, place) in place of every leaf. ValueError beyond kMaxTreeDepth, which
// begins with op.
using LeafFunction = std::function<Tree(const Tree& leaf, const std::string& place)>;
Tree map_leaves(const char* op, const Tree& tree, const LeafFunction& f);

// The same tree with f(leaf) in place of every leaf that passes the test. The others stay, or are a
// ValueError.
Tree recursively_apply(
    const std::function<Tree(const Tree&)>& f, const Tree& tree,
    const std::function<bool(const Tree&)>& test =
        [](const Tree& leaf) { return leaf.is_tensor(); },
    bool error_on_other_type = false);

// Trees that are built alike as one, their tensors joined along a dimension. ShapeError where these
// don't fit; ValueError for other leaves, but of a single tree, which stays as it is.
Tree concatenate(const std::vector<Tree>& trees, std::int64_t dim = 0);
// Rows [begin, end) of every tensor, views; negative counts from the end and bounds are clamped, as
// in Python. Other leaves stay. ShapeError for a 0-d tensor.
Tree slice_tensors(const Tree& tree, std::int64_t begin, std::int64_t end);

// Size of the first leaf's first dimension. ValueError where the first leaf is not a tensor, or is
// 0-d, or there is none.
std::int64_t find_batch_size(const Tree& tree);
// Nothing instead of an error.
std::optional<std::int64_t> ignorant_find_batch_size(const Tree& tree);
// Of the first tensor.
std::optional<Device> find_device(const Tree& tree);

// With non_blocking, a copy from pinned memory to a GPU is queued only. Entries of maps, at any
// depth, with one of skip_keys as their key stay where they are.
Tree send_to_device(const Tree& tree, Device device, bool non_blocking = false,
                    const std::vector<std::string>& skip_keys = {});
// The half precision tensors (f16, bf16) in f32.
Tree convert_to_fp32(const Tree& tree);

// What must be known to make such a tree: the tensors on the meta device, where they have shape and
// dtype but no memory. Other leaves stay.
Tree get_data_structure(const Tree& tree);
// Uninitialised tensors on the CPU, like those of get_data_structure().
Tree initialize_tensors(const Tree& structure);
// Lists of sizes in place of tensors. Other leaves stay.
Tree get_shape(const Tree& tree);
// Nested lists of numbers in place of tensors. Reads device memory. Other leaves stay.
Tree listify(const Tree& tree);

// The last row of every tensor repeated, until the rows are a multiple of num_processes. All must
// have batch_size rows (ShapeError) and be tensors (ValueError).
Tree pad_input_tensors(const Tree& tree, std::int64_t batch_size, int num_processes,
                       std::int64_t dim = 0);

}  // namespace axle::inline v0
