// Private to accel: gives all processes the same number of batches when each process reads its own
// shards.
//
// Before each step, each process sends the other processes whether it has a batch, and whether this
// batch is its last. A process without a batch gets a copy of the batch of the first process that
// has one. The rows of the copy are marked as repeated. With drop_last the pass ends when any
// process has no batch. If one process fails, all processes throw its error.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/feed.h"
#include "dist/group/process_group.h"

namespace axle::accel {

class EvenFeed : public data::Feed {
  public:
    // `own` is the feed of this process. If `counts` is false, real_samples does not include the
    // rows of this process, because another process reads the same data.
    EvenFeed(std::shared_ptr<dist::ProcessGroup> group, std::unique_ptr<data::Feed> own,
             bool drop_last, bool counts)
        : group_(std::move(group)), own_(std::move(own)), drop_last_(drop_last), counts_(counts) {}
    std::optional<data::Batch> next() override;

  private:
    // Returns `batch` if it has a value, otherwise a copy of the batch of the first process that
    // has one. `steps` contains the messages of all processes.
    data::Batch share_batch(std::optional<data::Batch> batch, const std::vector<Tree>& steps);

    std::shared_ptr<dist::ProcessGroup> group_;
    std::unique_ptr<data::Feed> own_;
    bool drop_last_, counts_;
};

}  // namespace axle::accel
