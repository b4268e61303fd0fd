// Private to tools: estimates the memory of training that is sharded over processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/axle/estimate/estimate.h"

namespace axle::launcher {

// The strategies, in the order of the rows of the table.
enum class EstimateStrategy : std::uint8_t {
    none,            // data parallel training
    optimizer,       // ZeRO-1
    gradients,       // ZeRO-2
    until_backward,  // SHARD_GRAD_OP
    parameters,      // FULL_SHARD, ZeRO-3
};

// Returns the peak memory of a process, in bytes, for training with Adam in float32, without
// activations. Counts parameters, gradients, two moments for each parameter, and the buckets of
// data parallel training. Also counts the units that are whole at the same time: the tensors
// outside of blocks, the current block, and, for FULL_SHARD, two blocks that are gathered in
// advance.
std::int64_t sharded_bytes(const ModelSize& model, EstimateStrategy strategy, int num_processes);

// Returns a table with a row for each strategy and a column for each number of processes. Throws
// ValueError if a number is less than 2.
std::string sharded_table(const ModelSize& model, const std::vector<int>& num_processes);

}  // namespace axle::launcher
