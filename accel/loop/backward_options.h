// BackwardOptions: the options of Accelerator::backward(). Setting both options throws UsageError.
#pragma once

#include <optional>

namespace axle::accel {

struct BackwardOptions {
    bool retain_graph = false;  // keeps the graph, so that the loss can be differentiated again
    std::optional<double> learning_rate = {};  // if set, backward() calls lomo_backward()
};

}  // namespace axle::accel
