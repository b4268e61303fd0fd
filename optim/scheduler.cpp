#include "optim/scheduler.h"

#include <algorithm>
#include <utility>

namespace axle::inline v0::optim {

void Scheduler::step() {
    if (gate_) return gate_->step(*this);
    advance();
}

void Scheduler::advance() {
    before_access();
    const std::size_t groups = optimizer_.group_count();
    for (std::size_t g = base_lrs_.size(); g < groups; ++g) {
        const GroupRef group = optimizer_.group(g);
        if (!group.initial_lr) group.initial_lr = group.lr;
        base_lrs_.push_back(*group.initial_lr);
    }
    for (std::size_t g = 0; g < groups; ++g)
        apply(g, optimizer_.group(g), base_lrs_[g], last_epoch_ + 1);
    ++last_epoch_;
    ++step_count_;
    last_lr_.clear();
    for (std::size_t g = 0; g < groups; ++g) last_lr_.push_back(optimizer_.group(g).lr);
}

Tree Scheduler::state_dict() const {
    before_access();
    Tree base = Tree::list(), last = Tree::list();
    for (const double lr : base_lrs_) base.push_back(lr);
    for (const double lr : last_lr_) last.push_back(lr);
    return {{"base_lrs", std::move(base)},
            {"last_epoch", last_epoch_},
            {"_step_count", step_count_},
            {"_last_lr", std::move(last)}};
}

void Scheduler::load_state_dict(const Tree& tree) {
    before_access();
    std::vector<double> base, last;
    for (const Tree& lr : tree["base_lrs"].elements()) base.push_back(lr.number());
    for (const Tree& lr : tree["_last_lr"].elements()) last.push_back(lr.number());
    const std::int64_t epoch = tree["last_epoch"].integer();
    step_count_ = tree["_step_count"].integer();
    last_epoch_ = epoch;
    base_lrs_ = std::move(base);
    last_lr_ = std::move(last);
}

LambdaLR::LambdaLR(Optimizer& optimizer, const Factor& factor)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.group_count(), factor)) {}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Factor> factors)
    : Scheduler(optimizer), factors_(std::move(factors)) {
    if (factors_.size() != optimizer.group_count())
        throw ValueError(str("LambdaLR: one function per group is needed: ", factors_.size(),
                             " for ", optimizer.group_count()));
    start();
}

void LambdaLR::apply(std::size_t index, GroupRef group, double base_lr, std::int64_t epoch) {
    // A group that was added later follows the last function.
    const Factor& factor = factors_[std::min(index, factors_.size() - 1)];
    group.lr = base_lr * factor(epoch);
}

}  // namespace axle::inline v0::optim
