#include "kernels/thread_pool.h"

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "kernels/error.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace axle::kernels {
namespace {

constexpr int kMaxThreads = 1024;
// A worker polls for about this many pauses (some 20 us) before it sleeps: ops follow one another
// closely in a training step, and a wake-up costs more than most of them.
constexpr int kSpins = 600;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

int usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1u, std::thread::hardware_concurrency());
}

int checked(const char* who, int n) {
    if (n < 1 || n > kMaxThreads)
        throw ValueError(str(who, ": the number of threads must be 1 to ", kMaxThreads, ": ", n));
    return n;
}

int threads_from_environment() {
    const char* text = std::getenv("AXLE_NUM_THREADS");
    if (text == nullptr || *text == '\0') return usable_cpus();
    int n = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, n);
    if (error != std::errc() || stop != end)
        throw ValueError(str("AXLE_NUM_THREADS: not a whole number: '", text, "'"));
    return checked("AXLE_NUM_THREADS", n);
}

thread_local bool inside_task = false;

// One parallel section at a time. Workers and the caller take task numbers from next_ until none is
// left; a section ends when every worker has checked out, so that no worker can touch a later one.
class Pool {
  public:
    explicit Pool(int threads) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ~Pool() {
        stop_.store(true, std::memory_order_relaxed);
        announce();
        for (std::thread& worker : workers_) worker.join();
    }
    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    void run(std::int64_t tasks, Body body, void* context) {
        body_ = body, context_ = context, tasks_ = tasks;
        next_.store(0, std::memory_order_relaxed);
        busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
        announce();
        take_tasks();
        while (busy_.load(std::memory_order_acquire) != 0) pause();
        if (failed_.load(std::memory_order_relaxed)) {
            failed_.store(false, std::memory_order_relaxed);
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

  private:
    void announce() {
        generation_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(mutex_);
        wake_.notify_all();
    }

    void take_tasks() {
        inside_task = true;
        for (;;) {
            const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
            if (task >= tasks_) break;
            try {
                body_(context_, task);
            } catch (...) {
                next_.store(tasks_, std::memory_order_relaxed);
                if (!failed_.exchange(true)) error_ = std::current_exception();
            }
        }
        inside_task = false;
    }

    void work() {
        for (std::uint32_t seen = 0;;) {
            seen = wait_beyond(seen);
            if (stop_.load(std::memory_order_relaxed)) return;
            take_tasks();
            busy_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::uint32_t wait_beyond(std::uint32_t seen) {
        for (int i = 0; i < kSpins; ++i) {
            const std::uint32_t now = generation_.load(std::memory_order_acquire);
            if (now != seen) return now;
            pause();
        }
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_seq_cst) != seen; });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        return generation_.load(std::memory_order_acquire);
    }

    std::vector<std::thread> workers_;
    Body body_ = nullptr;
    void* context_ = nullptr;
    std::int64_t tasks_ = 0;
    alignas(64) std::atomic<std::int64_t> next_ = 0;
    alignas(64) std::atomic<std::uint32_t> generation_ = 0;
    alignas(64) std::atomic<int> busy_ = 0;
    std::atomic<int> sleepers_ = 0;
    std::atomic<bool> stop_ = false;
    std::atomic<bool> failed_ = false;
    std::exception_ptr error_;
    std::mutex mutex_;
    std::condition_variable wake_;
};

struct Shared {
    std::mutex mutex;  // held during a parallel section and while workers are replaced
    std::unique_ptr<Pool> pool;
    std::atomic<int> threads = 0;
};

// Never destroyed: a thread that ends late may still ask.
Shared& shared() {
    static auto* const instance = new Shared;
    return *instance;
}

void ensure_pool(Shared& s) {
    if (s.pool) return;
    const int threads = s.threads != 0 ? s.threads.load() : threads_from_environment();
    s.pool = std::make_unique<Pool>(threads);
    s.threads = threads;
}

}  // namespace

int num_threads() {
    Shared& s = shared();
    if (s.threads != 0) return s.threads;
    const std::lock_guard lock(s.mutex);
    ensure_pool(s);
    return s.threads;
}

void set_num_threads(int n) {
    checked("set_num_threads", n);
    Shared& s = shared();
    const std::lock_guard lock(s.mutex);
    if (s.pool && s.threads == n) return;
    s.pool.reset();
    s.threads = n;
    ensure_pool(s);
}

void parallel(std::int64_t tasks, Body body, void* context) {
    if (tasks <= 0) return;
    Shared& s = shared();
    std::unique_lock lock(s.mutex, std::defer_lock);
    if (tasks > 1 && !inside_task && lock.try_lock()) {
        ensure_pool(s);
        if (s.pool->threads() > 1) return s.pool->run(tasks, body, context);
        lock.unlock();
    }
    for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
}

}  // namespace axle::kernels
