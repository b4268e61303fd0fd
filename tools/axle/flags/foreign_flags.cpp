#include "tools/axle/flags/foreign_flags.h"

namespace axle::launcher {

const std::vector<ForeignFlag>& flags_without_effect() {
    static const std::vector<ForeignFlag> flags = {
        {"no_tpu_cluster", false},
        {"main_training_function", true},
        {"downcast_bf16", false},
        {"megatron_lm_use_custom_fsdp", true},
        {"megatron_lm_no_load_optim", true},
        {"megatron_lm_overlap_cpu_optimizer_d2h_h2d", true},
        {"megatron_lm_no_save_optim", true},
        {"megatron_lm_optimizer_cpu_offload", true},
        {"megatron_lm_use_precision_aware_optimizer", true},
        {"megatron_lm_attention_backend", true},
        {"megatron_lm_attention_dropout", true},
        {"megatron_lm_hidden_dropout", true},
        {"megatron_lm_attention_softmax_in_fp32", true},
        {"megatron_lm_expert_tensor_parallel_size", true},
        {"megatron_lm_use_rotary_position_embeddings", true},
        {"fp8_opt_level", true},
    };
    return flags;
}

const std::vector<RefusedFlag>& refused_flags() {
    static constexpr const char* kMachines =
        "Axle supports CPUs and NVIDIA GPUs: use --cpu or --multi_gpu";
    static constexpr const char* kElsewhere =
        "jobs run on machines in your network, not at a cloud provider: use --num_machines";
    static const std::vector<RefusedFlag> flags = {
        {"tpu", false, kMachines},
        {"tpu_cluster", false, kMachines},
        {"tpu_use_sudo", false, kMachines},
        {"vm", true, kMachines},
        {"aws_access_key_id", true, kElsewhere},
        {"aws_secret_access_key", true, kElsewhere},
    };
    return flags;
}

}  // namespace axle::launcher
