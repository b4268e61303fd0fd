// Gradient accumulation for jobs that `axle launch` restarts on fewer machines.
#pragma once

#include <cstdint>

namespace axle::accel {

// Returns the number of micro-batches per update for `num_processes` processes. The number of
// samples per update stays the same as for `steps` micro-batches on the processes of all machines
// of the job (AXLE_FULL_WORLD_SIZE). The result is `steps` unless `axle launch` has restarted the
// job on fewer machines. The variable ACCELERATE_GRADIENT_ACCUMULATION_STEPS takes precedence over
// `steps`, as in an Accelerator. Pass the result to Accelerator::set_gradient_accumulation_steps()
// or in a GradientAccumulationPlugin.
//
// `batch_size` is the number of samples in a micro-batch of one process. Throws ValueError if the
// samples cannot be divided among the processes, and for arguments and variables out of range.
int elastic_accumulation_steps(std::int64_t steps, std::int64_t batch_size, int num_processes);

}  // namespace axle::accel
