// Schedules of schedules. All parts must schedule one optimizer, and none may need a metric
// (ValueError). Parts are stepped by the whole alone: it is the whole that a gate is set on.
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

namespace axle::inline v0::optim {

class ComposedScheduler : public Scheduler {
  public:
    using Parts = std::vector<std::shared_ptr<Scheduler>>;

    bool can_look_ahead() const override;

  protected:
    ComposedScheduler(const char* name, Optimizer& optimizer, Parts parts);

    const Parts& parts() const { return parts_; }
    // From the rates that the groups had before their first scheduler.
    void reset_rates();
    static void start(Scheduler& part) { part.start(); }
    static void restart(Scheduler& part) { part.restart(); }
    using Scheduler::restart;
    using Scheduler::start;
    void undo() override;
    Tree save() const override;
    void load(const Tree& tree) override;

  private:
    Parts parts_;
};

// One part after the other: part i + 1 begins at epoch milestones[i], at its own epoch 0.
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

// All parts at each step, in order, each going on from the rates that the one before it has set.
class ChainedScheduler : public ComposedScheduler {
  public:
    explicit ChainedScheduler(Parts schedulers);
    ChainedScheduler(Parts schedulers, Optimizer& optimizer);

    // Of the part that ends first.
    std::optional<std::int64_t> total_steps() const override;

  protected:
    void start() override;
    void restart() override;
    void set_rates(std::int64_t epoch) override;
    void load(const Tree& tree) override;

  private:
    void stand_with_parts();
};

}  // namespace axle::inline v0::optim
