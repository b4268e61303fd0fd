#include "dist/tensor_parallel/tensor_parallel.h"

#include "dist/ops/collective_ops.h"
#include "gtest/gtest.h"
#include "tests/dist/tensor_parallel/divided_models.h"

namespace axle {
namespace {

using dist::tensor_parallelize;
using tests::at;
using tests::clones_of;
using tests::expect_close;
using tests::expect_same_training;
using tests::Group;
using tests::heads_for;
using tests::kBatchSize;
using tests::kGroupSizes;
using tests::kSingle;
using tests::kTimeSteps;
using tests::loss_at;
using tests::on_ranks;
using tests::small_bert;
using tests::small_gpt;
using tests::small_llama;

// Covers 17.TP.
TEST(TensorParallel, TrainsGptLikeOneProcess) {
    for (const int size : kGroupSizes)
        expect_same_training(small_gpt(f64, 0, false, heads_for(size)), size);
}

TEST(TensorParallel, TrainsGptWithSequenceParallelLikeOneProcess) {
    for (const int size : kGroupSizes)
        expect_same_training(small_gpt(f64, 0, false, heads_for(size)), size,
                             {.sequence_parallel = true});
}

TEST(TensorParallel, TrainsLlamaLikeOneProcess) {
    for (const int size : kGroupSizes)
        for (const bool tied : {false, true})
            for (const bool sequence_parallel : {false, true}) {
                const std::int64_t heads = heads_for(size);
                expect_same_training(small_llama(tied, f64, heads / 2, heads), size,
                                     {.sequence_parallel = sequence_parallel});
            }
}

TEST(TensorParallel, TrainsLikeOneProcessWithFewerKeyValueHeadsThanRanks) {
    for (const std::int64_t heads : {1, 2})
        for (const bool sequence_parallel : {false, true})
            expect_same_training(small_llama(heads == 1, f64, heads), 4,
                                 {.sequence_parallel = sequence_parallel});
}

TEST(TensorParallel, TrainsBertLikeOneProcess) {
    for (const int size : kGroupSizes) {
        manual_seed(9);
        nn::BertForMaskedLM masked(small_bert(0, heads_for(size)));
        nn::BertForSequenceClassification classifier(small_bert(0, heads_for(size)));
        masked.to(f64), classifier.to(f64);
        for (const bool sequence_parallel : {false, true}) {
            expect_same_training(masked.clone(), size, {.sequence_parallel = sequence_parallel});
            expect_same_training(classifier.clone(), size,
                                 {.sequence_parallel = sequence_parallel});
        }
    }
}

TEST(TensorParallel, TrainsInSinglePrecisionLikeOneProcess) {
    expect_same_training(small_gpt(f32), 2, {}, kSingle);
    expect_same_training(small_llama(true, f32), 4, {.sequence_parallel = true}, kSingle);
}

TEST(TensorParallel, TrainsCheckpointedBlocksLikeOneProcess) {
    expect_same_training(small_gpt(f64, 0, true), 2, {.sequence_parallel = true}, {.steps = 3});
}

TEST(TensorParallel, KeepsEarlierOptimizersAndTensorsValid) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 2);
    const std::vector<double> expected = tests::train(whole, {});
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        optim::AdamW optimizer(model.parameters(), {.lr = 0.01});
        const Tensor weight = model.transformer.h[0].attn.c_attn.weight;
        tensor_parallelize(model, group);
        EXPECT_TRUE(weight.is_same(model.transformer.h[0].attn.c_attn.weight));
        EXPECT_EQ(weight.shape(), Shape({16, 24}));
        EXPECT_TRUE(weight.requires_grad());
        tests::expect_same_losses(tests::train(model, {}, optimizer), expected, 1e-9);
    });
}

TEST(TensorParallel, StoresOneSliceOfEachDividedWeightAndRestoresWholeShapesInFullStateDicts) {
    auto models = clones_of(small_gpt(), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        std::vector<std::pair<std::string, Shape>> shapes;
        for (const auto& [name, tensor] : model.state_dict())
            shapes.emplace_back(name, tensor.shape());
        tensor_parallelize(model, group);
        EXPECT_EQ(model.transformer.wte.weight.shape(), Shape({4, 16}));  // 13 rows, padded to 16
        const auto& block = model.transformer.h[1];
        EXPECT_EQ(block.attn.c_attn.bias.shape(), Shape({12}));
        EXPECT_EQ(block.attn.c_proj.weight.shape(), Shape({4, 16}));
        EXPECT_EQ(block.attn.c_proj.bias.shape(), Shape({16}));
        EXPECT_EQ(block.mlp.c_fc.weight.shape(), Shape({16, 16}));
        for (const Tensor& parameter : model.parameters())
            EXPECT_EQ(parameter.impl()->storage->bytes(),
                      static_cast<std::size_t>(parameter.numel()) * 8);
        // Full states have the names and shapes of the model on one process.
        const nn::StateDict full = dist::full_state_dict(model, {.rank0_only = false});
        EXPECT_EQ(full.size() + 1, shapes.size());  // lm_head.weight is tied
        for (std::size_t i = 0; i < full.size(); ++i) {
            EXPECT_EQ(full[i].first, shapes[i].first);
            EXPECT_EQ(full[i].second.shape(), shapes[i].second);
        }
    });
}

// The norm would be too large if all ranks counted the same gradient, and too small if no rank
// counted it.
TEST(TensorParallel, CountsEachGradientOnceInNorms) {
    for (const bool sequence_parallel : {false, true}) {
        nn::Llama whole = small_llama(false, f64, 2);
        auto models = clones_of(whole, 4);
        loss_at(whole, 0).backward();
        const double expected = optim::get_total_norm(whole.parameters()).item();
        const double largest =
            optim::get_total_norm(whole.parameters(), std::numeric_limits<double>::infinity())
                .item();
        on_ranks(4, [&](const Group& group) {
            nn::Llama model = std::move(models[at(group)]);
            tensor_parallelize(model, group, {.sequence_parallel = sequence_parallel});
            loss_at(model, 0).backward();
            EXPECT_NEAR(optim::get_total_norm(model.parameters()).item(), expected, 1e-12);
            EXPECT_NEAR(
                optim::get_total_norm(model.parameters(), std::numeric_limits<double>::infinity())
                    .item(),
                largest, 1e-12);
        });
    }
}

TEST(TensorParallel, ExchangesActivationsFourTimesPerBlock) {
    constexpr std::int64_t kLayers = 2, kActivation = kBatchSize * kTimeSteps * 16 * 8,
                           kWidth = 16 * 8;
    auto models = clones_of(small_gpt(), 4);
    on_ranks(2, [&](const Group& group) {
        for (const bool sequence_parallel : {false, true}) {
            nn::Gpt model = std::move(models[at(group) + (sequence_parallel ? 2 : 0)]);
            tensor_parallelize(model, group, {.sequence_parallel = sequence_parallel});
            dist::reset_collective_counts();
            loss_at(model, 0).backward();
            // The loss exchanges two numbers per rank and position.
            dist::CollectiveCounts expected{.all_gathers = 1,
                                            .bytes = 2 * 2 * kBatchSize * kTimeSteps * 8};
            // The embedding and the head use one all-reduce each.
            expected.all_reduces += 2;
            expected.bytes += 2 * kActivation;
            if (!sequence_parallel) {
                // Attention and the MLP use one all-reduce each in the forward and in the backward
                // pass.
                expected.all_reduces += 4 * kLayers;
                expected.bytes += 4 * kLayers * kActivation;
            } else {
                // An all-gather and a reduce-scatter replace each of these all-reduces.
                expected.all_gathers += 4 * kLayers;
                expected.reduce_scatters += 4 * kLayers;
                expected.bytes += 2 * 4 * kLayers * kActivation;
                // Forward gathers the output of the last block, and backward gathers the gradient
                // of the first block's input.
                expected.all_gathers += 2;
                expected.bytes += 2 * kActivation;
                // The gradients of norms (weight and bias) and of biases are summed.
                expected.all_reduces += (2 * kLayers + 1) + 2 * kLayers;
                expected.bytes += (2 * kLayers + 1) * 2 * kWidth + 2 * kLayers * kWidth;
            }
            const dist::CollectiveCounts counts = dist::collective_counts();
            EXPECT_EQ(counts.all_reduces, expected.all_reduces);
            EXPECT_EQ(counts.all_gathers, expected.all_gathers);
            EXPECT_EQ(counts.reduce_scatters, expected.reduce_scatters);
            EXPECT_EQ(counts.all_to_alls, 0);
            EXPECT_EQ(counts.bytes, expected.bytes);
        }
    });
}

TEST(TensorParallel, ComputesLogitsLossAndGradientsOfTheWholeVocabularyAndGenerates) {
    nn::Gpt whole = small_gpt();
    auto models = clones_of(whole, 4);
    const auto [ids, labels] = tests::ids_and_labels(0);
    const nn::ModelOutput expected = whole.outputs(ids, labels);
    expected.loss.backward();
    const Tensor gradient = whole.transformer.wpe.weight.grad();
    on_ranks(4, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        tensor_parallelize(model, group);
        const nn::ModelOutput output = model.outputs(ids, labels);
        expect_close(output.logits, expected.logits, 1e-12);
        expect_close(output.loss, expected.loss, 1e-12);
        output.loss.backward();
        expect_close(model.transformer.wpe.weight.grad(), gradient, 1e-12);
        EXPECT_EQ(model.generate({1, 2}, 3, {.temperature = 0}).size(), 5u);
    });
}

TEST(TensorParallel, GivesAllRanksTheValuesOfRankZero) {
    nn::Gpt whole = small_gpt();
    manual_seed(1);
    nn::Gpt other(whole.config);
    other.to(f64);
    auto models = clones_of(whole, 1);
    models.push_back(other.clone());
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        tensor_parallelize(model, group);
        tests::expect_same_state(dist::full_state_dict(model, {.rank0_only = false}),
                                 whole.saved_state(), 0);
    });
}

// A model of a user. The fused output of `gate_up` has two segments.
struct Gated : nn::Model<Gated> {
    Gated() : gate_up(6, 16), down(8, 6), norm(6) {}
    Tensor forward(const Tensor& x) {
        const std::vector<Tensor> parts = chunk(gate_up(x), 2, -1);
        return norm(x + down(silu(parts[0]) * parts[1]));
    }
    void visit(nn::Visitor& v) override { v("gate_up", gate_up), v("down", down), v("norm", norm); }
    nn::Linear gate_up, down;
    nn::LayerNorm norm;
};

TEST(TensorParallel, DividesEachSegmentOfAFusedProjection) {
    manual_seed(3);
    Gated whole;
    whole.to(f64);
    auto models = clones_of(whole, 4);
    const Tensor x = mul(sub(arange(24, {.dtype = f64}).reshape({2, 2, 6}), 11.5), 0.1);
    const Tensor expected = whole(x);
    mul(expected, expected).sum().backward();
    for (const bool gathers : {false, true})
        on_ranks(4, [&](const Group& group) {
            Gated model = models[at(group)].clone();
            dist::TensorParallelPlan plan = {{"gate_up", "colwise", 2},
                                             {"regex:d.w[n]", "rowwise"}};
            // A gathered output is used by a layer that is not divided.
            if (gathers) plan = {{"gate_up", "colwise_rep", 2}, {"*", "replicate"}};
            tensor_parallelize(model, group, {.plan = plan});
            const Tensor y = model(x);
            expect_close(y, expected, 1e-12);
            mul(y, y).sum().backward();
            expect_close(model.norm.weight.grad(), whole.norm.weight.grad(), 1e-12);
            EXPECT_EQ(model.gate_up.weight.shape(), Shape({4, 6}));
            const auto gradients = dist::whole_gradients(model);
            EXPECT_EQ(gradients[0].first, "gate_up.weight");
            expect_close(gradients[0].second, whole.gate_up.weight.grad(), 1e-12);
        });
}

}  // namespace
}  // namespace axle
