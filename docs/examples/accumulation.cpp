// Accumulates gradients with accumulate(), with no_sync() instead of accumulate(), and with losses
// that are means over the tokens of all micro-batches. Also sets the options of the plugin.
#include <cstdint>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset samples(std::int64_t n) {
    const Tensor x = axle::randn({n, 4});
    return axle::data::TensorDataset({{"x", x}, {"y", x.sum({1}, true)}});
}

// Returns the number of updates in a pass of ten batches.
int with_a_scope() {
    int updates = 0;
    axle::nn::Linear linear(4, 1);
    axle::optim::SGD sgd(linear.parameters(), {.lr = 0.1});
    axle::data::DataLoader batches(samples(20), {.batch_size = 2});
    // [loop]
    axle::Accelerator accelerator({.gradient_accumulation_steps = 4});
    auto [model, optimizer, loader] = accelerator.prepare(linear, sgd, batches);
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        accelerator.backward(mse_loss(model(batch["x"]), batch["y"]));
        if (accelerator.sync_gradients()) {
            accelerator.clip_grad_norm_(model.parameters(), 1.0);
            ++updates;
        }
        optimizer.step();
        optimizer.zero_grad();
    }
    // [/loop]
    return updates;
}

bool with_a_plugin() {
    // [plugin]
    axle::Accelerator accelerator({.gradient_accumulation_plugin = {{
                                       .num_steps = 4,
                                       .sync_each_batch = true,  // average in each micro-batch
                                       .short_window = axle::accel::ShortWindow::actual,
                                   }}});
    // [/plugin]
    return accelerator.gradient_accumulation_steps() == 4;
}

int by_hand() {
    int updates = 0;
    axle::nn::Linear linear(4, 1);
    axle::optim::SGD sgd(linear.parameters(), {.lr = 0.1});
    axle::data::DataLoader batches(samples(20), {.batch_size = 2});
    // [by_hand]
    axle::Accelerator accelerator;
    auto [model, optimizer, loader] = accelerator.prepare(linear, sgd, batches);
    const int steps = 4;
    int micro_batches = 0;
    for (auto& batch : loader) {
        const auto loss = [&] { return mse_loss(model(batch["x"]), batch["y"]) / steps; };
        if (++micro_batches % steps != 0 && !loader.end_of_dataloader()) {
            const auto scope = accelerator.no_sync(model);  // gradients are not averaged yet
            accelerator.backward(loss());
            continue;
        }
        accelerator.backward(loss());
        optimizer.step();
        optimizer.zero_grad();
        ++updates;
    }
    // [/by_hand]
    return updates;
}

// Returns texts of one to four tokens, with four features per token. The label of padding is -100.
axle::data::TensorDataset texts(std::int64_t n) {
    axle::manual_seed(7);
    const Tensor x = axle::randn({n, 4, 4});
    std::vector<std::int64_t> labels;
    for (std::int64_t text = 0; text < n; ++text)
        for (std::int64_t i = 0; i < 4; ++i)
            labels.push_back(i <= text % 4 ? (text + i) % 3 : -100);
    return axle::data::TensorDataset({{"x", x}, {"labels", axle::tensor(labels, {n, 4})}});
}

// Returns the weights of a model after one update with sixteen texts in `steps` micro-batches.
Tensor with_tokens(int steps) {
    const auto dataset = texts(16);
    axle::nn::Linear linear(4, 3);
    axle::optim::SGD sgd(linear.parameters(), {.lr = 0.1});
    axle::data::DataLoader batches(dataset, {.batch_size = 16 / steps});
    // [tokens]
    axle::Accelerator accelerator({.gradient_accumulation_steps = steps});
    auto [model, optimizer, loader] = accelerator.prepare(linear, sgd, batches);
    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        const Tensor labels = batch["labels"].tensor().view({-1});  // -100 marks padding
        const Tensor logits = model(batch["x"]).view({-1, 3});
        const Tensor sum = cross_entropy(logits, labels, {.reduction = axle::Reduction::sum});
        accelerator.backward(sum, ne(labels, -100).sum());  // loss and number of tokens
        optimizer.step();
        optimizer.zero_grad();
    }
    // [/tokens]
    return linear.weight.detach();
}

}  // namespace

int main() {
    const bool same = (with_tokens(4) - with_tokens(1)).abs().max().item() < 1e-6;
    return with_a_scope() == 3 && with_a_plugin() && by_hand() == 3 && same ? 0 : 1;
}
