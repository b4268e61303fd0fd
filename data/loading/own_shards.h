// Private to data/loading/loader.cpp: passes in which each process reads its own shards.
//
// A pass is divided into parts, one for each process that began it. Each part contributes the same
// number of rows to every step, as long as it has any. A process reads one part, or several
// consecutive parts if the pass is resumed with fewer processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/iterable.h"

namespace axle::data {

struct Parts {
    std::int64_t count = 1;              // parts in the whole pass
    std::int64_t first = 0, number = 1;  // the parts that are read here
    std::int64_t rows = 1;               // per part and step
    bool drop_last = false;
    // Fills steps with the first rows if parts run out; with drop_last, uses only steps that are
    // complete in all parts. If false, one part is read here and used unchanged.
    bool even = true;
};

// Returns the number of steps of the parts read here, or nullopt if a size is unknown.
std::optional<std::int64_t> steps_of(const IterableDataset& whole, const Parts& parts);

// The samples of the parts, step by step; new samples come before repeated ones.
class OwnShards : public IterableDataset {
  public:
    OwnShards(const IterableDataset& whole, const Parts& parts);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;

  private:
    Parts parts_;
    std::vector<std::shared_ptr<const IterableDataset>> datasets_;
};

}  // namespace axle::data
