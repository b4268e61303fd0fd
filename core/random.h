// The random number generator of tensors (Philox). Samplers use mt19937 (data/mt19937.h).
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace axle {

// The complete state of the Philox generator, which consists of two numbers.
struct GeneratorState {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

// Seeds the default generator and sets its offset to 0. The initial seed is 0.
void manual_seed(std::uint64_t seed);
// Return and set the state of the default generator. During a graph capture the state belongs to
// the capture and can only be used to draw the same numbers again within it.
GeneratorState generator_state();
void set_generator_state(GeneratorState state);

// Takes `blocks` blocks of four words from the default generator. Thread-safe.
kernels::Philox take_random(std::uint64_t blocks);

// Begin and end a graph capture (core/graph.h). Between the two calls, take_random() on this thread
// numbers blocks from 0, relative to a seed and offset that each replay writes to `base` on the
// GPU. end_captured_random() returns how many blocks were taken.
void begin_captured_random(const std::uint64_t* base);
std::uint64_t end_captured_random();
// Returns the number of blocks that hold n words.
constexpr std::uint64_t random_blocks(std::int64_t n) {
    return (static_cast<std::uint64_t>(n) + 3) / 4;
}

}  // namespace axle
