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

// The state that the groups of a process share: the control connection, the timeout, the GPU, the
// MPI state, and the engines that are aborted when a rank fails.
class Job {
  public:
    // `device` is the index of this process's GPU for NCCL, or -1.
    Job(std::unique_ptr<Control> control, std::chrono::milliseconds timeout, int device = -1);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    Control& control() { return *control_; }
    std::chrono::milliseconds timeout() const { return timeout_; }
    int device() const { return device_; }
    // The MPI state, or nullptr if the backend is not "mpi". MPI transfers data on the host.
    const MpiJob* mpi() const { return mpi_.get(); }
    void set_mpi(std::shared_ptr<const MpiJob> mpi) { mpi_ = std::move(mpi); }
    // Registers `abort`. It is called when a failure is reported, or immediately if the job has
    // already failed. remove(engine) removes `abort`.
    void add(const void* engine, std::function<void()> abort);
    void remove(const void* engine);

  private:
    std::chrono::milliseconds timeout_;
    int device_;
    std::shared_ptr<const MpiJob> mpi_;
    std::mutex mutex_;
    bool failed_ = false;
    std::vector<std::pair<const void*, std::function<void()>>> engines_;
    // The control connection; destroyed first, because its thread calls functions of this object.
    std::unique_ptr<Control> control_;
};

// A tensor x, and the contiguous tensor `host` that an engine uses instead of x. `host` is x itself
// if x is contiguous and on the device that the engine uses; otherwise it is a copy. This device is
// the CPU, or x's own device in a collective of a GPU engine.
struct Staged {
    // with_values() copies the values of x to `host` if it is a copy; to_fill() leaves a copy
    // uninitialized.
    static Staged with_values(const Tensor& x, Device device = Device::cpu());
    static Staged to_fill(const Tensor& x, Device device = Device::cpu());

    std::int64_t bytes() const { return host.numel() * size_of(host.dtype()); }
    void* data() const { return host.raw_data(); }
    // Copies `host` into x if `host` is a copy, and increments the version of x. Called by the
    // thread that waits for the collective.
    void copy_back() const;

    Tensor x, host;
};

// CollectiveCall::counts of each rank, indexed by rank.
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

    // Announces the collective to the other ranks. After all ranks have agreed, a worker thread
    // calls `run` with the counts of each rank; `run` may use engine(). `finish` is called in the
    // thread that waits for the returned Work.
    Work start(CollectiveCall call, std::function<void(const Counts&)> run,
               std::function<void()> finish = {});
    // Starts a message between two ranks. A worker thread calls `run` after the earlier messages
    // with this key. `finish` is called in the thread that waits for the returned Work.
    Work start_message(Queues::Key key, std::string activity, std::function<void()> run,
                       std::function<void()> finish = {});
    // Returns the host engine. TCP is opened on first use.
    HostEngine& engine();
    // Opens the MPI engine if the job uses MPI. All ranks of the group must call this function.
    void open_mpi_engine();

    // Decides whether GPU tensors are sent directly between GPUs. Returns "" if they are, and the
    // reason if they are not. All ranks must call this function.
    std::string negotiate_nccl_backend();
    // Returns the device from which x is sent: x's device if it is sent directly between GPUs,
    // otherwise the CPU. For CUDA tensors that are sent directly, throws UsageError during graph
    // capture, and DeviceError if x is not on this process's GPU.
    Device staging_device(const char* op, const Tensor& x) const;
    // Starts a collective on tensors on `device`, the result of staging_device(). On the CPU, calls
    // start() with `on_host`. On a GPU, calls `on_gpu`, which queues the collective on the caller's
    // stream. If the ranks do not agree on the call, an engine whose waits_for_agreement() is true
    // is not called, and start_on() throws CommError. Other engines are aborted later.
    Work start_on(Device device, CollectiveCall call,
                  const std::function<DeviceEngine::Started(DeviceEngine&)>& on_gpu,
                  std::function<void(HostEngine&, const Counts&)> on_host,
                  std::function<void()> finish = {});

    // Creates the group with the id `group` and these ranks, which are ranks of this group. Returns
    // nullptr if this rank is not one of them. All ranks of this group must call make_group()
    // together, and each rank may be in at most one of the new groups.
    std::shared_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, std::uint32_t group);

    std::shared_ptr<Job> job;  // nullptr if the job has one process
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
    void use(std::unique_ptr<HostEngine> engine);

    std::mutex engine_mutex_;
    std::unique_ptr<HostEngine> engine_;
    std::string nccl_token_;
    std::unique_ptr<DeviceEngine> device_engine_;
    std::mutex sequence_mutex_;
    std::uint64_t sequence_ = 0;
    Queues queues_;
};

// Check arguments; messages begin with `op`. check_tensor() throws UsageError for an undefined
// tensor and DeviceError for a meta tensor. check_rank() throws IndexError. check_same() throws the
// errors of check_tensor() for a, and DTypeError or DeviceError if b has another dtype or device.
// check_first_dimension() throws ShapeError.
void check_tensor(const char* op, const Tensor& x, const std::string& name = "x");
void check_rank(const char* op, const char* what, int rank, int size);
void check_same(const char* op, const Tensor& a, const Tensor& b, const std::string& a_name,
                const std::string& b_name);
void check_first_dimension(const char* op, const Tensor& x, int size);

Shape without_first_dimension(Shape shape);

}  // namespace axle::dist
