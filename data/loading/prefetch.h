// Private to data/loading/loader.cpp: worker threads that produce the batches of a pass ahead of
// the loop.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/tree/tree.h"
#include "data/loading/feed.h"

namespace axle::data {

// The input from which one batch is made.
struct BatchDraft {
    std::int64_t number = 0;         // position of the batch in the pass
    std::vector<Tree> samples = {};  // only for iterable datasets
    std::int64_t repeated = 0;       // the last `repeated` samples only fill the batch
    bool last = false;
};

// Produces the batches of a pass in two steps: drafts are drawn one at a time, and batches are made
// from them concurrently.
class BatchSource {
  public:
    virtual ~BatchSource() = default;
    // Called by one thread at a time. Returns false after the last draft.
    virtual bool draw(BatchDraft& draft) = 0;
    virtual Batch make(BatchDraft draft) const = 0;
};

// A pool of worker threads. Threads are started by the first pass and kept until destruction. All
// functions must be called by one thread, the loop's.
//
// Each worker draws the next draft, makes the batch and stores it in a slot of a ring, which bounds
// the number of batches in memory. next() takes the slots in order, so the result does not
// depend on the number or speed of the workers.
class Prefetcher {
  public:
    // At most `capacity` batches are ready or in progress.
    Prefetcher(int workers, std::size_t capacity);
    ~Prefetcher();
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;

    // stop() must have been called after the previous start.
    void start(std::shared_ptr<BatchSource> source);
    // Returns the next batch, or nullopt after the last one. Rethrows what drawing or making it
    // threw.
    std::optional<Batch> next();
    // Ends the pass. When it returns, no worker accesses the source.
    void stop() noexcept;

  private:
    struct Slot {
        bool ready = false;
        Batch batch;
        std::exception_ptr error;
    };

    void start_threads();
    void work();
    // Both functions are called and return with the lock held, and release it in between.
    bool draw(std::unique_lock<std::mutex>& lock, BatchDraft& draft, std::exception_ptr& error);
    void make(std::unique_lock<std::mutex>& lock, BatchDraft draft, Slot& slot);
    Slot& slot_of(std::int64_t batch) {
        return ring_[static_cast<std::size_t>(batch) % ring_.size()];
    }
    bool can_draw() const {
        return source_ && !drawing_ && !drawn_all_ &&
               drawn_ - taken_ < static_cast<std::int64_t>(ring_.size());
    }

    const int workers_;
    std::vector<std::thread> threads_;

    std::mutex mutex_;  // guards the members below
    std::condition_variable wake_workers_, wake_loop_;
    std::shared_ptr<BatchSource> source_;
    std::vector<Slot> ring_;
    std::int64_t taken_ = 0;  // number of batches that the loop got since start()
    std::int64_t drawn_ = 0;
    bool drawn_all_ = false;
    bool drawing_ = false;  // a worker is in draw()
    int busy_ = 0;          // workers that use the source
    bool quit_ = false;
};

}  // namespace axle::data
