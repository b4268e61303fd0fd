// Private to dist: the implementation of ProcessGroup.
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

namespace axle::dist {

// The state shared by all groups of a process: the control connection, and the engines to abort
// when a rank fails.
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
    // Registers `abort`, which is called when a failure is reported, until remove(engine).
    void add(const void* engine, std::function<void()> abort);
    void remove(const void* engine);

  private:
    std::chrono::milliseconds timeout_;
    int device_;
    std::mutex mutex_;
    bool failed_ = false;
    std::vector<std::pair<const void*, std::function<void()>>> engines_;
    std::unique_ptr<Control> control_;  // destroyed first, because it calls back
};

// A contiguous copy of a tensor's elements, in host memory or on the tensor's own device. GPU
// tensors are staged through host memory if the group has no GPU engine.
struct Staged {
    // with_values() copies the tensor's values; to_fill() leaves the copy uninitialized.
    static Staged with_values(const Tensor& x, Device device = Device::cpu());
    static Staged to_fill(const Tensor& x, Device device = Device::cpu());

    std::int64_t bytes() const { return host.numel() * size_of(host.dtype()); }
    void* data() const { return host.raw_data(); }
    // Copies the elements back into x. Called on the waiting thread.
    void copy_back() const;

    Tensor x, host;
};

using Counts = std::vector<std::vector<std::int64_t>>;

struct ProcessGroup::Impl {
    // Creates a group of one process.
    Impl() = default;
    Impl(std::shared_ptr<Job> job, std::uint32_t id, std::vector<int> ranks, int rank);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    int size() const { return static_cast<int>(global_ranks.size()); }
    bool alone() const { return size() == 1; }

    // Proposes the collective to the other ranks. Once all ranks agree, calls `run` with the counts
    // of each rank; `run` may use engine(). `finish` runs in the thread that waits for the returned
    // Work.
    Work start(CollectiveCall call, std::function<void(const Counts&)> run,
               std::function<void()> finish = {});
    // Like start(), for a message between two ranks.
    Work start_message(Queues::Key key, std::string activity, std::function<void()> run,
                       std::function<void()> finish = {});
    // Returns the host engine, which is opened on first use.
    HostEngine& engine();

    // Decides whether GPU tensors are sent directly between GPUs; all ranks call it together.
    // Returns the reason if they are not, or "".
    std::string negotiate_nccl_backend();
    // Returns the device from which x is sent: its own if it is sent directly between GPUs,
    // otherwise the CPU. Throws UsageError during graph capture, and DeviceError if x is on another
    // GPU than this process's.
    Device staging_device(const char* op, const Tensor& x) const;
    // Starts a collective on tensors on `device`, the result of staging_device(). On the CPU, does
    // the same as start() with `on_host`. On a GPU, calls `on_gpu` to queue the collective
    // immediately on the caller's stream; a mismatch is detected later and aborts it.
    Work start_on(Device device, CollectiveCall call,
                  const std::function<DeviceEngine::Started(DeviceEngine&)>& on_gpu,
                  std::function<void(HostEngine&, const Counts&)> on_host,
                  std::function<void()> finish = {});

    // Creates the group with these ranks. Called by all ranks of this group, each of which is in at
    // most one of the new groups.
    std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, std::uint32_t group);

    std::shared_ptr<Job> job;  // null if the job has only one process
    std::uint32_t id = 0;
    std::vector<int> global_ranks = {0};
    int rank = 0;
    std::string backend = "none";

  private:
    Work start_on_gpu(CollectiveCall call,
                      const std::function<DeviceEngine::Started(DeviceEngine&)>& queue,
                      std::function<void()> finish);
    std::exception_ptr attempt(const std::string& activity, const std::function<void()>& run);
    DeviceEngine& device_engine();
    // Queues `task` after the earlier collectives of this group.
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

// Check arguments, and throw the errors named below. `op` starts the error message.
void check_tensor(const char* op, const Tensor& x);                     // UsageError, DeviceError
void check_rank(const char* op, const char* what, int rank, int size);  // IndexError
void check_same(const char* op, const Tensor& out, const Tensor& x);    // DTypeError, DeviceError
void check_first_dimension(const char* op, const Tensor& x, int size);  // ShapeError

Shape without_first_dimension(Shape shape);

}  // namespace axle::dist
