#include "accel/loading/even_feed.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "dist/group/shared_error.h"

namespace axle::accel {
namespace {

bool has_batch(const Tree& step) { return !step.is_null(); }
bool is_last(const Tree& step) { return !has_batch(step) || step["last"].boolean(); }

}  // namespace

std::optional<data::Batch> EvenFeed::next() {
    std::optional<data::Batch> batch;
    const std::vector<Tree> steps = dist::gather_or_throw(*group_, "DataLoader", [&]() -> Tree {
        batch = own_->next();
        if (!batch) return {};
        return {{"last", batch->last},
                {"samples", batch->samples},
                {"new", counts_ ? batch->samples - batch->repeated : 0}};
    });
    const bool all = std::all_of(steps.begin(), steps.end(), has_batch);
    const bool any = std::any_of(steps.begin(), steps.end(), has_batch);
    if (drop_last_ ? !all : !any) return std::nullopt;
    if (!all) batch = share_batch(std::move(batch), steps);
    batch->last = drop_last_ ? std::any_of(steps.begin(), steps.end(), is_last)
                             : std::all_of(steps.begin(), steps.end(), is_last);
    batch->real_samples = 0;
    for (const Tree& each : steps)
        if (has_batch(each)) batch->real_samples += each["new"].integer();
    return batch;
}

data::Batch EvenFeed::share_batch(std::optional<data::Batch> batch,
                                  const std::vector<Tree>& steps) {
    const auto sender = std::find_if(steps.begin(), steps.end(), has_batch);
    Tree received = group_->broadcast_object(batch ? batch->tree : Tree(),
                                             static_cast<int>(sender - steps.begin()));
    if (batch) return std::move(*batch);
    const std::int64_t samples = (*sender)["samples"].integer();
    return {.tree = std::move(received), .samples = samples, .repeated = samples};
}

}  // namespace axle::accel
