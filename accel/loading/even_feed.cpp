#include "accel/loading/even_feed.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "dist/group/shared_error.h"

namespace axle::accel {
namespace {

bool has_batch(const Tree& said) { return !said.is_null(); }
bool is_last(const Tree& said) { return !has_batch(said) || said["last"].boolean(); }

}  // namespace

std::optional<data::Batch> EvenFeed::next() {
    std::optional<data::Batch> batch;
    const std::vector<Tree> said = dist::gather_or_throw(*group_, "DataLoader", [&]() -> Tree {
        batch = own_->next();
        if (!batch) return {};
        return {{"last", batch->last},
                {"samples", batch->samples},
                {"new", counts_ ? batch->samples - batch->repeated : 0}};
    });
    const bool all = std::all_of(said.begin(), said.end(), has_batch);
    const bool any = std::any_of(said.begin(), said.end(), has_batch);
    if (drop_last_ ? !all : !any) return std::nullopt;
    if (!all) batch = filled_up(std::move(batch), said);
    batch->last = drop_last_ ? std::any_of(said.begin(), said.end(), is_last)
                             : std::all_of(said.begin(), said.end(), is_last);
    batch->real_samples = 0;
    for (const Tree& each : said)
        if (has_batch(each)) batch->real_samples += each["new"].integer();
    return batch;
}

data::Batch EvenFeed::filled_up(std::optional<data::Batch> batch, const std::vector<Tree>& said) {
    const auto giver = std::find_if(said.begin(), said.end(), has_batch);
    Tree given = group_->broadcast_object(batch ? batch->tree : Tree(),
                                          static_cast<int>(giver - said.begin()));
    if (batch) return std::move(*batch);
    const std::int64_t samples = (*giver)["samples"].integer();
    return {.tree = std::move(given), .samples = samples, .repeated = samples};
}

}  // namespace axle::accel
