#include "dist/parallel/data_parallel.h"

#include <algorithm>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/parallel/buckets.h"
#include "dist/parallel/data_parallel_impl.h"

namespace axle::dist {
namespace {

std::vector<Tensor> tensors_of(const nn::StateDict& state) {
    std::vector<Tensor> result;
    result.reserve(state.size());
    for (const auto& [name, tensor] : state) result.push_back(tensor);
    return result;
}

nn::StateDict trained(const nn::Module& model) {
    nn::StateDict result = model.named_parameters();
    std::erase_if(result, [](const auto& entry) { return !entry.second.requires_grad(); });
    if (result.empty())
        throw UsageError("data parallel: the model has no parameter that requires a gradient");
    return result;
}

std::string describe(const std::string& name, const Tensor& t) {
    return str(name, " ", t.dtype(), " ", t.shape(), t.requires_grad() ? "" : " frozen");
}

// Returns a list of lines with the name, dtype and shape of each tensor of the model.
Tree describe(const nn::Module& model) {
    Tree lines = Tree::list();
    for (const nn::StateDict& state : {model.named_parameters(), model.named_buffers()})
        for (const auto& [name, tensor] : state) lines.push_back(describe(name, tensor));
    return lines;
}

// Returns a text about the first line that differs, or "" if all lines are equal.
std::string find_difference(const Tree& lines, const Tree& expected) {
    const auto line = [](const Tree& of, std::size_t i) {
        return i < of.size() ? of.elements()[i].string() : std::string("no further tensor");
    };
    for (std::size_t i = 0; i < std::max(lines.size(), expected.size()); ++i)
        if (line(lines, i) != line(expected, i))
            return str("'", line(lines, i), "' instead of rank 0's '", line(expected, i), "'");
    return {};
}

// Throws CommError on every rank if the model of a rank differs from the model of rank 0.
void check_same_model(const nn::Module& model, ProcessGroup& group) {
    if (group.size() == 1) return;
    const Tree lines = describe(model);
    const Tree differs = find_difference(lines, group.broadcast_object(lines));
    const std::vector<Tree> all = group.all_gather_object(differs);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (!all[rank].string().empty())
            throw CommError(str("data parallel: the ranks' models differ: rank ", rank, " has ",
                                all[rank].string()));
}

}  // namespace

DataParallel::Impl::Impl(nn::Module& model_, std::shared_ptr<ProcessGroup> group_,
                         DataParallelOptions options)
    : model(&model_),
      group(std::move(group_)),
      parameters(model->parameters()),
      buffers(tensors_of(model->named_buffers())),
      broadcasts_buffers(options.broadcast_buffers && !buffers.empty()),
      reducer(trained(*model), group, std::move(options)) {
    check_same_model(*model, *group);
    take_model_of(0);
}

void DataParallel::Impl::take_model_of(int root) {
    broadcast_together(*group, parameters, root);
    broadcast_together(*group, buffers, root);
}

void DataParallel::Impl::shadow_forward(int root) { broadcast_together(*group, buffers, root); }

void DataParallel::Impl::shadow_sum() {
    group->all_reduce(zeros({}, {.dtype = f64, .device = parameters.front().device()}));
}

DataParallel::DataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                           DataParallelOptions options)
    : impl_(std::make_unique<Impl>(model, std::move(group), std::move(options))) {}

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
    // Buffers that a forward without sync has computed are not broadcast.
    const bool reduces = syncs() && !impl.reducer.is_local;
    if (!std::exchange(impl.buffers_are_due, reduces)) return;
    int root = 0;
    if (impl.reducer.announce) {
        const std::vector<Step> steps = impl.reducer.announce(Step::forward);
        const auto first = std::find(steps.begin(), steps.end(), Step::forward);
        root = static_cast<int>(first - steps.begin());
    }
    broadcast_together(*impl.group, impl.buffers, root);
}

const std::vector<GradientBucket>& DataParallel::buckets() const {
    return impl_->reducer.buckets();
}

}  // namespace axle::dist
