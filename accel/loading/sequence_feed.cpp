#include "accel/loading/sequence_feed.h"

#include <algorithm>
#include <vector>

#include "core/tree/tree.h"
#include "dist/group/shared_error.h"
#include "dist/sequence/ulysses.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr const char* kAdapter = "deepspeed_ulysses_dl_adapter";

void check_length(const Tree& batch, const std::optional<std::int64_t>& length) {
    const Tensor& ids = batch["input_ids"].tensor();
    if (length && ids.size(1) != *length)
        throw ValueError(str(kAdapter, ": sequences must have the length sp_seq_length ", *length,
                             ", because sp_seq_length_is_variable is false: input_ids ",
                             ids.shape()));
}

}  // namespace

std::optional<data::Batch> SequenceFeed::next() {
    for (;; --skip_) {
        if (micro_batches_.empty()) read_step();
        if (micro_batches_.empty()) return std::nullopt;
        data::Batch batch = std::move(micro_batches_.front());
        micro_batches_.pop_front();
        if (skip_ == 0) return batch;
    }
}

void SequenceFeed::read_step() {
    const int rank = sharing_.group->rank();
    std::optional<data::Batch> own;
    // Descriptions of the batches are gathered before data is exchanged, so that an error of one
    // process is thrown on all processes.
    const std::vector<Tree> steps = dist::gather_or_throw(*group_, kAdapter, [&]() -> Tree {
        own = own_->next();
        if (own) {
            dist::check_ulysses_batch(own->tree, *sharing_.group);
            check_length(own->tree, sharing_.length);
        }
        return {{"place", rank},
                {"has", own.has_value()},
                {"last", !own || own->last},
                {"samples", own ? own->samples : 0},
                {"repeated", own ? own->repeated : 0},
                {"new", own && counts_ ? own->samples - own->repeated : 0}};
    });
    const bool is_last =
        std::ranges::all_of(steps, [](const Tree& step) { return step["last"].boolean(); });
    if (std::ranges::none_of(steps, [](const Tree& step) { return step["has"].boolean(); })) return;
    std::vector<Tree> parts = dist::ulysses_batches(own ? own->tree : Tree(), *sharing_.group);
    const std::vector<int>& members = sharing_.group->global_ranks();
    const std::vector<int>& all = group_->global_ranks();
    for (std::size_t place = 0; place < parts.size(); ++place) {
        const auto at = std::ranges::find(all, members[place]) - all.begin();
        const Tree& step = steps[static_cast<std::size_t>(at)];
        if (!step["has"].boolean()) continue;
        data::Batch batch{.tree = std::move(parts[place]), .samples = step["samples"].integer()};
        batch.repeated = rank == 0 && counts_ ? step["repeated"].integer() : batch.samples;
        batch.real_samples = 0;
        for (const Tree& each : steps)
            if (each["place"].integer() == static_cast<std::int64_t>(place))
                batch.real_samples += each["new"].integer();
        micro_batches_.push_back(std::move(batch));
    }
    if (is_last && !micro_batches_.empty()) micro_batches_.back().last = true;
}

}  // namespace axle::accel
