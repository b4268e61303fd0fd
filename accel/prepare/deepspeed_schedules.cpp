// The schedules of DeepSpeed configurations.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "accel/loop/loop_state.h"
#include "accel/prepare/deepspeed_objects.h"
#include "accel/prepare/deepspeed_section.h"
#include "core/system/log.h"
#include "optim/adam.h"

namespace axle::accel {
namespace {

// A function that returns the learning rate or momentum of a group at an epoch.
using PerEpoch = std::function<double(std::size_t group, std::int64_t epoch)>;

class DeepSpeedSchedule : public optim::Scheduler, public OneStepPerUpdate {
  public:
    DeepSpeedSchedule(optim::Optimizer& optimizer, PerEpoch rate, PerEpoch momentum = {})
        : Scheduler(optimizer), rate_(std::move(rate)), momentum_(std::move(momentum)) {
        start();
    }

  protected:
    void apply(std::size_t index, optim::GroupRef group, double, std::int64_t epoch) override {
        group.lr = rate_(index, epoch);
        if (momentum_) group.momentum = momentum_(index, epoch);
    }

  private:
    PerEpoch rate_, momentum_;
};

// The warmup of a DeepSpeed schedule. at(i) returns the factor of step i, from 0 to 1.
class Warmup {
  public:
    explicit Warmup(const DeepSpeedSection& section)
        : steps_(std::max<std::int64_t>(2, section.integer("warmup_num_steps", 1000, 1))),
          is_linear_(section.text("warmup_type", "log") == "linear") {
        const std::string type = section.text("warmup_type", "log");
        if (type != "log" && type != "linear")
            section.fail("warmup_type", "\"log\" or \"linear\"", type);
    }
    std::int64_t steps() const { return steps_; }
    double at(std::int64_t iteration) const {
        const auto i = static_cast<double>(iteration), n = static_cast<double>(steps_);
        return is_linear_ ? i / n : std::log(i + 1) / std::log(n);
    }

  private:
    std::int64_t steps_;
    bool is_linear_;
};

std::vector<double> rates_of(optim::Optimizer& optimizer) {
    std::vector<double> rates;
    for (std::size_t g = 0; g < optimizer.group_count(); ++g)
        rates.push_back(optimizer.group(g).lr);
    return rates;
}

// Groups that are added later use the values of the last group.
double of_group(const std::vector<double>& values, std::size_t group) {
    return values[std::min(group, values.size() - 1)];
}

std::int64_t total_steps(const DeepSpeedSection& section) {
    section.require("total_num_steps", "the number of updates");
    return section.integer("total_num_steps", 0, 1);
}

// Returns the rates of WarmupLR or, if `decays` is true, of WarmupDecayLR, which decreases to
// warmup_min_lr at step total_num_steps + 1.
PerEpoch warmup_rates(const DeepSpeedSection& section, optim::Optimizer& optimizer, bool decays) {
    const std::size_t groups = optimizer.group_count();
    const std::vector<double> low = section.numbers("warmup_min_lr", groups, 0);
    const std::vector<double> high = decays || section.has("warmup_max_lr")
                                         ? section.numbers("warmup_max_lr", groups, 0.001)
                                         : rates_of(optimizer);
    const Warmup warmup(section);
    const std::int64_t total = decays ? total_steps(section) : 0;
    return [=](std::size_t group, std::int64_t epoch) {
        const double from = of_group(low, group), to = of_group(high, group);
        if (epoch == 0) return from;
        const std::int64_t i = epoch - 1;
        double part = 1;
        if (i < warmup.steps())
            part = warmup.at(i);
        else if (decays)
            part = std::max(0.0, static_cast<double>(total - i) /
                                     std::max(1.0, static_cast<double>(total - warmup.steps())));
        return from + (to - from) * part;
    };
}

PerEpoch warmup_cosine_rates(const DeepSpeedSection& section, optim::Optimizer& optimizer) {
    const double low = section.number("warmup_min_ratio", 0),
                 end = section.number("cos_min_ratio", 0.0001);
    const Warmup warmup(section);
    const std::int64_t total = total_steps(section);
    const std::vector<double> rates = rates_of(optimizer);
    return [=](std::size_t group, std::int64_t epoch) {
        if (epoch == 0) return 0.0;
        const double rate = of_group(rates, group);
        const std::int64_t i = epoch - 1;
        if (i < warmup.steps()) return rate * (low + (1 - low) * warmup.at(i));
        const auto done = static_cast<double>(i - warmup.steps() + 1);
        const double all = std::max(1.0, static_cast<double>(total - warmup.steps()));
        const double cosine = (1 + std::cos(std::numbers::pi * std::min(1.0, done / all))) / 2;
        return rate * std::max(0.0, end + (1 - end) * cosine);
    };
}

PerEpoch range_test_rates(const DeepSpeedSection& section, optim::Optimizer& optimizer) {
    const std::vector<double> low =
        section.numbers("lr_range_test_min_lr", optimizer.group_count(), 0.001);
    const auto size = static_cast<double>(section.integer("lr_range_test_step_size", 2000, 1));
    const double rate = section.number("lr_range_test_step_rate", 1);
    const bool is_staircase = section.flag("lr_range_test_staircase", false);
    return [=](std::size_t group, std::int64_t epoch) {
        const double interval = static_cast<double>(epoch) / size;
        return of_group(low, group) * (1 + rate * (is_staircase ? std::floor(interval) : interval));
    };
}

// The shape of a OneCycle schedule: the position between the lowest and the highest value, and the
// decay after the cycle.
struct Cycle {
    explicit Cycle(const DeepSpeedSection& section)
        : first(section.number("cycle_first_step_size", 2000)),
          second(section.number("cycle_second_step_size", first)),
          first_stairs(section.number("cycle_first_stair_count", 0)),
          second_stairs(section.number("cycle_second_stair_count", first_stairs)),
          decay_step_size(section.number("decay_step_size", 0)) {
        if (first <= 0) section.fail("cycle_first_step_size", "above 0", first);
        if (second < 0) section.fail("cycle_second_step_size", "at least 0", second);
    }

    bool is_cycling(std::int64_t epoch) const {
        return static_cast<double>(epoch - 1) < first + second;
    }
    double position(std::int64_t epoch) const {
        const double total = first + second;
        const double t = std::fmod(static_cast<double>(epoch), total);
        const bool rises = t <= first;
        const double stairs = rises ? first_stairs : second_stairs;
        if (stairs > 0)
            return std::floor(rises ? t * stairs / first : (total - t) * stairs / second) / stairs;
        return rises ? t / first : (total - t) / second;
    }
    double decay(std::int64_t epoch, double rate) const {
        if (decay_step_size == 0 || rate == 0) return 1;
        return 1 + rate * (static_cast<double>(epoch) - first - second) / decay_step_size;
    }

    double first, second, first_stairs, second_stairs, decay_step_size;
};

PerEpoch cycle_rates(const DeepSpeedSection& section, std::size_t groups) {
    section.require("cycle_min_lr", "the lowest learning rate of the cycle");
    section.require("cycle_max_lr", "the highest learning rate of the cycle");
    const std::vector<double> low = section.numbers("cycle_min_lr", groups, 0),
                              high = section.numbers("cycle_max_lr", groups, 0);
    const double decay_rate = section.number("decay_lr_rate", 0);
    return [=, cycle = Cycle(section)](std::size_t group, std::int64_t epoch) {
        const double from = of_group(low, group);
        if (cycle.is_cycling(epoch))
            return from + (of_group(high, group) - from) * cycle.position(epoch);
        return from / cycle.decay(epoch, decay_rate);
    };
}

PerEpoch cycle_momentums(const DeepSpeedSection& section, std::size_t groups) {
    const std::vector<double> low = section.numbers("cycle_min_mom", groups, 0.8),
                              high = section.numbers("cycle_max_mom", groups, 0.9);
    const double decay_rate = section.number("decay_mom_rate", 0);
    return [=, cycle = Cycle(section)](std::size_t group, std::int64_t epoch) {
        const double from = of_group(low, group), to = of_group(high, group);
        if (epoch == 0) return from;
        if (cycle.is_cycling(epoch)) return to - (to - from) * cycle.position(epoch);
        return to * cycle.decay(epoch, decay_rate);
    };
}

template <class Adam>
bool set_second_beta(optim::Optimizer& optimizer) {
    constexpr double kSecondBeta = 0.99;
    auto* const adam = dynamic_cast<Adam*>(&optimizer);
    if (adam == nullptr) return false;
    for (auto& group : adam->param_groups()) group.betas[1] = kSecondBeta;
    return true;
}

std::unique_ptr<optim::Scheduler> make_one_cycle(const DeepSpeedSection& section,
                                                 optim::Optimizer& optimizer) {
    section.allow_only({"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
                        "cycle_second_step_size", "cycle_first_stair_count",
                        "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
                        "cycle_min_mom", "cycle_max_mom", "decay_mom_rate",
                        "last_batch_iteration"});
    const std::size_t groups = optimizer.group_count();
    const PerEpoch rates = cycle_rates(section, groups);
    PerEpoch momentums;
    if (section.flag("cycle_momentum", true)) {
        momentums = cycle_momentums(section, groups);
        if (!set_second_beta<optim::AdamW>(optimizer) && !set_second_beta<optim::Adam>(optimizer)) {
            log(LogLevel::warning,
                "OneCycle: cycle_momentum has no effect, because the optimizer "
                "has no betas; set it to false");
            momentums = {};
        }
    }
    return std::make_unique<DeepSpeedSchedule>(optimizer, rates, momentums);
}

void fill_auto(DeepSpeedConfig& config, optim::Optimizer& optimizer, const DummyScheduler& dummy,
               int num_processes) {
    const auto fill = [&](const char* name, const Tree& value) {
        const std::string whole = str("scheduler.params.", name);
        config.fill_match(whole, {{whole, value}});
    };
    fill("warmup_min_lr", 0);
    fill("warmup_max_lr", optimizer.group(0).lr);
    fill("warmup_num_steps", std::max<std::int64_t>(1, dummy.warmup_num_steps));
    if (dummy.total_num_steps)
        fill("total_num_steps", (*dummy.total_num_steps + num_processes - 1) / num_processes);
}

}  // namespace

std::unique_ptr<optim::Scheduler> make_scheduler(DeepSpeedConfig& config,
                                                 optim::Optimizer& optimizer,
                                                 const DummyScheduler& dummy, int num_processes) {
    fill_auto(config, optimizer, dummy, num_processes);
    const DeepSpeedSection section(config, "scheduler");
    if (section.number("last_batch_iteration", -1) != -1)
        section.fail("last_batch_iteration", "-1; to resume, load the state of the schedule",
                     section.number("last_batch_iteration", -1));
    const auto make = [&](const PerEpoch& rates) {
        return std::make_unique<DeepSpeedSchedule>(optimizer, rates);
    };
    if (section.type() == "WarmupLR" || section.type() == "WarmupDecayLR") {
        const bool decays = section.type() == "WarmupDecayLR";
        section.allow_only({"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
                            "last_batch_iteration", decays ? "total_num_steps" : "warmup_type"});
        return make(warmup_rates(section, optimizer, decays));
    }
    if (section.type() == "WarmupCosineLR") {
        section.allow_only({"total_num_steps", "warmup_min_ratio", "warmup_num_steps",
                            "cos_min_ratio", "warmup_type", "last_batch_iteration"});
        return make(warmup_cosine_rates(section, optimizer));
    }
    if (section.type() == "LRRangeTest") {
        section.allow_only({"lr_range_test_min_lr", "lr_range_test_step_size",
                            "lr_range_test_step_rate", "lr_range_test_staircase",
                            "last_batch_iteration"});
        return make(range_test_rates(section, optimizer));
    }
    if (section.type() == "OneCycle") return make_one_cycle(section, optimizer);
    throw ValueError(str("DeepSpeedConfig: ", config.source(),
                         ": scheduler.type: must be WarmupLR, WarmupDecayLR, WarmupCosineLR, "
                         "OneCycle or LRRangeTest: ",
                         in_quotes(section.type())));
}

}  // namespace axle::accel
