// Compares every schedule over forty steps with recordings of PyTorch and Transformers
// (tests/golden/record_schedules.py).
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"

namespace axle {
namespace {

using namespace optim;  // NOLINT: every schedule
using SchedulerPtr = std::unique_ptr<Scheduler>;

// The recorded arguments of a schedule, with their defaults.
struct Arguments {
    const Tree& spec;

    double number(const char* key, double default_value) const {
        const Tree* const found = spec.find(key);
        return found != nullptr ? found->number() : default_value;
    }
    std::int64_t integer(const char* key, std::int64_t default_value) const {
        return found(key).value_or(default_value);
    }
    std::optional<std::int64_t> found(const char* key) const {
        const Tree* const found = spec.find(key);
        if (found == nullptr || found->is_null()) return std::nullopt;
        return found->integer();
    }
    bool flag(const char* key, bool default_value) const {
        const Tree* const found = spec.find(key);
        return found != nullptr ? found->boolean() : default_value;
    }
    PerGroup per_group(const char* key, double default_value) const {
        const Tree* const found = spec.find(key);
        if (found == nullptr) return default_value;
        if (!found->is_list()) return found->number();
        std::vector<double> all;
        for (const Tree& one : found->elements()) all.push_back(one.number());
        return all;
    }
    std::vector<std::int64_t> milestones() const {
        std::vector<std::int64_t> all;
        for (const Tree& one : spec["milestones"].elements()) all.push_back(one.integer());
        return all;
    }
    bool is(const char* key, const char* value) const {
        const Tree* const found = spec.find(key);
        return found != nullptr && found->string() == value;
    }
    Anneal anneal() const {
        return is("anneal_strategy", "linear") ? Anneal::linear : Anneal::cosine;
    }
};

double function_at(const std::string& name, double t) {
    if (name == "hyperbola") return 1 / (1 + 0.1 * t);
    if (name == "power") return std::pow(0.9, t);
    if (name == "falling") return 1 - t / 100;
    if (name == "wave") return 1 + 0.2 * std::sin(t);
    throw ValueError("schedule_curves: expected a function of Transformers, got " + name);
}

template <class S>
SchedulerPtr make_from_functions(Optimizer& o, const Tree& names) {
    const auto function = [](const Tree& name) {
        return [name = name.string()](std::int64_t t) {
            return function_at(name, static_cast<double>(t));
        };
    };
    if (!names.is_list()) return std::make_unique<S>(o, function(names));
    std::vector<LrFactor> all;
    for (const Tree& name : names.elements()) all.emplace_back(function(name));
    return std::make_unique<S>(o, all);
}

SchedulerPtr cyclic(Optimizer& o, const Arguments& a) {
    CyclicOptions options{.step_size_up = a.integer("step_size_up", 2000),
                          .step_size_down = a.found("step_size_down"),
                          .gamma = a.number("gamma", 1),
                          .cycle_momentum = a.flag("cycle_momentum", true),
                          .base_momentum = a.per_group("base_momentum", 0.8),
                          .max_momentum = a.per_group("max_momentum", 0.9)};
    if (a.is("mode", "triangular2")) options.mode = CyclicMode::triangular2;
    if (a.is("mode", "exp_range")) options.mode = CyclicMode::exp_range;
    if (a.is("scale_mode", "iterations")) options.scale_mode = CyclicScale::iterations;
    if (const Tree* const name = a.spec.find("scale_fn"))
        options.scale_fn = [name = name->string()](double x) { return function_at(name, x); };
    return std::make_unique<CyclicLR>(o, a.per_group("base_lr", 0), a.per_group("max_lr", 0),
                                      options);
}

SchedulerPtr one_cycle(Optimizer& o, const Arguments& a) {
    return std::make_unique<OneCycleLR>(
        o, a.per_group("max_lr", 0), a.integer("total_steps", 0),
        OneCycleOptions{.pct_start = a.number("pct_start", 0.3),
                        .anneal = a.anneal(),
                        .cycle_momentum = a.flag("cycle_momentum", true),
                        .base_momentum = a.per_group("base_momentum", 0.85),
                        .max_momentum = a.per_group("max_momentum", 0.95),
                        .div_factor = a.number("div_factor", 25),
                        .final_div_factor = a.number("final_div_factor", 1e4),
                        .three_phase = a.flag("three_phase", false)});
}

SchedulerPtr plateau(Optimizer& o, const Arguments& a) {
    PlateauOptions options{.factor = a.number("factor", 0.1),
                           .patience = a.integer("patience", 10),
                           .threshold = a.number("threshold", 1e-4),
                           .cooldown = a.integer("cooldown", 0),
                           .min_lr = a.per_group("min_lr", 0),
                           .eps = a.number("eps", 1e-8)};
    if (a.is("mode", "max")) options.mode = MetricMode::max;
    if (a.is("threshold_mode", "abs")) options.threshold_mode = ThresholdMode::abs;
    return std::make_unique<ReduceLROnPlateau>(o, options);
}

SchedulerPtr build(const Tree& spec, Optimizer& o);

ComposedScheduler::Parts parts(const Tree& spec, Optimizer& o) {
    ComposedScheduler::Parts all;
    for (const Tree& part : spec["schedulers"].elements()) all.push_back(build(part, o));
    return all;
}

SchedulerPtr build(const Tree& spec, Optimizer& o) {
    const Arguments a{spec};
    if (const Tree* const by_name = spec.find("get_scheduler")) {
        const Tree* const kwargs = spec.find("scheduler_specific_kwargs");
        return get_scheduler(by_name->string(), o, a.found("num_warmup_steps"),
                             a.found("num_training_steps"), kwargs != nullptr ? *kwargs : Tree());
    }
    const std::string name = spec["class"].string();
    if (name == "LambdaLR") return make_from_functions<LambdaLR>(o, spec["lr_lambda"]);
    if (name == "MultiplicativeLR")
        return make_from_functions<MultiplicativeLR>(o, spec["lr_lambda"]);
    if (name == "StepLR")
        return std::make_unique<StepLR>(o, a.integer("step_size", 0), a.number("gamma", 0.1));
    if (name == "MultiStepLR")
        return std::make_unique<MultiStepLR>(o, a.milestones(), a.number("gamma", 0.1));
    if (name == "ConstantLR")
        return std::make_unique<ConstantLR>(o, a.number("factor", 1.0 / 3),
                                            a.integer("total_iters", 5));
    if (name == "LinearLR")
        return std::make_unique<LinearLR>(o, a.number("start_factor", 1.0 / 3),
                                          a.number("end_factor", 1), a.integer("total_iters", 5));
    if (name == "ExponentialLR") return std::make_unique<ExponentialLR>(o, a.number("gamma", 0));
    if (name == "PolynomialLR")
        return std::make_unique<PolynomialLR>(o, a.integer("total_iters", 5), a.number("power", 1));
    if (name == "CosineAnnealingLR")
        return std::make_unique<CosineAnnealingLR>(o, a.integer("T_max", 0),
                                                   a.number("eta_min", 0));
    if (name == "CosineAnnealingWarmRestarts")
        return std::make_unique<CosineAnnealingWarmRestarts>(
            o, a.integer("T_0", 0), a.integer("T_mult", 1), a.number("eta_min", 0));
    if (name == "SWALR")
        return std::make_unique<SWALR>(o, a.per_group("swa_lr", 0), a.integer("anneal_epochs", 10),
                                       a.anneal());
    if (name == "CyclicLR") return cyclic(o, a);
    if (name == "OneCycleLR") return one_cycle(o, a);
    if (name == "ReduceLROnPlateau") return plateau(o, a);
    if (name == "SequentialLR")
        return std::make_unique<SequentialLR>(o, parts(spec, o), a.milestones());
    if (name == "ChainedScheduler") return std::make_unique<ChainedScheduler>(parts(spec, o));
    throw ValueError("schedule_curves: expected a scheduler class of PyTorch, got " + name);
}

template <class O, class Options>
std::unique_ptr<Optimizer> optimizer_of(const Tree& rates, Options options) {
    std::vector<typename O::Group> groups;
    for (const Tree& lr : rates.elements()) {
        options.lr = lr.number();
        groups.push_back({{zeros({2}, {.requires_grad = true})}, options});
    }
    return std::make_unique<O>(std::move(groups));
}

// A training loop that only steps the schedule.
struct Training {
    explicit Training(const Tree& recorded) : c(recorded) {
        optimizer = c["optimizer"].string() == "sgd"
                        ? optimizer_of<SGD>(c["rates"], SGDOptions{.momentum = 0.5})
                        : optimizer_of<AdamW>(c["rates"], AdamWOptions{});
        schedule = build(c["schedule"], *optimizer);
    }

    void step(std::int64_t t) {
        const Tree* const sets = c.find("set");
        if (const Tree* const rates = sets != nullptr ? sets->find(std::to_string(t)) : nullptr)
            for (std::size_t g = 0; g < optimizer->group_count(); ++g)
                optimizer->group(g).lr = (*rates)[g].number();
        if (auto* const metric_schedule = dynamic_cast<MetricScheduler*>(schedule.get()))
            metric_schedule->step(c["metrics"][t].number());
        else
            schedule->step();
    }

    // Expects the recorded rates and momenta after t steps.
    void expect_at(std::int64_t t) const {
        const Tree &lr = c["lr"][t], &all = c["momentum"];
        const Tree& momentum = all[all.size() == 1 ? 0 : t];
        const auto close = [](double actual, double expected) {
            return std::abs(actual - expected) <= 1e-12 * std::max(1.0, std::abs(expected));
        };
        for (std::size_t g = 0; g < optimizer->group_count(); ++g) {
            const GroupRef group = optimizer->group(g);
            ASSERT_PRED2(close, group.lr, lr[g].number()) << "group " << g << ", step " << t;
            ASSERT_PRED2(close, group.momentum, momentum[g].number()) << "step " << t;
            ASSERT_EQ(schedule->get_last_lr()[g], group.lr);
        }
    }

    const Tree& c;
    std::unique_ptr<Optimizer> optimizer;
    SchedulerPtr schedule;
};

void for_each_case(const std::function<void(const Tree&)>& visit) {
    const Tree file = from_json(read_file(AXLE_TESTS_DIR "/golden/schedules.json"));
    ASSERT_GT(file["cases"].size(), 90U);
    for (const Tree& c : file["cases"].elements()) {
        SCOPED_TRACE(to_json(c["schedule"], 0));
        visit(c);
    }
}

// Covers 5.param.
TEST(Schedules, MatchPyTorchAndTransformers) {
    for_each_case([](const Tree& c) {
        Training run(c);
        run.expect_at(0);
        for (std::int64_t t = 0; t < c["steps"].integer(); ++t) {
            run.step(t);
            run.expect_at(t + 1);
        }
        EXPECT_EQ(run.schedule->last_epoch(), c["steps"].integer());
        EXPECT_EQ(run.schedule->step_count(), c["steps"].integer() + 1);
    });
}

TEST(Schedules, HaveARecordedCaseForEachNameOfTransformers) {
    std::set<std::string> seen;
    for_each_case([&](const Tree& c) {
        if (const Tree* const name = c["schedule"].find("get_scheduler"))
            seen.insert(name->string());
    });
    const std::vector<std::string> names = scheduler_names();
    EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end()));
}

TEST(Schedules, ContinueFromSavedState) {
    for_each_case([](const Tree& c) {
        Training first(c), second(c);
        const std::int64_t at = c["state_at"].integer();
        for (std::int64_t t = 0; t < at; ++t) first.step(t);
        second.optimizer->load_state_dict(first.optimizer->state_dict());
        // Saving to a file also converts the state to JSON and back.
        second.schedule->load_state_dict(from_json(to_json(first.schedule->state_dict())));
        EXPECT_EQ(second.schedule->last_epoch(), first.schedule->last_epoch());
        EXPECT_EQ(second.schedule->step_count(), first.schedule->step_count());
        for (std::int64_t t = at; t < c["steps"].integer(); ++t) {
            second.expect_at(t);
            second.step(t);
        }
        second.expect_at(c["steps"].integer());
    });
}

TEST(Schedules, ContinueFromPyTorchState) {
    for_each_case([](const Tree& c) {
        Training run(c);
        const std::int64_t at = c["state_at"].integer();
        run.schedule->load_state_dict(c["state"]);
        const Tree &lr = c["lr"][at], &momentum = c["momentum"];
        for (std::size_t g = 0; g < run.optimizer->group_count(); ++g) {
            const GroupRef group = run.optimizer->group(g);
            group.lr = lr[g].number();
            group.momentum = momentum[momentum.size() == 1 ? 0 : at][g].number();
        }
        for (std::int64_t t = at; t < c["steps"].integer(); ++t) {
            run.expect_at(t);
            run.step(t);
        }
        run.expect_at(c["steps"].integer());
    });
}

// Keys of values in PyTorch's state that are internal or computed from other values.
const std::set<std::string> kNotCompared = {
    "_get_lr_called_within_step", "_is_initial",    "_scale_fn_custom", "use_beta1",
    "_schedule_phases",           "default_min_lr", "mode_worse",       "verbose"};

void expect_same_state(const Tree& ours, const Tree& theirs, const std::string& at) {
    if (ours.is_map()) {
        for (const auto& [key, value] : theirs.entries())
            EXPECT_TRUE(ours.contains(key) || kNotCompared.contains(key)) << at << key;
        for (const auto& [key, value] : ours.entries()) {
            // Some PyTorch classes do not count their steps, and warm restarts leave the count at
            // 0.
            const bool counts = theirs.contains(key) && !theirs.contains("T_cur");
            if (key == "lr_lambdas" || (key == "_step_count" && !counts)) continue;
            if (key == "last_epoch" && theirs.contains("_schedulers") && !theirs.contains(key))
                continue;
            ASSERT_TRUE(theirs.contains(key)) << at << key;
            expect_same_state(value, theirs[key], at + key + ".");
        }
    } else if (ours.is_list()) {
        ASSERT_EQ(ours.size(), theirs.size()) << at;
        for (std::size_t i = 0; i < ours.size(); ++i) expect_same_state(ours[i], theirs[i], at);
    } else if (ours.is_number()) {
        const double expected = theirs.number();
        const bool same =
            ours.number() == expected ||
            std::abs(ours.number() - expected) <= 1e-12 * std::max(1.0, std::abs(expected));
        EXPECT_TRUE(same) << at << " " << ours.number() << " " << expected;
    } else {
        EXPECT_EQ(to_json(ours), to_json(theirs)) << at;
    }
}

TEST(Schedules, SaveSameStateAsPyTorch) {
    for_each_case([](const Tree& c) {
        Training run(c);
        for (std::int64_t t = 0; t < c["state_at"].integer(); ++t) run.step(t);
        expect_same_state(run.schedule->state_dict(), c["state"], "");
    });
}

}  // namespace
}  // namespace axle
