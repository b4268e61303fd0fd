// Private to accel: resolves the options of pipelines.
#pragma once

#include "accel/config/options.h"
#include "dist/pipeline/pipeline.h"
#include "nn/module.h"

namespace axle::accel {

// Adds a plugin if ACCELERATE_USE_MEGATRON_LM is true or parallelism_config has several stages, and
// sets the options that the plugin does not set. Throws UsageError if the plugin contradicts
// parallelism_config or other plugins, ValueError for invalid values, and NotImplementedError for a
// name in other_megatron_args that Axle does not read.
void resolve_megatron(AcceleratorOptions& options);
// Throws ValueError if pp_degree * tp_degree does not divide the number of processes, or
// expert_model_parallel_size does not divide the number of replicas. Throws NotImplementedError for
// options that Axle does not implement.
void check_megatron(const AcceleratorOptions& options, int num_processes);

// Returns the pieces of a model for a resolved plugin.
std::vector<nn::Piece> pieces_for(const MegatronLMPlugin& plugin, nn::Module& model);
// Returns the options of a pipeline for a resolved plugin and a model with `pieces` pieces. Throws
// ValueError if the layers cannot be divided as the plugin requires.
dist::PipelineOptions pipeline_options_of(const MegatronLMPlugin& plugin, int pieces);

}  // namespace axle::accel
