// The random number generator for tensors (Philox). Samplers use mt19937 (data/mt19937.h).
#pragma once

#include <cstdint>

#include "kernels/philox.h"

namespace axle {

// The complete state of the Philox generator.
struct GeneratorState {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

// Seeds the default generator and sets its offset to 0. The initial seed is 0. Throws UsageError
// during a graph capture.
void manual_seed(std::uint64_t seed);
// Return and set the state of the default generator. A state that is returned during a graph
// capture can only be used within this capture, to draw the same numbers again.
GeneratorState generator_state();
void set_generator_state(GeneratorState state);

// Replaces the default generator on this thread while the scope exists. All functions of this file
// that use the default generator then use a generator of this scope, which starts in `state`. Other
// threads are not affected. Has no effect during a graph capture.
class [[nodiscard]] GeneratorScope {
  public:
    explicit GeneratorScope(GeneratorState state);
    ~GeneratorScope();
    GeneratorScope(const GeneratorScope&) = delete;
    GeneratorScope& operator=(const GeneratorScope&) = delete;

  private:
    GeneratorState state_;
    GeneratorState* before_;
};

// Draws `blocks` blocks of four words from the default generator, and returns the state at the
// first of these blocks. Thread-safe.
kernels::Philox take_random(std::uint64_t blocks);

// Begin and end a graph capture (core/cuda/graph.h). Between the two calls, take_random() on this
// thread numbers blocks from 0. The seed and the offset that it returns are relative to the values
// at `base` in GPU memory, which each replay sets. end_captured_random() returns the number of
// blocks drawn.
void begin_captured_random(const std::uint64_t* base);
std::uint64_t end_captured_random();
// Returns the number of blocks that contain n words.
constexpr std::uint64_t random_blocks(std::int64_t n) {
    return (static_cast<std::uint64_t>(n) + 3) / 4;
}

}  // namespace axle
