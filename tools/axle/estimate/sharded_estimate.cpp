#include "tools/axle/estimate/sharded_estimate.h"

#include <algorithm>
#include <utility>

#include "core/text/size_text.h"
#include "kernels/error.h"
#include "tools/axle/estimate/table.h"

namespace axle::launcher {
namespace {

constexpr std::pair<EstimateStrategy, const char*> kStrategies[] = {
    {EstimateStrategy::none, "NO_SHARD, stage 0"},
    {EstimateStrategy::optimizer, "stage 1"},
    {EstimateStrategy::gradients, "stage 2"},
    {EstimateStrategy::until_backward, "SHARD_GRAD_OP"},
    {EstimateStrategy::parameters, "FULL_SHARD, stage 3"},
};

}  // namespace

std::int64_t sharded_bytes(const ModelSize& model, EstimateStrategy strategy, int num_processes) {
    const std::int64_t whole = model.total, outside = model.outside_of_blocks,
                       block = model.largest_block;
    const std::int64_t part = (whole + num_processes - 1) / num_processes;
    const std::int64_t moments = 2 * part, gradients_of_units = outside + block;
    switch (strategy) {
        case EstimateStrategy::none:
            return 5 * whole;  // parameters, gradients, buckets and 2 moments
        case EstimateStrategy::optimizer:
            return part + whole + whole + moments;
        case EstimateStrategy::gradients:
        case EstimateStrategy::until_backward:
            return part + whole + part + gradients_of_units + moments;
        case EstimateStrategy::parameters: {
            constexpr int kInAdvance = 2;
            const std::int64_t gathered = std::min(whole, outside + (1 + kInAdvance) * block);
            return part + gathered + part + gradients_of_units + moments;
        }
    }
    return 0;
}

std::string sharded_table(const ModelSize& model, const std::vector<int>& num_processes) {
    std::vector<TableRow> rows = {{"strategy"}};
    for (const int count : num_processes) {
        if (count < 2)
            throw ValueError(
                str("estimate-memory: each of --num_processes must be at least 2: ", count));
        rows[0].push_back(str(count, " processes"));
    }
    for (const auto& [strategy, name] : kStrategies) {
        TableRow row = {name};
        for (const int count : num_processes)
            row.push_back(convert_bytes(sharded_bytes(model, strategy, count)));
        rows.push_back(std::move(row));
    }
    return table("Memory of each process for training with Adam in float32", rows);
}

}  // namespace axle::launcher
