// Private to dist: a communicator of NCCL that never blocks: whoever waits for other processes
// looks up often enough to be sent home.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "dist/cuda/nccl_library.h"

namespace axle::inline v0::dist {

class NcclComm {
  public:
    // `failure` is asked while something is waited for: text that ends it, or "".
    explicit NcclComm(std::function<std::string()> failure) : failure_(std::move(failure)) {}
    // Of what is done: soon. Otherwise as abort().
    ~NcclComm();
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    // What rank 0 hands to the others. CommError.
    static std::string make_id();
    // Waits for the other ranks. On the thread's current device.
    void connect(int rank, int size, const std::string& id, std::chrono::milliseconds timeout);

    // Runs calls(comm), which throws what they return (check), and waits until it is all queued:
    // the first time, for the others too. By one thread at a time.
    void run(std::chrono::milliseconds timeout, const std::function<void(ncclComm_t)>& calls);
    // CommError for anything but success and what is under way.
    static void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

    // What has gone wrong beside any call, or "".
    std::string trouble();
    // From any thread. Queued work ends, with whatever results. A call that hangs in NCCL, as one
    // that finds a stream's queue full behind a dead process, is not waited for.
    void abort() noexcept;

  private:
    void settle(std::chrono::milliseconds timeout);
    bool is_settled();

    std::function<std::string()> failure_;
    std::timed_mutex mutex_;  // of every call with comm_
    ncclComm_t comm_ = nullptr;
    bool aborted_ = false;
};

}  // namespace axle::inline v0::dist
