// Runs a model in bf16 with a part in f32, and trains a model in fp16 with a loss scaler.
#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset samples(std::int64_t n) {
    const Tensor x = axle::randn({n, 4});
    return axle::data::TensorDataset({{"x", x}, {"y", x.sum({1}, true)}});
}

bool bf16() {
    const Tensor x = axle::randn({2, 4});
    // [bf16]
    axle::Accelerator accelerator({.mixed_precision = "bf16"});
    axle::nn::Linear linear(4, 1);
    auto& model = accelerator.prepare(linear);

    const Tensor y = model(x);  // computed in bf16, returned as f32
    Tensor product;
    {
        const auto scope = accelerator.autocast();  // for code outside of the model
        product = matmul(x, model.weight.t());
    }
    // [/bf16]
    Tensor exact;
    // [off]
    {
        const auto scope = accelerator.autocast({.enabled = false});
        exact = matmul(x, model.weight.t());
    }
    // [/off]
    return y.dtype() == axle::f32 && exact.dtype() == axle::f32 && product.dtype() == axle::bf16 &&
           model.weight.dtype() == axle::f32;
}

int fp16() {
    int skipped = 0;
    axle::nn::Linear linear(4, 1);
    axle::optim::AdamW adamw(linear.parameters(), {.lr = 1e-2});
    axle::data::DataLoader batches(samples(32), {.batch_size = 2});
    // [fp16]
    axle::Accelerator accelerator(
        {.mixed_precision = "fp16",
         .grad_scaler_kwargs = axle::accel::GradScalerKwargs{.init_scale = 1 << 20}});
    auto [model, optimizer, loader] = accelerator.prepare(linear, adamw, batches);
    for (auto& batch : loader) {
        accelerator.backward(mse_loss(model(batch["x"]), batch["y"]));
        accelerator.clip_grad_norm_(model.parameters(), 1.0);  // unscales gradients first
        optimizer.step();                                      // skipped if gradients overflow
        if (accelerator.optimizer_step_was_skipped()) ++skipped;
        optimizer.zero_grad();
    }
    accelerator.print("scale ", accelerator.scaler()->get_scale(), ", skipped ", skipped);
    // [/fp16]
    return skipped;
}

}  // namespace

int main() {
    axle::manual_seed(1);
    const int skipped = fp16();
    return bf16() && skipped > 0 && skipped < 16 ? 0 : 1;
}
