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
    // The handle of a GPU collective, or nullptr for a collective that a worker thread runs.
    std::shared_ptr<DeviceWork> on_gpu;
    // The last part of the work, such as copying into a strided tensor. The first thread that waits
    // calls `finish`. For a GPU collective, `finish` queues kernels on the current stream of this
    // thread.
    std::mutex finishing;
    std::function<void()> finish;

    void complete(std::exception_ptr e) {
        const std::lock_guard lock(mutex);
        done = true;
        error = std::move(e);
        changed.notify_all();
    }
};

// A set of task queues with worker threads. Tasks of one queue run in order. Different queues run
// concurrently, because a task may wait a long time for another process; a thread is created when
// all threads are busy. The threads block all signals except the signals of faults.
class Queues {
  public:
    // The key of a queue: peer rank, tag, and direction (true to send).
    using Key = std::tuple<int, int, bool>;

    Queues() = default;
    ~Queues() { stop(); }
    Queues(const Queues&) = delete;
    Queues& operator=(const Queues&) = delete;

    // Adds a task to a queue. `task` must not throw.
    void post(Key key, std::function<void()> task);
    // Waits for the queued tasks and stops the threads. No task may be posted after this call.
    void stop();
    // Waits until all tasks have finished, at most for the time `within`. Returns whether they have
    // finished.
    bool drained(std::chrono::milliseconds within);

  private:
    void serve();

    std::mutex mutex_;
    std::condition_variable wanted_, idle_;
    std::map<Key, std::deque<std::function<void()>>> queues_;  // queues with unfinished tasks
    std::deque<Key> unserved_;
    std::size_t waiting_ = 0;  // number of idle threads
    bool stopped_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace axle::dist
