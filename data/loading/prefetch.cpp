#include "data/loading/prefetch.h"

#include <system_error>
#include <utility>

#include "core/profiler/profiler.h"
#include "data/dataset.h"
#include "kernels/error.h"
#include "kernels/thread.h"
#include "kernels/thread_pool.h"

namespace axle::data {

Prefetcher::Prefetcher(int workers, std::size_t capacity, std::function<void(int)> init)
    : workers_(workers), init_(std::move(init)), ring_(capacity) {}

Prefetcher::~Prefetcher() {
    {
        const std::lock_guard lock(mutex_);
        quit_ = true;
    }
    wake_workers_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::start_threads() {
    threads_.reserve(static_cast<std::size_t>(workers_));
    try {
        while (static_cast<int>(threads_.size()) < workers_)
            threads_.push_back(kernels::start_thread(
                "axle loader",
                [this, worker = static_cast<int>(threads_.size())] { work(worker); }));
    } catch (const std::system_error& e) {
        throw Error(str("DataLoader: cannot start worker ", threads_.size() + 1, " of ", workers_,
                        ": ", e.what()));
    }
}

void Prefetcher::start(std::shared_ptr<BatchSource> source) {
    start_threads();
    {
        const std::lock_guard lock(mutex_);
        source_ = std::move(source);
        taken_ = drawn_ = 0;
        drawn_all_ = false;
    }
    wake_workers_.notify_all();
}

std::optional<Batch> Prefetcher::next() {
    std::unique_lock lock(mutex_);
    const auto at_end = [&] { return drawn_all_ && taken_ == drawn_; };
    wake_loop_.wait(lock, [&] { return init_error_ || slot_of(taken_).ready || at_end(); });
    if (init_error_) std::rethrow_exception(init_error_);
    if (at_end()) return std::nullopt;
    Slot slot = std::exchange(slot_of(taken_), Slot());
    ++taken_;
    lock.unlock();
    wake_workers_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
}

void Prefetcher::stop() noexcept {
    std::unique_lock lock(mutex_);
    drawn_all_ = true;
    wake_loop_.wait(lock, [&] { return busy_ == 0; });
    for (Slot& slot : ring_) slot = Slot();
    source_ = nullptr;
}

// Calls init_. If it throws, stores the exception for next() and returns false.
bool Prefetcher::initialize(int worker) {
    if (!init_) return true;
    std::exception_ptr error;
    try {
        try {
            init_(worker);
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
