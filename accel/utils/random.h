// Seeds, and synchronization of random states across processes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sampler.h"
#include "dist/group/process_group.h"

namespace axle::accel {

// A random state that can be synchronized. torch and cuda both are the default generator, which the
// CPU and GPUs share; generator is the generator of a loader's order.
enum class RngType : std::uint8_t { torch, cuda, generator };

// Parses "torch", "cuda" or "generator". Throws ValueError for other names.
RngType rng_type(std::string_view name);

struct SetSeedOptions {
    bool device_specific = false;  // each process adds its index to the seed
    bool deterministic = false;    // also calls use_deterministic_algorithms(true)
};

// Seeds the default generator of the CPU and GPUs, like accelerate.utils.set_seed.
void set_seed(std::uint64_t seed, SetSeedOptions options = {});

// Copies the state of rank 0, of the default generator or of `generator`, to all processes. Does
// nothing if `generator` is null. Collective: all processes must call it.
void synchronize_rng_state(dist::ProcessGroup& group, RngType type,
                           data::Generator* generator = nullptr);
void synchronize_rng_states(dist::ProcessGroup& group, const std::vector<RngType>& types,
                            data::Generator* generator = nullptr);

}  // namespace axle::accel
