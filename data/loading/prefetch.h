// Private to data/loading: worker threads that produce the batches of a pass in advance.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
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
    std::vector<Tree> samples = {};  // the samples; only used for iterable datasets
    std::int64_t repeated = 0;       // the last `repeated` samples only fill the batch
    bool last = false;
};

// Produces the batches of a pass in two steps: draw() is called by one thread at a time and returns
// a draft; make() is called by several threads concurrently and makes a batch from a draft.
class BatchSource {
  public:
    virtual ~BatchSource() = default;
    // Sets `draft` to the next draft and returns true, or returns false after the last draft.
    virtual bool draw(BatchDraft& draft) = 0;
    virtual Batch make(BatchDraft draft) const = 0;
};

// A pool of worker threads. The first pass starts the threads. They end in the destructor, or, if
// they are not persistent, at the end of each pass. Only the thread of the loop may call the public
// functions.
//
// Each worker repeatedly draws a draft, makes the batch and stores it in a slot of a ring buffer.
// The ring buffer limits the number of batches in memory. next() reads the slots in order, so the
// sequence of batches does not depend on the number or speed of the workers.
class Prefetcher {
  public:
    struct Options {
        int workers = 1;
        std::size_t capacity = 1;  // the maximum number of batches that are ready or being made
        std::function<void(int)> init = {};  // called on each thread with the number of the worker
        double timeout = 0;                  // maximum wait of next() in seconds; 0: no limit
        bool persistent = true;
    };
    explicit Prefetcher(Options options);
    ~Prefetcher();
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;

    // Starts a pass. stop() must have been called after the previous pass. Waits for the workers if
    // the previous pass timed out. Throws Error if a thread cannot be started.
    void start(std::shared_ptr<BatchSource> source);
    // Waits for the next batch and returns it, or returns nullopt after the last batch. Rethrows an
    // exception of init(), or of drawing or making the batch. Throws Error after the timeout.
    std::optional<Batch> next();
    // Ends the pass and waits until no worker uses the source. After a timeout, does not wait.
    void stop() noexcept;

  private:
    struct Slot {
        bool ready = false;
        Batch batch;
        std::exception_ptr error;
    };

    void start_threads();
    void end_threads() noexcept;
    void settle() noexcept;  // waits until no worker uses the source, and removes it
    bool wait_for_batch(std::unique_lock<std::mutex>& lock);
    void work(int worker);
    bool initialize(int worker);
    // The caller of draw() and make() must hold the lock. Both functions release the lock while
    // they call the source, and hold it again when they return.
    bool draw(std::unique_lock<std::mutex>& lock, BatchDraft& draft, std::exception_ptr& error);
    void make(std::unique_lock<std::mutex>& lock, BatchDraft draft, Slot& slot);
    Slot& slot_of(std::int64_t batch) {
        return ring_[static_cast<std::size_t>(batch) % ring_.size()];
    }
    bool can_draw() const {
        return source_ && !drawing_ && !drawn_all_ &&
               drawn_ - taken_ < static_cast<std::int64_t>(ring_.size());
    }

    const Options options_;
    std::vector<std::thread> threads_;

    std::mutex mutex_;  // guards the members below
    std::condition_variable wake_workers_, wake_loop_;
    std::shared_ptr<BatchSource> source_;
    std::vector<Slot> ring_;
    std::int64_t taken_ = 0;  // number of batches that next() has returned since start()
    std::int64_t drawn_ = 0;
    bool drawn_all_ = false;
    bool drawing_ = false;  // whether a worker is in draw()
    int busy_ = 0;          // number of workers that use the source
    bool quit_ = false;
    bool timed_out_ = false;  // whether a worker may still use the source of the previous pass
    std::exception_ptr init_error_;
};

}  // namespace axle::data
