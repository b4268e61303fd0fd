// A small training run, and a snapshot of its state that tests compare.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "tests/close.h"

namespace axle::tests {

// Returns n samples {"x", "y"}, in which x has the shape [4] and y the shape [1].
inline data::TensorDataset samples(std::int64_t n) {
    std::vector<double> x, y;
    for (std::int64_t i = 0; i < n; ++i) {
        for (int j = 0; j < 4; ++j) x.push_back(static_cast<double>((i * 7 + j * 5) % 11 - 5) / 5);
        y.push_back(static_cast<double>(i % 5) / 2 - 1);
    }
    return data::TensorDataset(Tree{{"x", tensor(x, {n, 4})}, {"y", tensor(y, {n, 1})}});
}

struct SmallNet : nn::Model<SmallNet> {
    nn::Linear in{4, 8};
    nn::Dropout dropout{0.3};
    nn::Linear out{8, 1};
    DType hidden_dtype = f32;  // dtype of the first layer's output in the last call

    Tensor forward(const Tensor& x) {
        const Tensor hidden = in(x);
        hidden_dtype = hidden.dtype();
        return out(dropout(relu(hidden)));
    }
    void visit(nn::Visitor& v) override { v("in", in), v("dropout", dropout), v("out", out); }
};

inline Tensor squared_error(const Tensor& prediction, const Tensor& target) {
    return ((prediction - target) * (prediction - target)).mean();
}

// The progress of a run, saved with its state.
struct Counter : accel::Checkpointable {
    std::int64_t batches = 0;
    Tree state_dict() const override { return Tree{{"batches", batches}}; }
    void load_state_dict(const Tree& state) override { batches = state["batches"].integer(); }
};

// A training run with several kinds of state that a checkpoint contains: random numbers for
// dropout, a shuffled loader, AdamW, a cosine schedule and a registered counter. An update has two
// micro-batches. On one process, a pass has five batches.
struct Training {
    static constexpr std::int64_t kBatches = 5;

    explicit Training(std::uint64_t seed = 7, int workers = 0, bool cpu = false,
                      std::shared_ptr<dist::ProcessGroup> group = nullptr,
                      accel::ProjectConfiguration project = {},
                      std::optional<accel::FullyShardedDataParallelPlugin> fsdp = {})
        : net((manual_seed(seed), SmallNet())),
          loader(samples(3 * kBatches - 1),
                 {.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 11}),
          adamw(net.parameters(), {.lr = 0.05}),
          cosine(optim::get_cosine_schedule_with_warmup(adamw, 2, 8)),
          accelerator({.gradient_accumulation_steps = 2,
                       .cpu = cpu,
                       .fsdp_plugin = std::move(fsdp),
                       .project_config = std::move(project),
                       .process_group = std::move(group)}) {
        accelerator.prepare(net, adamw, loader, cosine);
        accelerator.register_for_checkpointing(counter);
    }

    double micro_batch(const Tree& batch) {
        auto scope = accelerator.accumulate(net);
        const Tensor loss = squared_error(net(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(net.parameters(), 1);
        adamw.step();
        cosine.step();
        adamw.zero_grad();
        ++counter.batches;
        return loss.item();
    }
    // Trains until loader.epoch() is `epochs`. Loading a state restores this epoch. Calls f() after
    // each batch. Returns the losses.
    template <class F>
    std::vector<double> run(std::int64_t epochs, F&& f) {
        std::vector<double> losses;
        while (loader.epoch() < epochs)
            for (auto& batch : loader) {
                losses.push_back(micro_batch(batch));
                f();
            }
        return losses;
    }
    std::vector<double> run(std::int64_t epochs) {
        return run(epochs, [] {});
    }

    SmallNet net;
    data::DataLoader loader;
    optim::AdamW adamw;
    optim::LambdaLR cosine;
    Counter counter;
    accel::Accelerator accelerator;
};

// Returns copies of tensors and numbers that a step changes.
inline std::vector<Tensor> snapshot(Training& training) {
    std::vector<Tensor> all;
    for (const Tensor& p : training.net.parameters()) {
        all.push_back(p.detach().clone());
        if (p.grad().defined()) all.push_back(p.grad().clone());
    }
    for_each_tensor(training.adamw.state_dict(),
                    [&](const Tensor& t) { all.push_back(t.detach().clone()); });
    const GeneratorState random = generator_state();
    all.push_back(tensor({static_cast<double>(random.seed), static_cast<double>(random.offset),
                          training.cosine.get_last_lr()[0], training.adamw.param_groups()[0].lr,
                          static_cast<double>(training.cosine.step_count()),
                          static_cast<double>(training.counter.batches),
                          static_cast<double>(training.loader.epoch())},
                         {7}, {.dtype = f64}));
    return all;
}

inline void expect_same(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                        std::source_location at = std::source_location::current()) {
    if (actual.size() != expected.size()) {
        ADD_FAILURE_AT(at.file_name(), at.line())
            << actual.size() << " tensors instead of " << expected.size();
        return;
    }
    for (std::size_t i = 0; i < actual.size(); ++i) expect_same_bits(actual[i], expected[i], at);
}

}  // namespace axle::tests
