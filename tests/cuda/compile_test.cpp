// Compiled steps give the same results as eager steps, for different kinds of steps and for changes
// between steps.
#include <filesystem>
#include <functional>
#include <optional>

#include "accel/accelerator.h"
#include "core/autograd/autograd.h"
#include "core/graph.h"
#include "core/numerics.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;

struct Net : nn::Model<Net> {
    Net() : up(6, 16), drop(0.3), down(16, 3) {}
    Tensor forward(const Tensor& x) { return down(drop(relu(up(x)))); }
    void visit(nn::Visitor& v) override { v("up", up), v("drop", drop), v("down", down); }
    nn::Linear up;
    nn::Dropout drop;
    nn::Linear down;
};

// The objects of a training run; tests replace its functions.
struct Training {
    explicit Training(const accel::AcceleratorOptions& options)
        : adamw(net.parameters(), {.lr = 0.05}), schedule(adamw, 3, 0.5), accelerator(options) {
        accelerator.prepare(net, adamw, schedule);
    }
    Tensor loss(const Tree& batch) { return cross_entropy(net(batch["x"]), batch["y"]); }
    // One micro-batch in the usual order.
    Tensor usual(Tree& batch) {
        auto scope = accelerator.accumulate(net);
        const Tensor value = loss(batch);
        accelerator.backward(value);
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
};

Tree batch_number(int i) {
    manual_seed(static_cast<std::uint64_t>(100 + i));
    return {{"x", randn({5, 6}, {.device = kGpu})}, {"y", randint(0, 3, {5}, {i64, kGpu})}};
}

class CompiledTraining : public GpuTest {
  protected:
    void SetUp() override {
        GpuTest::SetUp();
        use_deterministic_algorithms(true);
    }
    void TearDown() override { use_deterministic_algorithms(false); }

    Result train(bool compiled, const Body& body) const {
        manual_seed(21);
        Training t(options);
        auto step = t.accelerator.compile([&](Tree& batch) { return body(t, batch); });
        Result result;
        for (int i = 0; i < steps; ++i) {
            if (between) between(t, i);
            Tree batch = batch_number(i);
            result.losses.push_back(compiled ? step(batch).item() : body(t, batch).item());
        }
        for (const Tensor& p : t.net.parameters())
            result.weights.push_back(to(p.detach(), Device::cpu()));
        result.captures = step.captures();
        result.replays = step.replays();
        return result;
    }

    Result expect_alike(const Body& body) const {
        const Result eager = train(false, body), compiled = train(true, body);
        EXPECT_EQ(compiled.losses, eager.losses);
        for (std::size_t i = 0; i < eager.weights.size(); ++i)
            expect_same_bits(compiled.weights[i], eager.weights[i]);
        return compiled;
    }

    static Tensor usual(Training& t, Tree& batch) { return t.usual(batch); }

    accel::AcceleratorOptions options;
    Between between;
    int steps = 14;
};

TEST_F(CompiledTraining, SeesUpdatesInBf16BetweenEvaluations) {
    options.mixed_precision = "bf16";
    // Creates casts of the weights, which exist when the next step is captured.
    between = [](Training& t, int i) {
        const NoGrad no_grad;
        if (i % 3 == 0) t.net(full({2, 6}, 1, {.device = kGpu}));
    };
    EXPECT_EQ(expect_alike(usual).captures, 1);
}

TEST_F(CompiledTraining, AccumulatesInBf16AcrossEagerSteps) {
    options.mixed_precision = "bf16";
    options.gradient_accumulation_steps = 4;
    steps = 40;
    EXPECT_GT(expect_alike(usual).replays, 15);
}

TEST_F(CompiledTraining, FallsBackToEagerWhenCaptureFails) {
    options.mixed_precision = "bf16";
    const Result result = expect_alike([](Training& t, Tree& batch) {
        const Tensor value = t.usual(batch);
        static_cast<void>(t.loss(batch));  // leaves casts of the new weights
        if (is_capturing()) throw std::runtime_error("not this way");
        return value;
    });
    EXPECT_EQ(result.captures, 0);
}

TEST_F(CompiledTraining, SupportsZeroGradAtTheBeginning) {
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

TEST_F(CompiledTraining, SupportsFillingGradientsWithZeros) {
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

TEST_F(CompiledTraining, SupportsGradientsOfThePreviousStep) {
    const Result result = expect_alike([](Training& t, Tree& batch) {
        t.adamw.step();
        t.adamw.zero_grad();
        const Tensor value = t.loss(batch);
        t.accelerator.backward(value);
        return value;
    });
    EXPECT_GT(result.replays, 4);
}

TEST_F(CompiledTraining, SupportsSchedulersThatStepBeforeTheOptimizer) {
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

TEST_F(CompiledTraining, SupportsSeveralMicroBatchesPerStep) {
    options.gradient_accumulation_steps = 5;
    steps = 40;
    EXPECT_GT(expect_alike([](Training& t, Tree& batch) {
                  return t.usual(batch) + t.usual(batch);
              }).replays,
              10);
}

TEST_F(CompiledTraining, RecapturesAfterLoadingOrFreezingWeights) {
    const fs::path folder = fs::path(testing::TempDir()) / "axle_compiled_training";
    steps = 30;
    between = [&](Training& t, int i) {
        if (i == 7) t.accelerator.save_state(folder.string());
        if (i == 12) t.accelerator.load_state(folder.string());
        if (i == 20) t.net.up.requires_grad_(false);
    };
    EXPECT_EQ(expect_alike(usual).captures, 3);
    fs::remove_all(folder);
}

TEST_F(CompiledTraining, RequiresAWarmupStep) {
    Training t({});
    expect_error<ValueError>({"compile: at least one step", "0"}, [&] {
        static_cast<void>(t.accelerator.compile([&](Tree& batch) { return t.usual(batch); },
                                                {.warmup_steps = 0}));
    });
}

}  // namespace
}  // namespace axle::tests
