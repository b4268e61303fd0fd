// ParallelismConfig: the division of the processes of a job among several kinds of parallelism.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/group/mesh.h"
#include "dist/tensor_parallel/tensor_parallel.h"

namespace axle::accel {

// Options of tensor parallel training.
struct TorchTensorParallelConfig {
    bool enable_async_tp = false;  // has no effect, as in Accelerate; true logs a warning
    // Options that Accelerate does not have: the rules by which modules are divided (by default,
    // the plan of the model), and whether norms and dropout process parts of the sequence
    // (dist::TensorParallelOptions).
    dist::TensorParallelPlan plan = {};
    bool sequence_parallel = false;
};

// Options of context parallel training.
struct TorchContextParallelConfig {
    // The method by which attention gets the keys and values of other processes. "allgather"
    // gathers all of them; "alltoall" passes them around a ring and needs less memory. If empty,
    // the method is read from PARALLELISM_CONFIG_CP_COMM_STRATEGY; the default is "allgather".
    std::string cp_comm_strategy = {};
};

// Options of sequence parallel training (Ulysses). Options that are not set are read from
// PARALLELISM_CONFIG_SP_SEQ_LENGTH, PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE and
// PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION.
struct DeepSpeedSequenceParallelConfig {
    // The length of every sequence. Required if sp_seq_length_is_variable is false.
    std::optional<std::int64_t> sp_seq_length = {};
    std::optional<bool> sp_seq_length_is_variable = {};  // true by default
    // The implementation of attention: "sdpa", "flash_attention_2", "flash_attention_3", the name
    // of a kernel of the Hugging Face Hub ("OWNER/NAME"), or empty. Has no effect, because Axle has
    // one implementation.
    std::string sp_attn_implementation = {};
};

// The sizes of a mesh of processes, and options of each kind of parallelism. If no
// ParallelismConfig is given and ACCELERATE_USE_PARALLELISM_CONFIG is true, the sizes are read from
// the variables PARALLELISM_CONFIG_* (DP_REPLICATE_SIZE, DP_SHARD_SIZE, TP_SIZE, CP_SIZE, SP_SIZE,
// PP_SIZE, EP_SIZE, CP_BACKEND, SP_BACKEND).
//
// The product of the sizes without ep_size must be the number of processes, or 1: all processes are
// then replicas. cp_size above 1 cannot be combined with sp_size above 1. tp_size or cp_size above
// 1 with dp_replicate_size above 1 needs dp_shard_size or pp_size above 1. The Accelerator throws
// ValueError for other sizes, and NotImplementedError for combinations that Axle does not
// implement.
//
// The dimensions of the mesh are pp, dp_replicate, dp_shard, cp, sp and tp, in this order; the
// ranks of a tp group are consecutive. A mesh has only the dimensions that are larger than 1.
struct ParallelismConfig {
    int dp_replicate_size = 1;  // replicas of the model
    // The processes that parameters are sharded over. Above 1, needs fsdp_plugin or
    // deepspeed_plugin.
    int dp_shard_size = 1;
    int tp_size = 1;
    // The processes that share the sequences of a batch (context parallel). Above 1, needs
    // fsdp_plugin with version 2, pp_size above 1, or ACCELERATE_ALLOW_CP_STANDALONE=1 without
    // dp_shard_size.
    int cp_size = 1;
    int sp_size = 1;  // processes that share the sequences of a batch (Ulysses)
    // The number of stages of a pipeline, an extension of Accelerate. A megatron_lm_plugin has
    // further options; without it, a step has pp_size micro-batches, and gradients are not clipped.
    // Pipelines can be combined with dp_replicate_size, cp_size, tp_size and ep_size.
    int pp_size = 1;
    // The number of consecutive replicas that divide the experts of nn::MixtureOfExperts
    // (dist/expert_parallel/), an extension of Accelerate. Must divide the number of replicas. Can
    // be combined with dp_replicate_size and pp_size only. Not a dimension of the mesh.
    int ep_size = 1;
    std::string cp_backend = "torch";      // must be "torch"
    std::string sp_backend = "deepspeed";  // must be "deepspeed"
    // The handlers of tp, cp and sp. A handler of a dimension of size 1 is checked, but has no
    // effect; a warning is logged.
    std::optional<TorchTensorParallelConfig> tp_handler = {};
    std::optional<TorchContextParallelConfig> cp_handler = {};
    std::optional<DeepSpeedSequenceParallelConfig> sp_handler = {};

    // total_size() returns the number of processes in the mesh. It is the product of the two other
    // results: the number of data parallel processes, and the product of the other sizes.
    int total_size() const { return data_parallel_size() * non_data_parallel_size(); }
    int data_parallel_size() const { return dp_replicate_size * dp_shard_size; }
    int non_data_parallel_size() const { return pp_size * tp_size * cp_size * sp_size; }

    bool dp_replicate_enabled() const { return dp_replicate_size > 1; }
    bool dp_shard_enabled() const { return dp_shard_size > 1; }
    bool tp_enabled() const { return tp_size > 1; }
    bool cp_enabled() const { return cp_size > 1; }
    bool sp_enabled() const { return sp_size > 1; }
    bool pp_enabled() const { return pp_size > 1; }
    bool ep_enabled() const { return ep_size > 1; }

    // Returns the configuration in the environment variables, or nullopt unless
    // ACCELERATE_USE_PARALLELISM_CONFIG is true. Throws ValueError for a size that is not an
    // integer and for a flag that is not a boolean, but does not check the sizes.
    static std::optional<ParallelismConfig> from_environment();

    // Returns the dimensions that are larger than 1, in the order of the mesh.
    std::vector<dist::DeviceMesh::Dimension> mesh_dimensions() const;
    // Return the names of dimensions that are larger than 1. As in Accelerate, parameters are
    // sharded over dp_shard_cp (Axle also shards them over sp), and losses are averaged over dp_cp.
    // The mesh has dp, dp_shard_cp and dp_cp as flattened dimensions.
    std::vector<std::string> dp_dim_names() const;
    std::vector<std::string> non_dp_dim_names() const;
    std::vector<std::string> dp_shard_cp_dim_names() const;
    std::vector<std::string> dp_cp_dim_names() const;
    // Returns the names of the mesh dimensions for FSDP: "dp_replicate" if it is larger than 1, and
    // the flattened "dp_shard_cp".
    std::vector<std::string> fsdp_dim_names() const;

    // Returns the strategy of context parallelism, "allgather" or "alltoall".
    std::string cp_comm_strategy() const;
    // Returns the sizes, the backends and Accelerate's options of the handlers as a JSON object.
    // (In Accelerate, to_json() returns nothing.)
    std::string to_json() const;
};

}  // namespace axle::accel
