// Trains a classifier that predicts whether two coordinates have the same sign.
// [model]
#include <axle/axle.h>

using axle::Tensor;

struct Classifier : axle::nn::Model<Classifier> {
    axle::nn::Linear in{2, 32}, out{32, 2};

    Tensor forward(const Tensor& x) { return out(relu(in(x))); }
    void visit(axle::nn::Visitor& v) override { v("in", in), v("out", out); }
};
// [/model]

// [data]
axle::data::TensorDataset points(std::int64_t n) {
    const Tensor point = axle::rand({n, 2}) * 2 - 1;
    const Tensor label = gt(point.select(1, 0) * point.select(1, 1), 0).to(axle::i64);
    return axle::data::TensorDataset({{"point", point}, {"label", label}});
}
// [/data]

int main() {
    // [train]
    axle::manual_seed(1);
    const auto train_set = points(512), test_set = points(250);

    axle::Accelerator accelerator({.mixed_precision = "bf16"});
    Classifier net;
    axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
    axle::data::DataLoader train_loader(train_set, {.batch_size = 32, .shuffle = true});
    axle::data::DataLoader test_loader(test_set, {.batch_size = 32});
    // The arguments are the optimizer, the number of warmup steps and the total number of steps.
    auto cosine = axle::optim::get_cosine_schedule_with_warmup(adamw, 10, 20 * train_loader.len());
    auto [model, optimizer, loader, evaluation, scheduler] =
        accelerator.prepare(net, adamw, train_loader, test_loader, cosine);

    for (int epoch = 0; epoch < 20; ++epoch)
        for (auto& batch : loader) {
            const Tensor loss = cross_entropy(model(batch["point"]), batch["label"]);
            accelerator.backward(loss);
            accelerator.clip_grad_norm_(model.parameters(), 1.0);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
        }
    // [/train]

    // [evaluate]
    model.eval();
    axle::accel::Accuracy accuracy(accelerator);
    {
        const axle::NoGrad no_grad;
        for (auto& batch : evaluation) accuracy.update(model(batch["point"]), batch["label"]);
    }
    accelerator.print("accuracy ", accuracy.compute());
    // [/evaluate]

    // [save]
    accelerator.save_model(model, "run/model");  // the main process writes
    accelerator.wait_for_everyone();             // then all processes can read the files
    // [/save]

    // [load]
    Classifier loaded;
    axle::accel::load_checkpoint_in_model(loaded, "run/model");
    // [/load]
    const bool same = (loaded.in.weight - net.in.weight).abs().max().item() == 0;
    return accuracy.compute() > 0.95 && same ? 0 : 1;
}
