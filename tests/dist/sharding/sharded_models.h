// Models that several ranks train with sharded parameters, and the same training on one process.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"

namespace axle::tests {

struct Gpt64 {
    std::int64_t layers = 3;
    bool checkpoint_blocks = false;

    // Returns an f64 model, with the same initial values in every call.
    nn::Gpt make() const {
        manual_seed(7);
        nn::Gpt model({.vocab_size = 13,
                       .block_size = 6,
                       .n_layer = layers,
                       .n_head = 2,
                       .n_embd = 8,
                       .checkpoint_blocks = checkpoint_blocks});
        model.to(f64);
        return model;
    }

    // Returns one unit for each block.
    std::vector<dist::ShardUnit> units() const {
        std::vector<dist::ShardUnit> result;
        for (std::int64_t i = 0; i < layers; ++i)
            result.push_back({{"transformer.h." + std::to_string(i)}});
        return result;
    }
};

// Returns ids and labels [12, 6] of a step.
inline std::pair<Tensor, Tensor> batch_of(std::int64_t step) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 12 * 7; ++i) ids.push_back((i * i + 5 * step + i / 7) % 13);
    const Tensor all = tensor(ids).reshape({12, 7});
    return {all.narrow(1, 0, 6).contiguous(), all.narrow(1, 1, 6).contiguous()};
}

// Returns the mean loss of this rank's part of a step's batch.
template <class Model>
Tensor loss_of(Model& model, std::int64_t step, const dist::ProcessGroup& group) {
    const auto [ids, labels] = batch_of(step);
    const Device device = model.parameters()[0].device();
    return model.loss(part(ids, group).to(device), part(labels, group).to(device));
}

// Returns the loss of one sequence of two ids. Its computation needs little memory.
inline Tensor tiny_loss(nn::Gpt& model, Device device) {
    const Tensor ids = tensor(std::vector<std::int64_t>{3, 5}).reshape({1, 2}).to(device);
    return model.loss(ids, ids);
}

inline constexpr std::int64_t kSteps = 4;
inline constexpr double kMaxNorm = 0.3;

// Trains with AdamW and clipping, on this rank's part of each batch. Returns the losses, averaged
// over the ranks.
template <class Model>
std::vector<double> train_model(Model& model, const Group& group, std::int64_t steps = kSteps) {
    std::vector<double> losses;
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
    for (std::int64_t step = 0; step < steps; ++step) {
        const Tensor loss = loss_of(model, step, *group);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), kMaxNorm);
        optimizer.step();
        optimizer.zero_grad();
        const Tensor mean = loss.detach().cpu().clone();
        group->all_reduce(mean, dist::ReduceOp::mean);
        losses.push_back(mean.item());
    }
    return losses;
}

// The losses and the final parameters of a training run.
struct ReferenceRun {
    std::vector<double> losses;
    std::vector<Tensor> parameters;
};

template <class Model>
ReferenceRun train_alone(Model& model, std::int64_t steps = kSteps) {
    ReferenceRun result{train_model(model, dist::ProcessGroup::alone(), steps), {}};
    for (const Tensor& p : model.parameters()) result.parameters.push_back(p.detach().clone());
    return result;
}

// Trains a sharded model as train_alone() does, and expects the same losses.
template <class Model>
void expect_same_losses(Model& model, const Group& group, const ReferenceRun& expected,
                        double tolerance = 1e-9) {
    const auto steps = static_cast<std::int64_t>(expected.losses.size());
    const std::vector<double> losses = train_model(model, group, steps);
    for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_NEAR(losses[step], expected.losses[step], tolerance) << "step " << step;
}

// Calls expect_same_losses(), and also expects the same final parameters.
template <class Model>
void expect_same_training(Model& model, const Group& group, const ReferenceRun& expected,
                          double tolerance = 1e-9) {
    expect_same_losses(model, group, expected, tolerance);
    const dist::FullParameters full(model);
    const nn::StateDict named = model.named_parameters();
    ASSERT_EQ(named.size(), expected.parameters.size());
    for (std::size_t i = 0; i < named.size(); ++i) {
        SCOPED_TRACE(named[i].first);
        expect_close(named[i].second.detach().cpu(), expected.parameters[i], tolerance);
    }
}

}  // namespace axle::tests
