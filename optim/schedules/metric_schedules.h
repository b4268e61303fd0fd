// Schedules that depend on a metric, such as the evaluation loss. Constructors throw ValueError
// unless factor is below 1, window_size is positive, and lists of rates have one number per group.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "optim/schedules/scheduler.h"

namespace axle::optim {

// Base class of schedules that need a metric at each step. step() without a metric throws
// UsageError.
class MetricScheduler : public Scheduler {
  public:
    // Takes a step with this metric. If hooks are set, the hooks decide how many steps are taken;
    // all of these steps use this metric.
    void step(double metric);
    void step(const Tensor& metric) { step(metric.item()); }

    bool can_look_ahead() const override { return false; }
    bool needs_metric() const override { return true; }

  protected:
    using Scheduler::Scheduler;
    void start() override { set_position(0, 1); }
    void set_rates(std::int64_t epoch) override;
    virtual const char* name() const = 0;
    virtual void apply_metric(double metric) = 0;

  private:
    std::optional<double> metric_;  // metric of the current step
};

enum class MetricMode : std::uint8_t { min, max };     // whether lower or higher values are better
enum class ThresholdMode : std::uint8_t { rel, abs };  // relative or absolute improvement

// The best metric so far.
struct BestMetric {
    MetricMode mode;
    double threshold;
    ThresholdMode threshold_mode;
    double best = 0;

    void reset();
    // Returns whether the metric is better than the best metric so far by more than the threshold.
    bool is_improved_by(double metric) const;
    void add_fields(std::vector<ScheduleField>& fields);
};

struct PlateauOptions {
    MetricMode mode = MetricMode::min;
    double factor = 0.1;
    std::int64_t patience = 10;  // steps without improvement that do not change the rate
    double threshold = 1e-4;     // smaller improvements do not count
    ThresholdMode threshold_mode = ThresholdMode::rel;
    std::int64_t cooldown = 0;  // steps after a reduction that are not counted
    PerGroup min_lr = 0;
    double eps = 1e-8;  // changes of the rate by at most eps are skipped
};

// Multiplies lr by factor, but keeps lr at min_lr or above, when the metric has not improved for
// more than `patience` steps. A step that does this throws ValueError if min_lr is a list and
// groups were added.
class ReduceLROnPlateau : public MetricScheduler {
  public:
    explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});

  protected:
    const char* name() const override { return "ReduceLROnPlateau"; }
    void apply_metric(double metric) override;
    std::vector<ScheduleField> fields() override;

  private:
    void reduce();

    BestMetric best_;
    double factor_, eps_;
    std::int64_t patience_, cooldown_, cooldown_counter_ = 0, num_bad_ = 0;
    std::vector<double> min_lrs_;
    bool shared_min_lr_;
};

struct GreedyOptions {
    MetricMode mode = MetricMode::min;
    double factor = 0.95;
    std::int64_t patience = 10;  // steps that do not change the rate, see GreedyLR
    double threshold = 1e-6;     // smaller improvements do not count
    ThresholdMode threshold_mode = ThresholdMode::abs;
    std::int64_t cooldown = 0;  // steps after a reduction that are not counted
    std::int64_t warmup = 0;    // steps after an increase that are not counted
    PerGroup min_lr = 1e-3;
    PerGroup max_lr = 1;
    double eps = 1e-8;    // changes of the rate by at most eps are skipped
    bool smooth = false;  // uses the mean of the last window_size metrics
    std::int64_t window_size = 50;
    std::int64_t reset_start = 500;  // number of reductions at min_lr before a reset
};

// GreedyLR of Transformers: multiplies lr by factor after more than `patience` steps without
// improvement of the metric, and divides lr by factor after more than `patience` steps with
// improvement in a row. Reductions end at min_lr, and increases at max_lr. After reset_start
// reductions that leave all rates at min_lr, without an increase between them, the rates return to
// their initial values and the best metric is forgotten.
class GreedyLR : public MetricScheduler {
  public:
    explicit GreedyLR(Optimizer& optimizer, const GreedyOptions& options = {});

  protected:
    const char* name() const override { return "GreedyLR"; }
    void apply_metric(double metric) override;
    std::vector<ScheduleField> fields() override;
    Tree save() const override;
    // Loads the state and, as in Transformers, sets the optimizer's rates to the rates in the
    // state.
    void load(const Tree& tree) override;

  private:
    double smoothed(double metric);
    void reduce();
    void increase();
    void reset();

    BestMetric best_;
    double factor_, eps_;
    std::int64_t patience_, cooldown_, warmup_, cooldown_counter_ = 0, warmup_counter_ = 0;
    std::int64_t num_bad_ = 0, num_good_ = 0;
    std::vector<double> min_lrs_, max_lrs_, init_lrs_;
    bool smooth_;
    std::int64_t window_size_, reset_start_, reset_start_original_;
    std::vector<double> window_;
    double window_sum_ = 0;
};

}  // namespace axle::optim
