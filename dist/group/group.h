// Private to dist: what a ProcessGroup is made of.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/group/device_engine.h"
#include "dist/group/engine.h"
#include "dist/group/process_group.h"
#include "dist/group/work.h"
#include "dist/rendezvous/control.h"

namespace axle::inline v0::dist {

// What all groups of a process share: the connection to the others. A failure of any of them ends
// what the engines do.
class Job {
  public:
    // `device` is the GPU of this process, for NCCL, or -1.
    Job(std::unique_ptr<Control> control, std::chrono::milliseconds timeout, int device = -1);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    Control& control() { return *control_; }
    std::chrono::milliseconds timeout() const { return timeout_; }
    int device() const { return device_; }
    // `abort` is called when a failure is heard, until `engine` is removed.
    void add(const void* engine, std::function<void()> abort);
    void remove(const void* engine);

  private:
    std::chrono::milliseconds timeout_;
    int device_;
    std::mutex mutex_;
    bool failed_ = false;
    std::vector<std::pair<const void*, std::function<void()>>> engines_;
    std::unique_ptr<Control> control_;  // calls back: gone first
};

// A tensor's elements in a row, on the CPU or where they are: tensors on a GPU pass through memory
// of the host where the group has no engine for GPUs.
struct Staged {
    // With the tensor's values, or, for one that is written, without.
    static Staged with_values(const Tensor& x, Device home = Device::cpu());
    static Staged to_fill(const Tensor& x, Device home = Device::cpu());

    std::int64_t bytes() const { return host.numel() * size_of(host.dtype()); }
    void* data() const { return host.raw_data(); }
    // Puts the elements where they belong. On the thread that waits.
    void put_back() const;

    Tensor x, host;
};

using Counts = std::vector<std::vector<std::int64_t>>;

struct ProcessGroup::Impl {
    // Alone.
    Impl() = default;
    Impl(std::shared_ptr<Job> job, std::uint32_t id, std::vector<int> ranks, int rank);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    int size() const { return static_cast<int>(global_ranks.size()); }
    bool alone() const { return size() == 1; }

    // Tells the others what is about to happen, and has `run` called with what they tell, once all
    // agree; `run` may use engine(). `finish` is for whoever waits.
    Work start(Proposal proposal, std::function<void(const Counts&)> run,
               std::function<void()> finish = {});
    // The same for one of two that exchange a message.
    Work start_message(Queues::Key key, std::string activity, std::function<void()> run,
                       std::function<void()> finish = {});
    // Opened when data is to move for the first time.
    HostEngine& engine();

    // Finds out, with all others, whether tensors on a GPU go from GPU to GPU. Why not, or "".
    std::string seek_nccl();
    // Whether x does. UsageError while a graph is captured, DeviceError for another GPU than ours.
    bool goes_on_gpu(const char* op, const Tensor& x) const;
    // start() for tensors that do: queues the collective at once, on the caller's stream. A
    // disagreement shows later, and ends it.
    Work start_on_gpu(Proposal proposal,
                      const std::function<DeviceEngine::Started(DeviceEngine&)>& queue,
                      std::function<void()> finish = {});

    // Everybody's new groups: ranks by group, of which this process is in at most one.
    std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, std::uint32_t group);

    std::shared_ptr<Job> job;  // null where there is no other process at all
    std::uint32_t id = 0;
    std::vector<int> global_ranks = {0};
    int rank = 0;
    std::string backend = "none";

  private:
    std::exception_ptr attempt(const std::string& activity, const std::function<void()>& run);
    DeviceEngine& device_engine();
    // Behind the collectives before it.
    void post(std::function<void()> task);
    std::string name() const;

    std::mutex engine_mutex_;
    std::unique_ptr<HostEngine> engine_;
    std::string nccl_token_;
    std::unique_ptr<DeviceEngine> device_engine_;
    std::mutex sequence_mutex_;
    std::uint64_t sequence_ = 0;
    Queues queues_;
};

// The checks of arguments; `op` begins the text.
void check_tensor(const char* op, const Tensor& x);                     // UsageError, DeviceError
void check_rank(const char* op, const char* what, int rank, int size);  // IndexError
void check_same(const char* op, const Tensor& out, const Tensor& x);    // DTypeError, DeviceError
void check_first_dimension(const char* op, const Tensor& x, int size);  // ShapeError

Shape but_first(Shape shape);

}  // namespace axle::inline v0::dist
