#include "tests/allocation/failing_new.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <thread>

#include <pthread.h>

#include "gtest/gtest.h"

namespace axle::tests {
namespace {

constinit std::atomic<std::int64_t> calls = 0, first_failing = 0, live = 0;
constinit std::atomic<bool> fails_later = false;
constinit std::atomic<Threads> failing_threads = Threads::all;
constinit thread_local bool is_this_one = false;  // true on the thread that created a FailingNew

bool is_chosen() noexcept {
    switch (failing_threads.load()) {
        case Threads::all:
            return true;
        case Threads::this_one:
            return is_this_one;
        case Threads::others:
            return !is_this_one;
        case Threads::collectives:
        case Threads::control:
            break;
    }
    std::array<char, 16> name = {};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string_view(name.data()) ==
           (failing_threads == Threads::control ? "axle control" : "axle dist");
}

bool is_failing() noexcept {
    const std::int64_t first = first_failing.load();
    if (first == 0 || !is_chosen()) return false;
    const std::int64_t call = ++calls;
    return call == first || (call > first && fails_later.load());
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (is_failing()) return nullptr;
    void* block = nullptr;
    if (alignment <= alignof(std::max_align_t))
        block = std::malloc(size == 0 ? 1 : size);  // NOLINT(*-no-malloc)
    else if (posix_memalign(&block, alignment, size) != 0)
        block = nullptr;
    if (block != nullptr) ++live;
    return block;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    void* const block = allocate(size, alignment);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

void deallocate(void* block) noexcept {
    if (block == nullptr) return;
    --live;
    std::free(block);  // NOLINT(*-no-malloc)
}

constexpr std::size_t kNormal = alignof(std::max_align_t);

}  // namespace

FailingNew::FailingNew(std::int64_t first, bool all_later, Threads threads) {
    calls = 0;
    fails_later = all_later;
    failing_threads = threads;
    is_this_one = true;
    first_failing = first;
}
FailingNew::~FailingNew() {
    first_failing = 0;
    is_this_one = false;
}
bool FailingNew::has_failed() const { return calls >= first_failing; }

std::int64_t live_blocks() { return live; }

}  // namespace axle::tests

using axle::tests::allocate, axle::tests::allocate_or_throw, axle::tests::deallocate;
using axle::tests::kNormal;

// NOLINTBEGIN(*-new-delete-overloads): all operators of the standard library are replaced
void* operator new(std::size_t size) { return allocate_or_throw(size, kNormal); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, kNormal);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size) { return allocate_or_throw(size, kNormal); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, kNormal);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { deallocate(block); }
void operator delete(void* block, std::size_t) noexcept { deallocate(block); }
void operator delete(void* block, std::align_val_t) noexcept { deallocate(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { deallocate(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { deallocate(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
    deallocate(block);
}
void operator delete[](void* block) noexcept { deallocate(block); }
void operator delete[](void* block, std::size_t) noexcept { deallocate(block); }
void operator delete[](void* block, std::align_val_t) noexcept { deallocate(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { deallocate(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { deallocate(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
    deallocate(block);
}
// NOLINTEND(*-new-delete-overloads)

namespace axle::tests {
namespace {

std::unique_ptr<int> volatile_sink;

void make_one() { volatile_sink = std::make_unique<int>(1); }

TEST(FailingNew, FailsTheGivenCallOfTheGivenThreads) {
    const std::int64_t before = live_blocks();
    {
        const FailingNew failing(2);
        make_one();
        EXPECT_FALSE(failing.has_failed());
        EXPECT_THROW(make_one(), std::bad_alloc);
        EXPECT_TRUE(failing.has_failed());
        make_one();
    }
    {
        const FailingNew failing(1, true);
        EXPECT_THROW(make_one(), std::bad_alloc);
        EXPECT_THROW(make_one(), std::bad_alloc);
    }
    bool failed = false;
    {
        const FailingNew failing(1, true, Threads::others);
        make_one();
        EXPECT_FALSE(failing.has_failed());
    }
    std::atomic<bool> go = false;
    std::thread other([&] {
        while (!go) std::this_thread::yield();
        try {
            make_one();
        } catch (const std::bad_alloc&) {
            failed = true;
        }
    });
    {
        const FailingNew failing(1, true, Threads::others);
        go = true;
        other.join();
    }
    EXPECT_TRUE(failed);
    volatile_sink.reset();
    EXPECT_EQ(live_blocks(), before);
}

}  // namespace
}  // namespace axle::tests
