// Private to data/loader.cpp: worker threads that make the batches of a pass ahead of the loop.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/tree.h"

namespace axle::inline v0::data {

// Threads are started by the first pass and kept until the end: later passes start none. The
// functions are called by one thread, that of the loop.
//
// Each worker takes the next number that nobody has taken, makes that batch, and puts it into its
// slot of a ring as large as the batches that may exist at once. next() empties the slots in order,
// so what the loop sees does not depend on the workers' number or speed.
class Prefetcher {
  public:
    using Make = std::function<Tree(std::int64_t batch)>;

    // At most `capacity` batches are ready or being made.
    Prefetcher(int workers, std::size_t capacity);
    ~Prefetcher();
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;

    // Starts making batches first to end - 1; stop() has been called since the last start.
    void start(Make make, std::int64_t first, std::int64_t end);
    // The next batch, or what making it threw. Called at most end - first times.
    Tree next();
    // Forgets the pass. On return no worker is inside `make`.
    void stop() noexcept;

  private:
    struct Slot {
        bool ready = false;
        Tree batch;
        std::exception_ptr error;
    };

    void start_threads();
    void work();
    Slot& slot_of(std::int64_t batch) {
        return ring_[static_cast<std::size_t>(batch) % ring_.size()];
    }
    bool may_take() const {
        return taken_ < end_ && taken_ - given_ < static_cast<std::int64_t>(ring_.size());
    }

    const int workers_;
    std::vector<std::thread> threads_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable wake_workers_, wake_loop_;
    Make make_;
    std::vector<Slot> ring_;
    std::int64_t given_ = 0;  // next batch for the loop
    std::int64_t taken_ = 0;  // next batch to be made
    std::int64_t end_ = 0;
    int busy_ = 0;  // workers inside make_
    bool quit_ = false;
};

}  // namespace axle::inline v0::data
