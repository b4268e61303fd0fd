#include "dist/mpi/mpi_operation.h"

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/error.h"

namespace axle::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// The maximum time that the destructor waits for the end of an operation.
constexpr milliseconds kCancelTimeout{50};

// The pauses between two tests of an operation. Each test also makes progress in MPI. At first, the
// thread only yields, because most operations end within microseconds.
class Pauses {
  public:
    void next() {
        const auto waited = Clock::now() - begin_;
        if (waited < microseconds(200)) return std::this_thread::yield();
        std::this_thread::sleep_for(waited < milliseconds(50) ? microseconds(20)
                                                              : microseconds(500));
    }
    bool exceed(milliseconds limit) const { return Clock::now() - begin_ > limit; }

  private:
    const Clock::time_point begin_ = Clock::now();
};

// Keeps memory until the process ends, because an operation that MPI cannot end may still access
// it.
void keep_forever(std::shared_ptr<MpiMemory> memory) {
    static std::mutex mutex;
    static auto* const kept = new std::vector<std::shared_ptr<MpiMemory>>;
    const std::lock_guard lock(mutex);
    kept->push_back(std::move(memory));
}

}  // namespace

MpiOperation::~MpiOperation() {
    if (request_ == nullptr) return;
    engine_->mpi.cancel(request_);
    const Pauses pauses;
    while (!pauses.exceed(kCancelTimeout)) {
        MpiError ignored = {};
        if (engine_->mpi.test(request_, &ignored) != MpiState::pending) return;
        std::this_thread::sleep_for(milliseconds(1));
    }
    engine_->is_aborted = engine_->is_abandoned = true;
    keep_forever(std::move(memory_));
}

void MpiOperation::wait() {
    Pauses pauses;
    while (request_ != nullptr) {
        MpiError error = {};
        const MpiState state = engine_->mpi.test(request_, &error);
        if (state != MpiState::pending) request_ = nullptr;
        if (state == MpiState::failed) fail(error.text);
        if (state == MpiState::done) return;
        check_not_aborted();
        if (pauses.exceed(engine_->timeout))
            fail(str("timed out after ", engine_->timeout.count(), " ms").c_str());
        pauses.next();
    }
}

void MpiOperation::check_not_aborted() const {
    if (engine_->is_aborted) fail("the process group was closed after an error");
}

void MpiOperation::fail(const char* reason) const {
    throw CommError(
        str(call_, " of ", bytes_, " bytes over ", engine_->mpi.implementation, ": ", reason));
}

}  // namespace axle::dist
