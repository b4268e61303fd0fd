// Private to dist: work that other threads do, and the threads that do it.
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

namespace axle::inline v0::dist {

struct Work::State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    // Of a collective on a GPU, which nobody else completes.
    std::shared_ptr<DeviceWork> on_gpu;
    // What is left to do for whoever waits first, such as copying into a strided tensor: on their
    // thread, after what they have queued on their stream.
    std::mutex finishing;
    std::function<void()> finish;

    void complete(std::exception_ptr e) {
        const std::lock_guard lock(mutex);
        done = true;
        error = std::move(e);
        changed.notify_all();
    }
};

// Queues of tasks, as many as there are keys: those of one queue run one after another, those of
// different queues at the same time, for a task may wait long for another process. A thread serves
// a queue until it is empty, then another; there are as many as were ever busy at once. They block
// signals, SIGPIPE among them.
class Queues {
  public:
    // Whom to talk to, with which tag, in which direction.
    using Key = std::tuple<int, int, bool>;

    Queues() = default;
    ~Queues() { stop(); }
    Queues(const Queues&) = delete;
    Queues& operator=(const Queues&) = delete;

    // `task` throws nothing.
    void post(Key key, std::function<void()> task);
    // Runs what is queued; nothing may be posted any more.
    void stop();
    // Whether all is done, after at most so long.
    bool drained(std::chrono::milliseconds within);

  private:
    void serve();

    std::mutex mutex_;
    std::condition_variable wanted_, idle_;
    std::map<Key, std::deque<std::function<void()>>> queues_;  // none is empty for long
    std::deque<Key> unserved_;
    std::size_t waiting_ = 0;  // threads
    bool stopped_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace axle::inline v0::dist
