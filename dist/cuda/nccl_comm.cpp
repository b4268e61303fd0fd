#include "dist/cuda/nccl_comm.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/error.h"

namespace axle::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kFinalizeTimeout{3000};
constexpr milliseconds kLockTimeout{1000};

}  // namespace

void NcclComm::check(ncclResult_t result, const char* what, ncclComm_t comm) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const more = nccl()->last_error(comm);
    const bool says_more = more != nullptr && *more != '\0';
    throw CommError(str(what, " failed: ", nccl()->error_string(result), says_more ? ": " : "",
                        says_more ? more : ""));
}

std::string NcclComm::make_id() {
    ncclUniqueId id;
    check(nccl()->unique_id(&id), "ncclGetUniqueId");
    return {id.internal, sizeof id.internal};
}

void NcclComm::connect(int rank, int size, const std::string& id, milliseconds timeout) {
    ncclUniqueId unique;
    if (id.size() != sizeof unique.internal)
        throw CommError(str("NCCL: the id from rank 0 must have ", sizeof unique.internal,
                            " bytes: it has ", id.size()));
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    {
        const std::lock_guard lock(mutex_);
        if (aborted_) throw CommError("NCCL: the communicator was aborted after an error");
        check(nccl()->init(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig");
    }
    wait_until_settled(timeout);
}

void NcclComm::run(milliseconds timeout, const std::function<void(ncclComm_t)>& calls) {
    {
        const std::lock_guard lock(mutex_);
        if (comm_ == nullptr) throw CommError("NCCL: the communicator was aborted after an error");
        check(nccl()->group_start(), "ncclGroupStart", comm_);
        try {
            calls(comm_);
        } catch (...) {
            nccl()->group_end();
            throw;
        }
        check(nccl()->group_end(), "ncclGroupEnd", comm_);
    }
    wait_until_settled(timeout);
}

bool NcclComm::is_settled() {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw CommError("NCCL: the communicator was aborted after an error");
    ncclResult_t state = ncclSuccess;
    check(nccl()->async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
    check(state, "NCCL", comm_);
    return state == ncclSuccess;
}

void NcclComm::wait_until_settled(milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    microseconds nap{5};
    while (!is_settled()) {
        if (const std::string failure = failure_(); !failure.empty()) throw CommError(failure);
        if (Clock::now() > deadline)
            throw CommError(
                str("NCCL: other ranks did not respond within ", timeout.count(), " ms"));
        std::this_thread::sleep_for(nap);
        nap = std::min(nap * 2, microseconds(2000));
    }
}

std::string NcclComm::async_error() {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {};
    try {
        ncclResult_t state = ncclSuccess;
        check(nccl()->async_error(comm_, &state), "ncclCommGetAsyncError", comm_);
        check(state, "NCCL", comm_);
        return {};
    } catch (const CommError& error) {
        return error.what();
    }
}

void NcclComm::abort() noexcept {
    const std::unique_lock lock(mutex_, kLockTimeout);
    aborted_ = true;
    if (comm_ != nullptr) nccl()->abort(std::exchange(comm_, nullptr));
}

NcclComm::~NcclComm() {
    if (comm_ == nullptr) return;
    try {
        check(nccl()->finalize(comm_), "ncclCommFinalize", comm_);
        wait_until_settled(kFinalizeTimeout);
        nccl()->destroy(std::exchange(comm_, nullptr));
    } catch (const std::exception&) {  // the pending work has not finished
        abort();
    }
}

}  // namespace axle::dist
