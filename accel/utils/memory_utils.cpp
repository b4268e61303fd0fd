#include "accel/utils/memory_utils.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "core/cuda.h"
#include "core/memory/memory.h"
#include "dist/group/process_group.h"
#include "dist/group/shared_error.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr const char* kOp = "find_executable_batch_size";

// Returns the result of a try, to be sent to the other processes: null for success, or the next
// size of this process. Throws the error if a smaller batch would not help.
Tree outcome_of(const std::exception_ptr& error, const std::function<int()>& reduced) {
    if (error == nullptr) return {};
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& failed) {
        if (!should_reduce_batch_size(failed)) throw;
    }
    clear_device_cache();
    return reduced();
}

}  // namespace

void clear_device_cache() {
    host_memory::empty_cache();
    for (int device = 0; device < cuda::device_count(); ++device)
        if (cuda::memory_stats(device).reserved > 0) cuda::empty_cache(device);
}

bool should_reduce_batch_size(const std::exception& error) {
    if (dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
        dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
        return true;
    return dynamic_cast<const Error*>(&error) != nullptr &&
           std::string_view(error.what()).find("CUDNN_STATUS_NOT_SUPPORTED") !=
               std::string_view::npos;
}

BatchSizeSearch::BatchSizeSearch(int starting_batch_size, ExecutableBatchSizeOptions options)
    : batch_size_(starting_batch_size), options_(std::move(options)) {
    if (starting_batch_size < 0)
        throw ValueError(
            str(kOp, ": starting_batch_size must not be negative: ", starting_batch_size));
}

void BatchSizeSearch::begin_try() const {
    if (batch_size_ > 0) return;
    const MemoryStats memory = host_memory::stats();
    throw OutOfMemory(str(kOp, ": No executable batch size found, reached zero."), 0,
                      memory.current, memory.reserved - memory.current, memory.peak);
}

int BatchSizeSearch::reduced() const {
    if (!options_.reduce_batch_size_fn) return static_cast<int>(batch_size_ * 0.9);
    const int next = options_.reduce_batch_size_fn();
    if (next < 0 || next >= batch_size_)
        throw ValueError(str(kOp, ": reduce_batch_size_fn must return a number in [0, ",
                             batch_size_, "): ", next));
    return next;
}

bool BatchSizeSearch::end_try(const std::exception_ptr& error) {
    const auto group = options_.process_group ? options_.process_group : current_process_group();
    bool all_fit = true;
    for (const Tree& outcome : dist::gather_or_throw(
             *group, kOp, [&] { return outcome_of(error, [this] { return reduced(); }); })) {
        if (outcome.is_null()) continue;
        all_fit = false;
        batch_size_ = std::min(batch_size_, static_cast<int>(outcome.integer()));
    }
    return all_fit;
}

}  // namespace axle::accel
