// Implements the functions of Reducer that assign parameters to buckets.
#include <utility>

#include "core/ops.h"
#include "dist/parallel/buckets.h"
#include "dist/parallel/reducer.h"

namespace axle::dist {
namespace {

// The first bucket is small, so that the first reduction starts early.
constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

// Returns the size of a bucket in bytes. Throws ValueError unless it is in [0, 1 TiB].
std::size_t bytes_of_mb(double mb) {
    if (!(mb >= 0 && mb <= 1024 * 1024))
        throw ValueError(str("DataParallel: bucket_cap_mb must be in [0, 1048576]: ", mb));
    return static_cast<std::size_t>(mb * 1024 * 1024);
}

}  // namespace

void Reducer::install(const std::vector<std::size_t>& order) {
    const auto plan =
        plan_buckets(tensors_, order, kFirstBucketBytes, bytes_of_mb(options_.bucket_cap_mb));
    buckets_ = make_buckets(tensors_, plan);
    for (std::size_t b = 0; b < plan.size(); ++b)
        for (std::size_t i = 0; i < plan[b].size(); ++i) {
            parameters_[plan[b][i]].bucket = b;
            parameters_[plan[b][i]].place = i;
        }
    trees_.assign(buckets_.size(), {});
}

// Rebuilds the buckets in the order that rank 0 has recorded, or in the current order if rank 0 had
// no data. Called between windows, because accumulated gradients in buckets are discarded.
void Reducer::rebuild_if_due() {
    if (!rebuild_is_due_) return;
    rebuild_is_due_ = false;
    if (order_.size() != parameters_.size()) order_ = current_order();
    const Tensor order = tensor(std::vector<std::int64_t>(order_.begin(), order_.end()),
                                {static_cast<std::int64_t>(order_.size())});
    group_->broadcast(order, 0);
    const auto* const from = order.data<std::int64_t>();
    order_.assign(from, from + order.numel());
    install(order_);
}

// Returns the indices of the parameters in the order of the buckets.
std::vector<std::size_t> Reducer::current_order() const {
    std::vector<std::size_t> order;
    for (const GradientBucket& bucket : buckets_)
        for (const Tensor& t : bucket.parameters)
            order.push_back(hook_state_->index.at(t.impl().get()));
    return order;
}

// --- state for checkpoints

Tree Reducer::names_of(const std::vector<std::size_t>& order) const {
    Tree names = Tree::list();
    for (const std::size_t i : order) names.push_back(parameters_[i].name);
    return names;
}

// Returns the indices of the named parameters, or nullopt unless each parameter is named once.
std::optional<std::vector<std::size_t>> Reducer::order_from(
    const std::vector<std::string>& names) const {
    std::unordered_map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < parameters_.size(); ++i) index.emplace(parameters_[i].name, i);
    std::vector<std::size_t> order;
    for (const std::string& name : names) {
        const auto found = index.find(name);
        if (found == index.end()) return std::nullopt;
        order.push_back(found->second);
        index.erase(found);
    }
    if (!index.empty()) return std::nullopt;
    return order;
}

Tree Reducer::layout() const {
    Tree buckets = Tree::list();
    const std::vector<std::size_t> order = current_order();
    auto next = order.begin();
    for (const GradientBucket& bucket : buckets_) {
        const auto end = next + static_cast<std::ptrdiff_t>(bucket.parameters.size());
        buckets.push_back(names_of({next, end}));
        next = end;
    }
    Tree layout{{"buckets", std::move(buckets)}, {"records_order", records_order_}};
    if (rebuild_is_due_)
        layout.set("next_order", names_of(order_.size() == parameters_.size() ? order_ : order));
    return layout;
}

bool Reducer::set_layout(const Tree& layout) {
    const auto names_in = [](const Tree& list, std::vector<std::string>& names) {
        for (const Tree& name : list.elements()) names.push_back(name.string());
    };
    std::vector<std::string> current, next;
    for (const Tree& bucket : layout["buckets"].elements()) names_in(bucket, current);
    const Tree* const saved_next = layout.find("next_order");
    if (saved_next != nullptr) names_in(*saved_next, next);
    const bool records = layout["records_order"].boolean();
    const auto order = order_from(current);
    const auto next_order = saved_next == nullptr ? order : order_from(next);
    if (!order || !next_order) return false;
    // Equal buckets are not replaced, because captured steps refer to the buckets.
    if (*order != current_order()) install(*order);
    records_order_ = records && can_rebuild();
    rebuild_is_due_ = saved_next != nullptr;
    order_ = *next_order;
    return to_json(this->layout()["buckets"]) == to_json(layout["buckets"]);
}

}  // namespace axle::dist
