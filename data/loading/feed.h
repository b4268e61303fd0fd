// Feeds: where the batches of a pass come from. For what prepares loaders; loops don't see them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/tree/tree.h"

namespace axle::inline v0::data {

class DataLoader;

struct Batch {
    Tree tree = {};
    std::int64_t samples = 0;
    // How many of these, the last ones, the pass has had already: they only fill the batch up.
    std::int64_t repeated = 0;
    bool last = false;  // of the pass
    // Samples that all processes together have in this step and have not had before; -1 if that is
    // not known.
    std::int64_t real_samples = -1;
};

// Destroying it leaves the pass.
class Feed {
  public:
    virtual ~Feed() = default;
    // The next batch; nothing behind the last one. On the loop's thread.
    virtual std::optional<Batch> next() = 0;
};

// How batches that one process reads reach the others.
class Dispatch {
  public:
    virtual ~Dispatch() = default;
    // A pass of the loader's epoch without its first `steps` steps.
    virtual std::unique_ptr<Feed> start(DataLoader& loader, std::int64_t steps) = 0;
};

}  // namespace axle::inline v0::data
