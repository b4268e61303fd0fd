// Tests outputs() of the language models: loss and logits of one forward pass.
#include "nn/models/output.h"

#include "core/autograd/autocast.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

nn::Gpt gpt() {
    return nn::Gpt(
        {.vocab_size = 13, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0});
}
nn::Llama llama() {
    return nn::Llama({.vocab_size = 13,
                      .hidden_size = 8,
                      .intermediate_size = 12,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 4,
                      .num_key_value_heads = 2,
                      .max_position_embeddings = 8});
}
nn::BertConfig bert() {
    return {.vocab_size = 13,
            .hidden_size = 8,
            .num_hidden_layers = 2,
            .num_attention_heads = 2,
            .intermediate_size = 12,
            .max_position_embeddings = 8};
}

Tensor ids() { return tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 0}, {2, 6}, {i64}); }
Tensor padding() { return tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 6}, {i64}); }
Tensor next_ids() { return tensor({2, 3, 4, 5, 6, -100, 8, 9, 1, -100, 4, 5}, {2, 6}, {i64}); }

// Compares outputs() with loss() and forward(): values, and the gradients of all parameters.
template <class Model>
void expect_loss_and_logits(Model model, const Tensor& labels, const Tensor& mask) {
    model.eval();
    Tree batch{{"input_ids", ids()}, {"labels", labels}};
    Tensor loss, logits;
    if constexpr (std::is_same_v<Model, nn::Gpt>) {
        loss = model.loss(ids(), labels);
        logits = model(ids());
    } else {
        batch.set("attention_mask", mask);
        loss = model.loss(ids(), labels, mask);
        logits = model(ids(), mask);
    }
    loss.backward();
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad());
    model.zero_grad();

    const nn::ModelOutput output = model.outputs(batch);
    expect_close(output.loss.detach(), loss.detach(), 1e-6);
    expect_same_bits(output.logits.detach(), logits.detach());
    output.loss.backward();
    const std::vector<Tensor> parameters = model.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        ASSERT_EQ(parameters[i].grad().defined(), gradients[i].defined());
        if (gradients[i].defined()) expect_close(parameters[i].grad(), gradients[i], 1e-5);
    }

    EXPECT_FALSE(model.outputs(ids()).loss.defined());
    EXPECT_FALSE(model.outputs(Tree{{"input_ids", ids()}, {"labels", {}}}).loss.defined());
    EXPECT_EQ(model.outputs(batch["input_ids"]).logits.shape(), logits.shape());
}

TEST(ModelOutputs, MatchLossAndLogitsOfGpt) { expect_loss_and_logits(gpt(), next_ids(), {}); }

TEST(ModelOutputs, MatchLossAndLogitsOfLlama) {
    expect_loss_and_logits(llama(), next_ids(), padding());
}

TEST(ModelOutputs, MatchLossAndLogitsOfBert) {
    expect_loss_and_logits(nn::BertForMaskedLM(bert()), next_ids(), padding());
    expect_loss_and_logits(nn::BertForSequenceClassification(bert()), tensor({1, 0}, {2}, {i64}),
                           padding());
    nn::BertConfig regression = bert();
    regression.labels = {"score"};
    expect_loss_and_logits(nn::BertForSequenceClassification(regression), tensor({0.5, -1}, {2}),
                           padding());
}

TEST(ModelOutputs, AreComputedInOneForwardPassAndConvertedToF32) {
    struct CountedModel : nn::Model<CountedModel> {
        CountedModel() : model(gpt()) {}
        nn::ModelOutput forward(const Tree& batch) {
            ++calls;
            return model.outputs(batch);
        }
        void visit(nn::Visitor& v) override { v("model", model); }
        nn::Gpt model;
        int calls = 0;
    };
    nn::Gpt model = gpt();
    auto hooks = std::make_shared<nn::ForwardHooks>();
    hooks->autocast = bf16;
    int passes = 0;
    hooks->before_forward = [&](nn::Module&) { ++passes; };
    model.set_hooks(hooks);
    const auto [loss, logits] = model.outputs(ids(), next_ids());
    EXPECT_EQ(passes, 1);
    EXPECT_EQ(loss.dtype(), f32);
    EXPECT_EQ(logits.dtype(), f32);
    EXPECT_TRUE(logits.requires_grad());

    CountedModel outer;  // forward() returns a ModelOutput, which is converted to f32, too
    outer.set_hooks(hooks);
    EXPECT_EQ(outer(Tree{{"input_ids", ids()}}).logits.dtype(), f32);
    EXPECT_EQ(outer.calls, 1);
}

TEST(ModelOutputs, RejectUnknownOrMissingKeysAndInvalidLabelShapes) {
    nn::Gpt model = gpt();
    expect_error<ValueError>({"gpt: outputs: unknown key", "label", "input_ids", "labels"}, [&] {
        model.outputs(Tree{{"input_ids", ids()}, {"label", ids()}});
    });
    expect_error<ValueError>({"gpt: outputs: the batch has no", "input_ids"}, [&] {
        model.outputs(Tree{{"labels", ids()}});
    });
    expect_error<ShapeError>({"gpt: shapes differ: labels [2, 5], ids [2, 6]"}, [&] {
        model.outputs(ids(), zeros({2, 5}, {i64}));
    });
    nn::BertForSequenceClassification classifier(bert());
    expect_error<ShapeError>({"bert: labels", "[2, 6]"},
                             [&] { classifier.outputs(ids(), next_ids()); });
}

}  // namespace
}  // namespace axle
