// Tests position_ids of models whose sequences or layers several ranks share.
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "nn/models/pieces.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/dist/sequence/sequences.h"

namespace axle {
namespace {

using tests::at;
using tests::clones_of;
using tests::Group;
using tests::kSequenceLength;
using tests::kSequences;
using tests::on_ranks;

// Returns positions [kSequences, kSequenceLength] of documents of 5, 4 and 7 tokens. The order of
// the documents is rotated by b in sequence b, so that the documents of the sequences differ.
Tensor packed_positions() {
    constexpr std::int64_t kLengths[] = {5, 4, 7};
    std::vector<std::int64_t> positions;
    for (std::int64_t b = 0; b < kSequences; ++b)
        for (std::int64_t d = 0; d < 3; ++d)
            for (std::int64_t t = 0; t < kLengths[(b + d) % 3]; ++t) positions.push_back(t);
    return tensor(positions).reshape({kSequences, kSequenceLength});
}

// Computes a loss from ids, labels and position_ids. The tensors can be parts of sequences.
template <class Model>
using LossOf = std::function<Tensor(Model& model, const Tensor& ids, const Tensor& labels,
                                    const Tensor& positions)>;
const LossOf<nn::Gpt> kGptLoss = [](nn::Gpt& model, const Tensor& ids, const Tensor& labels,
                                    const Tensor& positions) {
    return model.loss(ids, labels, positions);
};
const LossOf<nn::Llama> kLlamaLoss = [](nn::Llama& model, const Tensor& ids, const Tensor& labels,
                                        const Tensor& positions) {
    return model.loss(ids, labels, {}, positions);
};
// Returns the loss with a mask of ones, which keeps the tokens of a sequence in one document.
const LossOf<nn::Llama> kUnseparatedLoss = [](nn::Llama& model, const Tensor& ids,
                                              const Tensor& labels, const Tensor& positions) {
    return model.loss(ids, labels, ones(ids.shape(), {.dtype = i64}), positions);
};

using MakePolicy = std::function<std::shared_ptr<nn::SequencePolicy>(const Group&)>;
MakePolicy context_policy(dist::ContextExchange exchange = dist::ContextExchange::all_gather) {
    return [exchange](const Group& group) {
        return std::make_shared<dist::ContextParallel>(group, exchange);
    };
}
MakePolicy ulysses_policy() {
    return [](const Group& group) { return std::make_shared<dist::Ulysses>(group); };
}

// Compares the loss of sequences that ranks share, and its gradients, with one process. Expects
// that the loss depends on the positions.
template <class Model>
void expect_whole_loss(int size, const MakePolicy& make_policy, const Tensor& positions,
                       const LossOf<Model>& loss_of) {
    Model whole = tests::model_of<Model>(f64);
    auto models = clones_of(whole, size);
    const auto [ids, labels] = tests::sequences_of(0);
    const double without = whole.loss(ids, labels).item();
    const Tensor loss = loss_of(whole, ids, labels, positions);
    loss.backward();
    EXPECT_GT(std::abs(loss.item() - without), 1e-6);
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    on_ranks(size, [&, &ids = ids, &labels = labels](const Group& group) {
        Model& model = models[at(group)];
        const dist::DataParallel replicas(model, group);
        const auto policy = make_policy(group);
        const auto own = [&](const Tensor& x) {
            std::vector<Tensor> parts;
            for (const auto& [begin, count] : policy->positions(kSequenceLength / size))
                parts.push_back(x.narrow(1, begin, count));
            return cat(parts, 1);
        };
        const ForwardContextGuard guard(policy);
        const Tensor part = loss_of(model, own(ids), own(labels), own(positions));
        part.backward();
        EXPECT_NEAR(tests::mean_over(group, part), loss.item(), 1e-12);
        tests::expect_gradients(model, expected, 1e-12);
    });
}

// Covers 17.CP, 17.SP.
TEST(PackedDocuments, AreSeparatedInSequencesThatRanksShare) {
    for (const int size : {2, 4})
        for (const MakePolicy& policy : {context_policy(), ulysses_policy()}) {
            expect_whole_loss(size, policy, packed_positions(), kGptLoss);
            expect_whole_loss(size, policy, packed_positions(), kLlamaLoss);
        }
}

// Returns every second position, starting at 0.
Tensor spread_positions() { return (2 * arange(kSequenceLength)).reshape({1, -1}); }

TEST(PositionIds, RotateQueriesAndKeysOfSequencesThatRanksShare) {
    for (const MakePolicy& policy :
         {context_policy(), context_policy(dist::ContextExchange::ring), ulysses_policy()})
        expect_whole_loss(2, policy, spread_positions(), kUnseparatedLoss);
}

// Positions of whole sequences that count from 0 are the default on every rank, although the
// positions of a part do not count from 0.
TEST(PackedDocuments, AreNotSeparatedIfPositionsOfWholeSequencesCountFromZero) {
    auto models = clones_of(tests::model_of<nn::Llama>(f64), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Llama& model = models[at(group)];
        const Tensor ids = tests::sequences_of(0).first;
        const Tensor positions =
            expand(arange(kSequenceLength).reshape({1, -1}), ids.shape()).contiguous();
        const dist::ContextParallelScope scope(
            std::make_shared<dist::ContextParallel>(group, dist::ContextExchange::ring),
            {ids, positions}, {1, 1});
        tests::expect_same_bits(model(ids, Tensor(), positions), model(ids));
    });
}

TEST(PackedDocuments, AreRejectedByRingAttentionOnAllRanks) {
    auto models = clones_of(tests::model_of<nn::Gpt>(f64), 2);
    on_ranks(2, [&](const Group& group) {
        const Tensor own = tests::sequences_of(0).first, positions = packed_positions();
        const dist::ContextParallelScope scope(
            std::make_shared<dist::ContextParallel>(group, dist::ContextExchange::ring),
            {own, positions}, {1, 1});
        tests::expect_error<UsageError>(
            {"context parallel attention: the ring (cp_comm_strategy alltoall) can't separate the "
             "documents of a sequence: mask [3, 1, 16, 16]; use allgather"},
            [&] { models[at(group)](own, positions); });
    });
}

// Only one rank has the position that is not in the table.
TEST(PositionIds, AreCheckedOnAllRanksThatShareSequences) {
    auto models = clones_of(tests::model_of<nn::Gpt>(f64), 2);
    const Tensor ids = tests::sequences_of(0).first;
    on_ranks(2, [&](const Group& group) {
        const ForwardContextGuard context(std::make_shared<dist::Ulysses>(group));
        Tensor positions = packed_positions();
        positions.narrow(0, 1, 1).narrow(1, 12, 1).fill_(16);
        const auto own = [&](const Tensor& x) {
            return x.narrow(1, group->rank() * 8, 8).contiguous();
        };
        tests::expect_error<IndexError>(
            {"gpt: position_ids must be from 0 to 15: token 12 of sequence 1 has the position 16"},
            [&] { models[at(group)](own(ids), own(positions)); });
    });
}

// Compares the loss and the norm of the gradients of two stages with one process. Expects that the
// loss depends on the positions.
template <class Model>
void expect_whole_loss_of_stages(Model whole, const std::function<Tree()>& make_batch,
                                 const LossOf<Model>& loss_of) {
    auto models = clones_of(whole, 2);
    const Tree batch = make_batch();
    const Tensor loss = loss_of(whole, batch["input_ids"], batch["labels"], batch["position_ids"]);
    loss.backward();
    EXPECT_GT(std::abs(loss.item() - whole.loss(batch["input_ids"], batch["labels"]).item()), 1e-6);
    const double norm = optim::get_total_norm(whole.parameters()).item();
    on_ranks(2, [&](const Group& group) {
        Model& model = models[at(group)];
        dist::Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 2});
        EXPECT_NEAR(pipeline.step(make_batch(), nn::label_loss).item(), loss.item(), 1e-12);
        EXPECT_NEAR(pipeline.clip_grad_norm_(1e9).item(), norm, 1e-12);
    });
}

constexpr std::int64_t kStageRows = 4, kStageTime = 6;

TEST(PackedDocuments, AreSeparatedInPipelines) {
    const auto make_batch = [] {
        Tree batch = tests::pipeline_batch(0, kStageRows, kStageTime);
        std::vector<std::int64_t> positions;
        for (std::int64_t row = 0; row < kStageRows; ++row)
            for (std::int64_t t = 0; t < kStageTime; ++t)
                positions.push_back(t <= row ? t : t - row - 1);
        batch.set("position_ids", tensor(positions).reshape({kStageRows, kStageTime}));
        return batch;
    };
    expect_whole_loss_of_stages(tests::pipeline_gpt(), make_batch, kGptLoss);
    expect_whole_loss_of_stages(tests::pipeline_llama(), make_batch, kLlamaLoss);
}

TEST(PositionIds, RotateQueriesAndKeysInPipelines) {
    const auto make_batch = [] {
        Tree batch = tests::pipeline_batch(0, kStageRows, kStageTime);
        const Shape shape = {kStageRows, kStageTime};
        const Tensor positions = (2 * arange(kStageTime)).reshape({1, -1});
        batch.set("position_ids", expand(positions, shape).contiguous());
        batch.set("attention_mask", ones(shape, {.dtype = i64}));
        return batch;
    };
    expect_whole_loss_of_stages(tests::pipeline_llama(), make_batch, kUnseparatedLoss);
}

}  // namespace
}  // namespace axle
