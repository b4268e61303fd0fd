#include <algorithm>

#include "accel/accelerator.h"
#include "core/tree/tree_utils.h"
#include "dist/group/operations.h"

namespace axle::accel {
namespace {

bool has_other_leaves(const Tree& tree) {
    bool found = false;
    map_leaves("gather_for_metrics", tree, [&](const Tree& leaf, const std::string&) {
        found = found || !(leaf.is_tensor() || leaf.is_null());
        return leaf;
    });
    return found;
}

// Returns the first `rows` rows of each tensor with one row per sample, and other tensors
// unchanged.
Tree leading_rows(const Tree& tree, std::int64_t samples, std::int64_t rows) {
    return map_tensors(tree, [&](const Tensor& t) {
        return Tree(t.dim() > 0 && t.size(0) == samples ? t.narrow(0, 0, rows) : t);
    });
}

// Returns the first `rows` elements of each list with one element per sample, in maps at any depth,
// and leading_rows() of other values.
Tree leading_objects(const Tree& tree, std::int64_t samples, std::int64_t rows) {
    if (tree.is_list() && std::ssize(tree.elements()) == samples)
        return Tree::list({tree.elements().begin(), tree.elements().begin() + rows});
    if (!tree.is_map()) return leading_rows(tree, samples, rows);
    Tree kept = Tree::map();
    for (const auto& [key, value] : tree.entries())
        kept.entries().push_back({key, leading_objects(value, samples, rows)});
    return kept;
}

}  // namespace

Tree Accelerator::gather_for_metrics(const Tree& input, bool use_gather_object) const {
    dist::ProcessGroup& group = *state().process_group();
    const bool objects = use_gather_object || has_other_leaves(input);
    const data::DataLoader* loader = active_dataloader();
    if (loader == nullptr)
        return objects ? dist::gather_object(group, input) : dist::gather(group, input);
    const std::int64_t samples = loader->batch_samples(), rows = valid_rows(samples);
    if (objects) return dist::gather_object(group, leading_objects(input, samples, rows));
    return dist::gather_rows(group, leading_rows(input, samples, rows));
}

}  // namespace axle::accel
