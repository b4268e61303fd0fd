// Private to dist: the state of a Work, and the threads that run collectives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "dist/group/device_engine.h"
#include "dist/group/process_group.h"

namespace axle::dist {

struct Work::State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    // Set for a GPU collective, which no thread completes.
    std::shared_ptr<DeviceWork> on_gpu;
    // The rest of the work, done by the first thread that waits, such as copying into a strided
    // tensor. It runs in that thread, ordered after the work queued on its stream.
    std::mutex finishing;
    std::function<void()> finish;

    void complete(std::exception_ptr e) {
        const std::lock_guard lock(mutex);
        done = true;
        error = std::move(e);
        changed.notify_all();
    }
};

// A set of task queues with worker threads. Tasks of one queue run in order; different queues run
// concurrently, because a task may wait long for another process. The number of
// threads is the largest number of queues that were busy at the same time. The threads block all
// signals, including SIGPIPE.
class Queues {
  public:
    // Peer rank, tag, and direction.
    using Key = std::tuple<int, int, bool>;

    Queues() = default;
    ~Queues() { stop(); }
    Queues(const Queues&) = delete;
    Queues& operator=(const Queues&) = delete;

    // `task` must not throw.
    void post(Key key, std::function<void()> task);
    // Runs the queued tasks, then stops the threads. No task may be posted afterwards.
    void stop();
    // Waits at most `within`; returns whether all tasks have finished.
    bool drained(std::chrono::milliseconds within);

  private:
    void serve();

    std::mutex mutex_;
    std::condition_variable wanted_, idle_;
    std::map<Key, std::deque<std::function<void()>>> queues_;  // each holds at least one task
    std::deque<Key> unserved_;
    std::size_t waiting_ = 0;  // number of idle threads
    bool stopped_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace axle::dist
