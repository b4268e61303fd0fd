// Trains a variational autoencoder (Kingma and Welling, arXiv:1312.6114) on drawings, and writes
// generated images to samples.png. The program of the same name in pytorch/examples trains on
// MNIST.
#include <iostream>

#include <axle/axle.h>

#include "drawings.h"

using axle::Tensor;
namespace nn = axle::nn;

constexpr std::int64_t kSize = 16, kPixels = kSize * kSize, kLatent = 6;

// [model]
class Vae : public nn::Model<Vae> {
  public:
    struct Output {
        Tensor image, mean, log_variance;

        template <class F>
        void visit(F&& f) {
            f("image", image), f("mean", mean), f("log_variance", log_variance);
        }
    };

    Output forward(const Tensor& x) {
        const Tensor hidden = relu(fc1(x.flatten(1)));
        const Tensor mean = fc21(hidden), log_variance = fc22(hidden);
        const Tensor z = mean + exp(log_variance * 0.5) * randn_like(mean);
        return {decode(z), mean, log_variance};
    }
    Tensor decode(const Tensor& z) {
        return sigmoid(fc4(relu(fc3(z)))).view({-1, 1, kSize, kSize});
    }
    void visit(nn::Visitor& v) override {
        v("fc1", fc1), v("fc21", fc21), v("fc22", fc22), v("fc3", fc3), v("fc4", fc4);
    }

    nn::Linear fc1{kPixels, 128}, fc21{128, kLatent}, fc22{128, kLatent};
    nn::Linear fc3{kLatent, 128}, fc4{128, kPixels};
};
// [/model]

// [loss]
// Returns the negative evidence lower bound, summed over the batch: the reconstruction error plus
// the divergence of the latent distribution from a standard normal distribution (appendix B).
Tensor loss_of(const Vae::Output& output, const Tensor& x) {
    const Tensor error = binary_cross_entropy(output.image, x, {.reduction = axle::Reduction::sum});
    const Tensor divergence =
        sum(1 + output.log_variance - square(output.mean) - exp(output.log_variance)) * -0.5;
    return error + divergence;
}
// [/loss]

int main() {
    axle::manual_seed(1);
    const auto data = [](std::int64_t count) {
        return axle::data::TensorDataset({{"image", drawings(count, kSize).first}});
    };
    axle::Accelerator accelerator;
    Vae vae;
    axle::optim::Adam adam(vae.parameters(), {.lr = 2e-3});
    axle::data::DataLoader train_batches(data(4096), {.batch_size = 128, .shuffle = true});
    axle::data::DataLoader test_batches(data(512), {.batch_size = 128});
    auto [model, optimizer, train_loader, test_loader] =
        accelerator.prepare(vae, adam, train_batches, test_batches);

    double first = 0, last = 0;
    for (int epoch = 0; epoch < 12; ++epoch) {
        // [epoch]
        model.train();
        for (auto& batch : train_loader) {
            optimizer.zero_grad();
            const Tensor loss = loss_of(model(batch["image"]), batch["image"]);
            accelerator.backward(loss);
            optimizer.step();
        }
        model.eval();
        const axle::NoGrad no_grad;
        double total = 0;
        for (auto& batch : test_loader)
            total += loss_of(model(batch["image"]), batch["image"]).item();
        // [/epoch]
        last = total / 512;
        if (epoch == 0) first = last;
        accelerator.print("epoch ", epoch, ": test loss ", last);
    }
    const axle::NoGrad no_grad;
    save_image(model.decode(axle::randn({64, kLatent})), "samples.png");
    return last < 0.75 * first ? 0 : 1;
}
