// Private to accel: makes the processes of a group share the sequences of their batches.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "data/loading/feed.h"
#include "dist/group/process_group.h"

namespace axle::accel {

// The options of a loader whose batches are divided along the sequence.
struct SequenceSharing {
    std::shared_ptr<dist::ProcessGroup> group;  // the processes that share sequences
    // The length that all sequences must have (else ValueError), or nullopt if lengths may vary.
    std::optional<std::int64_t> length = {};
};

// Divides batches along the sequence. In each step, the processes of sharing.group read one batch
// each. The feed returns this process's parts of these batches, one after another
// (dist::ulysses_batches). Only the rows of the first process of sharing.group are valid rows. If a
// process has no batch, the step has fewer micro-batches. If one process fails, all processes throw
// its error.
class SequenceFeed : public data::Feed {
  public:
    // `group` contains all processes of the loader. If `counts` is false, another process of
    // `group` reads the same data, and counts the samples. The first `skip` micro-batches of the
    // first step are dropped.
    SequenceFeed(std::shared_ptr<dist::ProcessGroup> group, SequenceSharing sharing,
                 std::unique_ptr<data::Feed> own, bool counts, std::int64_t skip)
        : group_(std::move(group)),
          sharing_(std::move(sharing)),
          own_(std::move(own)),
          counts_(counts),
          skip_(skip) {}
    std::optional<data::Batch> next() override;

  private:
    void read_step();

    std::shared_ptr<dist::ProcessGroup> group_;
    SequenceSharing sharing_;
    std::unique_ptr<data::Feed> own_;
    bool counts_;
    std::int64_t skip_;
    std::deque<data::Batch> micro_batches_;
};

}  // namespace axle::accel
