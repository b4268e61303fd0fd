#include "dist/parallel/data_parallel.h"

#include <algorithm>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/tensor_slice.h"
#include "core/ops.h"
#include "dist/parallel/buckets.h"
#include "dist/parallel/data_parallel_impl.h"
#include "dist/parallel/same_model.h"

namespace axle::dist {
namespace {

std::vector<Tensor> tensors_of(const nn::StateDict& state) {
    std::vector<Tensor> result;
    result.reserve(state.size());
    for (const auto& [name, tensor] : state) result.push_back(tensor);
    return result;
}

// Returns whether expert parallel training already reduces the gradient.
bool is_reduced(const Tensor& parameter) {
    const auto slice = autograd::slice_of(parameter);
    return slice != nullptr && slice->is_reduced();
}

std::vector<Tensor> replicated(std::vector<Tensor> parameters) {
    std::erase_if(parameters, is_reduced);
    return parameters;
}

nn::StateDict trained(const nn::Module& model) {
    nn::StateDict result = model.named_parameters();
    std::erase_if(result, [](const auto& entry) {
        return !entry.second.requires_grad() || is_reduced(entry.second);
    });
    if (result.empty())
        throw UsageError(
            "DataParallel: no parameter of the model requires a gradient (experts that processes "
            "divide do not count)");
    return result;
}

}  // namespace

DataParallel::Impl::Impl(nn::Module& model_, std::shared_ptr<ProcessGroup> group_,
                         DataParallelOptions options)
    : model(&model_),
      group(std::move(group_)),
      parameters(replicated(model->parameters())),
      buffers(tensors_of(model->named_buffers())),
      changing_buffers(tensors_of(model->named_buffers({.include_constant = false}))),
      broadcasts_buffers(options.broadcast_buffers && !changing_buffers.empty()),
      reducer(trained(*model), group, std::move(options)) {
    check_same_on_ranks("DataParallel", "models", describe(*model), *group);
    take_model_of(0);
}

void DataParallel::Impl::take_model_of(int root) {
    broadcast_together(*group, parameters, root);
    broadcast_together(*group, buffers, root);
}

void DataParallel::Impl::shadow_forward(int root) {
    broadcast_together(*group, changing_buffers, root);
}

void DataParallel::Impl::shadow_sum() {
    group->all_reduce(zeros({}, {.dtype = f64, .device = parameters.front().device()}));
}

DataParallel::DataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                           DataParallelOptions options)
    : impl_(make_owning<Impl>(model, std::move(group), std::move(options))) {}

DataParallel::~DataParallel() = default;

void DataParallel::set_sync(bool reduce) { impl_->reducer.syncs = reduce; }
bool DataParallel::syncs() const { return impl_->reducer.syncs; }
bool DataParallel::reduces() const { return syncs() && !impl_->reducer.is_local; }
NoSyncGuard DataParallel::no_sync() { return NoSyncGuard(*this); }

Tensor DataParallel::sum(const Tensor& number) {
    const NoGrad no_grad;
    if (impl_->reducer.announce) impl_->reducer.announce(Step::sum);
    const Tensor total = number.clone();
    impl_->group->all_reduce(total);
    return total;
}

void DataParallel::set_model(nn::Module& moved) { impl_->model = &moved; }

void DataParallel::before_forward() {
    Impl& impl = *impl_;
    if (!impl.broadcasts_buffers || !impl.model->is_training()) return;
    // If the last forward ran without sync, the buffers are not broadcast.
    const bool reduces = syncs() && !impl.reducer.is_local;
    if (!std::exchange(impl.buffers_are_due, reduces)) return;
    int root = 0;
    if (impl.reducer.announce) {
        const std::vector<Step> steps = impl.reducer.announce(Step::forward);
        const auto first = std::find(steps.begin(), steps.end(), Step::forward);
        root = static_cast<int>(first - steps.begin());
    }
    broadcast_together(*impl.group, impl.changing_buffers, root);
}

const std::vector<GradientBucket>& DataParallel::buckets() const {
    return impl_->reducer.buckets();
}

}  // namespace axle::dist
