#include "optim/schedules/metric_schedules.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "optim/schedules/schedule_checks.h"

namespace axle::optim {
namespace {

constexpr const char* kModes[] = {"min", "max"};

double below_one(const char* op, double factor) {
    if (!(factor < 1)) throw ValueError(str(op, ": factor must be below 1: ", factor));
    return factor;
}

}  // namespace

void MetricScheduler::step(double metric) {
    // Removes the metric at the end of the step. advance() cannot do this, because hooks can call
    // it several times or not at all.
    struct ResetMetric {
        std::optional<double>& metric;
        ~ResetMetric() { metric.reset(); }
    } reset_metric{metric_};
    metric_ = metric;
    Scheduler::step();
}

void MetricScheduler::set_rates(std::int64_t) {
    if (!metric_) throw UsageError(str(name(), ": step() needs a metric; call step(metric)"));
    apply_metric(*metric_);
}

void BestMetric::reset() {
    const double worst = std::numeric_limits<double>::infinity();
    best = mode == MetricMode::min ? worst : -worst;
}

bool BestMetric::is_improved_by(double metric) const {
    const bool rel = threshold_mode == ThresholdMode::rel;
    if (mode == MetricMode::min) return metric < (rel ? best * (1 - threshold) : best - threshold);
    return metric > (rel ? best * (threshold + 1) : best + threshold);
}

void BestMetric::add_fields(std::vector<ScheduleField>& fields) {
    fields.push_back({"mode", choice(mode, kModes)});
    fields.push_back({"threshold", &threshold});
    fields.push_back({"threshold_mode", choice(threshold_mode, kThresholdModes)});
    fields.push_back({"best", &best});
}

// --- ReduceLROnPlateau

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : MetricScheduler(optimizer),
      best_{options.mode, options.threshold, options.threshold_mode},
      factor_(below_one("ReduceLROnPlateau", options.factor)),
      eps_(options.eps),
      patience_(options.patience),
      cooldown_(options.cooldown),
      min_lrs_(options.min_lr.expand("ReduceLROnPlateau", "min_lr", optimizer.group_count())),
      shared_min_lr_(options.min_lr.for_all()) {
    best_.reset();
    start();
}

void ReduceLROnPlateau::apply_metric(double metric) {
    ++num_bad_;
    if (best_.is_improved_by(metric)) {
        best_.best = metric;
        num_bad_ = 0;
    }
    if (cooldown_counter_ > 0) {
        --cooldown_counter_;
        num_bad_ = 0;
    }
    if (num_bad_ <= patience_) return;
    reduce();
    cooldown_counter_ = cooldown_;
    num_bad_ = 0;
}

void ReduceLROnPlateau::reduce() {
    const std::size_t groups = optimizer().group_count();
    if (min_lrs_.size() != groups && !shared_min_lr_)
        throw ValueError(str("ReduceLROnPlateau: needs one min_lr per group: ", min_lrs_.size(),
                             " values, ", groups, " groups"));
    min_lrs_.resize(groups, min_lrs_[0]);
    for (std::size_t g = 0; g < groups; ++g) {
        double& lr = optimizer().group(g).lr;
        const double reduced = std::max(lr * factor_, min_lrs_[g]);
        if (lr - reduced > eps_) lr = reduced;
    }
}

std::vector<ScheduleField> ReduceLROnPlateau::fields() {
    std::vector<ScheduleField> all = {{"factor", &factor_},
                                      {"min_lrs", &min_lrs_},
                                      {"patience", &patience_},
                                      {"cooldown", &cooldown_},
                                      {"eps", &eps_},
                                      {"cooldown_counter", &cooldown_counter_},
                                      {"num_bad_epochs", &num_bad_}};
    best_.add_fields(all);
    return all;
}

// --- GreedyLR

GreedyLR::GreedyLR(Optimizer& optimizer, const GreedyOptions& options)
    : MetricScheduler(optimizer),
      best_{options.mode, options.threshold, options.threshold_mode},
      factor_(below_one("GreedyLR", options.factor)),
      eps_(options.eps),
      patience_(options.patience),
      cooldown_(options.cooldown),
      warmup_(options.warmup),
      min_lrs_(options.min_lr.expand("GreedyLR", "min_lr", optimizer.group_count())),
      max_lrs_(options.max_lr.expand("GreedyLR", "max_lr", optimizer.group_count())),
      smooth_(options.smooth),
      window_size_(positive("GreedyLR", "window_size", options.window_size)),
      reset_start_(options.reset_start),
      reset_start_original_(options.reset_start) {
    for (const GroupRef& group : optimizer.param_groups()) init_lrs_.push_back(group.lr);
    best_.reset();
    start();
}

double GreedyLR::smoothed(double metric) {
    window_.push_back(metric);
    window_sum_ += metric;
    if (static_cast<std::int64_t>(window_.size()) > window_size_) {
        window_sum_ -= window_.front();
        window_.erase(window_.begin());
    }
    return window_sum_ / static_cast<double>(window_.size());
}

void GreedyLR::apply_metric(double metric) {
    if (smooth_) metric = smoothed(metric);
    for (std::int64_t* const counter : {&cooldown_counter_, &warmup_counter_})
        if (*counter > 0) {
            --*counter;
            num_bad_ = num_good_ = 0;
            return;
        }
    if (best_.is_improved_by(metric)) {
        best_.best = metric;
        ++num_good_, num_bad_ = 0;
    } else {
        ++num_bad_, num_good_ = 0;
    }
    if (num_good_ > patience_) {
        increase();
        warmup_counter_ = warmup_;
        num_good_ = 0;
    } else if (num_bad_ > patience_) {
        reduce();
        cooldown_counter_ = cooldown_;
        num_bad_ = 0;
    }
}

void GreedyLR::increase() {
    for (std::size_t g = 0; g < max_lrs_.size(); ++g) {
        double& lr = optimizer().group(g).lr;
        const double increased = std::min(lr / factor_, max_lrs_[g]);
        if (increased - lr > eps_) lr = increased;
    }
    reset_start_ = reset_start_original_;
}

void GreedyLR::reduce() {
    bool all_at_min = true;
    for (std::size_t g = 0; g < min_lrs_.size(); ++g) {
        double& lr = optimizer().group(g).lr;
        const double reduced = std::max(lr * factor_, min_lrs_[g]);
        if (lr - reduced > eps_) lr = reduced;
        if (lr > min_lrs_[g]) all_at_min = false;
    }
    if (all_at_min && --reset_start_ <= 0) reset();
}

void GreedyLR::reset() {
    for (std::size_t g = 0; g < init_lrs_.size(); ++g) optimizer().group(g).lr = init_lrs_[g];
    best_.reset();
    num_bad_ = num_good_ = cooldown_counter_ = warmup_counter_ = 0;
    reset_start_ = reset_start_original_;
    window_.clear();
    window_sum_ = 0;
}

std::vector<ScheduleField> GreedyLR::fields() {
    std::vector<ScheduleField> all = {{"factor", &factor_},
                                      {"min_lrs", &min_lrs_},
                                      {"max_lrs", &max_lrs_},
                                      {"patience", &patience_},
                                      {"cooldown", &cooldown_},
                                      {"warmup", &warmup_},
                                      {"cooldown_counter", &cooldown_counter_},
                                      {"warmup_counter", &warmup_counter_},
                                      {"num_bad_epochs", &num_bad_},
                                      {"num_good_epochs", &num_good_},
                                      {"eps", &eps_},
                                      {"smooth", &smooth_},
                                      {"window_size", &window_size_, 1},
                                      {"reset_start", &reset_start_},
                                      {"reset_start_original", &reset_start_original_},
                                      {"_init_lrs", &init_lrs_}};
    best_.add_fields(all);
    return all;
}

Tree GreedyLR::save() const {
    Tree tree = MetricScheduler::save();
    if (!smooth_) return tree;
    Tree values = Tree::list();
    for (const double value : window_) values.push_back(value);
    tree.set(
        "_streaming_avg",
        Tree{{"window_size", window_size_}, {"values", std::move(values)}, {"sum", window_sum_}});
    return tree;
}

void GreedyLR::load(const Tree& tree) {
    std::vector<double> window;
    double sum = 0;
    if (const Tree* const average = tree.find("_streaming_avg")) {
        for (const Tree& value : (*average)["values"].elements()) window.push_back(value.number());
        sum = (*average)["sum"].number();
    }
    MetricScheduler::load(tree);
    window_ = std::move(window);
    window_sum_ = sum;
    const std::vector<double>& last = get_last_lr();
    for (std::size_t g = 0; g < std::min(last.size(), optimizer().group_count()); ++g)
        optimizer().group(g).lr = last[g];
}

}  // namespace axle::optim
