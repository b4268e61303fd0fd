#include "dist/sharding/flat_parameter.h"

#include <algorithm>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/files/file_memory.h"
#include "core/ops.h"
#include "dist/group/shared_error.h"
#include "nn/init.h"

namespace axle::dist {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

const char* name_of(ShardingStrategy strategy) {
    switch (strategy) {
        case ShardingStrategy::full_shard:
            return "full_shard";
        case ShardingStrategy::shard_grad_op:
            return "shard_grad_op";
        case ShardingStrategy::shard_optimizer:
            return "shard_optimizer";
    }
    return "?";
}

FlatParameter::FlatParameter(const nn::StateDict& parameters, ShardingContext& context,
                             bool sync_module_states)
    : context_(context) {
    const NoGrad no_grad;
    lay_out(parameters);
    fill_part(sync_module_states);
    find_local_parts();
    const auto bytes = static_cast<std::size_t>(total_ * size_of(compute_dtype_));
    storage_ = std::make_shared<Storage>(bytes, context_.device, *this);
    attach(storage_, compute_dtype_);
}

FlatParameter::~FlatParameter() {
    cancel_reduce();
    free();
    if (full_.defined()) attach(storage_, compute_dtype_);
    for (const Member& member : members_) {
        autograd::take_pending_gradient(member.handle);
        autograd::set_local_part(member.handle, {});
    }
    storage_->set_provider(nullptr);
}

void FlatParameter::lay_out(const nn::StateDict& parameters) {
    const Tensor& first = parameters.front().second;
    is_trained_ = first.requires_grad();
    const DType dtype = first.dtype();
    const std::int64_t aligned = kAlignment / size_of(dtype);
    for (const auto& [name, handle] : parameters) {
        members_.push_back({.name = name,
                            .handle = handle,
                            .begin = total_,
                            .numel = handle.numel(),
                            .local = {}});
        total_ += round_up(handle.numel(), aligned);
    }
    const int ranks = context_.group->size();
    total_ = round_up(std::max(total_, aligned), ranks * aligned);
    compute_dtype_ = is_floating(dtype) ? context_.precision.param_dtype.value_or(dtype) : dtype;
    if (context_.part_folder.empty()) {
        part_ = zeros({total_ / ranks}, {.dtype = dtype, .device = context_.part_device});
        return;
    }
    gather_or_throw(*context_.group, "ShardedDataParallel", [&]() -> Tree {
        part_ = zeros_in_file(context_.part_folder, {total_ / ranks}, dtype);
        return {};
    });
}

// Fills the part with this rank's elements of the parameters. If sync_module_states is true, the
// values are the values of rank 0. Elements of a parameter on the meta device are its deferred
// initial values, or zeros if it has none.
void FlatParameter::fill_part(bool sync_module_states) {
    const Tensor whole = zeros({total_}, {.dtype = part_.dtype(), .device = context_.device});
    for (const Member& member : members_) {
        Tensor own = whole.narrow(0, member.begin, member.numel);
        if (nn::init::is_deferred(member.handle))
            nn::init::write_initial_values(member.handle, own);
        else if (!member.handle.device().is_meta())
            own.copy_(member.handle.detach().reshape({member.numel}));
    }
    if (sync_module_states) broadcast(whole, 0);
    part_.copy_(whole.narrow(0, context_.group->rank() * part_size(), part_size()));
}

void FlatParameter::broadcast(const Tensor& whole, int root) const {
    if (context_.replicas != nullptr) context_.replicas->broadcast(whole);
    context_.group->broadcast(whole, root);
}

void FlatParameter::find_local_parts() {
    const std::int64_t part_begin = context_.group->rank() * part_size();
    for (Member& member : members_) {
        const std::int64_t begin =
            std::clamp(part_begin, member.begin, member.begin + member.numel);
        const std::int64_t end =
            std::clamp(part_begin + part_size(), member.begin, member.begin + member.numel);
        member.first_local = begin - member.begin;
        member.in_part = std::clamp<std::int64_t>(begin - part_begin, 0, part_size());
        member.local = part_.narrow(0, member.in_part, end - begin);
        autograd::set_local_part(member.handle, member.local, member.first_local);
    }
}

void FlatParameter::attach(const std::shared_ptr<Storage>& storage, DType dtype) {
    for (const Member& member : members_) {
        Impl& impl = *member.handle.impl();
        impl.storage = storage;
        impl.strides = contiguous_strides(impl.shape);
        impl.offset = member.begin;
        impl.dtype = dtype;
        impl.derived = {};
    }
}

// --- gathering

void FlatParameter::count(int change) {
    ShardingCounters& counters = context_.counters;
    counters.gathered_buffers += change;
    counters.peak_gathered_buffers =
        std::max(counters.peak_gathered_buffers, counters.gathered_buffers);
}

void FlatParameter::start_gather() {
    if (state_ != State::sharded) return;
    const NoGrad no_grad;
    const bool from_copy = secondary_.defined();
    sent_ = from_copy ? secondary_ : part_.to(compute_dtype_).to(context_.device);
    gathered_ = Tensor::empty({total_}, {.dtype = compute_dtype_, .device = context_.device});
    ProcessGroup& group = from_copy ? *context_.secondary : *context_.group;
    work_ = group.all_gather_into_async(gathered_, sent_);
    state_ = State::gathering;
    count(1);
    ++context_.counters.all_gathers;
    if (from_copy) ++context_.counters.secondary_all_gathers;
    context_.counters.gathered_bytes += total_ * size_of(compute_dtype_);
}

void FlatParameter::gather() {
    if (state_ == State::gathered) return;
    start_gather();
    work_.wait();
    if (context_.secondary != nullptr && !secondary_.defined()) {
        const NoGrad no_grad;
        const std::int64_t size = total_ / context_.secondary->size();
        secondary_ = gathered_.narrow(0, context_.secondary->rank() * size, size).clone();
    }
    storage_->set_memory(std::exchange(gathered_, {}).impl()->storage);
    sent_ = {};
    work_ = {};
    state_ = State::gathered;
}

void FlatParameter::free() noexcept {
    if (state_ == State::sharded) return;
    if (state_ == State::gathering) try {
            work_.wait();
        } catch (const std::exception&) {  // the next call of the group also throws the error
        }
    gathered_ = sent_ = {};
    work_ = {};
    storage_->set_memory(nullptr);
    // Cached casts are removed too, because they have the sizes of whole parameters.
    for (const Member& member : members_) member.handle.impl()->derived = {};
    state_ = State::sharded;
    count(-1);
}

Tensor FlatParameter::gather_part(const Tensor& part) const {
    const NoGrad no_grad;
    const Tensor whole = Tensor::empty({total_}, {.dtype = part.dtype(), .device = part.device()});
    context_.group->all_gather_into_async(whole, part).wait();
    return whole;
}

void FlatParameter::set_full(const Tensor& buffer) {
    if (buffer.defined()) {
        free();
        attach(buffer.impl()->storage, buffer.dtype());
    } else {
        attach(storage_, compute_dtype_);
    }
    full_ = buffer;
}

void FlatParameter::write_back(std::optional<int> root) {
    const NoGrad no_grad;
    if (root) broadcast(full_, *root);
    part_.copy_(full_.narrow(0, context_.group->rank() * part_size(), part_size()));
    storage_->bump_version();
}

void FlatParameter::unshard() {
    const NoGrad no_grad;
    cancel_reduce();
    free();
    const Tensor whole = gather_part(part_);
    for (const Member& member : members_) {
        autograd::take_pending_gradient(member.handle);
        autograd::set_local_part(member.handle, {});
        Impl& impl = *member.handle.impl();
        const Tensor own = whole.narrow(0, member.begin, member.numel).clone();
        impl.storage = own.impl()->storage;
        impl.strides = contiguous_strides(impl.shape);
        impl.offset = own.impl()->offset;
        impl.dtype = own.dtype();
        impl.derived = {};
    }
    members_.clear();
}

// --- gradients

DType FlatParameter::reduce_dtype() const {
    return context_.precision.reduce_dtype.value_or(part_.dtype() == f64 ? f64 : f32);
}

void FlatParameter::collect_gradient(std::size_t member) {
    const NoGrad no_grad;
    const Member& m = members_[member];
    const Tensor gradient = autograd::take_pending_gradient(m.handle);
    if (!gradient.defined()) return;
    if (!reduction_) {
        reduction_ = Reduction();
        reduction_->whole = zeros({total_}, {.dtype = reduce_dtype(), .device = context_.device});
        reduction_->has_gradient.resize(members_.size());
    }
    reduction_->whole.narrow(0, m.begin, m.numel).copy_(gradient.reshape({m.numel}));
    reduction_->has_gradient[member] = true;
}

void FlatParameter::start_reduce() {
    const NoGrad no_grad;
    for (std::size_t i = 0; i < members_.size(); ++i) collect_gradient(i);
    if (!reduction_) return;
    reduction_->part =
        Tensor::empty({part_size()}, {.dtype = reduce_dtype(), .device = context_.device});
    reduction_->work = context_.group->reduce_scatter_into_async(reduction_->part,
                                                                 reduction_->whole, ReduceOp::mean);
    reduction_->started = true;
    ++context_.counters.reduce_scatters;
    context_.counters.reduced_bytes += total_ * size_of(reduce_dtype());
}

void FlatParameter::finish_reduce() {
    if (!reduction_ || !reduction_->started) return;
    const NoGrad no_grad;
    const Reduction done = std::move(*reduction_);
    reduction_.reset();
    Work(done.work).wait();
    if (context_.replicas != nullptr) {
        context_.replicas->all_reduce(done.part, ReduceOp::mean);
        ++context_.counters.all_reduces;
    }
    const Tensor mean = done.part.to(part_.dtype() == f64 ? f64 : f32).to(context_.part_device);
    for (std::size_t i = 0; i < members_.size(); ++i) {
        if (!done.has_gradient[i]) continue;
        const Member& m = members_[i];
        const Tensor own = mean.narrow(0, m.in_part, m.local.numel());
        if (Tensor sum = m.local.grad(); sum.defined())
            sum.add_(own);
        else
            m.local.set_grad(own);
    }
}

void FlatParameter::cancel_reduce() noexcept {
    if (reduction_ && reduction_->started) try {
            reduction_->work.wait();
        } catch (const std::exception&) {  // the next call of the group also throws the error
        }
    reduction_.reset();
}

// --- ShardProvider

void FlatParameter::provide(Storage&) {
    gather();
    if (context_.observer != nullptr) context_.observer->gathered_on_use(*this);
}

void FlatParameter::check_host_access(const char* op) const {
    throw UsageError(str(op, ": the elements of ", members_.front().name,
                         members_.size() > 1 ? " and other parameters" : "",
                         " are sharded over processes: use a FullParameters scope on all "
                         "processes to read or change them"));
}

void FlatParameter::changed() {
    free();
    secondary_ = {};
}

Tensor FlatParameter::gather_numbers(const Tensor& number) const {
    return context_.group->all_gather(number);
}

}  // namespace axle::dist
