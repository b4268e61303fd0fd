// Private to data/loading/loader.cpp: a pass in which processes read shards of their own.
//
// The pass is read in parts, as many as the processes that began it. Of a step each part gives as
// many rows as the others, while it has any. A process reads one part, or several that follow one
// another where there are fewer processes by now.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/iterable.h"

namespace axle::inline v0::data {

struct Parts {
    std::int64_t count = 1;              // of the pass
    std::int64_t first = 0, number = 1;  // of these, the ones that are read here
    std::int64_t rows = 1;               // of each, in a step
    bool drop_last = false;
    // A step's rows are as many as can be, the first ones again where the parts lack them; with
    // drop_last only steps for which each part has all rows. Else one part is read here, as it is.
    bool even = true;
};

// Steps of the parts read here; nothing where a size is unknown.
std::optional<std::int64_t> steps_of(const IterableDataset& whole, const Parts& parts);

// Their samples, step by step: real ones first.
class OwnShards : public IterableDataset {
  public:
    OwnShards(const IterableDataset& whole, const Parts& parts);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;

  private:
    Parts parts_;
    std::vector<std::shared_ptr<const IterableDataset>> datasets_;
};

}  // namespace axle::inline v0::data
