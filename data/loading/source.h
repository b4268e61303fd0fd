// Private to data/loading: batch sources for datasets and iterable datasets.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "data/dataset.h"
#include "data/loading/collate.h"
#include "data/loading/iterable.h"
#include "data/loading/prefetch.h"
#include "data/sampler.h"

namespace axle::data {

// Makes batches from samples, and copies batches to page-locked memory.
struct BatchMaker {
    Collate collate_fn;
    bool pin_memory = false;

    // Returns the batch of the samples, in page-locked memory if pin_memory is true.
    Tree batch_of(std::vector<Tree>& samples) const;
    // Returns the batch in page-locked memory, or unchanged if pin_memory is false.
    Tree pinned(Tree batch) const;
};

// A source of the batches `first` to `end` - 1 of a batch order.
class OrderedSource : public BatchSource {
  public:
    OrderedSource(std::shared_ptr<const Dataset> dataset, BatchOrder order, BatchMaker batch_maker,
                  std::int64_t first, std::int64_t end);
    bool draw(BatchDraft& draft) override;
    Batch make(BatchDraft draft) const override;

  private:
    std::shared_ptr<const Dataset> dataset_;
    BatchOrder order_;
    BatchMaker batch_maker_;
    std::int64_t next_, end_;
};

// A source that groups a stream into batches of batch_size samples and skips the first `first`
// batches.
class StreamSource : public BatchSource {
  public:
    StreamSource(std::shared_ptr<const IterableDataset> dataset, std::int64_t epoch,
                 std::int64_t batch_size, bool drop_last, BatchMaker batch_maker,
                 std::int64_t first);
    bool draw(BatchDraft& draft) override;
    Batch make(BatchDraft draft) const override;

  private:
    void open();
    BatchDraft read();  // the result has no samples at the end of the stream
    void look_ahead() noexcept;

    std::shared_ptr<const IterableDataset> dataset_;
    std::unique_ptr<Stream> stream_;  // created by the first draw
    std::int64_t epoch_, batch_size_;
    bool drop_last_;
    BatchMaker batch_maker_;
    std::int64_t next_;
    // The next draft. The draft is read in advance, because the last batch must be marked as the
    // last.
    BatchDraft ahead_;
    std::exception_ptr error_;  // thrown while ahead_ was read; the next draw rethrows it
};

}  // namespace axle::data
