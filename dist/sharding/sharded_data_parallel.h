// ShardedDataParallel: trains a model whose parameters, gradients and optimizer states are divided
// among the processes (FSDP, ZeRO).
//
//     dist::ShardedDataParallel sharded(model, group, {.units = {{{"h.0"}}, {{"h.1"}}}});
//     optim::AdamW optimizer(model.parameters());   // also possible before sharding
//     model(batch).backward();                      // leaves the mean of all ranks' gradients,
//     optimizer.step();                             // in parts; step() updates this rank's part
//
// The tensors of the model stay the same objects. A sharded parameter keeps its shape, and its
// dtype unless ShardingPrecision::param_dtype is set. It has no elements in memory; its elements
// are gathered when an op uses the parameter. Calling a module of a unit gathers the unit's
// parameters in advance; ShardingStrategy determines when they are freed. With full_shard, memory
// holds the parts of this rank and a few units. Reading or writing elements of a sharded parameter,
// and grad(), throw UsageError; see FullParameters and core/autograd/local_part.h. A model that is
// too large for the memory of one process can be constructed without memory, with its usual initial
// values (nn::init::DeferredWeights).
//
// All ranks must run the same calls and reach the same parameters in backward. If the ranks call
// different collectives, they throw CommError (ProcessGroup). If only one rank uses a sharded
// parameter in an op, this rank waits for the other ranks.
//
// The design follows Rajbhandari et al., "ZeRO", SC 2020 (arXiv:1910.02054), and Zhao et al.,
// "PyTorch FSDP", VLDB 2023 (arXiv:2304.11277).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "dist/parallel/distributed_model.h"
#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::dist {

// Numbers that describe the communication of a sharded model.
struct ShardingCounters {
    std::int64_t all_gathers = 0, reduce_scatters = 0, all_reduces = 0;
    // The number of all-gathers within ShardingOptions::secondary. all_gathers includes them.
    std::int64_t secondary_all_gathers = 0;
    // Total sizes in bytes of all gathered buffers and of all reduced buffers.
    std::int64_t gathered_bytes = 0, reduced_bytes = 0;
    // The number of buffers that are gathered or being gathered, and its maximum. A unit has one
    // buffer for each dtype, and separate buffers for trained and frozen parameters.
    std::int64_t gathered_buffers = 0, peak_gathered_buffers = 0;
};

// The sharded state of a model. The model must outlive this object. After this object is destroyed,
// the parameters of the model have no elements. Not thread-safe.
class ShardedDataParallel : public DistributedModel {
  public:
    // Shards the model. Throws UsageError if the model is already sharded, has a gradient, or has
    // experts that processes divide (expert parallel). Throws ValueError if a name in the options
    // is unknown, if a module is in two units, or if a unit has no module or no parameter of its
    // own. Also throws ValueError if the size of the secondary group does not divide the size of
    // the group, or for a part_folder without offload_to_cpu. Throws CommError on all ranks if the
    // models, strategies, units or values (see sync_module_states) of the ranks differ.
    ShardedDataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                        ShardingOptions options = {});
    ~ShardedDataParallel() override;

    // Sets whether later backward passes reduce gradients. See also
    // ShardingOptions::reduce_without_sync.
    void set_sync(bool reduce) override;
    bool syncs() const override;
    Tensor sum(const Tensor& number) override;
    // Does nothing, because the sharded parameters and the hooks move with the model.
    void set_model(nn::Module&) override {}
    const ShardingOptions& options() const;
    const ShardingCounters& counters() const;
    // Sets the counters to 0, except the numbers of gathered buffers: both become the current
    // number.
    void reset_counters();
    // Frees all gathered parameters.
    void reshard();

  private:
    std::shared_ptr<class ShardedPass> pass_;
};

// Ends the sharding of a model, for example to use it after training. Its parameters then have all
// of their elements, in their dtypes from before sharding, and no gradients. All ranks must call
// this function, and need memory for the whole model. The states of optimizers stay sharded, so
// save them before the call. A model that is not sharded is not changed.
void unshard(nn::Module& model);

struct FullParametersOptions {
    // Whether changes of the elements are kept after the scope. Either all ranks make the same
    // changes, or only the rank `modifier_rank` makes changes.
    bool write_back = true;
    // The rank of the sharding group whose changes all ranks get, as modifier_rank of DeepSpeed's
    // GatheredParameters. If it is set, an exception that leaves the scope discards the changes.
    std::optional<int> modifier_rank = {};
};

// A scope in which the sharded parameters of a module and its submodules have all of their
// elements, in the dtype of the model. All ranks must enter and leave the scope together.
// Optimizers must not step in the scope. A module without sharded parameters is not changed.
class [[nodiscard]] FullParameters {
  public:
    // Throws IndexError if modifier_rank is not a rank of the group.
    explicit FullParameters(nn::Module& module, FullParametersOptions options = {});
    // Throws CommError if modifier_rank is set and another rank leaves the job.
    ~FullParameters() noexcept(false);
    FullParameters(const FullParameters&) = delete;
    FullParameters& operator=(const FullParameters&) = delete;

  private:
    struct Impl;
    OwningPtr<Impl> impl_;
};

}  // namespace axle::dist
