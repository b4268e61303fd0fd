// Generators: Philox for tensors, mt19937 (in data/) for orders.
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace axle::inline v0 {

// Philox's seed and offset are the whole state: save and restore the two numbers.
struct GeneratorState {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

// Seeds the default generator and sets its offset to 0. An unseeded process starts with seed 0.
void manual_seed(std::uint64_t seed);
// While this thread captures a graph, the state is that of the capture: good for drawing the same
// numbers a second time within it.
GeneratorState generator_state();
void set_generator_state(GeneratorState state);

// Takes `blocks` blocks of four words from the default generator: the call's own stream.
// Thread-safe.
kernels::Philox take_random(std::uint64_t blocks);

// While this thread captures a graph (core/graph.h), take_random() numbers blocks from 0 behind a
// seed and offset that a replay writes to `base`, on the GPU. The end says how many were taken.
void begin_captured_random(const std::uint64_t* base);
std::uint64_t end_captured_random();
// Blocks that n words need.
constexpr std::uint64_t random_blocks(std::int64_t n) {
    return (static_cast<std::uint64_t>(n) + 3) / 4;
}

}  // namespace axle::inline v0
