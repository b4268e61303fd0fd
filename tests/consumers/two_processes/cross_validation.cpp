// A program of another project that uses Axle. It trains the folds of a cross-validation with one
// Accelerator. Each fold creates a new model, optimizer and loader, usually at the addresses of the
// previous fold's objects. All folds must run in bf16, update after four batches, and share the
// batches among the processes.
#include <exception>
#include <iostream>
#include <vector>

#include <axle/axle.h>

namespace {

struct Net : axle::nn::Model<Net> {
    axle::nn::Linear in{2, 8}, out{8, 1};
    axle::DType hidden = axle::f32;  // the hidden layer's dtype in the last call

    axle::Tensor forward(const axle::Tensor& x) {
        const axle::Tensor y = in(x);
        hidden = y.dtype();
        return out(relu(y));
    }
    void visit(axle::nn::Visitor& v) override { v("in", in), v("out", out); }
};

struct Fold {
    int batches = 0, updates = 0, in_bf16 = 0;
    double last_loss = 0;
    bool operator==(const Fold&) const = default;
};

Fold train_fold(axle::Accelerator& accelerator) {
    axle::manual_seed(1);
    const axle::Tensor x = axle::rand({64, 2});
    const axle::data::TensorDataset rows({{"x", x}, {"y", x.sum({1}, true)}});
    Net net;
    axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
    axle::data::DataLoader batches(rows, {.batch_size = 4});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);

    Fold fold;
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        const axle::Tensor loss = axle::mse_loss(model(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        ++fold.batches;
        fold.updates += accelerator.sync_gradients();
        fold.in_bf16 += net.hidden == axle::bf16;
        fold.last_loss = loss.item();
    }
    return fold;
}

bool train() {
    axle::Accelerator accelerator(
        {.mixed_precision = "bf16", .gradient_accumulation_steps = 4, .cpu = true});
    const int batches = 16 / accelerator.num_processes();
    std::vector<Fold> folds;
    for (int i = 0; i < 3; ++i) folds.push_back(train_fold(accelerator));
    bool is_right = true;
    for (const Fold& fold : folds)
        is_right = is_right && fold == folds[0] && fold.batches == batches &&
                   fold.updates == batches / 4 && fold.in_bf16 == batches;
    accelerator.print(is_right ? "right" : "wrong", ": 3 folds, ", folds[2].batches, " batches, ",
                      folds[2].updates, " updates in each");
    return is_right;
}

}  // namespace

int main() {
    try {
        return train() ? 0 : 1;
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
