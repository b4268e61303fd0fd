#include "optim/schedules/composed_schedules.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "core/text/type_name.h"

namespace axle::optim {
namespace {

Optimizer& optimizer_of(const ComposedScheduler::Parts& parts) {
    if (parts.empty())
        throw ValueError("ChainedScheduler: needs at least one schedule: the list is empty");
    if (!parts[0])
        throw ValueError("ChainedScheduler: schedules must not be null: schedule 0 is null");
    return parts[0]->optimizer();
}

}  // namespace

ComposedScheduler::ComposedScheduler(const char* name, Optimizer& optimizer, Parts parts)
    : Scheduler(optimizer), parts_(std::move(parts)) {
    if (parts_.empty())
        throw ValueError(str(name, ": needs at least one schedule: the list is empty"));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (!parts_[i])
            throw ValueError(str(name, ": schedules must not be null: schedule ", i, " is null"));
        if (parts_[i]->needs_metric())
            throw ValueError(
                str(name, ": schedule ", i, " needs a metric at each step; step it separately"));
        if (&parts_[i]->optimizer() != &optimizer)
            throw ValueError(str(name, ": all schedules must have the same optimizer: schedule ", i,
                                 " has another optimizer"));
    }
    for (const auto& part : parts_) part->is_part_ = true;
}

bool ComposedScheduler::can_look_ahead() const {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->can_look_ahead(); });
}

void ComposedScheduler::reset_rates() {
    for (const GroupRef& group : optimizer().param_groups())
        group.lr = group.initial_lr.value_or(group.lr);
}

void ComposedScheduler::reset_epoch() {
    for (const auto& part : parts_) part->reset_epoch();
    Scheduler::reset_epoch();
}

Tree ComposedScheduler::save() const {
    Tree tree = Scheduler::save(), all = Tree::list();
    for (const auto& part : parts_) all.push_back(part->state_dict());
    tree.set("_schedulers", std::move(all));
    return tree;
}

void ComposedScheduler::load(const Tree& tree) {
    const Tree& all = tree["_schedulers"];
    if (all.size() != parts_.size())
        throw ValueError(str(type_name(typeid(*this)),
                             ": load_state_dict: the number of schedules differs: ", all.size(),
                             " in the state, ", parts_.size(), " in the scheduler"));
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->load_state_dict(all[i]);
}

SequentialLR::SequentialLR(Optimizer& optimizer, Parts schedulers,
                           std::vector<std::int64_t> milestones)
    : ComposedScheduler("SequentialLR", optimizer, std::move(schedulers)),
      milestones_(std::move(milestones)) {
    if (milestones_.size() + 1 != parts().size())
        throw ValueError(str("SequentialLR: needs one more schedule than milestones: ",
                             parts().size(), " schedules, ", milestones_.size(), " milestones"));
    if (!std::is_sorted(milestones_.begin(), milestones_.end()))
        throw ValueError(str("SequentialLR: milestones must not decrease: ",
                             Tree(Tree::List(milestones_.begin(), milestones_.end()))));
    start();
}

std::size_t SequentialLR::part_at(std::int64_t epoch) const {
    const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
    return static_cast<std::size_t>(next - milestones_.begin());
}

void SequentialLR::start() {
    reset_rates();
    reset_epoch();
    ComposedScheduler::start(*parts()[part_at(0)]);
    set_position(0, 1);
}

void SequentialLR::set_rates(std::int64_t epoch) {
    const std::size_t index = part_at(epoch);
    Scheduler& part = *parts()[index];
    if (index > 0 && milestones_[index - 1] == epoch) return ComposedScheduler::restart(part);
    part.advance();
}

Tree SequentialLR::save() const {
    Tree tree = ComposedScheduler::save(), milestones = Tree::list();
    for (const std::int64_t milestone : milestones_) milestones.push_back(milestone);
    tree.set("_milestones", std::move(milestones));
    return tree;
}

void SequentialLR::load(const Tree& tree) {
    std::vector<std::int64_t> milestones = milestones_;
    if (const Tree* const saved = tree.find("_milestones")) {
        milestones.clear();
        for (const Tree& milestone : saved->elements()) milestones.push_back(milestone.integer());
    }
    if (milestones.size() != milestones_.size() ||
        !std::is_sorted(milestones.begin(), milestones.end()))
        throw ValueError(str("SequentialLR: load_state_dict: expected ", milestones_.size(),
                             " milestones that do not decrease: ", *tree.find("_milestones")));
    ComposedScheduler::load(tree);
    Scheduler::load(tree);
    milestones_ = std::move(milestones);
}

ChainedScheduler::ChainedScheduler(Parts schedulers)
    : ChainedScheduler(schedulers, optimizer_of(schedulers)) {}

ChainedScheduler::ChainedScheduler(Parts schedulers, Optimizer& optimizer)
    : ComposedScheduler("ChainedScheduler", optimizer, std::move(schedulers)) {
    sync_with_parts();
}

std::optional<std::int64_t> ChainedScheduler::total_steps() const {
    std::optional<std::int64_t> smallest;
    for (const auto& part : parts())
        if (const auto total = part->total_steps())
            smallest = std::min(*total, smallest.value_or(*total));
    return smallest;
}

void ChainedScheduler::start() {
    for (const auto& part : parts()) ComposedScheduler::start(*part);
    sync_with_parts();
}

void ChainedScheduler::restart() {
    reset_rates();
    start();
}

void ChainedScheduler::set_rates(std::int64_t) {
    for (const auto& part : parts()) part->advance();
}

void ChainedScheduler::load(const Tree& tree) {
    ComposedScheduler::load(tree);
    sync_with_parts();
    // PyTorch saves only the rates of the chain. The epoch is the epoch of the first part.
    Tree here = tree;
    here.set("last_epoch", parts()[0]->last_epoch());
    Scheduler::load(here);
}

void ChainedScheduler::sync_with_parts() {
    set_position(parts()[0]->last_epoch(), parts()[0]->step_count());
}

}  // namespace axle::optim
