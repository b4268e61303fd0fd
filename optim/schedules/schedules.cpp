#include "optim/schedules/schedules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "optim/schedules/schedule_checks.h"

namespace axle::optim {
namespace {

double in_unit_interval(const char* op, const char* what, double factor) {
    if (!(factor >= 0 && factor <= 1))
        throw ValueError(str(op, ": ", what, " must be in [0, 1]: ", factor));
    return factor;
}

double cosine_at(std::int64_t t, std::int64_t length) {
    return 1 + std::cos(kPi * static_cast<double>(t) / static_cast<double>(length));
}

std::int64_t parse_milestone(const std::string& text) {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end)
        throw ValueError(
            str("MultiStepLR: load_state_dict: milestones must be integers: '", text, "'"));
    return value;
}

}  // namespace

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, const Factor& factor)
    : MultiplicativeLR(optimizer, std::vector<Factor>(optimizer.group_count(), factor)) {}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::vector<Factor> factors)
    : FactorScheduler("MultiplicativeLR", optimizer, std::move(factors)) {
    start();
}

void MultiplicativeLR::apply(std::size_t index, GroupRef group, double, std::int64_t epoch) {
    if (!is_starting()) group.lr *= factor(index, epoch);
}

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : ChainableScheduler(optimizer),
      step_size_(positive("StepLR", "step_size", step_size)),
      gamma_(gamma) {
    start();
}

void StepLR::apply(std::size_t, GroupRef group, double, std::int64_t epoch) {
    if (epoch != 0 && epoch % step_size_ == 0) group.lr *= gamma_;
}

std::vector<ScheduleField> StepLR::fields() {
    return {{"step_size", &step_size_, 1}, {"gamma", &gamma_}};
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, const std::vector<std::int64_t>& milestones,
                         double gamma)
    : ChainableScheduler(optimizer), gamma_(gamma) {
    std::map<std::int64_t, std::int64_t> times;
    for (const std::int64_t milestone : milestones) ++times[milestone];
    for (const auto& [epoch, n] : times) milestones_.push_back({epoch, n});
    start();
}

void MultiStepLR::apply(std::size_t, GroupRef group, double, std::int64_t epoch) {
    for (const Milestone& at : milestones_)
        if (at.epoch == epoch) group.lr *= std::pow(gamma_, static_cast<double>(at.times));
}

std::vector<ScheduleField> MultiStepLR::fields() { return {{"gamma", &gamma_}}; }

Tree MultiStepLR::save() const {
    Tree counter = Tree::map();
    for (const Milestone& at : milestones_) counter.set(std::to_string(at.epoch), at.times);
    Tree tree = Scheduler::save();
    tree.set("milestones", std::move(counter));
    return tree;
}

void MultiStepLR::load(const Tree& tree) {
    std::vector<Milestone> milestones = milestones_;
    if (const Tree* const counter = tree.find("milestones")) {
        milestones.clear();
        for (const auto& [epoch, times] : counter->entries())
            milestones.push_back({parse_milestone(epoch), times.integer()});
    }
    Scheduler::load(tree);
    milestones_ = std::move(milestones);
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : ChainableScheduler(optimizer), gamma_(gamma) {
    start();
}

void ExponentialLR::apply(std::size_t, GroupRef group, double, std::int64_t epoch) {
    if (epoch != 0) group.lr *= gamma_;
}

std::vector<ScheduleField> ExponentialLR::fields() { return {{"gamma", &gamma_}}; }

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, std::int64_t total_iters)
    : ChainableScheduler(optimizer),
      factor_(in_unit_interval("ConstantLR", "factor", factor)),
      total_iters_(total_iters) {
    start();
}

void ConstantLR::apply(std::size_t, GroupRef group, double base_lr, std::int64_t epoch) {
    if (epoch == 0)
        group.lr *= factor_;
    else if (epoch == total_iters_)
        group.lr = factor_ == 0 ? base_lr : group.lr * (1 / factor_);
}

std::vector<ScheduleField> ConstantLR::fields() {
    return {{"factor", &factor_}, {"total_iters", &total_iters_}};
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor,
                   std::int64_t total_iters)
    : ChainableScheduler(optimizer),
      start_factor_(in_unit_interval("LinearLR", "start_factor", start_factor)),
      end_factor_(in_unit_interval("LinearLR", "end_factor", end_factor)),
      total_iters_(positive("LinearLR", "total_iters", total_iters)) {
    if (start_factor == 0) throw ValueError("LinearLR: start_factor must be greater than 0: 0");
    start();
}

void LinearLR::apply(std::size_t, GroupRef group, double, std::int64_t epoch) {
    if (epoch == 0)
        group.lr *= start_factor_;
    else if (epoch <= total_iters_)
        group.lr *= 1 + (end_factor_ - start_factor_) /
                            (static_cast<double>(total_iters_) * start_factor_ +
                             static_cast<double>(epoch - 1) * (end_factor_ - start_factor_));
}

std::vector<ScheduleField> LinearLR::fields() {
    return {{"start_factor", &start_factor_},
            {"end_factor", &end_factor_},
            {"total_iters", &total_iters_, 1}};
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, std::int64_t total_iters, double power)
    : ChainableScheduler(optimizer),
      total_iters_(positive("PolynomialLR", "total_iters", total_iters)),
      power_(power) {
    start();
}

void PolynomialLR::apply(std::size_t, GroupRef group, double, std::int64_t epoch) {
    if (epoch == 0 || epoch > total_iters_) return;
    const auto left = [n = static_cast<double>(total_iters_)](std::int64_t t) {
        return 1 - static_cast<double>(t) / n;
    };
    group.lr *= std::pow(left(epoch) / left(epoch - 1), power_);
}

std::vector<ScheduleField> PolynomialLR::fields() {
    return {{"total_iters", &total_iters_, 1}, {"power", &power_}};
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min)
    : ChainableScheduler(optimizer),
      t_max_(positive("CosineAnnealingLR", "t_max", t_max)),
      eta_min_(eta_min) {
    start();
}

void CosineAnnealingLR::apply(std::size_t, GroupRef group, double base_lr, std::int64_t epoch) {
    if (epoch == 0) return;
    // If the previous rate is the minimum, the ratio of successive rates is undefined.
    if ((epoch - 1 - t_max_) % (2 * t_max_) == 0) {
        const double rise = 1 - std::cos(kPi / static_cast<double>(t_max_));
        group.lr += (base_lr - eta_min_) * rise / 2;
        return;
    }
    const double ratio = cosine_at(epoch, t_max_) / cosine_at(epoch - 1, t_max_);
    group.lr = ratio * (group.lr - eta_min_) + eta_min_;
}

std::vector<ScheduleField> CosineAnnealingLR::fields() {
    return {{"T_max", &t_max_, 1}, {"eta_min", &eta_min_}};
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, std::int64_t t_0,
                                                         std::int64_t t_mult, double eta_min)
    : Scheduler(optimizer),
      t_0_(positive("CosineAnnealingWarmRestarts", "t_0", t_0)),
      t_mult_(positive("CosineAnnealingWarmRestarts", "t_mult", t_mult)),
      eta_min_(eta_min),
      t_i_(t_0) {
    start();
}

void CosineAnnealingWarmRestarts::set_rates(std::int64_t epoch) {
    t_i_ = t_0_;
    t_cur_ = t_mult_ == 1 ? epoch % t_0_ : epoch;
    for (; t_cur_ >= t_i_; t_i_ *= t_mult_) t_cur_ -= t_i_;
    Scheduler::set_rates(epoch);
}

void CosineAnnealingWarmRestarts::apply(std::size_t, GroupRef group, double base_lr, std::int64_t) {
    group.lr = eta_min_ + (base_lr - eta_min_) * cosine_at(t_cur_, t_i_) / 2;
}

std::vector<ScheduleField> CosineAnnealingWarmRestarts::fields() {
    return {{"T_0", &t_0_, 1},
            {"T_i", &t_i_},
            {"T_mult", &t_mult_, 1},
            {"eta_min", &eta_min_},
            {"T_cur", &t_cur_}};
}

SWALR::SWALR(Optimizer& optimizer, const PerGroup& swa_lr, std::int64_t anneal_epochs,
             Anneal anneal)
    : Scheduler(optimizer),
      swa_lrs_(swa_lr.expand("SWALR", "swa_lr", optimizer.group_count())),
      anneal_epochs_(anneal_epochs),
      anneal_(anneal) {
    if (anneal_epochs < 0)
        throw ValueError(str("SWALR: anneal_epochs must not be negative: ", anneal_epochs));
    start();
}

double SWALR::weight_at(std::int64_t epoch) const {
    const auto length = static_cast<double>(std::max<std::int64_t>(1, anneal_epochs_));
    const double part = std::clamp(static_cast<double>(epoch) / length, 0.0, 1.0);
    return anneal_ == Anneal::linear ? part : (1 - std::cos(kPi * part)) / 2;
}

void SWALR::apply(std::size_t index, GroupRef group, double, std::int64_t epoch) {
    if (anneal_epochs_ == 0) epoch = std::max<std::int64_t>(1, epoch);
    const double swa_lr = swa_lrs_[std::min(index, swa_lrs_.size() - 1)];
    const double before = weight_at(epoch - 1), now = weight_at(epoch);
    // Computes the rate at the start of annealing from the current rate.
    const double from = before == 1 ? swa_lr : (group.lr - before * swa_lr) / (1 - before);
    group.lr = swa_lr * now + from * (1 - now);
}

std::vector<ScheduleField> SWALR::fields() {
    return {{"anneal_epochs", &anneal_epochs_, 0},
            {"_anneal_strategy", choice(anneal_, kAnnealNames)}};
}

}  // namespace axle::optim
