// Implements Accelerator's methods for sequences that several processes share.
#include <utility>

#include "accel/accelerator.h"
#include "accel/accelerator_parts.h"
#include "accel/loading/loader_hooks.h"
#include "core/system/log.h"
#include "dist/sequence/context_parallel.h"

namespace axle::accel {

ContextParallelScope Accelerator::maybe_context_parallel(
    const std::vector<Tensor>& buffers, const std::vector<int>& buffer_seq_dims,
    const std::vector<Tensor>& no_restore_buffers) {
    if (mesh_size("cp") == 1) {
        if (!std::exchange(parts_->has_explained_context, true) && is_main_process())
            axle::log(LogLevel::warning,
                      "maybe_context_parallel: has no effect, because cp_size is 1");
        return {};
    }
    auto& policy = parts_->context_parallel;
    if (policy == nullptr) {
        const ParallelismConfig config = options_.parallelism_config.value_or(ParallelismConfig());
        policy = std::make_shared<dist::ContextParallel>(
            torch_device_mesh()->get_group("cp"),
            dist::context_exchange_of(config.cp_comm_strategy()));
    }
    return ContextParallelScope(make_owning<dist::ContextParallelScope>(
        policy, buffers, std::vector<std::int64_t>(buffer_seq_dims.begin(), buffer_seq_dims.end()),
        no_restore_buffers));
}

data::DataLoader& Accelerator::deepspeed_ulysses_dl_adapter(data::DataLoader& loader, nn::Module&) {
    const int ranks = mesh_size("sp");
    if (ranks == 1) return loader;
    auto* const hooks = dynamic_cast<PreparedLoaderHooks*>(loader.hooks().get());
    if (hooks == nullptr)
        throw UsageError(
            "deepspeed_ulysses_dl_adapter: the loader is not prepared; prepare it first");
    loader.set_micro_batches(ranks);
    SequenceSharing sharing{.group = torch_device_mesh()->get_group("sp")};
    if (const auto& config = options_.parallelism_config; config && config->sp_handler)
        if (!config->sp_handler->sp_seq_length_is_variable.value_or(true))
            sharing.length = config->sp_handler->sp_seq_length;
    hooks->set_sequence_sharing(std::move(sharing));
    return loader;
}

}  // namespace axle::accel
