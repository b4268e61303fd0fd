// Private to data/loading/loader.cpp: passes over a dataset.
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

namespace axle::inline v0::data {

// What batches are made with.
struct BatchMaker {
    Collate collate_fn;
    bool pin_memory = false;

    // `samples` may be left in an unspecified state.
    Tree batch_of(std::vector<Tree>& samples) const;
    Tree pinned(Tree batch) const;
};

// The batches first to end - 1 of an order. `dataset` must outlive the pass.
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

// A stream, batch_size samples at a time, without the first batches.
class StreamSource : public BatchSource {
  public:
    StreamSource(std::shared_ptr<const IterableDataset> dataset, std::int64_t epoch,
                 std::int64_t batch_size, bool drop_last, BatchMaker batch_maker, std::int64_t first);
    bool draw(BatchDraft& draft) override;
    Batch make(BatchDraft draft) const override;

  private:
    void open();
    BatchDraft read();  // no samples at the end
    void look_ahead() noexcept;

    std::shared_ptr<const IterableDataset> dataset_;
    std::unique_ptr<Stream> stream_;  // started by the first draw
    std::int64_t epoch_, batch_size_;
    bool drop_last_;
    BatchMaker batch_maker_;
    std::int64_t next_;
    // The end shows only where nothing more is read.
    BatchDraft ahead_;
    std::exception_ptr error_;  // of reading ahead: it comes after the batch before it
};

}  // namespace axle::inline v0::data
