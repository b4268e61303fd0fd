// Models that pipelines train, and the same training on one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ops.h"
#include "core/random.h"
#include "dist/pipeline/pipeline.h"
#include "nn/models/pieces.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"

namespace axle::tests {

inline constexpr std::int64_t kPipelineVocabulary = 13, kPipelineRows = 12, kPipelineTime = 5;
inline constexpr double kClip = 0.3;

inline nn::Gpt pipeline_gpt(DType dtype = f64, double dropout = 0, std::int64_t layers = 6) {
    manual_seed(7);
    nn::Gpt model({.vocab_size = kPipelineVocabulary,
                   .block_size = 6,
                   .n_layer = layers,
                   .n_head = 2,
                   .n_embd = 8,
                   .dropout = dropout});
    model.to(dtype);
    return model;
}

inline nn::Llama pipeline_llama(DType dtype = f64, bool tied = false, std::int64_t layers = 6) {
    manual_seed(7);
    nn::Llama model({.vocab_size = kPipelineVocabulary,
                     .hidden_size = 8,
                     .intermediate_size = 12,
                     .num_hidden_layers = layers,
                     .num_attention_heads = 2,
                     .num_key_value_heads = 1,
                     .tie_word_embeddings = tied});
    model.to(dtype);
    return model;
}

// Returns "input_ids" and "labels" [rows, time] of a step.
inline Tree pipeline_batch(std::int64_t step, std::int64_t rows = kPipelineRows,
                           std::int64_t time = kPipelineTime) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < rows * (time + 1); ++i)
        ids.push_back((i * i + 5 * step + i / 7) % kPipelineVocabulary);
    const Tensor all = tensor(ids).reshape({rows, time + 1});
    return {{"input_ids", all.narrow(1, 0, time).contiguous()},
            {"labels", all.narrow(1, 1, time).contiguous()}};
}

// Returns AdamW for a model. In f32, rounding makes gradients nonzero that are zero in exact
// arithmetic, so the epsilon of f32 models is large enough to make their updates small.
template <class M>
optim::AdamW pipeline_optimizer(M& model) {
    const bool is_wide = model.parameters().front().dtype() == f64;
    return optim::AdamW(model.parameters(), {.lr = 0.01, .eps = is_wide ? 1e-8 : 1e-3});
}

// The losses and the final state of a training run.
struct PipelineReference {
    std::vector<double> losses;
    nn::StateDict state;
};

// Trains a model on one process with whole batches.
template <class M>
PipelineReference train_whole(
    M& model, std::int64_t steps,
    const std::function<Tree(std::int64_t)>& batch_of = [](std::int64_t step) {
        return pipeline_batch(step);
    }) {
    PipelineReference result;
    optim::AdamW optimizer = pipeline_optimizer(model);
    for (std::int64_t step = 0; step < steps; ++step) {
        const Tree batch = batch_of(step);
        const Tensor loss = nn::label_loss(model(batch["input_ids"].tensor()), batch);
        loss.backward();
        optim::clip_grad_norm_(model.parameters(), kClip);
        optimizer.step();
        optimizer.zero_grad();
        result.losses.push_back(loss.item());
    }
    for (const auto& [name, tensor] : model.saved_state())
        result.state.emplace_back(name, tensor.clone());
    return result;
}

// Trains the stages as train_whole() does and expects the same losses and the same state.
template <class M>
void expect_same_pipeline(
    M& model, dist::Pipeline& pipeline, const PipelineReference& expected, double tolerance,
    const std::function<Tree(std::int64_t)>& batch_of = [](std::int64_t step) {
        return pipeline_batch(step);
    }) {
    optim::AdamW optimizer = pipeline_optimizer(model);
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        const Tensor loss =
            pipeline.step(batch_of(static_cast<std::int64_t>(step)), nn::label_loss);
        pipeline.clip_grad_norm_(kClip);
        optimizer.step();
        optimizer.zero_grad();
        EXPECT_NEAR(loss.item(), expected.losses[step], tolerance) << "step " << step;
    }
    expect_same_state(pipeline.full_state_dict({.rank0_only = false}), expected.state, tolerance);
}

}  // namespace axle::tests
