// Private to accel: accelerate.data_loader.DataLoaderDispatcher. The main process reads a batch for
// each process (with split_batches, one for all), puts them together, and hands out slices.
//
// A step is one scatter, in which what the main process threw travels too: everybody ends with it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/loading/data_loader.h"
#include "data/loading/feed.h"

namespace axle::accel {

class DataLoaderDispatcher : public data::Dispatch {
  public:
    // `places` is who each rank of the group is among the readers.
    DataLoaderDispatcher(std::shared_ptr<dist::ProcessGroup> group, std::vector<DataRank> places,
                         bool split_batches, SliceFn slice_fn);
    std::unique_ptr<data::Feed> start(data::DataLoader& loader, std::int64_t steps) override;

  private:
    class MainFeed;
    class OtherFeed;

    std::shared_ptr<dist::ProcessGroup> group_;
    std::vector<DataRank> places_;
    bool split_batches_;
    SliceFn slice_fn_;
};

}  // namespace axle::accel
