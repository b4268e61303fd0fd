#include "tests/fork.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <signal.h>
#include <unistd.h>

#include "kernels/error.h"
#include "kernels/thread_pool.h"
#include "kernels/workers.h"

// The number of threads that the sanitizer itself runs: one with the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
#define AXLE_SANITIZER_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AXLE_SANITIZER_THREADS 1
#endif
#endif
#ifndef AXLE_SANITIZER_THREADS
#define AXLE_SANITIZER_THREADS 0
#endif

namespace axle::tests {
namespace {

std::ptrdiff_t count_threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Waits up to 5 seconds for threads that were joined but are still listed in /proc. Returns whether
// only the calling thread is left.
bool becomes_single_threaded() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (count_threads() > 1 + AXLE_SANITIZER_THREADS) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

}  // namespace

pid_t fork_process() {
    const int threads = kernels::has_workers() ? kernels::num_threads() : 1;
    if (threads > 1) kernels::set_num_threads(1);
    if (!becomes_single_threaded())
        throw std::runtime_error("fork_process: other threads of this process are running");
    const pid_t child = ::fork();
    if (child < 0)
        throw std::runtime_error(str("fork_process: ", std::generic_category().message(errno)));
    if (child == 0)
        for (const int signal : {SIGINT, SIGQUIT}) ::signal(signal, SIG_DFL);
    if (threads > 1) kernels::set_num_threads(threads);
    return child;
}

}  // namespace axle::tests
