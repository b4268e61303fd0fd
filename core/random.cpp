#include "core/random.h"

#include <mutex>

namespace axle::inline v0 {
namespace {

constinit std::mutex mutex;
constinit GeneratorState generator;

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

kernels::Philox take_random(std::uint64_t blocks) {
    const std::lock_guard lock(mutex);
    const kernels::Philox taken{generator.seed, generator.offset};
    generator.offset += blocks;
    return taken;
}

}  // namespace axle::inline v0
