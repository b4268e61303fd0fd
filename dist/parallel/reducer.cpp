#include "dist/parallel/reducer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/ops.h"
#include "core/system/numerics.h"
#include "dist/parallel/buckets.h"

namespace axle::dist {

Reducer::Reducer(const nn::StateDict& parameters, std::shared_ptr<ProcessGroup> group,
                 DataParallelOptions options)
    : options_(std::move(options)),
      group_(std::move(group)),
      hook_state_(std::make_shared<HookState>()) {
    if (options_.hook == nullptr) options_.hook = all_reduce_hook();
    if (auto own = options_.hook->for_model()) options_.hook = std::move(own);
    for (const auto& [name, tensor] : parameters) {
        hook_state_->index.emplace(tensor.impl().get(), parameters_.size());
        parameters_.push_back({.name = name, .tensor = tensor});
        tensors_.push_back(tensor);
    }
    std::vector<std::size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), 0);
    install(order);
    records_order_ = can_rebuild();
    hook_state_->reducer = this;

    const std::shared_ptr<HookState>& hook_state = hook_state_;
    hooks_.push_back(autograd::on_backward_begin([hook_state](const std::vector<Tensor>& leaves) {
        const auto is_ours = [&](const Tensor& leaf) {
            return hook_state->index.contains(leaf.impl().get());
        };
        if (hook_state->inside == std::this_thread::get_id() ||
            std::any_of(leaves.begin(), leaves.end(), is_ours))
            hook_state->reducer->on_begin(leaves);
    }));
    hooks_.push_back(autograd::on_backward_end([hook_state] {
        if (hook_state->inside == std::this_thread::get_id()) hook_state->reducer->on_end();
    }));
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        hooks_.push_back(autograd::on_leaf_final(parameters_[i].tensor,
                                                 [this, i](const Tensor&) { on_final(i); }));
}

Reducer::~Reducer() {
    hooks_.clear();
    cancel();
}

// --- start of a pass

void Reducer::on_begin(const std::vector<Tensor>& leaves) {
    std::vector<std::size_t> reached;
    for (const Tensor& leaf : leaves)
        if (const auto found = hook_state_->index.find(leaf.impl().get());
            found != hook_state_->index.end())
            reached.push_back(found->second);
    const int depth = autograd::backward_depth();
    if (pass_.depth > 0 && depth > pass_.depth) return begin_inner(reached);
    cancel();  // ends an earlier pass that has thrown an exception
    if (!reached.empty()) begin(reached, depth);
}

void Reducer::begin(const std::vector<std::size_t>& reached, int depth) {
    const NoGrad no_grad;
    Pass pass{.depth = depth};
    pass.delivers = syncs && !is_local;
    pass.in_tree = are_deterministic_algorithms_enabled();
    pass.reduces = !is_local && (syncs || pass.in_tree);
    pass.records = options_.static_graph && !graph_is_known_ && pass.delivers;
    if (pass.reduces) {
        if (announce) {
            const std::vector<Step> steps = announce(syncs ? Step::reduce : Step::gather);
            const auto out = std::count(steps.begin(), steps.end(), Step::none);
            const auto all = static_cast<double>(steps.size());
            if (!divides_by_all) pass.scale = all / (all - static_cast<double>(out));
        }
        rebuild_if_due();
        if (pass.in_tree) detach_gradients();
    }
    reset();
    pass_ = pass;
    hook_state_->inside = std::this_thread::get_id();
    if (!pass.reduces) return;
    for (const std::size_t i : reached) parameters_[i].reached = true;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (is_final_at_begin(parameters_[i])) make_ready(i);
}

// Returns whether the gradient can be reduced at the beginning of this pass, because the pass does
// not change it.
bool Reducer::is_final_at_begin(const Parameter& p) const {
    if (options_.static_graph) return graph_is_known_ && p.expected == 0;
    if (p.reached) return false;
    return options_.find_unused_parameters || p.touched || !pass_.delivers;
}

// Called when a backward rule starts a nested backward pass. Throws UsageError if the nested pass
// reaches a parameter whose gradient is already final.
void Reducer::begin_inner(const std::vector<std::size_t>& reached) {
    if (!pass_.reduces || options_.static_graph) return;
    std::vector<std::size_t> late;
    for (const std::size_t i : reached)
        if (parameters_[i].ready) late.push_back(i);
    if (!late.empty())
        throw UsageError(
            str("DataParallel: a nested backward reaches parameters whose "
                "gradients are final: ",
                name_some(late), "; set static_graph = true"));
}

// --- during a pass

void Reducer::on_final(std::size_t index) {
    Parameter& p = parameters_[index];
    p.touched = true;
    if (!pass_.reduces) return;
    ++p.finals;
    if (pass_.records) p.when = ++clock_;
    if (options_.static_graph) {
        if (!graph_is_known_) return;
        if (p.ready)
            throw UsageError(
                str("DataParallel: the graph is not static: ", p.name,
                    " got more gradients than in the first backward; set static_graph = false"));
        if (p.finals == p.expected) make_ready(index);
        return;
    }
    // A gradient that is final in a nested pass is not ready, because an outer pass may add to it.
    if (autograd::backward_depth() == pass_.depth) make_ready(index);
}

void Reducer::make_ready(std::size_t index) {
    const NoGrad no_grad;
    Parameter& p = parameters_[index];
    if (!pass_.records || p.finals == 0) p.when = ++clock_;
    copy_to_bucket(p);
    p.ready = true;
    if (--waiting_[p.bucket] == 0) start_full_buckets();
}

void Reducer::copy_to_bucket(Parameter& p) {
    Tensor slot = buckets_[p.bucket].gradients[p.place];
    const Tensor grad = p.tensor.grad();
    if (!grad.defined()) {
        slot.zero_();
    } else if (!is_alias(grad, slot)) {
        slot.copy_(grad.detach());
        if (options_.gradient_as_bucket_view && !pass_.in_tree) p.tensor.set_grad(slot);
    }
}

void Reducer::start_full_buckets() {
    for (; started_ < buckets_.size() && waiting_[started_] == 0; ++started_) {
        GradientBucket& bucket = buckets_[started_];
        reductions_.emplace_back(profiler::enabled() ? str("all_reduce bucket ", bucket.index)
                                                     : std::string());
        reductions_.back().pending = options_.hook->start(bucket, *group_);
    }
}

// --- end of a pass

void Reducer::on_end() {
    if (pass_.depth != autograd::backward_depth()) return;
    if (pass_.reduces) end();
    pass_ = {};
    hook_state_->inside = std::thread::id();
}

void Reducer::end() {
    const NoGrad no_grad;
    close_parameters();
    const std::vector<bool> used = used_somewhere();
    finish_reductions();
    if (pass_.in_tree)
        gather_in_tree(used);
    else
        deliver(used);
    if (!pass_.delivers) return;
    record_order();
    if (pass_.records) graph_is_known_ = true;
    for (Parameter& p : parameters_) p.touched = false;
}

// Makes the remaining gradients ready. Throws UsageError if this pass has not computed a gradient
// that it must compute.
void Reducer::close_parameters() {
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& p = parameters_[i];
        if (pass_.records) p.expected = p.finals;
        const bool may_be_late = !pass_.delivers || pass_.records ||
                                 (!options_.static_graph && (p.reached || p.touched));
        if (!p.ready && !may_be_late) missing.push_back(i);
    }
    if (!missing.empty()) {
        cancel();
        throw UsageError(str(
            "DataParallel: these parameters got no gradient in this backward: ", name_some(missing),
            options_.static_graph ? "; the graph is not static; set static_graph = false"
                                  : "; set find_unused_parameters = true"));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (!parameters_[i].ready) make_ready(i);
}

// Returns whether the ranks must exchange the set of parameters with a gradient.
bool Reducer::must_exchange_used() const {
    return options_.static_graph ? static_used_.empty() : options_.find_unused_parameters;
}

// Sets used[i] to whether any rank has passed true for parameter i.
void Reducer::exchange_used(std::vector<bool>& used) {
    Tensor flags = zeros({static_cast<std::int64_t>(used.size())}, {u8});
    auto* const flag = flags.data<std::uint8_t>();
    for (std::size_t i = 0; i < used.size(); ++i) flag[i] = used[i] ? 1 : 0;
    group_->all_reduce(flags, ReduceOp::max);
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = flag[i] != 0;
    if (options_.static_graph) static_used_ = used;
}

std::vector<bool> Reducer::used_somewhere() {
    std::vector<bool> used(parameters_.size(), true);
    if (!pass_.delivers || must_exchange_used())
        for (std::size_t i = 0; i < used.size(); ++i) used[i] = parameters_[i].touched;
    if (!pass_.delivers) return used;
    if (must_exchange_used()) exchange_used(used);
    return options_.static_graph ? static_used_ : used;
}

void Reducer::finish_reductions() {
    for (std::size_t b = 0; !reductions_.empty(); reductions_.pop_front(), ++b) {
        reductions_.front().pending.finish();
        if (pass_.scale != 1) buckets_[b].buffer.mul_(pass_.scale);
    }
}

void Reducer::deliver(const std::vector<bool>& used) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (used[i]) deliver(parameters_[i]);
}

void Reducer::deliver(Parameter& p) {
    const Tensor& slot = buckets_[p.bucket].gradients[p.place];
    const Tensor grad = p.tensor.grad();
    if (options_.gradient_as_bucket_view) {
        if (!grad.defined() || !is_alias(grad, slot)) p.tensor.set_grad(slot);
    } else if (grad.defined()) {
        grad.detach().copy_(slot);
    } else {
        p.tensor.set_grad(clone(slot));
    }
}

void Reducer::record_order() {
    if (!records_order_) return;
    records_order_ = false, rebuild_is_due_ = true;
    order_.resize(parameters_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
        return parameters_[a].when < parameters_[b].when;
    });
}

// --- deterministic mode: micro-batches are summed in the same tree as ranks

// Removes the accumulated gradients from the parameters, so that autograd does not add the
// gradients of this micro-batch to them. Stores the gradients from before the window in
// before_window.
void Reducer::detach_gradients() {
    const bool is_open = trees_.front().count() > 0;
    const auto is_gone = [](const Parameter& p) {
        const Tensor grad = p.tensor.grad();
        return p.visible.defined() && !(grad.defined() && grad.is_same(p.visible));
    };
    const bool was_zeroed = std::any_of(parameters_.begin(), parameters_.end(), is_gone);
    if (was_zeroed) close_window();
    for (Parameter& p : parameters_) {
        const Tensor grad = p.tensor.grad();
        if ((!is_open || was_zeroed) && grad.defined()) p.before_window = clone(grad.detach());
        p.tensor.zero_grad();
    }
}

void Reducer::close_window() {
    for (TreeAccumulator& tree : trees_) tree.clear();
    for (Parameter& p : parameters_) p.before_window = {}, p.visible = {};
}

void Reducer::gather_in_tree(const std::vector<bool>& used) {
    std::vector<std::vector<Tensor>> totals;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        trees_[b].push(clone(buckets_[b].buffer));
        const Tensor total = trees_[b].total();
        if (pass_.delivers) buckets_[b].buffer.copy_(total);
        totals.push_back(pass_.delivers ? buckets_[b].gradients
                                        : views_in(total, buckets_[b].parameters));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& p = parameters_[i];
        const Tensor& total = totals[p.bucket][p.place];
        if (used[i] && p.before_window.defined())
            p.visible = add(p.before_window, total);
        else if (used[i])
            p.visible = options_.gradient_as_bucket_view || !pass_.delivers ? total : clone(total);
        else
            p.visible = p.before_window;
        p.tensor.set_grad(p.visible);
    }
    if (pass_.delivers) close_window();
}

// --- ranks without data, and cleanup after errors

void Reducer::shadow(Step step) {
    const NoGrad no_grad;
    rebuild_if_due();
    std::deque<GradientBucket> zero_buckets;
    std::vector<CommHook::Pending> pending;
    for (const GradientBucket& bucket : buckets_) {
        zero_buckets.push_back(make_zero_bucket(bucket));
        pending.push_back(options_.hook->start(zero_buckets.back(), *group_));
    }
    if (step == Step::reduce && must_exchange_used()) {
        std::vector<bool> used(parameters_.size(), false);
        exchange_used(used);
    }
    for (const CommHook::Pending& reduction : pending) reduction.finish();
    if (step != Step::reduce || !records_order_) return;
    records_order_ = false, rebuild_is_due_ = true;
}

void Reducer::reset() {
    waiting_.clear();
    for (const GradientBucket& bucket : buckets_) waiting_.push_back(bucket.parameters.size());
    started_ = 0;
    for (Parameter& p : parameters_) p.reached = p.ready = false, p.finals = 0;
}

// Waits for reductions in progress, because they use the memory of the buckets.
void Reducer::cancel() noexcept {
    for (; !reductions_.empty(); reductions_.pop_front()) try {
            reductions_.front().pending.finish();
        } catch (const std::exception&) {  // the next call of the group also throws the error
        }
    pass_ = {};
    hook_state_->inside = std::thread::id();
}

std::string Reducer::name_some(const std::vector<std::size_t>& which) const {
    constexpr std::size_t kNames = 20;
    std::string text;
    for (std::size_t i = 0; i < std::min(which.size(), kNames); ++i)
        text += (i == 0 ? "" : ", ") + parameters_[which[i]].name;
    if (which.size() > kNames) text += str(" and ", which.size() - kNames, " more");
    return text;
}

}  // namespace axle::dist
