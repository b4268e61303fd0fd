#include "dist/sharding/sharded_data_parallel.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/ops.h"
#include "dist/parallel/buckets.h"
#include "dist/parallel/same_model.h"
#include "dist/sharding/sharded_pass.h"
#include "nn/init.h"

namespace axle::dist {
namespace {

// Returns lines with the strategy and the unit of each parameter. They must be equal on all ranks.
Tree describe(const ShardPlan& plan, const ShardingOptions& options) {
    Tree lines = Tree::list();
    lines.push_back(str("strategy ", name_of(options.strategy)));
    for (const PlannedUnit& unit : plan.units)
        for (const nn::StateDict& parameters : unit.parameters)
            for (const auto& [name, tensor] : parameters)
                lines.push_back(str(name, " in the unit ", unit.unit.modules.front()));
    return lines;
}

void check_shardable(const nn::Module& model) {
    for (const auto& [name, tensor] : model.named_parameters()) {
        if (autograd::is_sharded(tensor))
            throw UsageError(
                str("ShardedDataParallel: the parameter ", name, " is already sharded"));
        if (const auto slice = autograd::slice_of(tensor); slice != nullptr && slice->is_reduced())
            throw UsageError(str("ShardedDataParallel: ", name,
                                 " has the experts of this rank (expert parallel), which can't be "
                                 "sharded too; use DataParallel"));
        if (tensor.grad().defined())
            throw UsageError(str("ShardedDataParallel: the parameter ", name,
                                 " has a gradient; shard the model before the first backward, or "
                                 "call zero_grad()"));
    }
}

// Throws CommError on all ranks if the sum of a parameter's values, or of their squares, differs
// from the sum on rank 0. Ignores parameters on the meta device.
void check_same_values(const nn::Module& model, ProcessGroup& group) {
    const NoGrad no_grad;
    Tree sums = Tree::list();
    for (const auto& [name, tensor] : model.named_parameters()) {
        if (tensor.device().is_meta()) continue;
        Tensor own = tensor.detach();
        if (nn::init::is_deferred(tensor)) {
            own = Tensor::empty(tensor.shape());
            nn::init::write_initial_values(tensor, own);
        }
        const Tensor values = own.to(f64);
        const double sum = axle::sum(values).item(), squares = axle::sum(values * values).item();
        sums.push_back(str(name, " with the sums ", sum, " and ", squares));
    }
    check_same_on_ranks("ShardedDataParallel", "values", sums, group);
}

}  // namespace

ShardedDataParallel::ShardedDataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                                         ShardingOptions options) {
    check_shardable(model);
    if (!options.part_folder.empty() && !options.offload_to_cpu)
        throw ValueError(
            str("ShardedDataParallel: part_folder needs offload_to_cpu = true, because the parts "
                "are in host memory: ",
                printable(options.part_folder)));
    if (options.secondary != nullptr && group->size() % options.secondary->size() != 0)
        throw ValueError(
            str("ShardedDataParallel: the number of ranks of the group must be a multiple of the "
                "number of ranks "
                "of the secondary group: the group has ",
                group->size(), ", the secondary group ", options.secondary->size()));
    const ShardPlan plan = plan_shards(model, options);
    check_same_on_ranks("ShardedDataParallel", "models", dist::describe(model), *group);
    check_same_on_ranks("ShardedDataParallel", "plans", describe(plan, options), *group);
    std::vector<Tensor> buffers;
    for (const auto& [name, tensor] : model.named_buffers()) {
        if (tensor.device().is_meta() && !options.device.is_meta())
            tensor.set_data(
                zeros(tensor.shape(), {.dtype = tensor.dtype(), .device = options.device}));
        buffers.push_back(tensor);
    }
    if (options.sync_module_states) {
        if (options.replicas != nullptr) broadcast_together(*options.replicas, buffers, 0);
        broadcast_together(*group, buffers, 0);
    } else
        check_same_values(model, *group);
    std::vector<std::vector<nn::Module*>> units;
    for (const PlannedUnit& unit : plan.units) units.push_back(unit.modules);
    pass_ = std::make_shared<ShardedPass>(plan, std::move(group), std::move(options));
    for (std::size_t u = 0; u < units.size(); ++u)
        for (nn::Module* const module : units[u]) {
            const bool is_last = module == units[u].back();
            const std::weak_ptr<ShardedPass> pass = pass_;
            module->set_call_hooks(std::make_shared<const nn::CallHooks>(
                nn::CallHooks{.before =
                                  [pass, u](nn::Module&) {
                                      if (const auto alive = pass.lock()) alive->enter(u);
                                  },
                              .after =
                                  [pass, u, is_last](nn::Module&) {
                                      if (const auto alive = pass.lock()) alive->leave(u, is_last);
                                  }}));
        }
}

ShardedDataParallel::~ShardedDataParallel() = default;

void ShardedDataParallel::set_sync(bool reduce) { pass_->syncs = reduce; }
bool ShardedDataParallel::syncs() const { return pass_->syncs; }
Tensor ShardedDataParallel::sum(const Tensor& number) {
    const NoGrad no_grad;
    const Tensor total = number.clone();
    pass_->context().group->all_reduce(total);
    if (options().replicas != nullptr) options().replicas->all_reduce(total);
    return total;
}
const ShardingOptions& ShardedDataParallel::options() const { return pass_->options(); }
const ShardingCounters& ShardedDataParallel::counters() const { return pass_->context().counters; }
void ShardedDataParallel::reset_counters() {
    ShardingCounters& counters = pass_->context().counters;
    const std::int64_t gathered = counters.gathered_buffers;
    counters = {.gathered_buffers = gathered, .peak_gathered_buffers = gathered};
}
void ShardedDataParallel::reshard() { pass_->reshard(); }

void unshard(nn::Module& model) {
    for (const Tensor& tensor : model.parameters())
        if (auto* const buffer = dynamic_cast<FlatParameter*>(tensor.impl()->storage->provider()))
            buffer->observer()->unshard();
}

// --- FullParameters

struct FullParameters::Impl {
    std::vector<FlatParameter*> buffers;
    FullParametersOptions options;
    int exceptions = std::uncaught_exceptions();  // the number when the scope begins
};

FullParameters::FullParameters(nn::Module& module, FullParametersOptions options)
    : impl_(make_owning<Impl>()) {
    impl_->options = options;
    for (const Tensor& tensor : module.parameters()) {
        auto* const buffer = dynamic_cast<FlatParameter*>(tensor.impl()->storage->provider());
        if (buffer != nullptr && std::ranges::find(impl_->buffers, buffer) == impl_->buffers.end())
            impl_->buffers.push_back(buffer);
    }
    if (const auto& rank = options.modifier_rank; rank && !impl_->buffers.empty())
        if (const int size = impl_->buffers.front()->ranks(); *rank < 0 || *rank >= size)
            throw IndexError(str("FullParameters: modifier_rank ", *rank,
                                 " is out of range for a group of ", size,
                                 size == 1 ? " rank" : " ranks"));
    for (FlatParameter* const buffer : impl_->buffers)
        buffer->set_full(buffer->gather_part(buffer->part()));
}

FullParameters::~FullParameters() noexcept(false) {
    const auto& [buffers, options, exceptions] = *impl_;
    const bool discards = options.modifier_rank && std::uncaught_exceptions() > exceptions;
    std::exception_ptr error;
    for (FlatParameter* const buffer : buffers) {
        try {
            if (options.write_back && !discards && !error)
                buffer->write_back(options.modifier_rank);
        } catch (...) {
            error = std::current_exception();
        }
        buffer->set_full({});
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace axle::dist
