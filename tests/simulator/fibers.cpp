// Runs the threads of a block as fibers (see device.h).
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <ucontext.h>

#include "tests/sanitized.h"
#include "tests/simulator/device.h"
#include "tests/simulator/run_block.h"

#if defined(__SANITIZE_ADDRESS__)
#define AXLE_FIBERS_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AXLE_FIBERS_UNDER_ASAN 1
#endif
#endif
#ifdef AXLE_FIBERS_UNDER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace axle::kernels::simulator {
namespace {

constexpr std::size_t kStack = std::size_t{256} << 10;

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "simulator: %s\n", what.c_str());
    std::abort();
}

enum class State { ready, at_block_barrier, at_warp_barrier, returned };

struct Warp {
    std::array<std::array<unsigned char, 16>, 32> values[2];
    bool votes[2][32] = {};
};

// The place at which a fiber or the scheduler continues. Jumps between places replace
// swapcontext(), because swapcontext() makes a system call each time. With the address sanitizer,
// it also clears the shadow memory of a whole stack.
using Place = void* [5];
#define AXLE_JUMPS __attribute__((noinline, no_sanitize("address")))

[[noreturn]] AXLE_JUMPS void continue_at(Place& place) { __builtin_longjmp(place, 1); }

// Stores the caller's place in `from` and continues at `to`. Returns when a later jump continues at
// `from`.
AXLE_JUMPS void jump(Place& from, Place& to) {
    if (__builtin_setjmp(from) == 0) continue_at(to);
}

struct Fiber {
    Place place;
    bool started = false;
    std::unique_ptr<unsigned char[]> stack = std::make_unique<unsigned char[]>(kStack);
    void* fake_stack = nullptr;
};

struct Thread {
    Index3 index;
    State state = State::ready;
    Fiber* fiber = nullptr;  // null before the first and after the last turn
    unsigned rounds = 0;     // number of exchanges in its warp
};

struct Block {
    Index3 index, size, grid;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned char> shared;
    const std::function<void()>* run = nullptr;
    Place scheduler;
    Thread* running = nullptr;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber*> idle;
    void* fake_stack = nullptr;
    const void* stack_bottom = nullptr;
    std::size_t stack_size = 0;
};

// Returns the running block. One block runs at a time, under the lock of the simulated runtime.
Block& block() {
    static auto* const instance = new Block;
    return *instance;
}

void switch_to_scheduler(Thread& thread) {
    Block& b = block();
    Fiber& fiber = *thread.fiber;
#ifdef AXLE_FIBERS_UNDER_ASAN
    __sanitizer_start_switch_fiber(&fiber.fake_stack, b.stack_bottom, b.stack_size);
#endif
    jump(fiber.place, b.scheduler);
#ifdef AXLE_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(fiber.fake_stack, &b.stack_bottom, &b.stack_size);
#endif
}

// Runs one thread after another on a fiber.
void fiber_main() {
    Block& b = block();
#ifdef AXLE_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &b.stack_bottom, &b.stack_size);
#endif
    while (true) {
        Thread& thread = *b.running;
        (*b.run)();
        thread.state = State::returned;
        switch_to_scheduler(thread);
    }
}

// Enters a fiber for the first time. The scheduler continues when the fiber jumps back to it.
AXLE_JUMPS void enter(Fiber& fiber) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    fiber.started = true;
    if (__builtin_setjmp(block().scheduler) == 0) setcontext(&context);
}

void resume(Thread& thread) {
    Block& b = block();
    if (thread.fiber == nullptr) {
        if (b.idle.empty()) {
            b.fibers.push_back(std::make_unique<Fiber>());
            b.idle.push_back(b.fibers.back().get());
        }
        thread.fiber = b.idle.back();
        b.idle.pop_back();
    }
    b.running = &thread;
#ifdef AXLE_FIBERS_UNDER_ASAN
    __sanitizer_start_switch_fiber(&b.fake_stack, thread.fiber->stack.get(), kStack);
#endif
    if (thread.fiber->started)
        jump(b.scheduler, thread.fiber->place);
    else
        enter(*thread.fiber);
#ifdef AXLE_FIBERS_UNDER_ASAN
    __sanitizer_finish_switch_fiber(b.fake_stack, nullptr, nullptr);
#endif
    if (thread.state == State::returned) {
        b.idle.push_back(thread.fiber);
        thread.fiber = nullptr;
    }
}

// Opens the barriers that all threads have reached. Returns whether it opened any.
bool open_barriers() {
    Block& b = block();
    bool opened = false;
    const auto open = [&](std::size_t from, std::size_t to, State barrier) {
        bool any = false;
        for (std::size_t t = from; t < to; ++t) {
            const State state = b.threads[t].state;
            if (state != barrier && state != State::returned) return;
            any |= state == barrier;
        }
        if (!any) return;
        opened = true;
        for (std::size_t t = from; t < to; ++t)
            if (b.threads[t].state == barrier) b.threads[t].state = State::ready;
    };
    open(0, b.threads.size(), State::at_block_barrier);
    for (std::size_t t = 0; t < b.threads.size(); t += 32)
        open(t, std::min(t + 32, b.threads.size()), State::at_warp_barrier);
    return opened;
}

std::vector<std::size_t> order_of(std::size_t n, std::mt19937_64& random) {
    static const std::string order = [] {
        const char* const text = std::getenv("AXLE_SIMULATOR_ORDER");
        return std::string(text == nullptr ? "forward" : text);
    }();
    std::vector<std::size_t> places(n);
    std::iota(places.begin(), places.end(), std::size_t{0});
    if (order == "backward") std::reverse(places.begin(), places.end());
    if (order == "shuffled") std::shuffle(places.begin(), places.end(), random);
    return places;
}

void run_block(std::mt19937_64& random) {
    Block& b = block();
    const std::vector<std::size_t> order = order_of(b.threads.size(), random);
    do {
        for (const std::size_t t : order)
            if (b.threads[t].state == State::ready) resume(b.threads[t]);
    } while (open_barriers());
    for (const Thread& thread : b.threads)
        if (thread.state != State::returned)
            fail("a barrier or shuffle that some threads of the block or warp never reach");
}

void wait_at(State barrier) {
    Thread& thread = *block().running;
    thread.state = barrier;
    switch_to_scheduler(thread);
}

Warp& warp_of(const Thread& thread) { return block().warps[thread.index.x / 32]; }

}  // namespace

void run_grid(Extent grid, int threads, std::size_t shared_bytes,
              const std::function<void()>& run) {
    if (threads < 1 || threads > 1024)
        fail("a block must have 1 to 1024 threads: " + std::to_string(threads));
    if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535 ||
        grid.x > 0x7fffffff)
        fail("a grid must have 1 to 2^31 - 1, 65535 and 65535 blocks: " + std::to_string(grid.x) +
             ", " + std::to_string(grid.y) + ", " + std::to_string(grid.z));
    if (shared_bytes > std::size_t{227} << 10)
        fail("a block can have at most 232448 bytes of shared memory: " +
             std::to_string(shared_bytes));
    Block& b = block();
    b.size = {static_cast<unsigned>(threads), 1, 1};
    b.grid = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
              static_cast<unsigned>(grid.z)};
    b.run = &run;
    b.warps.resize(static_cast<std::size_t>(threads + 31) / 32);
    std::mt19937_64 random(11);
    const auto blocks = static_cast<std::size_t>(grid.x * grid.y * grid.z);
    for (const std::size_t i : order_of(blocks, random)) {
        const auto n = static_cast<std::int64_t>(i);
        b.index = {static_cast<unsigned>(n % grid.x), static_cast<unsigned>(n / grid.x % grid.y),
                   static_cast<unsigned>(n / grid.x / grid.y)};
        b.shared.assign(shared_bytes + 16, 0xff);
        b.threads.assign(static_cast<std::size_t>(threads), {});
        for (int t = 0; t < threads; ++t)
            b.threads[static_cast<std::size_t>(t)].index.x = static_cast<unsigned>(t);
        run_block(random);
    }
}

const Index3& thread_index() { return block().running->index; }
const Index3& block_index() { return block().index; }
const Index3& block_size() { return block().size; }
const Index3& grid_size() { return block().grid; }

void* dynamic_shared() {
    const auto address = reinterpret_cast<std::uintptr_t>(block().shared.data());
    return reinterpret_cast<void*>((address + 15) / 16 * 16);
}

void block_barrier() { wait_at(State::at_block_barrier); }
void warp_barrier() { wait_at(State::at_warp_barrier); }

int lane() { return static_cast<int>(block().running->index.x % 32); }

void exchange(const void* mine, std::size_t bytes, int from, void* result) {
    Thread& thread = *block().running;
    Warp& warp = warp_of(thread);
    // Two buffers are used alternately, so that a faster lane does not overwrite values that other
    // lanes still read.
    auto& values = warp.values[thread.rounds++ % 2];
    std::memcpy(values[static_cast<std::size_t>(lane())].data(), mine, bytes);
    wait_at(State::at_warp_barrier);
    const std::size_t other = thread.index.x / 32 * 32 + static_cast<unsigned>(from);
    const bool there = other < block().threads.size();
    std::memcpy(result, values[static_cast<std::size_t>(there ? from : lane())].data(), bytes);
}

unsigned ballot(bool predicate) {
    Thread& thread = *block().running;
    Warp& warp = warp_of(thread);
    auto& votes = warp.votes[thread.rounds++ % 2];
    votes[lane()] = predicate;
    wait_at(State::at_warp_barrier);
    unsigned result = 0;
    const std::size_t first = thread.index.x / 32 * 32;
    for (std::size_t i = 0; i < 32 && first + i < block().threads.size(); ++i)
        if (votes[i]) result |= 1u << i;
    return result;
}

}  // namespace axle::kernels::simulator
