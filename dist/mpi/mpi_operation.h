// Private to dist: MpiOperation, an operation of MPI in progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "dist/mpi/mpi_rounds.h"
#include "dist/mpi/plugin.h"

namespace axle::dist {

// The state that all operations of an engine share.
struct MpiEngineState {
    const MpiFunctions& mpi;
    std::chrono::milliseconds timeout;
    // Whether operations must end, and whether an operation could not be ended. After the latter,
    // the communicator cannot be used or freed.
    std::atomic<bool> is_aborted = false, is_abandoned = false;
};

// An operation in progress, and the memory that it uses. MPI can cancel a receive, but no other
// operation. If the operation has not ended, the destructor cancels it and waits at most 50 ms. If
// it has not ended by then, its memory is never freed, and the engine is aborted.
class MpiOperation {
  public:
    // `call` is the name of the engine's function, and `bytes` the size of its data, for error
    // messages.
    MpiOperation(MpiEngineState& engine, const char* call, std::int64_t bytes)
        : engine_(&engine), call_(call), bytes_(bytes) {}
    ~MpiOperation();
    MpiOperation(const MpiOperation&) = delete;
    MpiOperation& operator=(const MpiOperation&) = delete;

    // Calls begin(mpi, error), which starts an operation on `memory` and returns its request. The
    // previous operation must have ended. Throws CommError if MPI fails, and after an abort.
    template <class F>
    void start(MpiMemory& memory, F&& begin) {
        check_not_aborted();
        MpiError error = {};
        memory_ = memory.shared_from_this();
        request_ = begin(engine_->mpi, &error);
        if (request_ == nullptr) fail(error.text);
    }
    // Waits until the operation has ended. Throws CommError if it fails, after the timeout, and
    // after an abort.
    void wait();

  private:
    void check_not_aborted() const;
    [[noreturn]] void fail(const char* reason) const;

    MpiEngineState* engine_;
    const char* call_;
    std::int64_t bytes_;
    std::shared_ptr<MpiMemory> memory_;
    MpiRequest* request_ = nullptr;
};

}  // namespace axle::dist
