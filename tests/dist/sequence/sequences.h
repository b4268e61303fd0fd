// Models whose sequences several ranks share, and the same training on one process.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/forward_context.h"
#include "core/ops.h"
#include "core/random.h"
#include "dist/parallel/data_parallel.h"
#include "dist/sequence/context_parallel.h"
#include "dist/sequence/ulysses.h"
#include "nn/layers/sequence_policy.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/sanitized.h"

namespace axle::tests {

inline constexpr std::int64_t kSequenceLength = 16, kSequences = 3, kSequenceVocabulary = 13;

// Return models with the same initial values in every call. Each head has 4 elements. Llama has
// half as many key-value heads.
inline nn::Gpt make_model(nn::Gpt*, double dropout, std::int64_t heads) {
    manual_seed(7);
    return nn::Gpt({.vocab_size = kSequenceVocabulary,
                    .block_size = kSequenceLength,
                    .n_layer = 2,
                    .n_head = heads,
                    .n_embd = 4 * heads,
                    .dropout = dropout});
}
inline nn::Llama make_model(nn::Llama*, double dropout, std::int64_t heads) {
    manual_seed(7);
    return nn::Llama({.vocab_size = kSequenceVocabulary,
                      .hidden_size = 4 * heads,
                      .intermediate_size = 24,
                      .num_hidden_layers = 2,
                      .num_attention_heads = heads,
                      .num_key_value_heads = heads / 2,
                      .attention_dropout = dropout});
}
inline nn::BertForMaskedLM make_model(nn::BertForMaskedLM*, double dropout, std::int64_t heads) {
    manual_seed(7);
    nn::BertConfig config{
        .vocab_size = kSequenceVocabulary, .hidden_size = 4 * heads, .num_hidden_layers = 2};
    config.num_attention_heads = heads, config.intermediate_size = 24;
    config.max_position_embeddings = kSequenceLength;
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout;
    return nn::BertForMaskedLM(config);
}
template <class Model>
Model model_of(DType dtype, double dropout = 0, std::int64_t heads = 4) {
    Model model = make_model(static_cast<Model*>(nullptr), dropout, heads);
    model.to(dtype);
    model.train();
    return model;
}

// Returns the length of sequences that `ranks` ranks share.
inline std::int64_t length_for(std::int64_t ranks) { return ranks % 3 == 0 ? 12 : kSequenceLength; }

// Returns new tensors with the ids and labels [kSequences, length] of a step. labels[b, t] is the
// token that follows ids[b, t].
inline std::pair<Tensor, Tensor> sequences_of(std::int64_t step,
                                              std::int64_t length = kSequenceLength) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kSequences * (length + 1); ++i)
        ids.push_back((i * i + 5 * step + i / 7) % kSequenceVocabulary);
    const Tensor all = tensor(ids).reshape({kSequences, length + 1});
    return {all.narrow(1, 0, length).contiguous(), all.narrow(1, 1, length).contiguous()};
}

// The losses of a run and the parameters after it.
struct SequenceRun {
    std::vector<double> losses;
    std::vector<Tensor> parameters;
};

// Trains with loss_of(step), which runs forward and backward and returns the loss. f64 models use
// AdamW. f32 models use SGD, because AdamW would amplify rounding errors of gradients that are
// almost zero.
template <class Model>
SequenceRun train_sequences(Model& model, std::int64_t steps,
                            const std::function<double(std::int64_t)>& loss_of) {
    SequenceRun run;
    optim::AdamW adamw(model.parameters(), {.lr = 0.01});
    optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    const bool is_wide = model.parameters().front().dtype() == f64;
    for (std::int64_t step = 0; step < steps; ++step) {
        run.losses.push_back(loss_of(step));
        is_wide ? adamw.step() : sgd.step();
        model.zero_grad();
    }
    for (const Tensor& p : model.parameters()) run.parameters.push_back(p.detach().clone());
    return run;
}

// Trains with whole sequences on one process.
template <class Model>
SequenceRun train_whole_sequences(Model& model, std::int64_t steps,
                                  std::int64_t length = kSequenceLength) {
    return train_sequences(model, steps, [&](std::int64_t step) {
        const auto [ids, labels] = sequences_of(step, length);
        const Tensor loss = model.loss(ids, labels);
        loss.backward();
        return loss.item();
    });
}

inline void expect_same_run(const nn::Module& model, const SequenceRun& run,
                            const SequenceRun& expected, double tolerance) {
    ASSERT_EQ(run.losses.size(), expected.losses.size());
    for (std::size_t step = 0; step < run.losses.size(); ++step)
        EXPECT_NEAR(run.losses[step], expected.losses[step], tolerance) << "step " << step;
    const nn::StateDict named = model.named_parameters();
    ASSERT_EQ(named.size(), expected.parameters.size());
    for (std::size_t i = 0; i < named.size(); ++i) {
        SCOPED_TRACE(named[i].first);
        expect_close(run.parameters[i], expected.parameters[i], tolerance);
    }
}

inline double mean_over(const Group& group, const Tensor& number) {
    const Tensor mean = number.detach().clone();
    group->all_reduce(mean, dist::ReduceOp::mean);
    return mean.item();
}

// Computes the loss of a part of the sequences.
using PartLoss = std::function<double(const Tensor& ids, const Tensor& labels)>;
// Calls f with this rank's part of ids and labels, in a scope in which a policy computes attention.
// Returns the result of f.
using SequenceParts =
    std::function<double(const Tensor& ids, const Tensor& labels, const PartLoss& f)>;

inline SequenceParts context_parts(const Group& group, dist::ContextExchange exchange) {
    return [policy = std::make_shared<dist::ContextParallel>(group, exchange)](
               const Tensor& ids, const Tensor& labels, const PartLoss& f) {
        const dist::ContextParallelScope scope(policy, {ids, labels}, {1, 1});
        return f(ids, labels);
    };
}
inline SequenceParts ulysses_parts(const Group& group) {
    return [group, policy = std::make_shared<dist::Ulysses>(group)](
               const Tensor& ids, const Tensor& labels, const PartLoss& f) {
        const ForwardContextGuard context(policy);
        const auto own = [&](const Tensor& x) {
            const std::int64_t part = x.size(1) / group->size();
            return x.narrow(1, group->rank() * part, part);
        };
        return f(own(ids), own(labels));
    };
}

// Trains with sequences that the ranks of the group share, and data parallel gradients. Returns the
// losses and the parameters.
template <class Model>
SequenceRun train_parts(Model& model, const Group& group, std::int64_t steps,
                        const SequenceParts& parts) {
    const dist::DataParallel replicas(model, group);
    const Device device = model.parameters().front().device();
    return train_sequences(model, steps, [&](std::int64_t step) {
        const auto [ids, labels] = sequences_of(step, length_for(group->size()));
        return parts(ids.to(device), labels.to(device), [&](const Tensor& x, const Tensor& y) {
            const Tensor loss = model.loss(x, y);
            loss.backward();
            return mean_over(group, loss);
        });
    });
}

// Trains on several numbers of ranks, and expects the losses and parameters of one process.
// make_parts(group) specifies how the ranks share sequences.
template <class Model>
void expect_same_training(DType dtype, double tolerance,
                          const std::function<SequenceParts(const Group&)>& make_parts) {
    constexpr std::int64_t kTrainedSteps = kSanitized ? 3 : 20;
    for (const int size : kGroupSizes) {
        SCOPED_TRACE(size);
        auto whole = model_of<Model>(dtype, 0, heads_for(size));
        auto models = clones_of(whole, size);
        const SequenceRun expected = train_whole_sequences(whole, kTrainedSteps, length_for(size));
        EXPECT_GT(std::abs(expected.losses.back() - expected.losses.front()), 1e-3);
        on_ranks(size, [&](const Group& group) {
            Model& model = models[at(group)];
            expect_same_run(model, train_parts(model, group, kTrainedSteps, make_parts(group)),
                            expected, tolerance);
        });
    }
}

// Returns the rows of x [B, heads, T, D] at the positions that the policy gives to this rank.
inline Tensor local_rows(const Tensor& x, const nn::SequencePolicy& policy) {
    std::vector<Tensor> parts;
    for (const auto& [begin, count] : policy.positions(x.size(2) / policy.parts()))
        parts.push_back(x.narrow(2, begin, count));
    return cat(parts, 2).contiguous();
}

// Compares the attention that a policy computes from parts of q, k and v, and its gradients, with
// the attention of one process.
inline void expect_whole_attention(nn::SequencePolicy& policy, std::int64_t heads,
                                   std::int64_t groups, const AttentionOptions& options,
                                   DType dtype, double tolerance) {
    const auto values = [&](std::int64_t n, double seed) {
        Tensor x = Tensor::empty({2, n, length_for(policy.parts()), 8}, {.dtype = f64});
        for (std::int64_t i = 0; i < x.numel(); ++i)
            x.data<double>()[i] = std::sin((0.3 + seed) * static_cast<double>(i + 1));
        return x.to(dtype);
    };
    const auto leaf = [](const Tensor& x) { return x.detach().clone().set_requires_grad(); };
    const Tensor q = leaf(values(heads, 1)), k = leaf(values(groups, 2)),
                 v = leaf(values(groups, 3)), dy = values(heads, 4);
    const Tensor y = scaled_dot_product_attention(q, k, v, options);
    (y * dy).sum().backward();

    const auto part = [&](const Tensor& x) { return local_rows(x.detach(), policy); };
    const Tensor own_q = leaf(part(q)), own_k = leaf(part(k)), own_v = leaf(part(v));
    const Tensor own = policy.attend(own_q, own_k, own_v, options);
    EXPECT_EQ(own.dtype(), dtype);
    (own * part(dy)).sum().backward();
    expect_close(own.detach(), part(y), tolerance);
    expect_close(own_q.grad(), part(q.grad()), tolerance);
    expect_close(own_k.grad(), part(k.grad()), tolerance);
    expect_close(own_v.grad(), part(v.grad()), tolerance);
}

}  // namespace axle::tests
