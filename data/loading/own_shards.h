// Private to data/loading: passes in which each process reads its own shards.
//
// A pass is divided into as many parts as there were processes when it began. Each part contributes
// the same number of rows to every step until it has no more rows. A process reads one part. If the
// pass is resumed with fewer processes, a process reads several consecutive parts. If the pass is
// resumed with more processes, several consecutive processes read one part and divide its rows in
// each step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/loading/iterable.h"

namespace axle::data {

// The parts of a pass that this process reads.
struct Parts {
    std::int64_t count = 1;   // number of parts of the pass
    std::int64_t first = 0;   // the first part that this process reads
    std::int64_t number = 1;  // number of parts that this process reads
    std::int64_t rows = 1;    // number of rows of a part in a step
    // The number of processes that read each part, and the index of this process among them. If
    // several processes read a part, each process reads only this part (`number` is 1).
    std::int64_t readers = 1, reader = 0;
    bool drop_last = false;  // drops a step in which a part has fewer than `rows` rows
    // If true, a step in which parts have too few rows is filled, unless drop_last drops it: with
    // the first rows of this process, or, if several processes read the part, with the first rows
    // of the part. If false, the process reads a single part, and its last step can have fewer
    // rows.
    bool even = true;
};

// Returns the number of steps of the parts: of the part with the fewest steps if drop_last and
// `even` are true, otherwise of the part with the most steps. Returns nullopt if the size of a part
// is unknown.
std::optional<std::int64_t> steps_of(const IterableDataset& whole, const Parts& parts);

// The samples of the parts that this process reads, in the order of the steps. In each step,
// repeated samples come last.
class OwnShards : public IterableDataset {
  public:
    OwnShards(const IterableDataset& whole, const Parts& parts);
    std::unique_ptr<Stream> stream(std::int64_t epoch) const override;

  private:
    Parts parts_;
    std::vector<std::shared_ptr<const IterableDataset>> datasets_;
};

}  // namespace axle::data
