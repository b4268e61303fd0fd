// Schedules that follow a measured number, such as the loss over the evaluation data. Wrong numbers
// throw ValueError.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "optim/schedules/scheduler.h"

namespace axle::inline v0::optim {

// Each step takes the number: step() without one throws UsageError.
class MetricScheduler : public Scheduler {
  public:
    // One step, or what the gate makes of it; several are given the same number.
    void step(double metric);
    void step(const Tensor& metric) { step(metric.item()); }

    bool can_look_ahead() const override { return false; }
    bool needs_metric() const override { return true; }

  protected:
    using Scheduler::Scheduler;
    void start() override { stand_at(0, 1); }
    void set_rates(std::int64_t epoch) override;
    virtual const char* name() const = 0;
    virtual void judge(double metric) = 0;

  private:
    std::optional<double> metric_;  // of the step that is being taken
};

enum class MetricMode : std::uint8_t { min, max };     // what is better
enum class ThresholdMode : std::uint8_t { rel, abs };  // to the best so far

// The best number so far.
struct BestMetric {
    MetricMode mode;
    double threshold;
    ThresholdMode threshold_mode;
    double best = 0;

    void forget();
    // Whether it is better, by more than the threshold.
    bool is_beaten_by(double metric) const;
    void add_fields(std::vector<ScheduleField>& fields);
};

struct PlateauOptions {
    MetricMode mode = MetricMode::min;
    double factor = 0.1;
    std::int64_t patience = 10;  // steps without a better number that change nothing
    double threshold = 1e-4;
    ThresholdMode threshold_mode = ThresholdMode::rel;
    std::int64_t cooldown = 0;  // steps after a reduction that are not counted
    PerGroup min_lr = 0;
    double eps = 1e-8;  // smaller reductions are left out
};

// lr * factor when the number has not become better for more than `patience` steps.
class ReduceLROnPlateau : public MetricScheduler {
  public:
    explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});

  protected:
    const char* name() const override { return "ReduceLROnPlateau"; }
    void judge(double metric) override;
    std::vector<ScheduleField> fields() override;

  private:
    void reduce();

    BestMetric best_;
    double factor_, eps_;
    std::int64_t patience_, cooldown_, cooldown_counter_ = 0, bad_ = 0;
    std::vector<double> min_lrs_;
    bool one_min_lr_;
};

struct GreedyOptions {
    MetricMode mode = MetricMode::min;
    double factor = 0.95;
    std::int64_t patience = 10;
    double threshold = 1e-6;
    ThresholdMode threshold_mode = ThresholdMode::abs;
    std::int64_t cooldown = 0;  // steps after a reduction that are not counted
    std::int64_t warmup = 0;    // and after an increase
    PerGroup min_lr = 1e-3;
    PerGroup max_lr = 1;
    double eps = 1e-8;    // smaller changes are left out
    bool smooth = false;  // judges the mean of the last window_size numbers
    std::int64_t window_size = 50;
    std::int64_t reset_start = 500;  // reductions at min_lr before it starts again
};

// Transformers' GreedyLR: lr * factor on a plateau, and lr / factor when the number has become
// better for more than `patience` steps in a row.
class GreedyLR : public MetricScheduler {
  public:
    explicit GreedyLR(Optimizer& optimizer, const GreedyOptions& options = {});

  protected:
    const char* name() const override { return "GreedyLR"; }
    void judge(double metric) override;
    std::vector<ScheduleField> fields() override;
    Tree save() const override;
    // As Transformers', sets the optimizer's rates to those of the state.
    void load(const Tree& tree) override;

  private:
    double smoothed(double metric);
    void reduce();
    void increase();
    void reset();

    BestMetric best_;
    double factor_, eps_;
    std::int64_t patience_, cooldown_, warmup_, cooldown_counter_ = 0, warmup_counter_ = 0;
    std::int64_t bad_ = 0, good_ = 0;
    std::vector<double> min_lrs_, max_lrs_, init_lrs_;
    bool smooth_;
    std::int64_t window_size_, reset_start_, reset_start_original_;
    std::vector<double> window_;
    double window_sum_ = 0;
};

}  // namespace axle::inline v0::optim
