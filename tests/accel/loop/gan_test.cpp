// Trains with an Accelerator: a generative adversarial network in fp16, compared with a
// hand-written loop; a step in which one process overflows; and a loop with interrupted
// evaluations.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/grad_scaler.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using Group = std::shared_ptr<dist::ProcessGroup>;

constexpr std::int64_t kLatent = 3, kWidth = 4, kRows = 6, kBatches = 10;
constexpr int kOverflow = 4;  // the iteration in which the critic's loss is infinite

struct Net : nn::Model<Net> {
    Net(std::int64_t from, std::int64_t to) : in(from, 8), out(8, to) {}
    nn::Linear in, out;
    Tensor forward(const Tensor& x) { return out(relu(in(x))); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out); }
};

data::TensorDataset rows(std::int64_t n, std::int64_t width, double phase) {
    std::vector<double> x;
    for (std::int64_t i = 0; i < n * width; ++i)
        x.push_back(std::sin(phase + 0.37 * static_cast<double>(i)));
    return data::TensorDataset(Tree{{"x", tensor(x, {n, width})}});
}

// Returns the mean squared difference between the critic's outputs and `wanted`.
Tensor distance(const Tensor& answers, double wanted) { return (answers - wanted).pow(2).mean(); }

// The initial models that every training run copies.
struct Nets {
    Net generator, critic;
};
Nets new_nets() {
    manual_seed(5);
    return {Net(kLatent, kWidth), Net(kWidth, 1)};
}

struct Gan {
    explicit Gan(const Nets& start)
        : generator(std::make_unique<Net>(start.generator.clone())),
          critic(std::make_unique<Net>(start.critic.clone())),
          adam(std::make_unique<optim::Adam>(generator->parameters(),
                                             optim::AdamOptions{.lr = 0.01})),
          sgd(std::make_unique<optim::SGD>(critic->parameters(),
                                           optim::SGDOptions{.lr = 0.05, .momentum = 0.5})),
          decay(std::make_unique<optim::StepLR>(*sgd, 2, 0.7)) {}
    std::unique_ptr<Net> generator, critic;
    std::unique_ptr<optim::Adam> adam;
    std::unique_ptr<optim::SGD> sgd;
    std::unique_ptr<optim::StepLR> decay;
    std::vector<double> scales, rates;

    std::vector<double> weights() const {
        std::vector<double> all;
        for (const nn::Module* model : {generator.get(), critic.get()})
            for (const Tensor& p : model->parameters())
                for (const double x : p.detach().to_vector()) all.push_back(x);
        return all;
    }
    void note(double scale) {
        scales.push_back(scale);
        rates.push_back(decay->get_last_lr()[0]);
    }
};

const optim::GradScalerOptions kScaler{.init_scale = 1024, .growth_interval = 3};

// Trains the reference models without an Accelerator: the loop itself scales, unscales, clips and
// skips steps. The critic steps between the two losses.
Gan by_hand(const Nets& start) {
    Gan gan(start);
    optim::GradScaler scaler(kScaler);
    const data::TensorDataset real = rows(kRows * kBatches, kWidth, 0),
                              noise = rows(kRows * kBatches, kLatent, 1);
    data::DataLoader reals(real, {.batch_size = kRows}), noises(noise, {.batch_size = kRows});
    const auto in_half = [](Net& net, const Tensor& x) {
        const AutocastGuard half(f16);
        return net(x);
    };
    const auto forward = [&](Net& net, const Tensor& x) { return in_half(net, x).to(f32); };
    auto z = noises.begin();
    for (auto& batch : reals) {
        const Tensor fake = forward(*gan.generator, (*z)["x"]);
        Tensor loss = distance(forward(*gan.critic, batch["x"]), 1) +
                      distance(forward(*gan.critic, fake.detach()), 0);
        if (std::ssize(gan.scales) == kOverflow)
            loss = loss * std::numeric_limits<double>::infinity();
        scaler.scale(loss).backward();
        scaler.unscale_(*gan.sgd);
        optim::clip_grad_norm_(gan.critic->parameters(), 0.5);
        scaler.step(*gan.sgd);
        if (!gan.sgd->step_was_skipped()) gan.decay->step();
        gan.sgd->zero_grad();
        scaler.scale(distance(forward(*gan.critic, fake), 1)).backward();
        scaler.step(*gan.adam);
        scaler.update();
        gan.adam->zero_grad();
        gan.sgd->zero_grad();
        gan.note(scaler.get_scale());
        ++z;
    }
    return gan;
}

Gan by_accelerator(const Nets& start, const Group& group, bool overflows_everywhere) {
    Gan gan(start);
    Accelerator accelerator({.split_batches = true,
                             .mixed_precision = "fp16",
                             .cpu = true,
                             .grad_scaler_kwargs = kScaler,
                             .process_group = group});
    const data::TensorDataset real = rows(kRows * kBatches, kWidth, 0),
                              noise = rows(kRows * kBatches, kLatent, 1);
    data::DataLoader reals(real, {.batch_size = kRows}), noises(noise, {.batch_size = kRows});
    auto [generator, critic, adam, sgd, decay] =
        accelerator.prepare(*gan.generator, *gan.critic, *gan.adam, *gan.sgd, *gan.decay);
    accelerator.prepare(reals, noises);
    auto z = noises.begin();
    for (auto& batch : reals) {
        {
            auto scope = accelerator.accumulate(generator, critic);
            const Tensor fake = generator((*z)["x"]);
            Tensor loss = distance(critic(batch["x"]), 1) + distance(critic(fake.detach()), 0);
            const bool here = overflows_everywhere || group->rank() == group->size() - 1;
            if (std::ssize(gan.scales) == kOverflow && here)
                loss = loss * std::numeric_limits<double>::infinity();
            accelerator.backward(loss);
            accelerator.clip_grad_norm_(critic.parameters(), 0.5);
            accelerator.unscale_gradients(
                sgd);  // has no effect, because the gradients are already unscaled
            sgd.step();
            decay.step();
            EXPECT_EQ(sgd.step_was_skipped(), std::ssize(gan.scales) == kOverflow);
            sgd.zero_grad();
            accelerator.backward(distance(critic(fake), 1));
            adam.step();
            EXPECT_FALSE(adam.step_was_skipped());
            adam.zero_grad();
            sgd.zero_grad();
        }
        gan.note(accelerator.scaler()->get_scale());
        ++z;
    }
    return gan;
}

// Covers 2.optimizer_step_was_skipped, 3.unscale_gradients, 7.several, 8.GradScaler,
// 8.multi-optimizer, 30.16.
TEST(GanTraining, MatchesAHandWrittenLoopInFp16) {
    const Nets start = new_nets();
    const Gan expected = by_hand(start);
    EXPECT_EQ(expected.scales[kOverflow], expected.scales[kOverflow - 1] / 2);
    EXPECT_GT(expected.scales.back(), 1024);
    for (const int size : {1, 2})
        for (const bool everywhere : {true, false})
            tests::on_ranks(size, [&](const Group& group) {
                const Gan gan = by_accelerator(start, group, everywhere);
                EXPECT_EQ(gan.scales, expected.scales);
                EXPECT_EQ(gan.rates, expected.rates);
                const std::vector<double> actual = gan.weights(), wanted = expected.weights();
                for (std::size_t i = 0; i < wanted.size(); ++i)
                    EXPECT_NEAR(actual[i], wanted[i], size == 1 ? 0 : 2e-3) << size << " " << i;
            });
}

// This test prepares no model, so DataParallel does not reduce the gradients.
// Covers 8.GradScaler.
TEST(GradScaler, SkipsTheStepOnAllProcessesIfOneOverflows) {
    tests::on_ranks(2, [](const Group& group) {
        Accelerator accelerator({.mixed_precision = "fp16", .cpu = true, .process_group = group});
        Tensor w = ones({1}, {.requires_grad = true});
        optim::SGD sgd({w}, {.lr = 1});
        optim::StepLR schedule(sgd, 2, 0.5);
        accelerator.prepare(sgd, schedule);
        const double factor = group->rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
        accelerator.backward((w * factor).sum());
        sgd.step(), schedule.step();
        EXPECT_TRUE(accelerator.optimizer_step_was_skipped());
        EXPECT_EQ(w.item(), 1);
        EXPECT_EQ(schedule.last_epoch(), 0);
        EXPECT_EQ(accelerator.scaler()->get_scale(), 32768);
    });
}

// The evaluation in the training loop reads only the first batches.
// Covers 7.nested, 3.accumulate.
TEST(NestedEvaluation, DoesNotChangeTrainingWhenInterrupted) {
    constexpr std::int64_t kTrain = 7, kHeldOut = 5;
    manual_seed(2);
    const Net start(4, 1);
    const auto train = [&](const Group& group, bool evaluates) {
        Net net = start.clone();
        optim::SGD sgd(net.parameters(), {.lr = 0.05});
        optim::StepLR decay(sgd, 1, 0.9);
        const data::TensorDataset samples = tests::samples(kTrain * 3 - 1);
        const data::TensorDataset held_out = tests::samples(kHeldOut * 2 - 1);
        data::DataLoader loader(samples, {.batch_size = 3}), eval(held_out, {.batch_size = 2});
        Accelerator accelerator({.split_batches = false,
                                 .gradient_accumulation_steps = 2,
                                 .cpu = true,
                                 .scheduler_steps = accel::SchedulerSteps::per_update,
                                 .process_group = group});
        accelerator.prepare(net, sgd, decay, loader, eval);
        std::int64_t updates = 0;
        for (int epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : loader) {
                auto scope = accelerator.accumulate(net);
                accelerator.backward(tests::squared_error(net(batch["x"]), batch["y"]));
                updates += accelerator.sync_gradients() ? 1 : 0;
                const std::int64_t remainder = loader.remainder();
                if (evaluates) {
                    std::int64_t seen = 0;
                    for (auto& one : eval) {
                        const NoGrad no_grad;
                        net(one["x"]);
                        EXPECT_EQ(accelerator.active_dataloader(), &eval);
                        if (++seen == 2) break;
                    }
                }
                EXPECT_EQ(accelerator.active_dataloader(), &loader);
                EXPECT_EQ(loader.remainder(), remainder);
                const Tensor gathered = accelerator.gather_for_metrics(Tree(batch["y"])).tensor();
                EXPECT_EQ(gathered.size(0), loader.end_of_dataloader() && remainder > 0
                                                ? remainder
                                                : 3 * group->size());
                sgd.step(), decay.step(), sgd.zero_grad();
            }
        EXPECT_EQ(accelerator.active_dataloader(), nullptr);
        EXPECT_EQ(decay.last_epoch(), updates);
        EXPECT_FALSE(net.in.weight.grad().defined());
        return net.in.weight.detach().to_vector();
    };
    for (const int size : {1, 2})
        tests::on_ranks(
            size, [&](const Group& group) { EXPECT_EQ(train(group, true), train(group, false)); });
}

}  // namespace
}  // namespace axle
