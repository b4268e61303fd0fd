// Tests pipelines with changing dtypes, outputs without training, tied parameters, and pipelines of
// BERT.
#include <optional>
#include <vector>

#include "core/autograd/autocast.h"
#include "dist/pipeline/pipeline.h"
#include "nn/layers/mlp.h"
#include "nn/models/bert.h"
#include "tests/dist/pipeline/pipeline_models.h"

namespace axle {
namespace {

using dist::Pipeline;
using dist::ScheduleKind;
using tests::at;
using tests::clones_of;
using tests::expect_close;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_batch;
using tests::pipeline_gpt;

// Without a new agreement, the next stage would read the bytes of a bf16 activation as f32.
TEST(Pipeline, AgreesOnDTypesWhenAutocastChanges) {
    manual_seed(5);
    nn::Mlp whole({4, 6, 2});
    auto stages = clones_of(whole, 2);
    const Tree batch = {{"x", mul(sub(arange(24, {.dtype = f32}).reshape({6, 4}), 11.5), 0.1)}};
    const auto pieces_of = [](nn::Mlp& mlp) {
        std::vector<nn::Piece> pieces;
        for (auto& [name, layer] : mlp.named_modules())
            if (auto* const linear = dynamic_cast<nn::Linear*>(layer))
                pieces.push_back({.name = name,
                                  .modules = {linear},
                                  .forward = [linear](const Tensor& x, const Tree& in) {
                                      return (*linear)(x.defined() ? x : in["x"].tensor());
                                  }});
        return pieces;
    };
    const auto losses_of = [&](Pipeline& pipeline) {
        const auto loss = [](const Tensor& y, const Tree&) { return mean(y.to(f32)); };
        std::vector<double> losses;
        for (const bool autocasts : {false, true, false, true}) {
            const AutocastGuard guard(autocasts ? std::optional(bf16) : std::nullopt);
            losses.push_back(pipeline.step(batch, loss).item());
        }
        return losses;
    };
    Pipeline alone(whole, pieces_of(whole), dist::ProcessGroup::alone(), {.micro_batches = 2});
    const std::vector<double> expected = losses_of(alone);
    EXPECT_NE(expected[0], expected[1]);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = stages[at(group)];
        Pipeline pipeline(model, pieces_of(model), group, {.micro_batches = 2});
        EXPECT_EQ(losses_of(pipeline), expected);
        EXPECT_EQ(pipeline.counters().agreed_shapes, group->rank() == 0 ? 0 : 2);
    });
}

// Covers 18.prepare_pippy.
TEST(Pipeline, EvaluatesAndComputesOutputsLikeOneProcess) {
    nn::Gpt whole = pipeline_gpt();
    const Tree batch = pipeline_batch(3, 7);
    const Tensor logits = whole(batch["input_ids"].tensor()).detach();
    const double loss = nn::label_loss(logits, batch).item();
    for (const auto& [kind, chunks] :
         {std::pair{ScheduleKind::gpipe, 1}, {ScheduleKind::interleaved, 2}}) {
        auto stages = clones_of(whole, 2);
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = stages[at(group)];
            Pipeline pipeline(model, nn::pieces(model), group,
                              {.schedule = kind, .micro_batches = 4, .chunks = chunks});
            EXPECT_NEAR(pipeline.evaluate(batch, nn::label_loss).item(), loss, 1e-12);
            expect_close(pipeline.forward(batch), logits, 1e-12);
            EXPECT_EQ(pipeline.forward(batch, false).defined(), group->rank() == 1);
            // A single row is one micro-batch.
            EXPECT_EQ(pipeline.forward(slice_tensors(batch, 0, 1)).size(0), 1);
            EXPECT_EQ(pipeline.counters().peak_stored, 0);
        });
    }
}

TEST(Pipeline, GeneratesLikeOneProcessAndSamplesTheSameTokensOnAllRanks) {
    nn::Gpt whole = pipeline_gpt();
    auto models = clones_of(whole, 2);
    const std::vector<std::int64_t> expected = whole.generate({1, 2}, 8, {.temperature = 0});
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 2});
        EXPECT_EQ(pipeline.generate(6, {1, 2}, 8, {.temperature = 0}), expected);
        const std::vector<std::int64_t> sampled = pipeline.generate(6, {1}, 8);
        EXPECT_EQ(tensor(sampled).to_vector(),
                  group->broadcast_object(tensor(sampled)).tensor().to_vector());
        EXPECT_NE(pipeline.generate(6, {1}, 8), sampled);  // draws different random numbers
    });
}

TEST(Pipeline, GivesTiedParametersTheValuesOfTheFirstStage) {
    std::vector<nn::Gpt> models;
    models.push_back(pipeline_gpt());
    models.push_back(pipeline_gpt());
    Tensor(models[1].transformer.wte.weight).detach().fill_(3);
    const Tensor expected = models[0].transformer.wte.weight.clone();
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        const Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 2});
        tests::expect_same_bits(model.transformer.wte.weight, expected);
    });
}

TEST(Pipeline, HasTheGradientsOfOneProcessForBertWithMasks) {
    const auto make = [] {
        manual_seed(5);
        nn::BertForMaskedLM model({.vocab_size = tests::kPipelineVocabulary,
                                   .hidden_size = 8,
                                   .num_hidden_layers = 3,
                                   .num_attention_heads = 2,
                                   .intermediate_size = 12,
                                   .max_position_embeddings = 6,
                                   .hidden_dropout_prob = 0,
                                   .attention_probs_dropout_prob = 0});
        model.to(f64);
        return model;
    };
    nn::BertForMaskedLM whole = make();
    Tree batch = pipeline_batch(0);
    Tensor mask = ones({tests::kPipelineRows, tests::kPipelineTime}, {.dtype = i64});
    mask.slice(0, 6).slice(1, 3).zero_();
    batch.set("attention_mask", mask);
    whole.loss(batch["input_ids"].tensor(), batch["labels"].tensor(), mask).backward();
    const std::vector<Tensor> expected = tests::gradients_of(whole);
    auto models = clones_of(make(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::BertForMaskedLM& model = models[at(group)];
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 4});
        pipeline.step(batch, nn::label_loss);
        const std::vector<Tensor> actual = tests::gradients_of(model);
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (actual[i].defined()) expect_close(actual[i], expected[i], 1e-12);
    });
}

TEST(Pipeline, ComputesLogitsOfABertClassifierLikeOneProcess) {
    manual_seed(5);
    nn::BertForSequenceClassification whole({.vocab_size = tests::kPipelineVocabulary,
                                             .hidden_size = 8,
                                             .num_hidden_layers = 2,
                                             .num_attention_heads = 2,
                                             .intermediate_size = 12});
    whole.to(f64);
    whole.eval();
    auto models = clones_of(whole, 2);
    const Tree batch = pipeline_batch(0);
    const Tensor expected = whole(batch["input_ids"].tensor()).detach();
    on_ranks(2, [&](const Group& group) {
        nn::BertForSequenceClassification& model = models[at(group)];
        model.eval();
        Pipeline pipeline(model, nn::pieces(model), group, {.micro_batches = 2});
        expect_close(pipeline.forward(batch), expected, 1e-12);
    });
}

}  // namespace
}  // namespace axle
