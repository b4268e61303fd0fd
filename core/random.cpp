#include "core/random.h"

#include <mutex>

namespace axle::inline v0 {
namespace {

constinit std::mutex mutex;
constinit GeneratorState generator;

// Of a capture on this thread.
constinit thread_local const std::uint64_t* captured_base = nullptr;
constinit thread_local std::uint64_t captured_blocks = 0;

}  // namespace

void manual_seed(std::uint64_t seed) { set_generator_state({seed, 0}); }

GeneratorState generator_state() {
    const std::lock_guard lock(mutex);
    return generator;
}

void set_generator_state(GeneratorState state) {
    const std::lock_guard lock(mutex);
    generator = state;
}

void begin_captured_random(const std::uint64_t* base) {
    captured_base = base;
    captured_blocks = 0;
}

std::uint64_t end_captured_random() {
    captured_base = nullptr;
    return captured_blocks;
}

kernels::Philox take_random(std::uint64_t blocks) {
    if (captured_base != nullptr) {
        const kernels::Philox taken{0, captured_blocks, captured_base};
        captured_blocks += blocks;
        return taken;
    }
    const std::lock_guard lock(mutex);
    const kernels::Philox taken{generator.seed, generator.offset, nullptr};
    generator.offset += blocks;
    return taken;
}

}  // namespace axle::inline v0
