#include "core/random.h"

#include <mutex>

#include "kernels/error.h"

namespace axle {
namespace {

constinit std::mutex mutex;
constinit GeneratorState generator;

// The state of a graph capture on this thread.
constinit thread_local const std::uint64_t* captured_base = nullptr;
constinit thread_local std::uint64_t captured_blocks = 0;

// The generator of the innermost GeneratorScope on this thread, or null.
constinit thread_local GeneratorState* scoped = nullptr;

}  // namespace

void manual_seed(std::uint64_t seed) {
    if (captured_base != nullptr)
        throw UsageError(
            "manual_seed: not allowed during a graph capture, because replays would not set the "
            "seed; call it before the capture");
    set_generator_state({seed, 0});
}

GeneratorState generator_state() {
    if (captured_base != nullptr) return {0, captured_blocks};
    if (scoped != nullptr) return *scoped;
    const std::lock_guard lock(mutex);
    return generator;
}

void set_generator_state(GeneratorState state) {
    if (captured_base != nullptr) {
        captured_blocks = state.offset;
        return;
    }
    if (scoped != nullptr) {
        *scoped = state;
        return;
    }
    const std::lock_guard lock(mutex);
    generator = state;
}

GeneratorScope::GeneratorScope(GeneratorState state) : state_(state), before_(scoped) {
    scoped = &state_;
}
GeneratorScope::~GeneratorScope() { scoped = before_; }

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
    if (scoped != nullptr) {
        const kernels::Philox taken{scoped->seed, scoped->offset, nullptr};
        scoped->offset += blocks;
        return taken;
    }
    const std::lock_guard lock(mutex);
    const kernels::Philox taken{generator.seed, generator.offset, nullptr};
    generator.offset += blocks;
    return taken;
}

}  // namespace axle
