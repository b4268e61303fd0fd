// The one thread pool of the library: a fixed number of workers that kernels share.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace axle::inline v0::kernels {

// Threads that kernels use, the caller's included. The first use reads AXLE_NUM_THREADS (1 to 1024;
// anything else throws ValueError) and falls back to the number of CPUs this process may run on, or
// to as many threads as the system has.
int num_threads();

// Replaces the workers; with n = 1 there are none. n is 1 to 1024, else ValueError; Error if the
// system has fewer threads, which are used then. Waits for a running parallel section. Results
// never depend on n.
void set_num_threads(int n);

// body(task) for every task in [0, tasks), spread over the pool; returns when all are done. A call
// from inside a task, or while another thread holds the pool, runs the tasks inline, in order. The
// first exception of a task is rethrown here once every started task has ended. Workers round, and
// treat denormal numbers, as the caller does (kernels/float_control.h). Several threads may call it
// at once. Not in a process that was forked from one with workers: it has none of them.
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

// While it lives, this thread runs all tasks of its sections itself: for one that works beside the
// thread that computes, and is to leave the pool to it.
class InlineScope {
  public:
    InlineScope();
    ~InlineScope();
    InlineScope(const InlineScope&) = delete;
    InlineScope& operator=(const InlineScope&) = delete;

  private:
    bool before_;
};

// [0, n) in ranges of `grain`: body(begin, end). The cut depends on n and grain alone.
template <class F>
void parallel_ranges(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    parallel((n + grain - 1) / grain, [&](std::int64_t task) {
        const std::int64_t begin = task * grain;
        f(begin, begin + grain < n ? begin + grain : n);
    });
}

}  // namespace axle::inline v0::kernels
