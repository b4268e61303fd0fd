#include "dist/sharding/sharded_pass.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/autograd/local_part.h"
#include "core/ops.h"
#include "dist/parallel/buckets.h"

namespace axle::dist {
namespace {

// With limit_all_gathers, a unit that is freed after its call is not gathered in advance while this
// number of such units is gathered. Units of active calls do not count.
constexpr std::size_t kExtraUnits = 2;
// The maximum number of gradient buffers that are reduced at the same time.
constexpr std::size_t kReductions = 2;

}  // namespace

// --- units and their order

bool ShardedPass::Unit::is_trained() const {
    return std::ranges::any_of(buffers, [](const auto& buffer) { return buffer->is_trained(); });
}

bool ShardedPass::Unit::is_gathered() const {
    return std::ranges::any_of(buffers, [](const auto& buffer) { return !buffer->is_sharded(); });
}

bool ShardedPass::Unit::is_sharded() const {
    return std::ranges::any_of(buffers, [](const auto& buffer) { return buffer->is_sharded(); });
}

void ShardedPass::Unit::start_gather() const {
    for (const auto& buffer : buffers) buffer->start_gather();
}

void ShardedPass::Unit::free() const noexcept {
    for (const auto& buffer : buffers) buffer->free();
}

void ShardedPass::Order::add(std::size_t unit) {
    if (std::ranges::find(now, unit) == now.end()) now.push_back(unit);
}

void ShardedPass::Order::finish() {
    if (!now.empty()) last = std::exchange(now, {});
}

std::size_t ShardedPass::Order::after(std::size_t unit) const {
    const auto found = std::ranges::find(last, unit);
    return found == last.end() || found + 1 == last.end() ? none : *(found + 1);
}

// --- construction

// Returns the modules that directly have a parameter of the unit on the meta device.
std::vector<nn::Module*> ShardedPass::modules_without_memory(const PlannedUnit& planned) {
    std::unordered_set<const axle::Impl*> missing;
    for (const nn::StateDict& parameters : planned.parameters)
        for (const auto& [name, tensor] : parameters)
            if (tensor.device().is_meta()) missing.insert(tensor.impl().get());
    std::vector<nn::Module*> found;
    for (nn::Module* const root : planned.modules)
        for (const auto& [name, module] : root->named_modules()) {
            if (std::ranges::find(found, module) != found.end()) continue;
            const bool has_one =
                std::ranges::any_of(module->named_parameters(), [&](const auto& entry) {
                    return entry.first.find('.') == std::string::npos &&
                           missing.contains(entry.second.impl().get());
                });
            if (has_one) found.push_back(module);
        }
    return found;
}

// Calls param_init_fn for the modules while the unit has all of its elements. Then stores this
// rank's part of the result, or of the result of rank 0 if sync_module_states is true.
void ShardedPass::initialize(const Unit& unit, const std::vector<nn::Module*>& modules) const {
    const NoGrad no_grad;
    for (const auto& buffer : unit.buffers) buffer->set_full(buffer->gather_part(buffer->part()));
    for (nn::Module* const module : modules) options_.param_init_fn(*module);
    for (const auto& buffer : unit.buffers) {
        buffer->write_back(options_.sync_module_states ? std::optional(0) : std::nullopt);
        buffer->set_full({});
    }
}

ShardedPass::ShardedPass(const ShardPlan& plan, std::shared_ptr<ProcessGroup> group,
                         ShardingOptions options)
    : options_(std::move(options)), hook_state_(std::make_shared<HookState>()) {
    context_.group = std::move(group);
    context_.replicas = options_.replicas;
    context_.secondary = options_.secondary;
    context_.precision = options_.precision;
    context_.device = options_.device;
    context_.part_device = options_.offload_to_cpu ? Device::cpu() : options_.device;
    context_.part_folder = options_.part_folder;
    context_.observer = this;
    for (const PlannedUnit& planned : plan.units) {
        const bool is_root = units_.empty();
        Unit unit;
        unit.reshards_after_forward = planned.unit.reshard_after_forward.value_or(
            !is_root && options_.strategy == ShardingStrategy::full_shard);
        const std::vector<nn::Module*> empty = modules_without_memory(planned);
        for (const nn::StateDict& parameters : planned.parameters)
            unit.buffers.push_back(
                std::make_unique<FlatParameter>(parameters, context_, options_.sync_module_states));
        if (options_.param_init_fn && !empty.empty()) initialize(unit, empty);
        units_.push_back(std::move(unit));
    }
    for (const auto& [name, tensor] : plan.ignored)
        if (tensor.requires_grad()) ignored_.push_back(tensor);
    add_hooks();
}

void ShardedPass::add_hooks() {
    hook_state_->owner = this;
    for (std::size_t u = 0; u < units_.size(); ++u)
        for (std::size_t b = 0; b < units_[u].buffers.size(); ++b) {
            FlatParameter& buffer = *units_[u].buffers[b];
            unit_of_.emplace(&buffer, u);
            if (!buffer.is_trained()) continue;
            for (std::size_t m = 0; m < buffer.members().size(); ++m) {
                const Tensor& handle = buffer.members()[m].handle;
                const Leaf leaf{u, b, m};
                hook_state_->leaves.emplace(handle.impl().get(), leaf);
                hooks_.push_back(autograd::on_leaf_final(
                    handle, [this, leaf](const Tensor&) { on_final(leaf); }));
            }
        }
    const std::shared_ptr<HookState>& state = hook_state_;
    hooks_.push_back(autograd::on_backward_begin([state](const std::vector<Tensor>& leaves) {
        const auto is_ours = [&](const Tensor& leaf) {
            return state->leaves.contains(leaf.impl().get());
        };
        if (state->inside == std::this_thread::get_id() || std::ranges::any_of(leaves, is_ours))
            state->owner->on_begin(leaves);
    }));
    hooks_.push_back(autograd::on_backward_end([state] {
        if (state->inside == std::this_thread::get_id()) state->owner->on_end();
    }));
}

ShardedPass::~ShardedPass() {
    hooks_.clear();
    cancel();
}

void ShardedPass::reshard() noexcept {
    for (const Unit& unit : units_) unit.free();
}

void ShardedPass::unshard() {
    hooks_.clear();
    cancel();
    hook_state_->leaves.clear();
    for (Unit& unit : units_) {
        for (const auto& buffer : unit.buffers) buffer->unshard();
        unit.buffers.clear();
    }
    unit_of_.clear();
    ignored_.clear();
}

// --- forward

// Returns whether the unit is freed at the end of its call.
bool ShardedPass::frees_after_forward(const Unit& unit) const {
    if (options_.strategy == ShardingStrategy::shard_optimizer) return false;
    return !grad_enabled() || unit.reshards_after_forward;
}

// Returns whether the unit must stay gathered now. depth_ is also checked, because grad mode is off
// during backward.
bool ShardedPass::is_kept(const Unit& unit) const {
    if (unit.active > 0 || options_.strategy == ShardingStrategy::shard_optimizer) return true;
    return (depth_ > 0 || grad_enabled()) && !unit.reshards_after_forward;
}

// Returns the number of units that are gathered but not kept.
std::size_t ShardedPass::count_extra() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        units_, [&](const Unit& unit) { return unit.is_gathered() && !is_kept(unit); }));
}

void ShardedPass::prefetch(std::size_t unit) {
    if (unit == none || !units_[unit].is_sharded()) return;
    if (options_.limit_all_gathers && !is_kept(units_[unit]) && count_extra() >= kExtraUnits)
        return;
    units_[unit].start_gather();
}

// With limit_all_gathers, frees gathered units that need not be kept, until fewer than kExtraUnits
// of them are gathered. For example, ops outside of a unit's modules can gather the unit.
void ShardedPass::free_leftovers() {
    if (!options_.limit_all_gathers) return;
    for (const Unit& unit : units_) {
        if (count_extra() < kExtraUnits) return;
        if (unit.is_gathered() && !is_kept(unit)) unit.free();
    }
}

void ShardedPass::enter(std::size_t unit) {
    // A forward during backward, for activation checkpointing, gathers units when they are used
    // (gathered_on_use()).
    if (autograd::backward_depth() > 0) return;
    if (depth_ > 0) cancel();  // the last backward threw an exception
    if (unit == 0 && units_[0].active == 0) forward_.finish();
    free_leftovers();
    ++units_[unit].active;
    forward_.add(unit);
    units_[unit].start_gather();
    if (options_.forward_prefetch) prefetch(forward_.after(unit));
}

void ShardedPass::leave(std::size_t unit, bool is_last) noexcept {
    if (autograd::backward_depth() > 0) return;
    Unit& left = units_[unit];
    if (left.active > 0) --left.active;
    if (left.active == 0 && is_last && frees_after_forward(left)) left.free();
    if (unit == 0 && left.active == 0 && options_.strategy != ShardingStrategy::shard_optimizer)
        for (const Unit& other : units_)
            if (frees_after_forward(other)) other.free();
}

void ShardedPass::gathered_on_use(FlatParameter& parameters) {
    if (autograd::backward_depth() == 0) return;
    const std::size_t unit = unit_of_.at(&parameters);
    backward_.add(unit);
    if (options_.backward_prefetch == BackwardPrefetch::backward_pre)
        prefetch(backward_.after(unit));
    if (options_.strategy == ShardingStrategy::shard_optimizer) return;
    // A unit without trained parameters has no final gradients. It is freed when another unit is
    // used.
    if (!used_frozen_.empty() && used_frozen_ != std::vector{unit})
        autograd::run_after_rule([state = std::weak_ptr(hook_state_), unit] {
            const auto still = state.lock();
            if (still == nullptr) return;
            ShardedPass& pass = *still->owner;
            for (const std::size_t used : pass.used_frozen_)
                if (used != unit) pass.units_[used].free();
            std::erase_if(pass.used_frozen_, [&](std::size_t used) { return used != unit; });
        });
    if (!units_[unit].is_trained() && std::ranges::find(used_frozen_, unit) == used_frozen_.end())
        used_frozen_.push_back(unit);
}

// --- backward

void ShardedPass::on_begin(const std::vector<Tensor>& leaves) {
    const int depth = autograd::backward_depth();
    if (depth_ > 0 && depth > depth_) return;  // a nested pass
    cancel();                                  // ends an earlier pass that has thrown an exception
    bool is_reached = false;
    for (const Tensor& leaf : leaves)
        if (const auto found = hook_state_->leaves.find(leaf.impl().get());
            found != hook_state_->leaves.end()) {
            const Leaf& place = found->second;
            FlatParameter& buffer = *units_[place.unit].buffers[place.buffer];
            buffer.members()[place.member].expected = true;
            is_reached = true;
        }
    if (!is_reached) return;
    depth_ = depth;
    reduces_ = syncs || options_.reduce_without_sync;
    hook_state_->inside = std::this_thread::get_id();
    if (options_.backward_prefetch != BackwardPrefetch::none && !backward_.last.empty())
        prefetch(backward_.last.front());
}

void ShardedPass::on_final(const Leaf& leaf) {
    // A gradient that is final in a nested pass is not ready, because an outer pass may add to it.
    if (depth_ == 0 || autograd::backward_depth() != depth_) return;
    FlatParameter& buffer = *units_[leaf.unit].buffers[leaf.buffer];
    buffer.members()[leaf.member].ready = true;
    if (reduces_) buffer.collect_gradient(leaf.member);
    for (const FlatParameter::Member& member : buffer.members())
        if (member.expected && !member.ready) return;
    if (reduces_) reduce(buffer);
    finish_unit(leaf.unit);
}

// If all gradients of a unit are final, frees the unit, unless the strategy is shard_optimizer.
// With backward_post, also prefetches the next unit.
void ShardedPass::finish_unit(std::size_t unit) {
    for (const auto& buffer : units_[unit].buffers)
        for (const FlatParameter::Member& member : buffer->members())
            if (member.expected && !member.ready) return;
    if (options_.strategy != ShardingStrategy::shard_optimizer) units_[unit].free();
    if (options_.backward_prefetch == BackwardPrefetch::backward_post)
        prefetch(backward_.after(unit));
}

void ShardedPass::reduce(FlatParameter& buffer) {
    while (reducing_.size() >= kReductions) finish_oldest();
    buffer.start_reduce();
    if (buffer.is_reducing()) reducing_.push_back(&buffer);
}

void ShardedPass::finish_oldest() {
    FlatParameter* const oldest = reducing_.front();
    reducing_.pop_front();
    oldest->finish_reduce();
}

void ShardedPass::on_end() {
    if (depth_ != autograd::backward_depth()) return;
    if (reduces_)
        for (const Unit& unit : units_)
            for (const auto& buffer : unit.buffers)
                if (buffer->is_trained() && !buffer->is_reducing()) reduce(*buffer);
    while (!reducing_.empty()) finish_oldest();
    if (syncs) average_ignored();
    if (options_.strategy != ShardingStrategy::shard_optimizer) reshard();
    backward_.finish();
    cancel();
}

void ShardedPass::average_ignored() {
    std::vector<Tensor> gradients;
    for (const Tensor& tensor : ignored_)
        if (tensor.grad().defined()) gradients.push_back(tensor.grad().detach());
    if (gradients.empty()) return;
    average_together(*context_.group, gradients);
    if (context_.replicas != nullptr) average_together(*context_.replicas, gradients);
}

// Ends a pass: discards the results of reductions in progress, and clears the records of final
// gradients.
void ShardedPass::cancel() noexcept {
    reducing_.clear();
    for (const Unit& unit : units_)
        for (const auto& buffer : unit.buffers) {
            buffer->cancel_reduce();
            for (FlatParameter::Member& member : buffer->members())
                member.expected = member.ready = false;
        }
    used_frozen_.clear();
    backward_.now.clear();
    depth_ = 0;
    hook_state_->inside = std::thread::id();
}

}  // namespace axle::dist
