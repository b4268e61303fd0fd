#include "dist/parallel/reducer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/numerics.h"
#include "core/ops.h"
#include "dist/parallel/buckets.h"

namespace axle::inline v0::dist {
namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

std::size_t bytes_of_mb(double mb) { return static_cast<std::size_t>(mb * 1024 * 1024); }

}  // namespace

Reducer::Reducer(const nn::StateDict& parameters, std::shared_ptr<ProcessGroup> group,
                 DataParallelOptions options)
    : options_(std::move(options)), group_(std::move(group)), door_(std::make_shared<Door>()) {
    if (options_.hook == nullptr) options_.hook = all_reduce_hook();
    for (const auto& [name, tensor] : parameters) {
        door_->index.emplace(tensor.impl().get(), parameters_.size());
        parameters_.push_back({.name = name, .tensor = tensor});
        tensors_.push_back(tensor);
    }
    std::vector<std::size_t> order(parameters_.size());
    std::iota(order.rbegin(), order.rend(), 0);
    install(order);
    learns_order_ = options_.static_graph || !options_.find_unused_parameters;
    door_->reducer = this;

    const std::shared_ptr<Door>& door = door_;
    hooks_.push_back(autograd::on_backward_begin([door](const std::vector<Tensor>& leaves) {
        const auto is_ours = [&](const Tensor& leaf) {
            return door->index.contains(leaf.impl().get());
        };
        if (door->inside == std::this_thread::get_id() ||
            std::any_of(leaves.begin(), leaves.end(), is_ours))
            door->reducer->on_begin(leaves);
    }));
    hooks_.push_back(autograd::on_backward_end([door] {
        if (door->inside == std::this_thread::get_id()) door->reducer->on_end();
    }));
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        hooks_.push_back(autograd::on_leaf_final(parameters_[i].tensor,
                                                 [this, i](const Tensor&) { on_final(i); }));
}

Reducer::~Reducer() {
    hooks_.clear();
    abandon();
}

void Reducer::install(const std::vector<std::size_t>& order) {
    const auto plan =
        plan_buckets(tensors_, order, kFirstBucketBytes, bytes_of_mb(options_.bucket_cap_mb));
    buckets_ = make_buckets(tensors_, plan);
    for (std::size_t b = 0; b < plan.size(); ++b)
        for (std::size_t i = 0; i < plan[b].size(); ++i) {
            parameters_[plan[b][i]].bucket = b;
            parameters_[plan[b][i]].place = i;
        }
    trees_.assign(buckets_.size(), {});
}

// Between windows, for what has been gathered in buckets goes with them. Rank 0's order is
// everybody's; a rank 0 that had no data keeps the one there is.
void Reducer::rebuild_if_due() {
    if (!rebuild_is_due_) return;
    rebuild_is_due_ = false;
    if (order_.size() != parameters_.size()) {
        order_.clear();
        for (const GradientBucket& bucket : buckets_)
            for (const Tensor& t : bucket.parameters)
                order_.push_back(door_->index.at(t.impl().get()));
    }
    const Tensor order = tensor(std::vector<std::int64_t>(order_.begin(), order_.end()),
                                {static_cast<std::int64_t>(order_.size())});
    group_->broadcast(order, 0);
    const auto* const from = order.data<std::int64_t>();
    order_.assign(from, from + order.numel());
    install(order_);
}

// --- a pass begins

void Reducer::on_begin(const std::vector<Tensor>& leaves) {
    std::vector<std::size_t> reached;
    for (const Tensor& leaf : leaves)
        if (const auto found = door_->index.find(leaf.impl().get()); found != door_->index.end())
            reached.push_back(found->second);
    const int depth = autograd::backward_depth();
    if (pass_.depth > 0 && depth > pass_.depth) return begin_inner(reached);
    abandon();  // what an exception has ended
    if (!reached.empty()) begin(reached, depth);
}

void Reducer::begin(const std::vector<std::size_t>& reached, int depth) {
    const NoGrad no_grad;
    Pass pass{.depth = depth};
    pass.delivers = syncs && !is_local;
    pass.in_tree = are_deterministic_algorithms_enabled();
    pass.reduces = !is_local && (syncs || pass.in_tree);
    pass.learns = options_.static_graph && !knows_graph_ && pass.delivers;
    if (pass.reduces) {
        if (announce) {
            const std::vector<Step> steps = announce(syncs ? Step::reduce : Step::gather);
            const auto out = std::count(steps.begin(), steps.end(), Step::none);
            const auto all = static_cast<double>(steps.size());
            if (!divides_by_all) pass.scale = all / (all - static_cast<double>(out));
        }
        rebuild_if_due();
        if (pass.in_tree) take_gradients();
    }
    reset();
    pass_ = pass;
    door_->inside = std::this_thread::get_id();
    if (!pass.reduces) return;
    for (const std::size_t i : reached) parameters_[i].reached = true;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (is_over_at_begin(parameters_[i])) make_ready(i);
}

// Nothing is going to happen to this gradient in this pass.
bool Reducer::is_over_at_begin(const Parameter& p) const {
    if (options_.static_graph) return knows_graph_ && p.expected == 0;
    if (p.reached) return false;
    return options_.find_unused_parameters || p.touched || !pass_.delivers;
}

// A rule of the pass runs a pass of its own.
void Reducer::begin_inner(const std::vector<std::size_t>& reached) {
    if (!pass_.reduces || options_.static_graph) return;
    std::vector<std::size_t> late;
    for (const std::size_t i : reached)
        if (parameters_[i].ready) late.push_back(i);
    if (!late.empty())
        throw UsageError(
            str("data parallel: a backward inside of another reaches parameters whose "
                "gradients were final: ",
                name_some(late), "; use static_graph"));
}

// --- while it runs

void Reducer::on_final(std::size_t index) {
    Parameter& p = parameters_[index];
    p.touched = true;
    if (!pass_.reduces) return;
    ++p.finals;
    if (pass_.learns) p.when = ++clock_;
    if (options_.static_graph) {
        if (!knows_graph_) return;
        if (p.ready)
            throw UsageError(str("data parallel: the graph is not static: ", p.name,
                                 " got another gradient than in the first backward"));
        if (p.finals == p.expected) make_ready(index);
        return;
    }
    // What an inner pass leaves may be gone on with by the next one.
    if (autograd::backward_depth() == pass_.depth) make_ready(index);
}

void Reducer::make_ready(std::size_t index) {
    const NoGrad no_grad;
    Parameter& p = parameters_[index];
    if (!pass_.learns || p.finals == 0) p.when = ++clock_;
    fill(p);
    p.ready = true;
    if (--waiting_[p.bucket] == 0) start_full_buckets();
}

void Reducer::fill(Parameter& p) {
    Tensor home = buckets_[p.bucket].gradients[p.place];
    const Tensor grad = p.tensor.grad();
    if (!grad.defined()) {
        home.zero_();
    } else if (!is_alias(grad, home)) {
        home.copy_(grad.detach());
        if (options_.gradient_as_bucket_view && !pass_.in_tree) p.tensor.set_grad(home);
    }
}

void Reducer::start_full_buckets() {
    for (; started_ < buckets_.size() && waiting_[started_] == 0; ++started_) {
        GradientBucket& bucket = buckets_[started_];
        flights_.emplace_back(profiler::enabled() ? str("all_reduce bucket ", bucket.index)
                                                  : std::string());
        flights_.back().pending = options_.hook->start(bucket, *group_);
    }
}

// --- a pass ends

void Reducer::on_end() {
    if (pass_.depth != autograd::backward_depth()) return;
    if (pass_.reduces) end();
    pass_ = {};
    door_->inside = std::thread::id();
}

void Reducer::end() {
    const NoGrad no_grad;
    close_parameters();
    const std::vector<bool> used = used_somewhere();
    finish_flights();
    if (pass_.in_tree)
        gather_in_tree(used);
    else
        deliver(used);
    if (!pass_.delivers) return;
    learn_order();
    if (pass_.learns) knows_graph_ = true;
    for (Parameter& p : parameters_) p.touched = false;
}

// What the graph has not made ready is ready now, or an error.
void Reducer::close_parameters() {
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& p = parameters_[i];
        if (pass_.learns) p.expected = p.finals;
        const bool may_be_late =
            !pass_.delivers || pass_.learns || (!options_.static_graph && (p.reached || p.touched));
        if (!p.ready && !may_be_late) missing.push_back(i);
    }
    if (!missing.empty()) {
        abandon();
        throw UsageError(str(
            "data parallel: these parameters got no gradient in this backward: ",
            name_some(missing),
            options_.static_graph ? "; the graph is not static" : "; use find_unused_parameters"));
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (!parameters_[i].ready) make_ready(i);
}

// Whether ranks have to tell each other which parameters had a gradient.
bool Reducer::agrees() const {
    return options_.static_graph ? static_used_.empty() : options_.find_unused_parameters;
}

// Leaves what was used on any rank.
void Reducer::agree(std::vector<bool>& used) {
    Tensor flags = zeros({static_cast<std::int64_t>(used.size())}, {u8});
    auto* const flag = flags.data<std::uint8_t>();
    for (std::size_t i = 0; i < used.size(); ++i) flag[i] = used[i] ? 1 : 0;
    group_->all_reduce(flags, ReduceOp::max);
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = flag[i] != 0;
    if (options_.static_graph) static_used_ = used;
}

std::vector<bool> Reducer::used_somewhere() {
    std::vector<bool> used(parameters_.size(), true);
    if (!pass_.delivers || agrees())
        for (std::size_t i = 0; i < used.size(); ++i) used[i] = parameters_[i].touched;
    if (!pass_.delivers) return used;
    if (agrees()) agree(used);
    return options_.static_graph ? static_used_ : used;
}

void Reducer::finish_flights() {
    for (std::size_t b = 0; !flights_.empty(); flights_.pop_front(), ++b) {
        flights_.front().pending.finish();
        if (pass_.scale != 1) buckets_[b].buffer.mul_(pass_.scale);
    }
}

void Reducer::deliver(const std::vector<bool>& used) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (used[i]) deliver(parameters_[i]);
}

void Reducer::deliver(Parameter& p) {
    const Tensor& home = buckets_[p.bucket].gradients[p.place];
    const Tensor grad = p.tensor.grad();
    if (options_.gradient_as_bucket_view) {
        if (!grad.defined() || !is_alias(grad, home)) p.tensor.set_grad(home);
    } else if (grad.defined()) {
        grad.detach().copy_(home);
    } else {
        p.tensor.set_grad(clone(home));
    }
}

void Reducer::learn_order() {
    if (!learns_order_) return;
    learns_order_ = false, rebuild_is_due_ = true;
    order_.resize(parameters_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
        return parameters_[a].when < parameters_[b].when;
    });
}

// --- deterministic mode: micro-batches are summed like ranks, in one tree

// The engine is to leave the gradients of this micro-batch alone.
void Reducer::take_gradients() {
    const bool is_open = trees_.front().count() > 0;
    const auto is_gone = [](const Parameter& p) {
        const Tensor grad = p.tensor.grad();
        return p.shown.defined() && !(grad.defined() && grad.is_same(p.shown));
    };
    const bool was_zeroed = std::any_of(parameters_.begin(), parameters_.end(), is_gone);
    if (was_zeroed) close_window();
    for (Parameter& p : parameters_) {
        const Tensor grad = p.tensor.grad();
        if ((!is_open || was_zeroed) && grad.defined()) p.base = clone(grad.detach());
        p.tensor.zero_grad();
    }
}

void Reducer::close_window() {
    for (TreeAccumulator& tree : trees_) tree.clear();
    for (Parameter& p : parameters_) p.base = {}, p.shown = {};
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
        if (used[i] && p.base.defined())
            p.shown = add(p.base, total);
        else if (used[i])
            p.shown = options_.gradient_as_bucket_view || !pass_.delivers ? total : clone(total);
        else
            p.shown = p.base;
        p.tensor.set_grad(p.shown);
    }
    if (pass_.delivers) close_window();
}

// --- what goes on without a pass, or after one that has failed

void Reducer::shadow(Step step) {
    const NoGrad no_grad;
    rebuild_if_due();
    std::deque<GradientBucket> twins;
    std::vector<CommHook::Pending> pending;
    for (const GradientBucket& bucket : buckets_) {
        twins.push_back(make_zero_bucket(bucket));
        pending.push_back(options_.hook->start(twins.back(), *group_));
    }
    if (step == Step::reduce && agrees()) {
        std::vector<bool> used(parameters_.size(), false);
        agree(used);
    }
    for (const CommHook::Pending& reduction : pending) reduction.finish();
    if (step != Step::reduce || !learns_order_) return;
    learns_order_ = false, rebuild_is_due_ = true;
}

void Reducer::reset() {
    waiting_.clear();
    for (const GradientBucket& bucket : buckets_) waiting_.push_back(bucket.parameters.size());
    started_ = 0;
    for (Parameter& p : parameters_) p.reached = p.ready = false, p.finals = 0;
}

// What has been started ends before its memory does.
void Reducer::abandon() noexcept {
    for (; !flights_.empty(); flights_.pop_front()) try {
            flights_.front().pending.finish();
        } catch (const std::exception&) {  // whoever uses the group next hears of it
        }
    pass_ = {};
    door_->inside = std::thread::id();
}

std::string Reducer::name_some(const std::vector<std::size_t>& which) const {
    constexpr std::size_t kNames = 20;
    std::string text;
    for (std::size_t i = 0; i < std::min(which.size(), kNames); ++i)
        text += (i == 0 ? "" : ", ") + parameters_[which[i]].name;
    if (which.size() > kNames) text += str(" and ", which.size() - kNames, " more");
    return text;
}

}  // namespace axle::inline v0::dist
