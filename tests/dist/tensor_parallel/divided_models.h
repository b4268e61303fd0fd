// Models that several ranks divide, and the same training on one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "dist/sharding/full_state.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/sanitized.h"

namespace axle::tests {

inline constexpr std::int64_t kVocabularySize = 13, kTimeSteps = 24, kBatchSize = 3;

// Return models with the same initial values in every call. Each head has 4 elements.
inline nn::Gpt small_gpt(DType dtype = f64, double dropout = 0, bool checkpoint_blocks = false,
                         std::int64_t heads = 4) {
    manual_seed(7);
    nn::Gpt model({.vocab_size = kVocabularySize,
                   .block_size = kTimeSteps,
                   .n_layer = 2,
                   .n_head = heads,
                   .n_embd = 4 * heads,
                   .dropout = dropout,
                   .checkpoint_blocks = checkpoint_blocks});
    model.to(dtype);
    return model;
}

inline nn::Llama small_llama(bool tied, DType dtype = f64, std::int64_t key_value_heads = 2,
                             std::int64_t heads = 4) {
    manual_seed(8);
    nn::Llama model({.vocab_size = kVocabularySize,
                     .hidden_size = 4 * heads,
                     .intermediate_size = 3 * heads,
                     .num_hidden_layers = 2,
                     .num_attention_heads = heads,
                     .num_key_value_heads = key_value_heads,
                     .attention_bias = true,
                     .tie_word_embeddings = tied,
                     .pad_token_id = 0});
    model.to(dtype);
    return model;
}

inline nn::BertConfig small_bert(double dropout = 0, std::int64_t heads = 4) {
    return {.vocab_size = kVocabularySize,
            .hidden_size = 4 * heads,
            .num_hidden_layers = 2,
            .num_attention_heads = heads,
            .intermediate_size = 3 * heads,
            .max_position_embeddings = kTimeSteps,
            .hidden_dropout_prob = dropout,
            .attention_probs_dropout_prob = dropout,
            .labels = {"a", "b", "c"}};
}

// Returns ids and labels [kBatchSize, kTimeSteps] of a step; some labels are ignored.
inline std::pair<Tensor, Tensor> ids_and_labels(std::int64_t step) {
    std::vector<std::int64_t> ids, labels;
    for (std::int64_t i = 0; i < kBatchSize * kTimeSteps; ++i) {
        ids.push_back((i * i + 5 * step) % kVocabularySize);
        labels.push_back(i % 7 == 3 ? -100 : (3 * i + step) % kVocabularySize);
    }
    return {tensor(ids).reshape({kBatchSize, kTimeSteps}),
            tensor(labels).reshape({kBatchSize, kTimeSteps})};
}

template <class M>
Tensor loss_at(M& model, std::int64_t step) {
    const auto [ids, labels] = ids_and_labels(step);
    const Device device = model.parameters().front().device();
    return model.loss(ids.to(device), labels.to(device));
}
// Returns the loss of sequences with one label each and a padding mask.
inline Tensor loss_at(nn::BertForSequenceClassification& model, std::int64_t step) {
    const Device device = model.parameters().front().device();
    const Tensor ids = ids_and_labels(step).first;
    Tensor mask = ones({kBatchSize, kTimeSteps}, {.dtype = i64});
    mask.narrow(1, kTimeSteps - 2, 2).narrow(0, 0, 1).zero_();
    const Tensor labels = tensor({step % 3, (step + 1) % 3, std::int64_t{2}});
    return model.loss(ids.to(device), labels.to(device), mask.to(device));
}

struct DividedTraining {
    std::int64_t steps = kSanitized ? 3 : 20;
    double tolerance = 1e-9;
    double eps = 1e-8;  // epsilon of AdamW
    // The norm to which gradients are clipped. It is so small that most steps are clipped.
    double max_norm = 0.3;
};
// The options for f32. Rounding makes gradients nonzero that are zero in exact arithmetic, so the
// epsilon is large enough to make their updates small.
inline constexpr DividedTraining kSingle{.tolerance = 1e-4, .eps = 1e-3};

// Trains a model on this rank, and returns the loss of each step.
template <class M>
std::vector<double> train(M& model, const DividedTraining& training, optim::Optimizer& optimizer) {
    std::vector<double> losses;
    for (std::int64_t step = 0; step < training.steps; ++step) {
        const Tensor loss = loss_at(model, step);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), training.max_norm);
        optimizer.step();
        optimizer.zero_grad();
        losses.push_back(loss.item());
    }
    return losses;
}
template <class M>
std::vector<double> train(M& model, const DividedTraining& training) {
    optim::AdamW optimizer(model.parameters(), {.lr = 0.01, .eps = training.eps});
    return train(model, training, optimizer);
}

inline void expect_same_losses(const std::vector<double>& losses,
                               const std::vector<double>& expected, double tolerance) {
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t step = 0; step < losses.size(); ++step)
        EXPECT_NEAR(losses[step], expected[step], tolerance) << "step " << step;
}

// Trains the model on one process and divided among ranks, and compares losses and parameters.
template <class M>
void expect_same_training(M whole, int size, const dist::TensorParallelOptions& options = {},
                          const DividedTraining& training = {}) {
    auto models = clones_of(whole, size);
    const std::vector<double> expected = train(whole, training);
    on_ranks(size, [&](const Group& group) {
        M model = std::move(models[at(group)]);
        dist::tensor_parallelize(model, group, options);
        expect_same_losses(train(model, training), expected, training.tolerance);
        expect_same_state(dist::full_state_dict(model, {.rank0_only = false}), whole.saved_state(),
                          training.tolerance);
    });
}

}  // namespace axle::tests
