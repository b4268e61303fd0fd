// Private to dist: NcclComm, an NCCL communicator in non-blocking mode. While it waits for other
// processes, it polls for failures and checks a timeout.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "dist/cuda/nccl_library.h"

namespace axle::dist {

class NcclComm {
  public:
    // `failure` is called repeatedly while a function waits. If it returns text other than "", the
    // function throws CommError with this text.
    explicit NcclComm(std::function<std::string()> failure) : failure_(std::move(failure)) {}
    // Destroys the communicator. Waits at most three seconds for queued work, and aborts work that
    // has not finished by then or has failed.
    ~NcclComm();
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    // Returns the id that rank 0 sends to the other ranks. Throws CommError if NCCL fails.
    static std::string make_id();
    // Connects to the other ranks and waits until they have connected. Uses the thread's current
    // device. Throws CommError if the id has a wrong size, if a rank does not connect within the
    // timeout, if NCCL or `failure` reports an error, and after abort().
    void connect(int rank, int size, const std::string& id, std::chrono::milliseconds timeout);

    // Calls calls(comm), which must pass each result of NCCL to check(), and waits until NCCL has
    // queued the work. The first run() also waits for the other ranks. Must be called by one thread
    // at a time. Throws CommError if NCCL or `failure` reports an error, after the timeout, and
    // after abort().
    void run(std::chrono::milliseconds timeout, const std::function<void(ncclComm_t)>& calls);
    // Throws CommError, whose message contains `what`, unless the result is success or "in
    // progress".
    static void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

    // Returns the text of an error that occurred asynchronously, or "" if there is none or the
    // communicator is not connected.
    std::string async_error();
    // Aborts queued work. The results of this work are undefined. Thread-safe. Waits at most one
    // second for a call that hangs inside NCCL, for example because a peer has died.
    void abort() noexcept;

  private:
    void wait_until_settled(std::chrono::milliseconds timeout);
    bool is_settled();

    std::function<std::string()> failure_;
    // Locked while comm_ is used, except in the destructor, and in abort() if another call holds
    // the lock for more than a second.
    std::timed_mutex mutex_;
    ncclComm_t comm_ = nullptr;
    bool aborted_ = false;
};

}  // namespace axle::dist
