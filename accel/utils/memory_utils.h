// Memory utilities: a search for a batch size that fits into memory, and functions that free
// memory.
//
//     auto train = find_executable_batch_size([&](int batch_size, int epochs) { ... });
//     train(3);
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "accel/process/operations.h"

namespace axle::accel {

// Frees cached memory on the host and on the GPUs that this process has used.
void clear_device_cache();

// Replaces each object by a default-constructed one and clears the cache.
template <class... T>
void release_memory(T&... objects) {
    ((objects = T{}), ...);
    clear_device_cache();
}

// Returns whether the error can be avoided by a smaller batch: memory has run out, or cuDNN does
// not support the size.
bool should_reduce_batch_size(const std::exception& error);

struct ExecutableBatchSizeOptions {
    // Returns the next size to try. It must be at least 0 and less than the current size, otherwise
    // ValueError is thrown. By default the size is multiplied by 0.9 and rounded down.
    std::function<int()> reduce_batch_size_fn = {};
    // The processes that use the same batch size; by default all processes of the program's
    // PartialState, or only this process without a PartialState.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
};

// The search for a batch size at which a function does not run out of memory on any process.
class BatchSizeSearch {
  public:
    // Throws ValueError if starting_batch_size is negative.
    BatchSizeSearch(int starting_batch_size, ExecutableBatchSizeOptions options);

    int batch_size() const { return batch_size_; }
    // Throws OutOfMemory "No executable batch size found, reached zero." if the batch size is 0.
    void begin_try() const;
    // All processes must call this function after a try. `error` is the exception that the try
    // threw, or nullptr. Returns true if the try succeeded on all processes. Otherwise returns
    // false and sets the batch size to the smallest of the next sizes of the processes whose try
    // failed. If should_reduce_batch_size() is false for an error, all processes throw the error.
    // They also throw an error of reduce_batch_size_fn.
    bool end_try(const std::exception_ptr& error);

  private:
    int reduced() const;

    int batch_size_;
    ExecutableBatchSizeOptions options_;
};

// A function whose first parameter, the batch size, is supplied by a search. A call tries smaller
// sizes on all processes until memory suffices, and later calls start with the size that was found.
// Throws OutOfMemory if the size reaches 0. With several processes, all processes must run out of
// memory at the same point. If one process runs out of memory while the other processes wait for it
// in a collective, the job fails.
template <class F>
class ExecutableBatchSize {
  public:
    ExecutableBatchSize(F function, int starting_batch_size, ExecutableBatchSizeOptions options)
        : function_(std::move(function)), search_(starting_batch_size, std::move(options)) {}

    int batch_size() const { return search_.batch_size(); }

    template <class... Args>
        requires std::is_invocable_v<F&, int, Args&...>
    auto operator()(Args&&... args) {
        using Result = std::invoke_result_t<F&, int, Args&...>;
        clear_device_cache();
        while (true) {
            search_.begin_try();
            std::exception_ptr error;
            if constexpr (std::is_void_v<Result>) {
                try {
                    function_(search_.batch_size(), args...);
                } catch (const std::exception&) {
                    error = std::current_exception();
                }
                if (search_.end_try(error)) return;
            } else {
                std::optional<Result> result;
                try {
                    result.emplace(function_(search_.batch_size(), args...));
                } catch (const std::exception&) {
                    error = std::current_exception();
                }
                if (search_.end_try(error)) return Result(std::move(*result));
            }
        }
    }

  private:
    F function_;
    BatchSizeSearch search_;
};

// Returns a function that calls `function` with a batch size. The first batch size is
// starting_batch_size. Throws ValueError if starting_batch_size is negative.
template <class F>
[[nodiscard]] ExecutableBatchSize<F> find_executable_batch_size(
    F function, int starting_batch_size = 128, ExecutableBatchSizeOptions options = {}) {
    return {std::move(function), starting_batch_size, std::move(options)};
}

}  // namespace axle::accel
