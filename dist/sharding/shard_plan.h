// Private to dist: divides the parameters of a model into units.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::dist {

// A unit with its modules and parameters. The first unit of a plan is the unit of the model.
struct PlannedUnit {
    ShardUnit unit;
    std::vector<nn::Module*> modules;
    // Sets of parameters with the same dtype and requires_grad, in the order of named_parameters().
    std::vector<nn::StateDict> parameters;
};

struct ShardPlan {
    std::vector<PlannedUnit> units;
    nn::StateDict ignored;  // the parameters of ignored modules
};

// Returns the plan for the options. Throws ValueError if a listed module does not exist or is the
// model itself, or if the units list a module twice. Also throws ValueError if a unit has no module
// or no parameters of its own.
ShardPlan plan_shards(nn::Module& model, const ShardingOptions& options);

}  // namespace axle::dist
