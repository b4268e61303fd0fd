// Functions that choose the units of a sharded model, as FSDP's auto_wrap_policy does, and modules
// by their names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::dist {

// Returns one unit for each module of one of the types, such as "GptBlock" or "LlamaDecoderLayer".
// Namespaces may be left out. Names of Hugging Face Transformers, such as "GPT2Block", are also
// accepted. Throws ValueError if the model has no module of a type; the message begins with
// `option`, the name of the option that lists the types.
std::vector<ShardUnit> units_by_type(nn::Module& model, const std::vector<std::string>& types,
                                     const char* option = "transformer_cls_names_to_wrap");

// Returns units of at least min_num_params parameters. The parameters of units inside a module do
// not count for the module. Instances of ModuleList and ModuleDict are not units, because they are
// not called. Throws ValueError unless min_num_params is at least 1.
std::vector<ShardUnit> units_by_size(nn::Module& model, std::int64_t min_num_params);

// Returns one unit for each submodule for which `is_unit` returns true.
std::vector<ShardUnit> units_where(nn::Module& model,
                                   const std::function<bool(const nn::Module&)>& is_unit);

// Returns the names of the modules whose whole names match a regular expression. Simple
// expressions have the same meaning as in Python. Throws ValueError if the expression is invalid.
std::vector<std::string> modules_matching(nn::Module& model, const std::string& pattern);

}  // namespace axle::dist
