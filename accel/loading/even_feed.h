// Private to accel: as many steps for every process, where each reads shards of its own and may
// have more rows than another.
//
// Before a step they tell each other who has a batch and whether it is the last. A process that has
// none left gets that of the first one that has, all of whose rows are repeated; so a step trains
// on what there is for it. With drop_last the pass is over where one has none. An error of one is
// thrown by all.
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
    // `counts` is false for a process whose rows another one reads as well.
    EvenFeed(std::shared_ptr<dist::ProcessGroup> group, std::unique_ptr<data::Feed> own,
             bool drop_last, bool counts)
        : group_(std::move(group)), own_(std::move(own)), drop_last_(drop_last), counts_(counts) {}
    std::optional<data::Batch> next() override;

  private:
    // Of a step that some have no batch for: that of the first one that has.
    data::Batch filled_up(std::optional<data::Batch> batch, const std::vector<Tree>& said);

    std::shared_ptr<dist::ProcessGroup> group_;
    std::unique_ptr<data::Feed> own_;
    bool drop_last_, counts_;
};

}  // namespace axle::accel
