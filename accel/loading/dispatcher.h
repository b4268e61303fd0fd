// Private to accel: distributes batches from the main process.
//
// Works as accelerate.data_loader.DataLoaderDispatcher: the main process reads a batch for each
// process (with split_batches, one for all), concatenates them and sends each process a slice. A
// step is one scatter. It also carries exceptions of the main process, so that all processes throw
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/loading/data_loader.h"
#include "data/loading/feed.h"

namespace axle::accel {

class DataLoaderDispatcher : public data::Dispatch {
  public:
    // `places` has the position of each rank among the processes that read different data.
    DataLoaderDispatcher(std::shared_ptr<dist::ProcessGroup> group, std::vector<DataRank> places,
                         bool split_batches, SliceFn slice_fn);
    std::unique_ptr<data::Feed> start(data::DataLoader& loader, std::int64_t steps) override;

  private:
    class MainFeed;
    class ReceivingFeed;

    std::shared_ptr<dist::ProcessGroup> group_;
    std::vector<DataRank> places_;
    bool split_batches_;
    SliceFn slice_fn_;
};

}  // namespace axle::accel
