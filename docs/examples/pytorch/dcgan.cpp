// Trains a deep convolutional generative adversarial network (Radford et al., arXiv:1511.06434) on
// drawings, and writes generated images to samples.png. The program of the same name in
// pytorch/examples trains on photographs.
#include <cmath>

#include <axle/axle.h>

#include "drawings.h"

using axle::Tensor;
namespace nn = axle::nn;

constexpr std::int64_t kSize = 16, kNoise = 16, kWidth = 16, kBatch = 64;

// [networks]
// Sets the weights of a convolution or batch norm to random values, as in the paper.
void initialize(nn::Module& module) {
    if (auto* conv = dynamic_cast<nn::Conv2d*>(&module)) nn::init::normal_(conv->weight, 0, 0.02);
    if (auto* conv = dynamic_cast<nn::ConvTranspose2d*>(&module))
        nn::init::normal_(conv->weight, 0, 0.02);
    if (auto* norm = dynamic_cast<nn::BatchNorm2d*>(&module))
        nn::init::normal_(norm->weight, 1, 0.02);
}

// Maps noise [N, kNoise, 1, 1] to images [N, 1, 16, 16] with values from -1 to 1.
nn::Sequential make_generator() {
    return nn::Sequential{
        nn::ConvTranspose2d(kNoise, 2 * kWidth, 4, {.bias = false}),
        nn::BatchNorm2d(2 * kWidth),
        axle::relu,
        nn::ConvTranspose2d(2 * kWidth, kWidth, 4, {.stride = 2, .padding = 1, .bias = false}),
        nn::BatchNorm2d(kWidth),
        axle::relu,
        nn::ConvTranspose2d(kWidth, 1, 4, {.stride = 2, .padding = 1, .bias = false}),
        axle::tanh};
}

// Maps images to logits [N, 1, 1, 1], which are positive for images classified as real.
nn::Sequential make_discriminator() {
    return nn::Sequential{
        nn::Conv2d(1, kWidth, 4, {.stride = 2, .padding = 1, .bias = false}),
        nn::LeakyReLU(0.2),
        nn::Conv2d(kWidth, 2 * kWidth, 4, {.stride = 2, .padding = 1, .bias = false}),
        nn::BatchNorm2d(2 * kWidth),
        nn::LeakyReLU(0.2),
        nn::Conv2d(2 * kWidth, 1, 4, {.bias = false})};
}
// [/networks]

int main() {
    axle::manual_seed(1);
    const Tensor images = drawings(2048, kSize).first * 2 - 1;
    axle::Accelerator accelerator;
    nn::Sequential generator = make_generator(), discriminator = make_discriminator();
    generator.apply(initialize);
    discriminator.apply(initialize);
    axle::optim::Adam generator_adam(generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}});
    axle::optim::Adam discriminator_adam(discriminator.parameters(),
                                         {.lr = 5e-4, .betas = {0.5, 0.999}});
    axle::data::DataLoader batches(axle::data::TensorDataset({{"image", images}}),
                                   {.batch_size = kBatch, .shuffle = true, .drop_last = true});
    auto [net_g, net_d, step_g, step_d, loader] =
        accelerator.prepare(generator, discriminator, generator_adam, discriminator_adam, batches);

    // [step]
    const auto is_real = [](const Tensor& logits) {
        return binary_cross_entropy_with_logits(logits, ones_like(logits));
    };
    const auto is_fake = [](const Tensor& logits) {
        return binary_cross_entropy_with_logits(logits, zeros_like(logits));
    };
    for (int epoch = 0; epoch < 8; ++epoch) {
        double loss_d = 0, loss_g = 0;
        for (auto& batch : loader) {
            const Tensor noise =
                axle::randn({kBatch, kNoise, 1, 1}, {.device = accelerator.device()});
            const Tensor fake = net_g(noise);

            step_d.zero_grad();
            const Tensor error_d = is_real(net_d(batch["image"])) + is_fake(net_d(fake.detach()));
            accelerator.backward(error_d);
            step_d.step();

            step_g.zero_grad();
            const Tensor error_g = is_real(net_d(fake));
            accelerator.backward(error_g);
            step_g.step();
            loss_d = error_d.item(), loss_g = error_g.item();
        }
        accelerator.print("epoch ", epoch, ": loss D ", loss_d, ", loss G ", loss_g);
    }
    // [/step]

    const axle::NoGrad no_grad;
    const Tensor samples =
        net_g(axle::randn({64, kNoise, 1, 1}, {.device = accelerator.device()})).cpu();
    save_image((samples + 1) * 0.5, "samples.png");
    // The drawings and the samples have almost the same brightness and contrast.
    const double brightness = samples.mean().item() - images.mean().item();
    const double contrast = samples.std().item() / images.std().item();
    accelerator.print("difference of brightness ", brightness, ", ratio of contrast ", contrast);
    return std::abs(brightness) < 0.2 && contrast > 0.8 && contrast < 1.25 ? 0 : 1;
}
