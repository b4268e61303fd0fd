// Private to accel: distributes batches from the main process.
//
// Equivalent to accelerate.data_loader.DataLoaderDispatcher. The main process reads one batch for
// each process that reads different data, and concatenates these batches. With split_batches, it
// reads one batch in total. It then sends each process a slice. Each step is one scatter, which
// also transfers an exception of the main process, so that all processes throw it. If the batches
// of a step can't be concatenated, this is a ShapeError.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/loading/data_loader.h"
#include "data/loading/feed.h"

namespace axle::accel {

class DataLoaderDispatcher : public data::Dispatch {
  public:
    // `places` contains the position of each rank among the processes that read different data.
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
