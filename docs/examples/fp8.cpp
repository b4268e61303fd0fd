// Trains with emulated fp8, and with an optimizer that updates weights during backward.
#include <axle/axle.h>

using axle::Tensor;

namespace {

bool train_in_fp8(const Tensor& x, const Tensor& y) {
    double first = 0, last = 0;
    // [fp8]
    axle::Accelerator accelerator({
        .mixed_precision = "fp8",
        .ao_recipe_kwargs = axle::accel::AORecipeKwargs{.emulate = true},  // runs on any device
    });
    axle::nn::Mlp mlp({16, 32, 32, 16});
    axle::optim::AdamW adamw(mlp.parameters(), {.lr = 1e-2});
    auto [model, optimizer] = accelerator.prepare(mlp, adamw);
    for (int step = 0; step < 50; ++step) {
        const Tensor loss = mse_loss(model(x), y);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        (step == 0 ? first : last) = loss.item();
    }
    // [/fp8]
    return accelerator.mixed_precision() == "fp8" && last < first;
}

bool train_with_lomo(const Tensor& x, const Tensor& y) {
    double first = 0, last = 0;
    // [lomo]
    axle::Accelerator accelerator;
    axle::nn::Mlp mlp({16, 32, 16});
    axle::optim::Lomo lomo(mlp.parameters());
    auto [model, optimizer] = accelerator.prepare(mlp, lomo);
    for (int step = 0; step < 50; ++step) {
        const Tensor loss = mse_loss(model(x), y);
        accelerator.lomo_backward(loss, 0.05);  // replaces backward() and step()
        (step == 0 ? first : last) = loss.item();
    }
    // [/lomo]
    return last < first;
}

}  // namespace

int main() {
    axle::manual_seed(1);
    const Tensor x = axle::randn({32, 16}), y = x * 0.5;
    return train_in_fp8(x, y) && train_with_lomo(x, y) ? 0 : 1;
}
