// Tests that compiled steps give the same results as eager steps in f16, and in bf16 with several
// updates per step. In compiled f16 steps, only the GPU decides which updates are skipped.
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/log.h"
#include "optim/adam.h"
#include "optim/grad_scaler.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/cuda/compiled_training.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

struct Training {
    using Schedule = std::unique_ptr<optim::Scheduler>;

    explicit Training(const accel::AcceleratorOptions& options,
                      const std::function<Schedule(optim::Optimizer&)>& make_schedule)
        : adamw({{{net.up.weight, net.up.bias}, {.lr = 0.05}},
                 {{net.down.weight, net.down.bias}, {.lr = 0.02, .weight_decay = 0}}}),
          schedule(make_schedule(adamw)),
          accelerator(options) {
        accelerator.prepare(net, adamw, *schedule);
    }

    // Runs one micro-batch: forward, backward, clipping, optimizer step, scheduler step and
    // zero_grad.
    Tensor usual(Tree& batch) {
        auto scope = accelerator.accumulate(net);
        const Tensor value = cross_entropy(net(batch["x"]), batch["y"]) * batch["factor"].tensor();
        accelerator.backward(value);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(net.parameters(), 0.5);
        adamw.step();
        schedule->step();
        adamw.zero_grad();
        return value;
    }

    Net net;
    optim::AdamW adamw;
    Schedule schedule;
    Accelerator accelerator;
};

using Body = std::function<Tensor(Training&, Tree&)>;

struct Result {
    std::vector<double> losses;
    std::vector<Tensor> tensors;  // weights and optimizer state
    std::string rest;             // parameter groups, state of scheduler and scaler
    std::int64_t eager = 0, captures = 0, replays = 0;
};

class Fp16CompiledTraining : public DeterministicGpuTest {
  protected:
    void SetUp() override {
        DeterministicGpuTest::SetUp();
        options.mixed_precision = "fp16";
        options.grad_scaler_kwargs =
            accel::GradScalerKwargs{.init_scale = 256, .growth_interval = 4};
    }

    Tree batch_number(int i) const {
        manual_seed(static_cast<std::uint64_t>(100 + i));
        const double factor = infinite.contains(i) ? std::numeric_limits<double>::infinity() : 1.0;
        return {{"x", randn({5, 6}, {.device = kGpu})},
                {"y", randint(0, 3, {5}, {i64, kGpu})},
                {"factor", full({}, factor, {.device = kGpu})}};
    }

    Result train(bool compiled, const Body& body) const {
        manual_seed(21);
        Training t(options, make_schedule);
        auto step = t.accelerator.compile([&](Tree& batch) { return body(t, batch); });
        Result result;
        for (int i = 0; i < steps; ++i) {
            if (between) between(t, i);
            Tree batch = batch_number(i);
            result.losses.push_back(compiled ? step(batch).item() : body(t, batch).item());
            if (after) after(t, i, result);
        }
        for (const Tensor& p : t.net.parameters())
            result.tensors.push_back(to(p.detach(), Device::cpu()));
        Tree state = t.adamw.state_dict();
        for_each_tensor(state["state"],
                        [&](const Tensor& x) { result.tensors.push_back(to(x, Device::cpu())); });
        result.rest += to_json(state["param_groups"]) + to_json(t.schedule->state_dict());
        if (t.accelerator.scaler() != nullptr)
            result.rest += to_json(t.accelerator.scaler()->state_dict());
        result.eager = step.eager_steps();
        result.captures = step.captures();
        result.replays = step.replays();
        return result;
    }

    Result expect_alike(const Body& body = usual) const {
        const Result eager = train(false, body), compiled = train(true, body);
        for (std::size_t i = 0; i < eager.losses.size(); ++i)
            EXPECT_EQ(str(compiled.losses[i]), str(eager.losses[i])) << i;
        EXPECT_EQ(compiled.tensors.size(), eager.tensors.size());
        for (std::size_t i = 0; i < eager.tensors.size(); ++i)
            expect_same_bits(compiled.tensors[i], eager.tensors[i]);
        EXPECT_EQ(compiled.rest, eager.rest);
        return compiled;
    }

    static Tensor usual(Training& t, Tree& batch) { return t.usual(batch); }

    accel::AcceleratorOptions options;
    std::function<Training::Schedule(optim::Optimizer&)> make_schedule =
        [](optim::Optimizer& optimizer) {
            return std::make_unique<optim::CosineAnnealingLR>(optimizer, 9, 0.001);
        };
    std::set<int> infinite = {2, 6, 7, 11};
    std::function<void(Training&, int)> between;
    std::function<void(Training&, int, Result&)> after;
    int steps = 18;
};

TEST_F(Fp16CompiledTraining, SkipsTheSameStepsAsEagerTraining) {
    const Result result = expect_alike();
    EXPECT_EQ(result.captures, 1);
    EXPECT_EQ(result.replays, steps - 4);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithTwoMicroBatches) {
    options.gradient_accumulation_steps = 2;
    steps = 36;
    EXPECT_GT(expect_alike().replays, 12);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithFourMicroBatches) {
    options.gradient_accumulation_steps = 4;
    steps = 60;
    infinite = {1, 13, 26, 37, 51, 52};
    EXPECT_GT(expect_alike().replays, 20);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithSeveralUpdatesPerStep) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor first = t.usual(batch);
        Tree other = {{"x", batch["x"].tensor() * 0.5},
                      {"y", batch["y"]},
                      {"factor", ones({}, {.device = kGpu})}};
        return first + t.usual(other);
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_GT(result.replays, 8);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingIfSchedulersStepBeforeTheOptimizer) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value =
            cross_entropy(t.net(batch["x"]), batch["y"]) * batch["factor"].tensor();
        t.accelerator.backward(value);
        t.schedule->step();
        t.adamw.step();
        t.adamw.zero_grad();
        return value;
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_GT(result.replays, 8);
}

TEST_F(Fp16CompiledTraining, ReturnsCurrentRatesScalesAndSkipsBetweenSteps) {
    after = [](Training& t, int i, Result& result) {
        if (i % 3 == 0) result.losses.push_back(t.schedule->get_last_lr()[1]);
        if (i % 4 == 1) result.losses.push_back(t.adamw.param_groups()[0].lr);
        if (i % 5 == 2) result.losses.push_back(static_cast<double>(t.schedule->last_epoch()));
        if (i % 7 == 3) result.losses.push_back(t.accelerator.scaler()->get_scale());
        if (i % 2 == 1) result.losses.push_back(t.accelerator.optimizer_step_was_skipped() ? 1 : 0);
    };
    EXPECT_EQ(expect_alike().captures, 1);
}

TEST_F(Fp16CompiledTraining, UsesManuallySetLearningRatesAndBetas) {
    between = [](Training& t, int i) {
        if (i == 9) t.adamw.param_groups()[0].lr = 0.5;
        if (i == 14) t.schedule->advance();
        if (i == 16) t.adamw.param_groups()[1].betas = {0.5, 0.9};
    };
    EXPECT_EQ(expect_alike().captures, 1);
}

// A write through a reference that was obtained earlier does not notify the optimizer.
TEST_F(Fp16CompiledTraining, UsesLearningRatesSetThroughAReference) {
    optim::AdamW::Group* group = nullptr;
    between = [&](Training& t, int i) {
        if (i == 0) group = &t.adamw.param_groups()[0];
        if (i == 10 || i == 12 || i == 16) group->lr = 0.03 * i;
    };
    EXPECT_EQ(expect_alike().captures, 1);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithLoadStateAndEagerStepsBetweenReplays) {
    const TemporaryFolder folder;
    steps = 26;
    between = [&](Training& t, int i) {
        if (i == 9) t.accelerator.save_state(folder / "state");
        if (i == 13) t.accelerator.load_state(folder / "state");
        if (i == 20 || i == 21) {
            Tree batch = batch_number(1000 + i);
            t.usual(batch);
        }
    };
    EXPECT_EQ(expect_alike().captures, 2);
}

TEST_F(Fp16CompiledTraining, UsesTheScheduledLearningRatesOf1100StepsInALongRun) {
    steps = 1100;
    infinite = {5, 500, 501, 1020, 1021};
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value = sum(t.net.down.weight * batch["factor"].tensor());
        t.accelerator.backward(value);
        t.adamw.step();
        t.schedule->step();
        t.adamw.zero_grad();
        return value;
    });
    EXPECT_EQ(result.replays, steps - 4);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingIfASchedulerReachesItsEnd) {
    make_schedule = [](optim::Optimizer& optimizer) {
        return std::make_unique<optim::OneCycleLR>(optimizer, 0.1, 15);
    };
    const Result result = expect_alike();
    EXPECT_EQ(result.captures, 1);
}

struct Plateau : optim::LambdaLR {
    explicit Plateau(optim::Optimizer& optimizer)
        : LambdaLR(optimizer, [](std::int64_t t) { return 1 / (1.0 + static_cast<double>(t)); }) {}
    bool can_look_ahead() const override { return false; }
};

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithASchedulerWithoutLookahead) {
    make_schedule = [](optim::Optimizer& optimizer) {
        return std::make_unique<Plateau>(optimizer);
    };
    const Result result = expect_alike();
    EXPECT_EQ(result.captures, 1);
    EXPECT_EQ(result.replays, steps - 4);
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithSeveralSchedulers) {
    std::unique_ptr<optim::StepLR> second;
    Training* owner = nullptr;
    const Body both = [&](Training& t, Tree& batch) {
        if (owner != &t) {
            second = std::make_unique<optim::StepLR>(t.adamw, 2, 0.7);
            t.accelerator.prepare(*second);
            owner = &t;
        }
        second->step();
        return t.usual(batch);
    };
    const Result eager = train(false, both);
    owner = nullptr;
    const Result compiled = train(true, both);
    for (std::size_t i = 0; i < eager.tensors.size(); ++i)
        expect_same_bits(compiled.tensors[i], eager.tensors[i]);
    EXPECT_EQ(compiled.rest, eager.rest);
    EXPECT_GT(compiled.replays, 8);
}

TEST_F(Fp16CompiledTraining, IsNotCapturedIfASchedulerWithoutLookaheadStepsTwiceInOneStep) {
    make_schedule = [](optim::Optimizer& optimizer) {
        return std::make_unique<Plateau>(optimizer);
    };
    std::string warning;
    set_log_sink([&](LogLevel, std::string_view text) { warning = text; });
    const Result result = expect_alike([](Training& t, Tree& batch) {
        t.usual(batch);
        return t.usual(batch);
    });
    set_log_sink({});
    EXPECT_EQ(result.captures, 0);
    EXPECT_NE(warning.find("between two steps of its optimizer"), std::string::npos) << warning;
}

TEST_F(Fp16CompiledTraining, MatchesEagerTrainingIfSchedulersStepPerIteration) {
    options.step_scheduler_with_optimizer = false;
    EXPECT_EQ(expect_alike().captures, 1);
}

class Bf16CompiledTraining : public Fp16CompiledTraining {};

TEST_F(Bf16CompiledTraining, MatchesEagerTrainingWithSeveralUpdatesPerStep) {
    options.mixed_precision = "bf16";
    infinite.clear();
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor first = t.usual(batch);
        return first + t.usual(batch);
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_GT(result.replays, 8);
}

// A second model has its own optimizer. Each model has its own backward and step in an iteration.
TEST_F(Fp16CompiledTraining, MatchesEagerTrainingWithTwoOptimizers) {
    Net* other_net = nullptr;
    std::unique_ptr<Net> net;
    std::unique_ptr<optim::SGD> sgd;
    std::unique_ptr<optim::StepLR> step_lr;
    between = [&](Training& t, int i) {
        if (i != 0) return;
        net = std::make_unique<Net>();
        t.accelerator.prepare(*net);
        sgd = std::make_unique<optim::SGD>(net->parameters(),
                                           optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
        step_lr = std::make_unique<optim::StepLR>(*sgd, 2, 0.8);
        t.accelerator.prepare(*sgd, *step_lr);
        other_net = net.get();
    };
    after = [&](Training&, int, Result& result) {
        result.losses.push_back(sum(other_net->up.weight).item());
        if (result.losses.size() % 5 == 0) result.losses.push_back(step_lr->get_last_lr()[0]);
    };
    const Result result = expect_alike([&](Training& t, Tree& batch) {
        auto scope = t.accelerator.accumulate(t.net, *net);
        const Tensor mine = cross_entropy(t.net(batch["x"]), batch["y"]);
        t.accelerator.backward(mine * batch["factor"].tensor());
        const Tensor theirs = cross_entropy((*net)(batch["x"]), batch["y"]);
        t.accelerator.backward(theirs);
        t.adamw.step();
        sgd->step();
        t.schedule->step();
        step_lr->step();
        t.adamw.zero_grad();
        sgd->zero_grad();
        return mine + theirs;
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_EQ(result.replays, steps - 4);
}

TEST_F(Fp16CompiledTraining, FallsBackToEagerIfTheStepQueriesSkippedSteps) {
    std::string warning;
    set_log_sink([&](LogLevel, std::string_view text) { warning = text; });
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor loss = t.usual(batch);
        static_cast<void>(t.accelerator.optimizer_step_was_skipped());
        return loss;
    });
    set_log_sink({});
    EXPECT_EQ(result.captures, 0);
    EXPECT_NE(warning.find("captur"), std::string::npos) << warning;
}

}  // namespace
}  // namespace axle::tests
