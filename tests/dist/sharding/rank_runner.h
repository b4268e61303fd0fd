// Runs tests of sharded models on ranks whose tensors are on the CPU, or on GPUs
// (tests/cuda/nccl_ranks.h).
#pragma once

#include <functional>

#include "core/device.h"
#include "tests/dist/parallel/replicas.h"

namespace axle::tests {

// The part of a test that runs on every rank. `device` is the device of this rank's tensors.
using RankBody = std::function<void(const Group& group, Device device)>;
// A function that runs the body on a number of ranks and expects no exceptions.
using RankRunner = std::function<void(int ranks, const RankBody& body)>;

inline void on_cpu_ranks(int ranks, const RankBody& body) {
    on_ranks(ranks, [&](const Group& group) { body(group, Device::cpu()); });
}

}  // namespace axle::tests
