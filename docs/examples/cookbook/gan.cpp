// Trains a generative adversarial network on numbers from a normal distribution.
#include <cmath>

#include <axle/axle.h>

using axle::Tensor;

int main() {
    axle::manual_seed(1);
    const Tensor numbers = axle::randn({2048, 1}) * 0.5f + 3.0f;

    // [setup]
    axle::Accelerator accelerator;
    axle::nn::Mlp generator_net({4, 32, 1}), critic_net({1, 32, 32, 1});
    axle::optim::Adam generator_adam(generator_net.parameters(),
                                     {.lr = 1e-3, .betas = {0.5, 0.99}});
    axle::optim::Adam critic_adam(critic_net.parameters(), {.lr = 2e-3, .betas = {0.5, 0.99}});
    axle::data::DataLoader batches(axle::data::TensorDataset({{"x", numbers}}),
                                   {.batch_size = 128, .shuffle = true, .drop_last = true});
    auto [generator, critic, generator_step, critic_step, loader] =
        accelerator.prepare(generator_net, critic_net, generator_adam, critic_adam, batches);
    // [/setup]

    // [loop]
    const auto is_real = [](const Tensor& scores) { return mse_loss(scores, ones_like(scores)); };
    const auto is_fake = [](const Tensor& scores) { return mse_loss(scores, zeros_like(scores)); };
    for (int epoch = 0; epoch < 60; ++epoch)
        for (auto& batch : loader) {
            const Tensor noise = axle::randn({128, 4}, {.device = accelerator.device()});
            const Tensor fake = generator(noise);

            critic_step.zero_grad();  // also removes gradients of the generator loss
            accelerator.backward(is_real(critic(batch["x"])) + is_fake(critic(fake.detach())));
            critic_step.step();

            generator_step.zero_grad();
            accelerator.backward(is_real(critic(fake)));
            generator_step.step();
        }
    // [/loop]

    const axle::NoGrad no_grad;
    const Tensor samples = generator(axle::randn({4096, 4}, {.device = accelerator.device()}));
    const double mean = samples.mean().item(), deviation = var(samples).sqrt().item();
    accelerator.print("mean ", mean, ", standard deviation ", deviation);
    return std::abs(mean - 3) < 0.3 && deviation > 0.25 && deviation < 0.8 ? 0 : 1;
}
