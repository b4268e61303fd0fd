#include "kernels/thread_pool.h"

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

#include "kernels/error.h"
#include "kernels/float_control.h"
#include "kernels/thread.h"
#include "kernels/workers.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace axle::kernels {
namespace {

constexpr int kMaxThreads = 1024;
// The number of pauses (about 20 us in total) for which a worker polls before it sleeps, and the
// caller polls before it yields. In a training step, the next op usually follows soon, and waking a
// thread takes longer than most ops.
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
        throw ValueError(
            str(who, ": the number of threads must be from 1 to ", kMaxThreads, ": it is ", n));
    return n;
}

int threads_from_environment() {
    const char* text = std::getenv("AXLE_NUM_THREADS");
    if (text == nullptr || *text == '\0') return usable_cpus();
    int n = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, n);
    if (error != std::errc() || stop != end)
        throw ValueError(str("AXLE_NUM_THREADS: the value must be an integer from 1 to ",
                             kMaxThreads, ": '", text, "'"));
    return checked("AXLE_NUM_THREADS", n);
}

thread_local bool inside_task = false;  // true in a task or an InlineScope

// Runs one parallel section at a time. The caller and the workers get task numbers from a shared
// ticket, whose upper half is the number of the section. A worker that wakes up late reads the
// ticket of another section or a closed ticket. So it runs no task of the section for which it was
// woken. A section therefore ends when its tasks have ended, without waiting for sleeping workers.
class Pool {
  public:
    // Creates threads - 1 workers, or fewer if the system cannot create more threads. Throws
    // std::bad_alloc if memory runs out.
    explicit Pool(int threads) {
        workers_.reserve(static_cast<std::size_t>(threads));
        try {
            while (this->threads() < threads)
                workers_.push_back(start_thread("axle worker", [this] { work(); }));
        } catch (const std::system_error&) {
            return;  // threads() returns the number that was created
        } catch (...) {
            stop();
            throw;
        }
    }
    ~Pool() { stop(); }
    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs a parallel section and waits for it. Rethrows the first exception of a task. `tasks`
    // must be below kClosed.
    void run(std::int64_t tasks, Body body, void* context) {
        body_.store(body, std::memory_order_relaxed);
        context_.store(context, std::memory_order_relaxed);
        float_control_.store(float_control(), std::memory_order_relaxed);
        tasks_.store(static_cast<std::uint32_t>(tasks), std::memory_order_relaxed);
        done_.store(0, std::memory_order_relaxed);
        const std::uint32_t section = section_.load(std::memory_order_relaxed) + 1;
        ticket_.store(std::uint64_t{section} << 32, std::memory_order_release);
        announce();
        take_tasks(section);
        wait_for(tasks);
        ticket_.store(std::uint64_t{section} << 32 | kClosed, std::memory_order_relaxed);
        if (!failed_.load(std::memory_order_relaxed)) return;
        failed_.store(false, std::memory_order_relaxed);
        std::rethrow_exception(std::exchange(error_, nullptr));
    }

    static constexpr std::uint32_t kClosed = 0xffffffffu;

  private:
    void stop() {
        stop_.store(true, std::memory_order_relaxed);
        announce();
        for (std::thread& worker : workers_) worker.join();
    }

    void announce() {
        section_.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(mutex_);
        wake_.notify_all();
    }

    void take_tasks(std::uint32_t section) {
        inside_task = true;
        std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
        for (;;) {
            const auto task = static_cast<std::uint32_t>(ticket);
            if (ticket >> 32 != section || task >= tasks_.load(std::memory_order_relaxed)) break;
            if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acquire))
                continue;
            perform(task);
            done_.fetch_add(1, std::memory_order_release);
            ticket = ticket_.load(std::memory_order_acquire);
        }
        inside_task = false;
    }

    // Runs one task with the caller's floating-point settings, so that results do not depend on the
    // thread that runs it. After an exception, the remaining tasks are skipped.
    void perform(std::int64_t task) {
        if (failed_.load(std::memory_order_relaxed)) return;
        const std::uint64_t control = float_control_.load(std::memory_order_relaxed);
        if (float_control() != control) set_float_control(control);
        try {
            body_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed), task);
        } catch (...) {
            if (!failed_.exchange(true)) error_ = std::current_exception();
        }
    }

    void wait_for(std::int64_t tasks) {
        for (int i = 0; done_.load(std::memory_order_acquire) != tasks; ++i) {
            if (i < kSpins)
                pause();
            else
                std::this_thread::yield();
        }
    }

    void work() {
        for (std::uint32_t seen = 0;;) {
            seen = wait_beyond(seen);
            if (stop_.load(std::memory_order_relaxed)) return;
            take_tasks(seen);
        }
    }

    std::uint32_t wait_beyond(std::uint32_t seen) {
        for (int i = 0; i < kSpins; ++i) {
            const std::uint32_t now = section_.load(std::memory_order_acquire);
            if (now != seen) return now;
            pause();
        }
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return section_.load(std::memory_order_seq_cst) != seen; });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        return section_.load(std::memory_order_acquire);
    }

    std::vector<std::thread> workers_;
    std::atomic<Body> body_ = nullptr;
    std::atomic<void*> context_ = nullptr;
    std::atomic<std::uint64_t> float_control_ = 0;
    std::atomic<std::uint32_t> tasks_ = 0;
    alignas(64) std::atomic<std::uint64_t> ticket_ = kClosed;
    alignas(64) std::atomic<std::int64_t> done_ = 0;
    alignas(64) std::atomic<std::uint32_t> section_ = 0;
    std::atomic<int> sleepers_ = 0;
    std::atomic<bool> stop_ = false;
    std::atomic<bool> failed_ = false;
    std::exception_ptr error_;
    std::mutex mutex_;
    std::condition_variable wake_;
};

struct Shared {
    std::mutex mutex;  // locked during a parallel section and while workers are replaced
    std::unique_ptr<Pool> pool;
    std::atomic<int> threads = 0;
};

// Returns the shared state. It is never destroyed, because threads that end late can still use it.
Shared& shared() {
    static auto* const instance = new Shared;
    return *instance;
}

void ensure_pool(Shared& s) {
    if (s.pool) return;
    const int threads = s.threads != 0 ? s.threads.load() : threads_from_environment();
    s.pool = std::make_unique<Pool>(threads);
    s.threads = s.pool->threads();
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
    if (s.threads != n)
        throw Error(str("set_num_threads: only ", s.threads.load(), " of ", n,
                        " threads could be created; kernels use these threads"));
}

bool has_workers() {
    Shared& s = shared();
    const std::lock_guard lock(s.mutex);
    return s.pool && s.pool->threads() > 1;
}

InlineScope::InlineScope() : before_(std::exchange(inside_task, true)) {}
InlineScope::~InlineScope() { inside_task = before_; }

void parallel(std::int64_t tasks, Body body, void* context) {
    if (tasks <= 0) return;
    Shared& s = shared();
    std::unique_lock lock(s.mutex, std::defer_lock);
    if (tasks > 1 && tasks < Pool::kClosed && !inside_task && lock.try_lock()) {
        ensure_pool(s);
        if (s.pool->threads() > 1) return s.pool->run(tasks, body, context);
        lock.unlock();
    }
    for (std::int64_t task = 0; task < tasks; ++task) body(context, task);
}

}  // namespace axle::kernels
