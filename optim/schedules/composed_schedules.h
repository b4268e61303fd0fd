// Schedules that combine other schedules, which are called their parts. Constructors throw
// ValueError unless there is at least one part, all parts have the same optimizer, and no part is
// null or needs a metric. They throw UsageError if a part was moved or its optimizer was destroyed.
// Step only the composed schedule, which steps its parts, and set hooks only on the composed
// schedule.
//
//     auto warmup = std::make_shared<LinearLR>(adamw, 0.1, 1, 20);
//     auto decay = std::make_shared<CosineAnnealingLR>(adamw, 80);
//     SequentialLR schedule(adamw, {warmup, decay}, {20});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "optim/schedules/scheduler.h"

namespace axle::optim {

class ComposedScheduler : public Scheduler {
  public:
    using Parts = std::vector<std::shared_ptr<Scheduler>>;

    bool can_look_ahead() const override;

  protected:
    ComposedScheduler(const char* name, Optimizer& optimizer, Parts parts);

    const Parts& parts() const { return parts_; }
    // Sets the rate of each group to the rate that the group had before its first scheduler.
    void reset_rates();
    static void start(Scheduler& part) { part.start(); }
    static void restart(Scheduler& part) { part.restart(); }
    using Scheduler::restart;
    using Scheduler::start;
    void reset_epoch() override;
    Tree save() const override;
    void load(const Tree& tree) override;

  private:
    Parts parts_;
};

// Runs the parts one after another. At epoch milestones[i], part i + 1 starts with its own epoch 0.
// total_steps() returns nullopt even if a part has an end. The constructor throws ValueError unless
// the milestones do not decrease and there is one milestone fewer than schedules.
class SequentialLR : public ComposedScheduler {
  public:
    SequentialLR(Optimizer& optimizer, Parts schedulers, std::vector<std::int64_t> milestones);

  protected:
    void start() override;
    void restart() override { start(); }
    void set_rates(std::int64_t epoch) override;
    Tree save() const override;
    void load(const Tree& tree) override;

  private:
    std::size_t part_at(std::int64_t epoch) const;

    std::vector<std::int64_t> milestones_;
};

// Steps all parts in order; each part continues from the rates that the previous part has set.
class ChainedScheduler : public ComposedScheduler {
  public:
    explicit ChainedScheduler(Parts schedulers);
    ChainedScheduler(Parts schedulers, Optimizer& optimizer);

    // Returns the smallest total_steps of the parts, or nullopt if no part has an end.
    std::optional<std::int64_t> total_steps() const override;

  protected:
    void start() override;
    void restart() override;
    void set_rates(std::int64_t epoch) override;
    void load(const Tree& tree) override;

  private:
    void sync_with_parts();
};

}  // namespace axle::optim
