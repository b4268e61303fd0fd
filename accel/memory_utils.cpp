#include "accel/memory_utils.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <vector>

#include "core/cuda.h"
#include "core/file.h"
#include "core/memory.h"
#include "dist/process_group.h"
#include "kernels/error.h"

namespace axle::inline v0::accel {
namespace {

constexpr const char* kOp = "find_executable_batch_size";

// What a process says of its try: null for a result, the size that it wants next, or why it gives
// up; then that is the error.
Tree outcome_of(std::exception_ptr& error, const std::function<int()>& reduced) {
    if (error == nullptr) return {};
    try {
        try {
            std::rethrow_exception(error);
        } catch (const std::exception& failed) {
            if (!should_reduce_batch_size(failed)) throw;
        }
        clear_device_cache();
        return reduced();
    } catch (const std::exception& failed) {
        error = std::current_exception();
        return printable(failed.what());
    }
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
        throw ValueError(str(kOp, ": reduce_batch_size_fn must give less than ", batch_size_,
                             ", and not below 0: ", next));
    return next;
}

bool BatchSizeSearch::end_try(std::exception_ptr error) {
    const auto group = options_.process_group ? options_.process_group : current_process_group();
    const Tree own = outcome_of(error, [this] { return reduced(); });
    std::vector<Tree> outcomes;
    try {
        outcomes = group->all_gather_object(own);
    } catch (const CommError&) {  // perhaps for the very reason that ended the try
        if (own.is_string()) std::rethrow_exception(error);
        throw;
    }
    if (own.is_string()) std::rethrow_exception(error);
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
        if (outcomes[rank].is_string())
            throw CommError(str(kOp, ": process ", rank, ": ", outcomes[rank].string()));
    bool all_fit = true;
    for (const Tree& outcome : outcomes) {
        if (outcome.is_null()) continue;
        all_fit = false;
        batch_size_ = std::min(batch_size_, static_cast<int>(outcome.integer()));
    }
    return all_fit;
}

}  // namespace axle::inline v0::accel
