#include "accel/loop/elastic.h"

#include <climits>
#include <numeric>

#include "accel/config/environment.h"
#include "accel/config/resolve_options.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr std::int64_t kMaxProcesses = 65536;

}  // namespace

int elastic_accumulation_steps(std::int64_t steps, std::int64_t batch_size, int num_processes) {
    if (steps < INT_MIN || steps > INT_MAX)
        throw ValueError(
            str("elastic_accumulation_steps: steps must be from 1 to ", INT_MAX, ": ", steps));
    AcceleratorOptions options;
    options.gradient_accumulation_steps = static_cast<int>(steps);
    const std::int64_t accumulated =
        accumulation_steps(options, "elastic_accumulation_steps: steps");
    if (num_processes < 1 || batch_size < 1)
        throw ValueError(
            str("elastic_accumulation_steps: the batch size and the number of "
                "processes must be positive: batch size ",
                batch_size, ", ", num_processes, " processes"));
    const std::int64_t processes = num_processes;
    const std::int64_t all = number_variable("AXLE_FULL_WORLD_SIZE").value_or(num_processes);
    if (all < processes || all > kMaxProcesses)
        throw ValueError(str("elastic_accumulation_steps: AXLE_FULL_WORLD_SIZE must be from ",
                             processes, " (the number of processes) to ", kMaxProcesses, ": ",
                             all));
    if (accumulated * all % processes != 0)
        throw ValueError(str("elastic_accumulation_steps: the global batch of ",
                             batch_size * accumulated * all, " samples (", all,
                             " processes x batch size ", batch_size, " x ", accumulated,
                             " accumulation steps) cannot be divided among ", processes,
                             " processes: use a multiple of ", processes / std::gcd(all, processes),
                             " for gradient_accumulation_steps"));
    const std::int64_t result = accumulated * all / processes;
    if (result > INT_MAX)
        throw ValueError(str("elastic_accumulation_steps: gradient accumulation steps must be at ",
                             "most ", INT_MAX, ": ", accumulated, " steps x ", all, " processes / ",
                             processes, " processes = ", result));
    return static_cast<int>(result);
}

}  // namespace axle::accel
