// Private to dist: an NCCL communicator whose calls never block indefinitely, because it polls for
// failures while it waits for other processes.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "dist/cuda/nccl_library.h"

namespace axle::dist {

class NcclComm {
  public:
    // `failure` is polled during waits; a text other than "" ends the wait with that error.
    explicit NcclComm(std::function<std::string()> failure) : failure_(std::move(failure)) {}
    // Returns quickly if all work is done; otherwise acts like abort().
    ~NcclComm();
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    // Returns the id that rank 0 sends to the other ranks. Throws CommError.
    static std::string make_id();
    // Connects to the other ranks and waits for them. Uses the thread's current device.
    void connect(int rank, int size, const std::string& id, std::chrono::milliseconds timeout);

    // Calls calls(comm), which passes each result to check(), and waits until all of it is queued
    // (the first time, this includes waiting for the other ranks). One thread at a time.
    void run(std::chrono::milliseconds timeout, const std::function<void(ncclComm_t)>& calls);
    // Throws CommError unless the result is success or "in progress".
    static void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

    // Returns an error that occurred asynchronously, or "".
    std::string async_error();
    // Ends queued work with undefined results. May be called from any thread. Does not wait for a
    // call that hangs inside NCCL, such as one blocked on a full stream after a peer died.
    void abort() noexcept;

  private:
    void wait_until_settled(std::chrono::milliseconds timeout);
    bool is_settled();

    std::function<std::string()> failure_;
    std::timed_mutex mutex_;  // held during every call that uses comm_
    ncclComm_t comm_ = nullptr;
    bool aborted_ = false;
};

}  // namespace axle::dist
