// Private to data/loading/loader.cpp: worker threads that make the batches of a pass ahead of the
// loop.
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

namespace axle::inline v0::data {

// What a batch is made of.
struct BatchDraft {
    std::int64_t number = 0;         // of the batch, in the pass
    std::vector<Tree> samples = {};  // of an iterable dataset
    std::int64_t repeated = 0;       // the last of these
    bool last = false;
};

// What a pass is made of: drafts, drawn one after another, and batches made of them at once.
class BatchSource {
  public:
    virtual ~BatchSource() = default;
    // One thread at a time; false behind the last.
    virtual bool draw(BatchDraft& draft) = 0;
    virtual Batch make(BatchDraft draft) const = 0;
};

// Threads are started by the first pass and kept until the end: later passes start none. The
// functions are called by one thread, that of the loop.
//
// Each worker draws the next draft, makes the batch, and puts it into its slot of a ring as large
// as the batches that may exist at once. next() empties the slots in order, so what the loop sees
// does not depend on the workers' number or speed.
class Prefetcher {
  public:
    // At most `capacity` batches are ready or being made.
    Prefetcher(int workers, std::size_t capacity);
    ~Prefetcher();
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;

    // stop() has been called since the last start.
    void start(std::shared_ptr<BatchSource> source);
    // The next batch, nothing behind the last one, or what drawing or making it threw.
    std::optional<Batch> next();
    // Forgets the pass. On return no worker is inside the source.
    void stop() noexcept;

  private:
    struct Slot {
        bool ready = false;
        Batch batch;
        std::exception_ptr error;
    };

    void start_threads();
    void work();
    // Both with the lock held before and after, and not in between.
    bool draw(std::unique_lock<std::mutex>& lock, BatchDraft& draft, std::exception_ptr& error);
    void make(std::unique_lock<std::mutex>& lock, BatchDraft draft, Slot& slot);
    Slot& slot_of(std::int64_t batch) {
        return ring_[static_cast<std::size_t>(batch) % ring_.size()];
    }
    bool can_draw() const {
        return source_ && !drawing_ && !drawn_all_ &&
               drawn_ - given_ < static_cast<std::int64_t>(ring_.size());
    }

    const int workers_;
    std::vector<std::thread> threads_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_workers_, wake_loop_;
    std::shared_ptr<BatchSource> source_;
    std::vector<Slot> ring_;
    std::int64_t given_ = 0;  // to the loop, since the start
    std::int64_t drawn_ = 0;
    bool drawn_all_ = false;
    bool drawing_ = false;  // a worker inside draw()
    int busy_ = 0;          // workers inside the source
    bool quit_ = false;
};

}  // namespace axle::inline v0::data
