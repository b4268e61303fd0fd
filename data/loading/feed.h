// Batch, Feed and Dispatch: the batches of a pass and their sources. Programs do not use them;
// DataLoader and the classes of accel that change its passes do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/tree/tree.h"

namespace axle::data {

class DataLoader;

// A batch, with its number of samples.
struct Batch {
    Tree tree = {};
    std::int64_t samples = 0;
    // The last `repeated` samples were already visited in this pass; they only fill the batch.
    std::int64_t repeated = 0;
    bool last = false;  // the last batch of the pass
    // The number of samples of all processes in this step, without repeated samples; -1 if unknown.
    std::int64_t real_samples = -1;
};

// The source of the batches of one pass. The destructor ends the pass. Only the thread of the loop
// may use it.
class Feed {
  public:
    virtual ~Feed() = default;
    // Returns the next batch, or nullopt after the last batch.
    virtual std::optional<Batch> next() = 0;
};

// Reads batches on one process, and sends each process its part of each step.
class Dispatch {
  public:
    virtual ~Dispatch() = default;
    // Starts a pass over the current epoch of the loader and skips its first `steps` steps.
    virtual std::unique_ptr<Feed> start(DataLoader& loader, std::int64_t steps) = 0;
};

}  // namespace axle::data
