// Tests that compiled steps give the same results as eager steps, for different kinds of steps and
// for changes between steps.
#include <cmath>
#include <functional>
#include <optional>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "core/cuda/graph.h"
#include "core/ops.h"
#include "core/random.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "tests/close.h"
#include "tests/cuda/compiled_training.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

// The objects of a training run. A test passes a Body that runs one step with these objects.
struct Training {
    explicit Training(const accel::AcceleratorOptions& options)
        : adamw(net.parameters(), {.lr = 0.05}), schedule(adamw, 3, 0.5), accelerator(options) {
        accelerator.prepare(net, adamw, schedule);
    }
    Tensor loss(const Tree& batch) { return cross_entropy(net(batch["x"]), batch["y"]); }
    // Runs one micro-batch: forward, backward, optimizer step, scheduler step and zero_grad. Clips
    // gradients before an update unless max_norm is 0.
    Tensor usual(Tree& batch, double max_norm = 0) {
        auto scope = accelerator.accumulate(net);
        const Tensor value = loss(batch);
        accelerator.backward(value);
        if (max_norm > 0 && accelerator.sync_gradients())
            accelerator.clip_grad_norm_(net.parameters(), max_norm);
        adamw.step();
        schedule.step();
        adamw.zero_grad();
        return value;
    }

    Net net;
    optim::AdamW adamw;
    optim::StepLR schedule;
    Accelerator accelerator;
};

using Body = std::function<Tensor(Training&, Tree&)>;
using Between = std::function<void(Training&, int)>;

struct Result {
    std::vector<double> losses;
    std::vector<Tensor> weights;
    std::int64_t captures = 0, replays = 0;
    double lr = 0;
};

Tree batch_number(int i, std::int64_t rows) {
    manual_seed(static_cast<std::uint64_t>(100 + i));
    return {{"x", randn({rows, 6}, {.device = kGpu})}, {"y", randint(0, 3, {rows}, {i64, kGpu})}};
}

class CompiledTraining : public DeterministicGpuTest {
  protected:
    Result train(bool compiled, const Body& body) const {
        manual_seed(21);
        Training t(options);
        auto step = t.accelerator.compile([&](Tree& batch) { return body(t, batch); });
        Result result;
        for (int i = 0; i < steps; ++i) {
            if (between) between(t, i);
            Tree batch = batch_number(i, i == short_batch ? 3 : 5);
            result.losses.push_back(compiled ? step(batch).item() : body(t, batch).item());
        }
        for (const Tensor& p : t.net.parameters())
            result.weights.push_back(to(p.detach(), Device::cpu()));
        result.captures = step.captures();
        result.replays = step.replays();
        result.lr = t.adamw.param_groups()[0].lr;
        return result;
    }

    Result expect_alike(const Body& body) const {
        const Result eager = train(false, body), compiled = train(true, body);
        EXPECT_EQ(compiled.losses, eager.losses);
        EXPECT_EQ(compiled.lr, eager.lr);
        for (std::size_t i = 0; i < eager.weights.size(); ++i)
            expect_same_bits(compiled.weights[i], eager.weights[i]);
        return compiled;
    }

    static Tensor usual(Training& t, Tree& batch) { return t.usual(batch); }

    accel::AcceleratorOptions options;
    Between between;
    int steps = 14;
    int short_batch = -1;  // the number of a batch with fewer rows
};

// With accumulation there are two kinds of steps, with and without an update. Their graphs together
// need only the memory of one step.
TEST_F(CompiledTraining, SharesMemoryBetweenStepsWithAndWithoutAnUpdate) {
    options.gradient_accumulation_steps = 2;
    steps = 24;
    cuda::empty_cache();
    const std::int64_t before = cuda::memory_stats().reserved;
    std::int64_t reserved = 0;
    between = [&](Training&, int i) {
        if (i == steps - 1) reserved = cuda::memory_stats().reserved - before;
    };
    const Result result = train(true, [](Training& t, Tree& batch) {
        const Tensor activations = empty({64 << 20}, {.dtype = u8, .device = kGpu});
        return t.usual(batch);
    });
    EXPECT_GE(result.captures, 2);
    EXPECT_GT(result.replays, 0);
    EXPECT_GE(reserved, 64 << 20);
    EXPECT_LT(reserved, 120 << 20);
}

TEST_F(CompiledTraining, MatchesTheEagerStepBitForBit) {
    short_batch = 8;
    for (const int accumulation : {1, 2, 4}) {
        SCOPED_TRACE(accumulation);
        options.gradient_accumulation_steps = accumulation;
        steps = accumulation == 4 ? 34 : 14;
        const Result result =
            expect_alike([](Training& t, Tree& batch) { return t.usual(batch, 1.0); });
        EXPECT_GT(result.captures, 0);
        if (accumulation == 1) {
            EXPECT_EQ(result.replays, 14 - 3 - 1 - 1);
        }
    }
}

TEST_F(CompiledTraining, UsesUpdatedWeightsInBf16AfterEvaluations) {
    options.mixed_precision = "bf16";
    // Caches casts of the weights, so that the capture of the next step finds them.
    between = [](Training& t, int i) {
        const NoGrad no_grad;
        if (i % 3 == 0) t.net(full({2, 6}, 1.0, {.device = kGpu}));
    };
    EXPECT_EQ(expect_alike(usual).captures, 1);
}

TEST_F(CompiledTraining, MatchesTheEagerStepWithAccumulationInBf16) {
    options.mixed_precision = "bf16";
    options.gradient_accumulation_steps = 4;
    steps = 40;
    EXPECT_GT(expect_alike(usual).replays, 15);
}

TEST_F(CompiledTraining, FallsBackToEagerWhenCaptureFails) {
    options.mixed_precision = "bf16";
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value = t.usual(batch);
        static_cast<void>(t.loss(batch));  // caches casts of the new weights
        if (is_capturing()) throw std::runtime_error("not this way");
        return value;
    });
    EXPECT_EQ(result.captures, 0);
}

TEST_F(CompiledTraining, FallsBackToEagerWhenTheStepReadsAValue) {
    Net net;
    Accelerator accelerator;
    accelerator.prepare(net);
    auto step = accelerator.compile([&](Tree& batch) {
        const Tensor y = net(batch["x"]).sum();
        if (y.item() > 1e30) throw ValueError("diverged");
        return y;
    });
    for (int i = 0; i < 6; ++i) {
        Tree batch{{"x", full({2, 6}, i, {f32, kGpu})}};
        EXPECT_TRUE(std::isfinite(step(batch).item()));
    }
    EXPECT_EQ(step.eager_steps(), 6);
    EXPECT_EQ(step.captures(), 0);
}

TEST_F(CompiledTraining, MatchesEagerTrainingWithZeroGradAtTheBeginningOfAStep) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        t.adamw.zero_grad();
        const Tensor value = t.loss(batch);
        t.accelerator.backward(value);
        t.adamw.step();
        return value;
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_GT(result.replays, 4);
}

TEST_F(CompiledTraining, MatchesEagerTrainingIfGradientsAreFilledWithZeros) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value = t.loss(batch);
        t.accelerator.backward(value);
        t.adamw.step();
        t.adamw.zero_grad(false);
        return value;
    });
    EXPECT_EQ(result.captures, 1);
    EXPECT_GT(result.replays, 4);
}

TEST_F(CompiledTraining, MatchesEagerTrainingIfTheOptimizerStepsBeforeBackward) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        t.adamw.step();
        t.adamw.zero_grad();
        const Tensor value = t.loss(batch);
        t.accelerator.backward(value);
        return value;
    });
    EXPECT_GT(result.replays, 4);
}

TEST_F(CompiledTraining, MatchesEagerTrainingIfSchedulersStepBeforeTheOptimizer) {
    steps = 20;
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value = t.loss(batch);
        t.accelerator.backward(value);
        t.schedule.step();
        t.adamw.step();
        t.adamw.zero_grad();
        return value;
    });
    EXPECT_LE(result.captures, 1);
}

TEST_F(CompiledTraining, MatchesEagerTrainingWithSeveralMicroBatchesPerStep) {
    options.gradient_accumulation_steps = 5;
    steps = 40;
    EXPECT_GT(expect_alike([](Training& t, Tree& batch) {
                  return t.usual(batch) + t.usual(batch);
              }).replays,
              10);
}

TEST_F(CompiledTraining, RecapturesAfterLoadingOrFreezingWeights) {
    const TemporaryFolder folder;
    steps = 30;
    between = [&](Training& t, int i) {
        if (i == 7) t.accelerator.save_state(folder / "state");
        if (i == 12) t.accelerator.load_state(folder / "state");
        if (i == 20) t.net.up.requires_grad_(false);
    };
    EXPECT_EQ(expect_alike(usual).captures, 3);
}

TEST_F(CompiledTraining, RequiresAWarmupStep) {
    Training t({});
    expect_error<ValueError>({"compile: warmup_steps must be at least 1", "0"}, [&] {
        static_cast<void>(t.accelerator.compile([&](Tree& batch) { return t.usual(batch); },
                                                {.warmup_steps = 0}));
    });
}

}  // namespace
}  // namespace axle::tests
