// Private to data/corpora: processes a sequence of items on several threads, with results in the
// order of the items.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace axle::data {

// Calls work(item) concurrently on up to `num_threads` threads, one of which is the calling thread.
// The items are those of next(item), which returns false after the last one, and finish(item) is
// called in their order. One thread at a time calls next() and finish(). At most one item per
// thread is in memory. The first exception, in the order of the items, ends the sequence and is
// rethrown after all threads have ended.
template <class Item, class Next, class Work, class Finish>
void process_in_order(int num_threads, Next&& next, Work&& work, Finish&& finish) {
    std::mutex mutex;
    std::condition_variable turn;
    std::int64_t taken = 0, finished = 0;
    bool is_done = false;
    std::exception_ptr error;

    const auto attempt = [](auto&& f) -> std::exception_ptr {
        try {
            f();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    };
    const auto run = [&] {
        Item item;
        std::unique_lock lock(mutex);
        while (!is_done) {
            std::exception_ptr failed = attempt([&] { is_done = !next(item); });
            if (is_done) break;
            const std::int64_t number = taken++;
            if (failed == nullptr) {
                lock.unlock();
                failed = attempt([&] { work(item); });
                lock.lock();
            } else {
                is_done = true;
            }
            turn.wait(lock, [&] { return finished == number; });
            if (error == nullptr && failed == nullptr) failed = attempt([&] { finish(item); });
            if (error == nullptr) error = failed;
            is_done = is_done || error != nullptr;
            ++finished;
            turn.notify_all();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int i = 1; i < num_threads; ++i) {
            try {
                threads.emplace_back(run);
            } catch (const std::system_error&) {
                break;  // the threads that were started do the work
            }
        }
        run();
    }
    if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace axle::data
