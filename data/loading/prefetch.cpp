#include "data/loading/prefetch.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/profiler/profiler.h"
#include "data/dataset.h"
#include "kernels/error.h"
#include "kernels/thread.h"
#include "kernels/thread_pool.h"

namespace axle::data {

Prefetcher::Prefetcher(Options options) : options_(std::move(options)), ring_(options_.capacity) {}

Prefetcher::~Prefetcher() { end_threads(); }

void Prefetcher::end_threads() noexcept {
    {
        const std::lock_guard lock(mutex_);
        quit_ = true;
    }
    wake_workers_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    quit_ = false;
    init_error_ = nullptr;
}

void Prefetcher::start_threads() {
    threads_.reserve(static_cast<std::size_t>(options_.workers));
    try {
        while (static_cast<int>(threads_.size()) < options_.workers)
            threads_.push_back(kernels::start_thread(
                "axle loader",
                [this, worker = static_cast<int>(threads_.size())] { work(worker); }));
    } catch (const std::system_error& e) {
        throw Error(str("DataLoader: cannot start worker ", threads_.size() + 1, " of ",
                        options_.workers, ": ", e.what()));
    }
}

void Prefetcher::start(std::shared_ptr<BatchSource> source) {
    if (timed_out_) settle();
    start_threads();
    {
        const std::lock_guard lock(mutex_);
        source_ = std::move(source);
        taken_ = drawn_ = 0;
        drawn_all_ = false;
    }
    wake_workers_.notify_all();
}

// Waits for the next batch, for the end of the pass or for an exception of init(). Returns false
// after the timeout.
bool Prefetcher::wait_for_batch(std::unique_lock<std::mutex>& lock) {
    const auto ready = [&] {
        return init_error_ || slot_of(taken_).ready || (drawn_all_ && taken_ == drawn_);
    };
    if (options_.timeout == 0) {
        wake_loop_.wait(lock, ready);
        return true;
    }
    // A longer wait could overflow the clock.
    const std::chrono::duration<double> seconds(std::min(options_.timeout, 1e8));
    return wake_loop_.wait_for(lock, seconds, ready);
}

std::optional<Batch> Prefetcher::next() {
    std::unique_lock lock(mutex_);
    if (!wait_for_batch(lock)) {
        timed_out_ = true;
        throw Error(str("DataLoader: timed out: no worker has finished batch ", taken_,
                        " of this pass after ", options_.timeout,
                        " seconds; see LoaderOptions::timeout"));
    }
    if (init_error_) std::rethrow_exception(init_error_);
    if (drawn_all_ && taken_ == drawn_) return std::nullopt;
    Slot slot = std::exchange(slot_of(taken_), Slot());
    ++taken_;
    lock.unlock();
    wake_workers_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
}

void Prefetcher::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        drawn_all_ = true;
        if (timed_out_) return;
    }
    settle();
}

void Prefetcher::settle() noexcept {
    {
        std::unique_lock lock(mutex_);
        wake_loop_.wait(lock, [&] { return busy_ == 0; });
        for (Slot& slot : ring_) slot = Slot();
        source_ = nullptr;
        timed_out_ = false;
    }
    if (!options_.persistent) end_threads();
}

// Calls init(). If it throws, stores the exception for next() and returns false.
bool Prefetcher::initialize(int worker) {
    if (!options_.init) return true;
    std::exception_ptr error;
    try {
        try {
            options_.init(worker);
        } catch (...) {
            rethrow_from(str("DataLoader: worker_init_fn: worker ", worker));
        }
    } catch (...) {
        error = std::current_exception();
    }
    if (!error) return true;
    const std::lock_guard lock(mutex_);
    if (!init_error_) init_error_ = error;
    wake_loop_.notify_one();
    return false;
}

void Prefetcher::work(int worker) {
    profiler::name_this_thread("DataLoader worker");
    const kernels::InlineScope leave_the_pool_to_the_loop;
    if (!initialize(worker)) return;
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_workers_.wait(lock, [&] { return quit_ || can_draw(); });
        if (quit_) return;
        ++busy_;
        BatchDraft draft;
        Slot slot;
        const bool drawn = draw(lock, draft, slot.error);
        if (drawn || slot.error) {
            const std::int64_t number = drawn_++;
            if (draft.last || slot.error) drawn_all_ = true;
            wake_workers_.notify_one();  // another worker can draw while a batch is made
            if (drawn) make(lock, std::move(draft), slot);
            slot.ready = true;
            slot_of(number) = std::move(slot);
        } else {
            drawn_all_ = true;
        }
        --busy_;
        wake_loop_.notify_one();
    }
}

bool Prefetcher::draw(std::unique_lock<std::mutex>& lock, BatchDraft& draft,
                      std::exception_ptr& error) {
    drawing_ = true;
    lock.unlock();
    bool drawn = false;
    try {
        drawn = source_->draw(draft);
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    drawing_ = false;
    return drawn;
}

void Prefetcher::make(std::unique_lock<std::mutex>& lock, BatchDraft draft, Slot& slot) {
    lock.unlock();
    try {
        slot.batch = source_->make(std::move(draft));
    } catch (...) {
        slot.error = std::current_exception();
    }
    lock.lock();
}

}  // namespace axle::data
