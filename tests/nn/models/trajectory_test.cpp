// Compares fifty steps of model, optimizer and schedule with PyTorch in f64.
#include "nn/layers/mlp.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::golden;
using tests::golden_state;

constexpr int kSteps = 50;
constexpr double kTolerance = 1e-9;

template <class Model>
Model before(Model model, const std::string& name) {
    model.to(f64);
    model.load_state_dict(golden_state(name + ".before"));
    return model;
}

// Compares the losses and final weights with a recording, and expects that the last recorded loss
// is more than 10% smaller than the first. step(i) runs training step i and returns the loss before
// the update.
void expect_recorded(const std::string& name, const nn::Module& model,
                     const std::function<Tensor(int)>& step) {
    const std::vector<double> losses = golden(name + ".losses").to_vector();
    for (int i = 0; i < kSteps; ++i)
        ASSERT_NEAR(step(i).item(), losses[static_cast<std::size_t>(i)], kTolerance)
            << "step " << i;
    const nn::StateDict after = golden_state(name + ".after");
    ASSERT_EQ(after.size(), model.named_parameters().size());
    for (const auto& [own, parameter] : model.named_parameters())
        expect_close(parameter.detach(), golden(name + ".after." + own), kTolerance);
    EXPECT_LT(losses.back(), 0.9 * losses.front());
}

TEST(TrainingTrajectory, MatchesPyTorchForAnMlpWithSgdMomentumAndWarmup) {
    nn::Mlp model = before(nn::Mlp({5, 16, 8, 3}), "mlp_sgd");
    optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    auto schedule = optim::get_cosine_schedule_with_warmup(sgd, 5, kSteps);
    const Tensor x = golden("mlp.x"), y = golden("mlp.y");
    expect_recorded("mlp_sgd", model, [&](int) {
        const Tensor loss = mse_loss(model(x), y);
        loss.backward();
        sgd.step();
        schedule.step();
        sgd.zero_grad();
        return loss.detach();
    });
}

TEST(TrainingTrajectory, MatchesPyTorchForAnMlpWithAdamWAndClipping) {
    nn::Mlp model = before(nn::Mlp({5, 16, 8, 3}), "mlp_adamw");
    optim::AdamW adamw(model.parameters(), {.lr = 1e-2, .weight_decay = 0.1});
    const Tensor x = golden("mlp.x"), targets = golden("mlp.targets");
    expect_recorded("mlp_adamw", model, [&](int) {
        const Tensor loss = cross_entropy(model(x), targets);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), 0.3);
        adamw.step();
        adamw.zero_grad();
        return loss.detach();
    });
}

TEST(TrainingTrajectory, MatchesPyTorchForATiedGptWithAdamWAndClipping) {
    nn::Gpt model = before(nn::Gpt({.vocab_size = 11,
                                    .block_size = 6,
                                    .n_layer = 1,
                                    .n_head = 2,
                                    .n_embd = 8,
                                    .bias = false,
                                    .activation = Gelu::erf}),
                           "gpt");
    optim::AdamW adamw(model.parameters(), {.lr = 1e-2, .betas = {0.9, 0.95}, .weight_decay = 0.1});
    const Tensor tokens = golden("gpt.tokens");
    expect_recorded("gpt", model, [&](int i) {
        const Tensor sequence = tokens[i];
        const Tensor loss = model.loss(sequence.slice(1, 0, -1), sequence.slice(1, 1));
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), 1.0);
        adamw.step();
        adamw.zero_grad();
        return loss.detach();
    });
}

}  // namespace
}  // namespace axle
