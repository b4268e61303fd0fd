#include "dist/group/tree_accumulator.h"

#include "core/autograd/autograd.h"
#include "core/system/numerics.h"
#include "gmock/gmock.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::DataParallel;
using dist::TreeAccumulator;
using tests::expect_close;
using tests::expect_same_bits;
using tests::Group;
using tests::kTinyBucket;

TEST(TreeAccumulator, AddsInputsInPairs) {
    manual_seed(1);
    const Tensor terms = randn({8, 100});
    const auto at = [&](int i) { return terms[i]; };
    TreeAccumulator sum;
    EXPECT_FALSE(sum.total().defined());
    const std::vector<Tensor> expected = {
        at(0),
        at(0) + at(1),
        (at(0) + at(1)) + at(2),
        (at(0) + at(1)) + (at(2) + at(3)),
        ((at(0) + at(1)) + (at(2) + at(3))) + at(4),
        ((at(0) + at(1)) + (at(2) + at(3))) + (at(4) + at(5)),
        ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + at(6)),
        ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)))};
    for (int i = 0; i < 8; ++i) {
        sum.push(at(i).clone());
        EXPECT_EQ(sum.count(), i + 1);
        expect_same_bits(sum.total(), expected[static_cast<std::size_t>(i)]);
    }
    const Tensor total = sum.total();
    total.detach().fill_(0);
    expect_same_bits(sum.total(), expected.back());
    sum.clear();
    EXPECT_FALSE(sum.total().defined());
}

// A scope in which deterministic mode is enabled.
struct Deterministic {
    Deterministic() { use_deterministic_algorithms(true); }
    ~Deterministic() { use_deterministic_algorithms(false); }
};

nn::Gpt small_gpt() {
    manual_seed(5);
    return nn::Gpt({.vocab_size = 13, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8});
}

// Runs three updates on `size` ranks with `accumulation` micro-batches each. Returns rank 0's
// parameters.
std::vector<Tensor> trained(int size, int accumulation, double bucket, bool as_view) {
    manual_seed(6);
    const int total = size * accumulation;
    const Tensor ids = randint(0, 13, {3, total, 2, 8}), labels = randint(0, 13, {3, total, 2, 8});
    std::vector<nn::Gpt> models;
    for (int rank = 0; rank < size; ++rank) models.push_back(small_gpt());
    tests::on_ranks(size, [&](const Group& group) {
        nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
        DataParallel replicas(model, group,
                              {.bucket_cap_mb = bucket, .gradient_as_bucket_view = as_view});
        optim::AdamW adam(model.parameters(), {.lr = 0.01});
        for (int step = 0; step < 3; ++step) {
            adam.zero_grad();
            for (int k = 0; k < accumulation; ++k) {
                replicas.set_sync(k + 1 == accumulation);
                const int micro = k * size + group->rank();
                (model.loss(ids[step][micro], labels[step][micro]) / accumulation).backward();
            }
            adam.step();
        }
    });
    std::vector<Tensor> result;
    for (const Tensor& p : models[0].parameters()) result.push_back(p.detach());
    return result;
}

TEST(DeterministicMode, GivesSameParametersForDifferentSplitsOfTheBatch) {
    const Deterministic mode;
    const std::vector<Tensor> expected = trained(1, 4, 25, true);
    for (const auto& [size, accumulation] : {std::pair(2, 2), std::pair(4, 1), std::pair(1, 4)})
        for (const bool as_view : {true, false}) {
            const std::vector<Tensor> actual = trained(size, accumulation, kTinyBucket, as_view);
            for (std::size_t i = 0; i < expected.size(); ++i)
                expect_same_bits(actual[i], expected[i]);
        }
}

// This test ensures that the previous test would detect a difference.
TEST(DeterministicMode, IsNeededForSameParametersOnOneAndSeveralRanks) {
    const std::vector<Tensor> alone = trained(1, 4, 25, true), shared = trained(4, 1, 25, true);
    bool differs = false;
    for (std::size_t i = 0; i < alone.size(); ++i) {
        expect_close(shared[i], alone[i], 1e-3);
        differs |= (shared[i] - alone[i]).abs().max().item() != 0;
    }
    EXPECT_TRUE(differs);
}

TEST(DeterministicMode, DiscardsAccumulatedGradientsOnlyOnZeroGrad) {
    const Deterministic mode;
    nn::Mlp model = tests::small_mlp(), reference = tests::small_mlp();
    DataParallel replicas(model, dist::ProcessGroup::alone());
    const Tensor x = randn({3, 2, 5}, {f64});
    replicas.set_sync(false);
    model(x[0]).sum().backward();
    model.zero_grad();
    model(x[1]).sum().backward();
    reference(x[1]).sum().backward();
    tests::expect_gradients(model, tests::gradients_of(reference));
    replicas.set_sync(true);
    model(x[2]).sum().backward();
    reference(x[2]).sum().backward();
    tests::expect_gradients(model, tests::gradients_of(reference));
    // Without zero_grad, the gradients of the next window are added.
    model(x[0]).sum().backward();
    reference(x[0]).sum().backward();
    tests::expect_gradients(model, tests::gradients_of(reference));
}

}  // namespace
}  // namespace axle
