// Tests LOMO with the Accelerator, on one process and on two.
#include "optim/lomo.h"

#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::expect_error;

struct Pair : nn::Model<Pair> {
    nn::Linear in{4, 8};
    nn::Linear out{8, 1};
    Tensor forward(const Tensor& x) { return out(relu(in(x))); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out); }
};

Pair seeded() {
    manual_seed(5);
    return {};
}

Tensor rows(int from, int n) {
    std::vector<double> x;
    for (int i = from; i < from + n; ++i)
        for (int j = 0; j < 4; ++j) x.push_back(((i * 7 + j * 5) % 11 - 5) / 5.0);
    return tensor(x, {n, 4});
}

std::vector<double> values(const Pair& model) {
    std::vector<double> all;
    for (const Tensor& p : model.parameters())
        for (const double x : p.to_vector()) all.push_back(x);
    return all;
}

// Covers 3.lomo_backward.
TEST(LomoBackward, UpdatesParametersAndLeavesNoGradients) {
    Pair model = seeded();
    optim::Lomo lomo(model.parameters());
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(model, lomo);
    const Tensor x = rows(0, 6);
    double first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
        auto scope = accelerator.accumulate(model);
        const Tensor loss = tests::squared_error(model(x), sum(x, {1}, true));
        (step == 0 ? first : last) = loss.item();
        accelerator.lomo_backward(loss, 0.05);
        for (const Tensor& p : model.parameters()) EXPECT_FALSE(p.grad().defined());
        const std::vector<double> updated = values(model);
        lomo.step();
        lomo.zero_grad();
        EXPECT_EQ(values(model), updated);
    }
    EXPECT_LT(last, 0.5 * first);
}

// Only backward() divides the loss by the accumulation steps.
// Covers 3.backward, 3.lomo_backward.
TEST(BackwardWithALearningRate, MatchesLomoBackwardOfTheDividedLossAndRejectsRetainGraph) {
    const auto updated = [](const auto& backward) {
        Pair model = seeded();
        optim::Lomo lomo(model.parameters());
        Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
        accelerator.prepare(model, lomo);
        const auto scope = accelerator.accumulate(model);
        const Tensor x = rows(0, 6);
        backward(accelerator, tests::squared_error(model(x), sum(x, {1}, true)));
        return values(model);
    };
    const std::vector<double> expected = updated([](Accelerator& accelerator, const Tensor& loss) {
        accelerator.lomo_backward(loss / 2.0, 0.05);
    });
    EXPECT_NE(expected, values(seeded()));
    EXPECT_EQ(updated([](Accelerator& accelerator, const Tensor& loss) {
                  accelerator.backward(loss, {.learning_rate = 0.05});
              }),
              expected);
    EXPECT_EQ(updated([](Accelerator& accelerator, const Tensor& loss) {
                  expect_error<UsageError>(
                      {"backward: learning_rate cannot be combined with retain_graph"}, [&] {
                          accelerator.backward(loss, {.retain_graph = true, .learning_rate = 0.05});
                      });
              }),
              values(seeded()));
}

TEST(LomoBackward, NeedsALearningRateAndALomoOptimizer) {
    Pair model = seeded();
    optim::SGD sgd(model.parameters());
    optim::Lomo lomo(model.parameters());
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(model, sgd);
    const Tensor x = rows(0, 6);
    const auto loss = [&] { return sum(model(x)); };
    expect_error<ValueError>({"lomo_backward: no optim::Lomo or optim::AdaLomo has been prepared"},
                             [&] { accelerator.lomo_backward(loss(), 0.1); });
    accelerator.prepare(lomo);
    expect_error<ValueError>(
        {"lomo_backward: the learning rate is missing; call lomo_backward(loss, learning_rate)"},
        [&] { accelerator.lomo_backward(loss(), {}); });
}

TEST(LomoBackward, RejectsTheLossScalerOfFp16) {
    Pair model = seeded();
    optim::Lomo lomo(model.parameters());
    Accelerator accelerator({.mixed_precision = "fp16", .cpu = true});
    accelerator.prepare(model, lomo);
    expect_error<UsageError>({"lomo_backward: can't be used with the loss scaler of fp16, "
                              "because gradients are applied before all are known to be finite; "
                              "use bf16"},
                             [&] { accelerator.lomo_backward(sum(model(rows(0, 2))), 0.1); });
}

// LOMO also updates in micro-batches in which other optimizers only accumulate.
TEST(LomoBackward, UpdatesWithTheMeanGradientOfAllProcesses) {
    for (const auto& clip : {std::optional<double>(), std::optional<double>(0.05)}) {
        const optim::LomoOptions options = {.clip_grad_norm = clip};
        Pair alone = seeded();
        optim::Lomo lomo(alone.parameters(), options);
        for (int step = 0; step < 4; ++step) {
            const Tensor x = rows(8 * step, 8);
            lomo.fused_backward(tests::squared_error(alone(x), sum(x, {1}, true)), 0.05);
        }
        const std::vector<double> expected = values(alone);
        std::vector<Pair> starts;
        for (int rank = 0; rank < 2; ++rank) starts.push_back(seeded());
        tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            Pair& model = starts[static_cast<std::size_t>(group->rank())];
            optim::Lomo ours(model.parameters(), options);
            Accelerator accelerator(
                {.gradient_accumulation_steps = 2, .cpu = true, .process_group = group});
            accelerator.prepare(model, ours);
            for (int step = 0; step < 4; ++step) {
                auto scope = accelerator.accumulate(model);
                const Tensor x = rows(8 * step + 4 * group->rank(), 4);
                accelerator.lomo_backward(tests::squared_error(model(x), sum(x, {1}, true)), 0.05);
                ours.step();
            }
            const std::vector<double> now = values(model);
            for (std::size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], expected[i], 1e-6);
        });
    }
}

}  // namespace
}  // namespace axle
