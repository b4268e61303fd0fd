// Trains a denoising diffusion probabilistic model (Ho et al., arXiv:2006.11239) on drawings, and
// writes generated images to samples.png.
#include <cmath>
#include <iostream>

#include <axle/axle.h>

#include "drawings.h"

using axle::Tensor;
namespace nn = axle::nn;

constexpr std::int64_t kSize = 16, kWidth = 16, kTime = 64, kSteps = 100;

// [network]
// A residual block of convolutions, to which an embedding of the time is added.
class Block : public nn::Model<Block> {
  public:
    Block(std::int64_t in, std::int64_t out)
        : norm1(4, in),
          conv1(in, out, 3, {.padding = 1}),
          time(kTime, out),
          norm2(4, out),
          conv2(out, out, 3, {.padding = 1}),
          skip(in, out, 1) {}
    Tensor forward(const Tensor& x, const Tensor& t) {
        const Tensor hidden = conv1(silu(norm1(x))) + time(t).unsqueeze(-1).unsqueeze(-1);
        return conv2(silu(norm2(hidden))) + skip(x);
    }
    void visit(nn::Visitor& v) override {
        v("norm1", norm1), v("conv1", conv1), v("time", time), v("norm2", norm2);
        v("conv2", conv2), v("skip", skip);
    }

    nn::GroupNorm norm1;
    nn::Conv2d conv1;
    nn::Linear time;
    nn::GroupNorm norm2;
    nn::Conv2d conv2, skip;
};

// Predicts the noise in images [N, 1, 16, 16] at the steps t [N], on three scales.
class UNet : public nn::Model<UNet> {
  public:
    Tensor forward(const Tensor& x, const Tensor& t) {
        const Tensor frequency = exp(axle::arange(kTime / 2) * (-std::log(1e4) / (kTime / 2)));
        const Tensor angle = t.to(axle::f32).unsqueeze(1) * frequency.to(t.device());
        const Tensor time = time_mlp(axle::cat({sin(angle), cos(angle)}, 1));
        const Tensor large = down1(first(x), time);
        const Tensor medium = down2(avg_pool2d(large, 2), time);
        const Tensor small = middle(avg_pool2d(medium, 2), time);
        const Tensor up_medium = up2(axle::cat({grow(small), medium}, 1), time);
        return last(up1(axle::cat({grow(up_medium), large}, 1), time));
    }
    void visit(nn::Visitor& v) override {
        v("time_mlp", time_mlp), v("first", first), v("down1", down1), v("down2", down2);
        v("middle", middle), v("up2", up2), v("up1", up1), v("last", last);
    }

    nn::Mlp time_mlp{{kTime, kTime, kTime}};
    nn::Conv2d first{1, kWidth, 3, {.padding = 1}};
    Block down1{kWidth, kWidth}, down2{kWidth, 2 * kWidth}, middle{2 * kWidth, 2 * kWidth};
    Block up2{4 * kWidth, kWidth}, up1{2 * kWidth, kWidth};
    nn::Conv2d last{kWidth, 1, 1};

  private:
    static Tensor grow(const Tensor& x) { return interpolate(x, {.scale_factor = 2}); }
};
// [/network]

// [schedule]
// The noise variance of each step, and values computed from it, as in the paper.
const Tensor kBeta = axle::linspace(1e-3, 0.15, kSteps), kAlpha = 1 - kBeta,
             kAlphaBar = cumprod(kAlpha, 0);

// Returns the elements of `numbers` at the steps t as [N, 1, 1, 1].
Tensor at(const Tensor& numbers, const Tensor& t) {
    return numbers.to(t.device()).index_select(0, t).view({-1, 1, 1, 1});
}

// Generates images by removing noise step by step (algorithm 2).
Tensor sample(nn::AveragedModel<UNet>& model, std::int64_t count) {
    const axle::NoGrad no_grad;
    Tensor x = axle::randn({count, 1, kSize, kSize});
    for (std::int64_t step = kSteps - 1; step >= 0; --step) {
        const Tensor t = axle::full({count}, step);
        const Tensor noise = model(x, t);
        x = (x - at(kBeta, t) / sqrt(1 - at(kAlphaBar, t)) * noise) / sqrt(at(kAlpha, t));
        if (step > 0) x = x + sqrt(at(kBeta, t)) * randn_like(x);
    }
    return x;
}
// [/schedule]

int main() {
    axle::manual_seed(1);
    const Tensor images = drawings(1024, kSize).first * 2 - 1;
    UNet model;
    nn::AveragedModel average(model, {.decay = 0.98});
    axle::optim::Adam optimizer(model.parameters(), {.lr = 2e-3});
    axle::data::DataLoader loader(axle::data::TensorDataset({{"image", images}}),
                                  {.batch_size = 32, .shuffle = true});
    double mean_loss = 0;
    for (int epoch = 0; epoch < 5; ++epoch) {
        mean_loss = 0;
        // [step]
        for (auto& batch : loader) {
            const Tensor x = batch["image"], noise = randn_like(x);
            const Tensor t = axle::randint(0, kSteps, {x.size(0)});
            const Tensor noisy = sqrt(at(kAlphaBar, t)) * x + sqrt(1 - at(kAlphaBar, t)) * noise;
            optimizer.zero_grad();
            const Tensor loss = mse_loss(model(noisy, t), noise);
            loss.backward();
            optimizer.step();
            average.update_parameters(model);
            mean_loss += loss.item() / static_cast<double>(loader.len());
        }
        // [/step]
        std::cout << "epoch " << epoch << ": loss " << mean_loss << '\n';
    }
    const Tensor samples = sample(average, 32);
    save_image(((samples + 1) * 0.5).clamp(0, 1), "samples.png");
    const double brightness = samples.mean().item() - images.mean().item();
    const double contrast = samples.std().item() / images.std().item();
    std::cout << "difference of brightness " << brightness << ", ratio of contrast " << contrast
              << '\n';
    return mean_loss < 0.2 && std::abs(brightness) < 0.2 && contrast > 0.8 && contrast < 1.25 ? 0
                                                                                              : 1;
}
