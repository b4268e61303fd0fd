#include "data/prefetch.h"

#include <system_error>
#include <utility>

#include "core/profiler.h"
#include "kernels/error.h"
#include "kernels/thread.h"

namespace axle::inline v0::data {

Prefetcher::Prefetcher(int workers, std::size_t capacity) : workers_(workers), ring_(capacity) {}

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
            threads_.push_back(kernels::start_thread("axle loader", [this] { work(); }));
    } catch (const std::system_error& e) {
        throw Error(str("DataLoader: can't start worker ", threads_.size() + 1, " of ", workers_,
                        ": ", e.what()));
    }
}

void Prefetcher::start(Make make, std::int64_t first, std::int64_t end) {
    start_threads();
    {
        const std::lock_guard lock(mutex_);
        make_ = std::move(make);
        given_ = taken_ = first;
        end_ = end;
    }
    wake_workers_.notify_all();
}

Tree Prefetcher::next() {
    std::unique_lock lock(mutex_);
    wake_loop_.wait(lock, [&] { return slot_of(given_).ready; });
    Slot slot = std::exchange(slot_of(given_), Slot());
    ++given_;
    lock.unlock();
    wake_workers_.notify_one();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
}

void Prefetcher::stop() noexcept {
    std::unique_lock lock(mutex_);
    end_ = taken_;
    wake_loop_.wait(lock, [&] { return busy_ == 0; });
    for (Slot& slot : ring_) slot = Slot();
    make_ = nullptr;
}

void Prefetcher::work() {
    profiler::name_this_thread("DataLoader worker");
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_workers_.wait(lock, [&] { return quit_ || may_take(); });
        if (quit_) return;
        const std::int64_t batch = taken_++;
        ++busy_;
        lock.unlock();
        Slot slot;
        try {
            slot.batch = make_(batch);
        } catch (...) {
            slot.error = std::current_exception();
        }
        slot.ready = true;
        lock.lock();
        --busy_;
        slot_of(batch) = std::move(slot);
        wake_loop_.notify_one();
    }
}

}  // namespace axle::inline v0::data
