// Training in the memory that there is: the batch size that fits, and giving memory back.
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

// Gives memory that is cached, here and on the GPUs that this process has used, back.
void clear_device_cache();

// Forgets the objects (each becomes a new one) and clears the cache.
template <class... T>
void release_memory(T&... objects) {
    ((objects = T{}), ...);
    clear_device_cache();
}

// Whether a smaller batch may help: memory has run out, or cuDNN can't do it this large.
bool should_reduce_batch_size(const std::exception& error);

struct ExecutableBatchSizeOptions {
    // The next size to try, in place of nine tenths of the last one.
    std::function<int()> reduce_batch_size_fn = {};
    // Processes that try together, in place of all of the program's PartialState.
    std::shared_ptr<dist::ProcessGroup> process_group = {};
};

// The size that a function is tried with, until it has not run out of memory on any process.
class BatchSizeSearch {
  public:
    BatchSizeSearch(int starting_batch_size, ExecutableBatchSizeOptions options);

    int batch_size() const { return batch_size_; }
    // OutOfMemory "No executable batch size found, reached zero."
    void begin_try() const;
    // Called by all processes with what a try has ended with, null if with a result. Whether it
    // has on all of them; if not, the next size is set, the smallest that any wants. An error that
    // is not of memory is thrown, by all of them.
    bool end_try(const std::exception_ptr& error);

  private:
    int reduced() const;

    int batch_size_;
    ExecutableBatchSizeOptions options_;
};

// A function without its first parameter, the batch size: calling it tries smaller and smaller ones
// while memory runs out, on all processes together, and keeps the one that fits for later calls.
// The function is called again from its beginning. On several processes each should run out at the
// same place: one that does alone, while others wait for it in a collective, fails the job.
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

template <class F>
[[nodiscard]] ExecutableBatchSize<F> find_executable_batch_size(
    F function, int starting_batch_size = 128, ExecutableBatchSizeOptions options = {}) {
    return {std::move(function), starting_batch_size, std::move(options)};
}

}  // namespace axle::accel
