// The options of ShardedDataParallel (dist/sharding/sharded_data_parallel.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "dist/group/process_group.h"
#include "kernels/dtype.h"

namespace axle::nn {
class Module;
}  // namespace axle::nn

namespace axle::dist {

// Selects the parts of the training state that are sharded. All strategies shard optimizer states.
enum class ShardingStrategy : std::uint8_t {
    // Parameters are gathered for forward, freed, and gathered again for backward (FULL_SHARD of
    // FSDP, ZeRO-3). Only the unit of the model stays gathered in between.
    full_shard,
    // Parameters are gathered for forward and freed when backward has computed their gradients
    // (SHARD_GRAD_OP of FSDP). Without gradients, they are freed after forward.
    shard_grad_op,
    // Parameters stay gathered until an optimizer changes them (ZeRO-1 and ZeRO-2).
    shard_optimizer,
};
const char* name_of(ShardingStrategy strategy);

// The time at which backward begins to gather the next unit.
enum class BackwardPrefetch : std::uint8_t {
    backward_pre,   // when backward begins to use the current unit
    backward_post,  // when the gradients of the current unit are final
    none,           // when backward needs the unit
};

// The dtypes of sharded training.
struct ShardingPrecision {
    // The dtype of gathered parameters, in which the model computes. If nullopt, the dtype of the
    // model.
    std::optional<DType> param_dtype = {};
    // The dtype in which gradients are reduced. If nullopt, f64 for f64 parameters, otherwise f32.
    std::optional<DType> reduce_dtype = {};

    bool operator==(const ShardingPrecision&) const = default;
};

// A set of modules whose parameters are gathered together when one of the modules is called.
struct ShardUnit {
    std::vector<std::string> modules;  // names as in Module::named_modules()
    // Whether a forward with gradients frees the parameters after the call of the last module. If
    // nullopt, the strategy determines this. Ignored with shard_optimizer.
    std::optional<bool> reshard_after_forward = {};
};

struct ShardingOptions {
    ShardingStrategy strategy = ShardingStrategy::full_shard;
    // The units. They may contain each other: a parameter belongs to the innermost unit, and a tied
    // parameter to the innermost unit that contains all of its names. Parameters outside of all
    // units belong to the unit of the model.
    std::vector<ShardUnit> units = {};
    // Names of modules whose parameters are not sharded. Their gradients are averaged over all
    // processes.
    std::vector<std::string> ignored_modules = {};
    ShardingPrecision precision = {};
    BackwardPrefetch backward_prefetch = BackwardPrefetch::backward_pre;
    // Whether a call of a unit begins to gather the unit that was called next in the last forward.
    bool forward_prefetch = true;
    // Whether at most two units may be gathered in advance or left over from earlier calls. Units
    // of active calls and units that are not freed do not count.
    bool limit_all_gathers = true;
    // Whether backward without sync reduces gradients to the parts of the processes. This needs
    // less memory. If false, it accumulates whole gradients, which needs less communication.
    bool reduce_without_sync = false;
    // Whether all processes start from the values of rank 0. If false, the values must be equal on
    // all processes.
    bool sync_module_states = true;
    // The device of gathered parameters, and of the parts unless offload_to_cpu is set.
    Device device = Device::cpu();
    // Whether the parts of parameters, gradients and optimizer states are on the CPU, where the
    // optimizer runs (CPU offload).
    bool offload_to_cpu = false;
    // The folder of the parts of parameters, for example on an NVMe disk. If not empty, the parts
    // are in memory that is mapped from files in this folder, and offload_to_cpu must be true.
    // Throws FileError on all ranks if one rank cannot create its files.
    std::string part_folder = {};
    // A function that initializes the parameters and buffers of a module that was constructed
    // without memory (nn/init.h). It is called on every rank, once for each module that directly
    // has a parameter on the meta device. During the call, the parameters of the module's unit have
    // all of their elements. If empty, such parameters start with their deferred initial values
    // (nn::init::DeferredWeights), or zeros if they have none. With sync_module_states they get the
    // values of rank 0, whose model may have been constructed with memory.
    std::function<void(nn::Module&)> param_init_fn = {};
    // The group of the processes that store the same part of the parameters. Gradients are first
    // reduced in the sharding group, and then averaged over this group (HYBRID_SHARD). If nullptr,
    // no other process stores this part.
    std::shared_ptr<ProcessGroup> replicas = nullptr;
    // A part of the sharding group, such as the processes of one machine. Its ranks together keep a
    // copy of the parameters in param_dtype from the first gather until an optimizer changes the
    // parameters. Later gathers, such as those of backward, communicate only within this group (hpZ
    // of ZeRO++). Each rank needs memory for its part of the copy. If nullptr, there is no copy.
    std::shared_ptr<ProcessGroup> secondary = nullptr;
};

}  // namespace axle::dist
