// Tests position_ids of models whose sequences or layers several ranks share.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
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

// Returns positions [kSequences, kSequenceLength] of documents of 5, 4 and 7 tokens. Sequence b has
// them in an order that is rotated by b, so that the documents of the sequences differ.
Tensor packed_positions() {
    constexpr std::int64_t kLengths[] = {5, 4, 7};
    std::vector<std::int64_t> positions;
    for (std::int64_t b = 0; b < kSequences; ++b)
        for (std::int64_t d = 0; d < 3; ++d)
            for (std::int64_t t = 0; t < kLengths[(b + d) % 3]; ++t) positions.push_back(t);
    return tensor(positions).reshape({kSequences, kSequenceLength});
}

Tensor loss_of(nn::Gpt& model, const Tensor& ids, const Tensor& labels, const Tensor& positions) {
    return model.loss(ids, labels, positions);
}
Tensor loss_of(nn::Llama& model, const Tensor& ids, const Tensor& labels, const Tensor& positions) {
    return model.loss(ids, labels, {}, positions);
}

// Compares the loss and the gradients of packed documents that ranks share with one process.
template <class Model>
void expect_packed_documents(
    int size, const std::function<std::shared_ptr<nn::SequencePolicy>(const Group&)>& make_policy) {
    Model whole = tests::model_of<Model>(f64);
    auto models = clones_of(whole, size);
    const auto [ids, labels] = tests::sequences_of(0);
    const double unpacked = whole.loss(ids, labels).item();
    const Tensor loss = loss_of(whole, ids, labels, packed_positions());
    loss.backward();
    EXPECT_GT(std::abs(loss.item() - unpacked), 1e-4);
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
        const ForwardContextGuard context(policy);
        const Tensor part = loss_of(model, own(ids), own(labels), own(packed_positions()));
        part.backward();
        EXPECT_NEAR(tests::mean_over(group, part), loss.item(), 1e-12);
        tests::expect_gradients(model, expected, 1e-12);
    });
}

// Covers 17.CP, 17.SP.
TEST(PackedDocuments, AreSeparatedInSequencesThatRanksShare) {
    for (const int size : {2, 4}) {
        const auto gathered = [](const Group& group) {
            return std::make_shared<dist::ContextParallel>(group);
        };
        const auto ulysses = [](const Group& group) {
            return std::make_shared<dist::Ulysses>(group);
        };
        expect_packed_documents<nn::Gpt>(size, gathered);
        expect_packed_documents<nn::Llama>(size, gathered);
        expect_packed_documents<nn::Gpt>(size, ulysses);
        expect_packed_documents<nn::Llama>(size, ulysses);
    }
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

TEST(PackedDocuments, AreRefusedByTheRingOnAllRanks) {
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

// The position that is not in the table is in the part of one rank.
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

template <class Model>
void expect_packed_pipeline(Model whole) {
    constexpr std::int64_t kTime = 6;
    auto models = clones_of(whole, 2);
    const auto batch_of = [] {
        Tree batch = tests::pipeline_batch(0, 4, kTime);
        std::vector<std::int64_t> positions;
        for (std::int64_t row = 0; row < 4; ++row)
            for (std::int64_t t = 0; t < kTime; ++t)
                positions.push_back(t <= row ? t : t - row - 1);
        batch.set("position_ids", tensor(positions).reshape({4, kTime}));
        return batch;
    };
    const Tree batch = batch_of();
    const Tensor loss = loss_of(whole, batch["input_ids"], batch["labels"], batch["position_ids"]);
    loss.backward();
    EXPECT_GT(std::abs(loss.item() - whole.loss(batch["input_ids"], batch["labels"]).item()), 1e-4);
    const double norm = optim::get_total_norm(whole.parameters()).item();
    on_ranks(2, [&](const Group& group) {
        Model& model = models[at(group)];
        dist::Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 2});
        EXPECT_NEAR(pipeline.step(batch_of(), nn::label_loss).item(), loss.item(), 1e-12);
        EXPECT_NEAR(pipeline.clip_grad_norm_(1e9).item(), norm, 1e-12);
    });
}

TEST(PackedDocuments, AreSeparatedInPipelines) {
    expect_packed_pipeline(tests::pipeline_gpt());
    expect_packed_pipeline(tests::pipeline_llama());
}

}  // namespace
}  // namespace axle
