#include "dist/group/work.h"

#include <utility>

#include "kernels/thread.h"

namespace axle::dist {

void Work::wait() {
    if (state_ == nullptr) return;
    if (state_->on_gpu != nullptr) {
        state_->on_gpu->wait();
    } else {
        std::unique_lock lock(state_->mutex);
        state_->changed.wait(lock, [&] { return state_->done; });
        if (state_->error) std::rethrow_exception(state_->error);
    }
    const std::lock_guard lock(state_->finishing);
    if (state_->finish) std::exchange(state_->finish, nullptr)();
}

bool Work::is_completed() const {
    if (state_ == nullptr) return true;
    if (state_->on_gpu != nullptr) return state_->on_gpu->is_completed();
    const std::lock_guard lock(state_->mutex);
    return state_->done;
}

void Queues::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        wanted_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void Queues::post(Key key, std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (const auto queue = queues_.find(key); queue != queues_.end())
        return queue->second.push_back(std::move(task));
    if (waiting_ <= unserved_.size()) {
        // push_back() must not throw, because it would destroy a running thread.
        threads_.reserve(threads_.size() + 1);
        threads_.push_back(kernels::start_thread("axle dist", [this] { serve(); }));
    }
    unserved_.push_back(key);
    try {
        queues_[key].push_back(std::move(task));
    } catch (...) {
        queues_.erase(key);
        unserved_.pop_back();
        throw;
    }
    wanted_.notify_one();
}

bool Queues::drained(std::chrono::milliseconds within) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, within, [&] { return queues_.empty(); });
}

void Queues::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++waiting_;
        wanted_.wait(lock, [&] { return stopped_ || !unserved_.empty(); });
        --waiting_;
        if (unserved_.empty()) return;
        const Key key = unserved_.front();
        unserved_.pop_front();
        auto& queue = queues_.at(key);
        while (!queue.empty()) {
            {
                const std::function<void()> task = std::move(queue.front());
                queue.pop_front();
                lock.unlock();
                task();
            }
            lock.lock();
        }
        queues_.erase(key);
        if (queues_.empty()) idle_.notify_all();
    }
}

}  // namespace axle::dist
