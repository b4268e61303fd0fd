// Seeds the random generators, and synchronizes random states across processes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sampler.h"
#include "dist/group/process_group.h"

namespace axle::accel {

// A random state that can be synchronized. `torch` and `cuda` mean the default generator, which the
// CPU and the GPUs share. `generator` means the generator of a loader's order.
enum class RngType : std::uint8_t { torch, cuda, generator };

// Parses "torch", "cuda" or "generator". Throws ValueError for other names.
RngType rng_type(std::string_view name);

struct SetSeedOptions {
    bool device_specific = false;  // if true, each process adds its index to the seed
    bool deterministic = false;    // if true, use_deterministic_algorithms(true) is called too
};

// Seeds the default generator of the CPU and the GPUs, as accelerate.utils.set_seed does. The index
// of a process is that of its PartialState, or else that of dist::read_environment(), whose errors
// are thrown.
void set_seed(std::uint64_t seed, SetSeedOptions options = {});

// Copies a random state of rank 0 to all processes. With RngType::generator, seeds `generator` with
// its seed on rank 0; nothing is copied if `generator` is nullptr. Has no effect on one process.
// synchronize_rng_states() copies several states. All processes must call these functions.
void synchronize_rng_state(dist::ProcessGroup& group, RngType type,
                           data::Generator* generator = nullptr);
void synchronize_rng_states(dist::ProcessGroup& group, const std::vector<RngType>& types,
                            data::Generator* generator = nullptr);

}  // namespace axle::accel
