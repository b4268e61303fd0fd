// Random states of several processes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sampler.h"
#include "dist/group/process_group.h"

namespace axle::accel {

// What processes may be made to draw alike. The default generator is one for the CPU and for GPUs:
// torch and cuda both name it. generator is that of a loader's order.
enum class RngType : std::uint8_t { torch, cuda, generator };

// "torch", "cuda" or "generator"; ValueError for anything else.
RngType rng_type(std::string_view name);

struct SetSeedOptions {
    bool device_specific = false;  // the seed of a process is seed + its index
    bool deterministic = false;    // use_deterministic_algorithms(true) as well
};

// accelerate.utils.set_seed: seeds the default generator, of the CPU and of GPUs.
void set_seed(std::uint64_t seed, SetSeedOptions options = {});

// Gives every process the state of rank 0, of the default generator or of `generator`; null is
// left out. Everybody calls it.
void synchronize_rng_state(dist::ProcessGroup& group, RngType type,
                           data::Generator* generator = nullptr);
void synchronize_rng_states(dist::ProcessGroup& group, const std::vector<RngType>& types,
                            data::Generator* generator = nullptr);

}  // namespace axle::accel
