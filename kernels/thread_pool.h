// The thread pool of the library, with a fixed number of workers shared by all kernels.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace axle::kernels {

// Returns the number of threads that kernels use, including the calling thread. When the pool is
// first used, and set_num_threads() was not called before, AXLE_NUM_THREADS (1 to 1024) is read;
// any other value throws ValueError. If the variable is not set or empty, the pool has one thread
// per CPU that this process can run on. It has fewer threads if the system cannot create that many.
int num_threads();

// Waits for a running parallel section, then replaces the workers by n - 1 new workers, unless
// there are n - 1 already. Throws ValueError unless n is from 1 to 1024. If the system cannot
// create enough threads, throws Error and keeps the threads that were created. Results of kernels
// never depend on n. Must not be called inside a task: it would wait forever.
void set_num_threads(int n);

// Calls body(context, task) for every task in [0, tasks) on the threads of the pool, and returns
// when all tasks are done. If parallel() is called inside a task, or while another thread uses the
// pool, the calling thread runs all tasks in order. If a task throws, no more tasks are started,
// and the first exception is rethrown after all started tasks have ended. Workers use the caller's
// rounding mode and treatment of denormal numbers (kernels/float_control.h). Thread-safe. If the
// process has workers, its forked children must not call this function, because they have no
// workers.
using Body = void (*)(void* context, std::int64_t task);
void parallel(std::int64_t tasks, Body body, void* context);

template <class F>
void parallel(std::int64_t tasks, F&& f) {
    if (tasks == 1) return static_cast<void>(f(std::int64_t{0}));
    parallel(
        tasks,
        [](void* context, std::int64_t task) {
            (*static_cast<std::remove_reference_t<F>*>(context))(task);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
}

// Makes this thread run all tasks of its parallel sections itself for the lifetime of the object.
// Background threads create such an object, so that the pool is free for the thread that trains.
class InlineScope {
  public:
    InlineScope();
    ~InlineScope();
    InlineScope(const InlineScope&) = delete;
    InlineScope& operator=(const InlineScope&) = delete;

  private:
    bool before_;
};

// Splits [0, n) into ranges of `grain` elements (the last can be shorter) and calls f(begin, end)
// for each of them, in parallel. The split depends on n and grain only.
template <class F>
void parallel_ranges(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    parallel((n + grain - 1) / grain, [&](std::int64_t task) {
        const std::int64_t begin = task * grain;
        f(begin, begin + grain < n ? begin + grain : n);
    });
}

}  // namespace axle::kernels
