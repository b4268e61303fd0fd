// Tests the position_ids of GPT, Llama and BERT: positions of tokens, and packed documents.
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

constexpr std::int64_t kVocabulary = 13, kPositions = 6;

// Return f64 models for up to kPositions tokens, with the same initial values in every call.
nn::Gpt gpt(bool recomputes = false) {
    manual_seed(3);
    nn::Gpt model({.vocab_size = kVocabulary,
                   .block_size = kPositions,
                   .n_layer = 2,
                   .n_head = 2,
                   .n_embd = 8,
                   .checkpoint_blocks = recomputes});
    model.to(f64);
    return model;
}
nn::Llama llama(bool recomputes = false) {
    manual_seed(3);
    nn::Llama model({.vocab_size = kVocabulary,
                     .hidden_size = 8,
                     .intermediate_size = 12,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 2,
                     .num_key_value_heads = 1,
                     .max_position_embeddings = kPositions,
                     .checkpoint_layers = recomputes});
    model.to(f64);
    return model;
}
nn::BertForMaskedLM bert() {
    manual_seed(3);
    nn::BertConfig config{.vocab_size = kVocabulary, .hidden_size = 8, .num_hidden_layers = 2};
    config.num_attention_heads = 2, config.intermediate_size = 12;
    config.max_position_embeddings = kPositions;
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    nn::BertForMaskedLM model(config);
    model.to(f64);
    return model;
}

Tensor numbers(std::initializer_list<std::int64_t> values, const Shape& shape) {
    return tensor(std::vector<std::int64_t>(values)).reshape(shape);
}
// Return two sequences and their labels. The label of a token is the next token. The last tokens,
// and the token at position 2 of the first sequence, have no label.
Tensor ids() { return numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 6}); }
Tensor labels() { return numbers({2, 3, -100, 5, 6, -100, 8, 9, 10, 11, 12, -100}, {2, 6}); }

Tensor logits_of(nn::Gpt& model, const Tensor& x, const Tensor& positions = {}) {
    return model(x, positions);
}
Tensor logits_of(nn::Llama& model, const Tensor& x, const Tensor& positions = {}) {
    return model(x, Tensor(), positions);
}
Tensor logits_of(nn::BertForMaskedLM& model, const Tensor& x, const Tensor& positions = {}) {
    return model(x, Tensor(), Tensor(), positions);
}

Tensor loss_of(nn::Gpt& model, const Tensor& positions) {
    return model.loss(ids(), labels(), positions);
}
Tensor loss_of(nn::Llama& model, const Tensor& positions) {
    return model.loss(ids(), labels(), {}, positions);
}
Tensor loss_of(nn::BertForMaskedLM& model, const Tensor& positions) {
    return model.loss(ids(), labels(), {}, {}, positions);
}

template <class Model>
void expect_same_bits_for_default_positions(Model model) {
    const auto run = [&](const Tensor& positions) {
        model.zero_grad();
        const Tensor loss = loss_of(model, positions);
        loss.backward();
        std::vector<Tensor> results = {loss.detach(), logits_of(model, ids(), positions).detach()};
        for (const Tensor& p : model.parameters()) results.push_back(p.grad().clone());
        return results;
    };
    const std::vector<Tensor> expected = run({});
    for (const Tensor& positions : {arange(6).reshape({1, 6}), arange(6).to(i32).reshape({1, 6}),
                                    numbers({0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {2, 6})}) {
        const std::vector<Tensor> actual = run(positions);
        for (std::size_t i = 0; i < expected.size(); ++i) expect_same_bits(actual[i], expected[i]);
    }
}

TEST(PositionIds, GiveTheSameBitsAsDefaultPositionsIfTheyCountFromZero) {
    expect_same_bits_for_default_positions(gpt());
    expect_same_bits_for_default_positions(llama());
    expect_same_bits_for_default_positions(bert());
}

// Returns positions of documents. The first sequence has two documents of 3 and 3 tokens, the
// second sequence has documents of 2, 1 and 3 tokens.
Tensor packed() { return numbers({0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1, 2}, {2, 6}); }
struct Document {
    std::int64_t row, begin, count;
};
constexpr Document kDocuments[] = {{0, 0, 3}, {0, 3, 3}, {1, 0, 2}, {1, 2, 1}, {1, 3, 3}};

// Compares packed documents with separate documents: logits, and the gradient of their sum of
// squares.
template <class Model>
void expect_separate_documents(Model model, Model whole) {
    const Tensor logits = logits_of(model, ids(), packed());
    logits.pow(2).sum().backward();
    for (const auto& [row, begin, count] : kDocuments) {
        const auto document = [&](const Tensor& x) {
            return x.narrow(0, row, 1).narrow(1, begin, count);
        };
        const Tensor own = logits_of(whole, document(ids()));
        own.pow(2).sum().backward();
        expect_close(document(logits.detach()), own.detach(), 1e-12);
    }
    const auto parameters = model.parameters(), expected = whole.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i)
        expect_close(parameters[i].grad(), expected[i].grad(), 1e-10);
}

TEST(PositionIds, SeparatePackedDocumentsOfGptAndLlama) {
    for (const bool recomputes : {false, true}) {
        expect_separate_documents(gpt(recomputes), gpt());
        expect_separate_documents(llama(recomputes), llama());
    }
}

// The sequence has 9 tokens, but the table has 6 rows.
TEST(PositionIds, AllowPackedSequencesLongerThanTheTableAndAreNeededForThem) {
    nn::Gpt model = gpt();
    const Tensor x = numbers({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 9});
    const Tensor logits = model(x, numbers({0, 1, 2, 3, 4, 0, 1, 2, 3}, {1, 9}));
    expect_close(logits.narrow(1, 5, 4).detach(), model(x.narrow(1, 5, 4)).detach(), 1e-12);
    expect_error<ShapeError>({"gpt: ids must be [batch, time] with time at most block_size 6"},
                             [&] { model(x); });
}

// As in Transformers, a given attention mask replaces the separation of documents.
TEST(PositionIds, DoNotSeparateDocumentsOfLlamaWithAnAttentionMask) {
    nn::Llama model = llama();
    const Tensor mask = ones({2, 6}, {.dtype = i64});
    const Tensor masked = model(ids(), mask, packed()).detach(),
                 separate = model(ids(), Tensor(), packed()).detach();
    expect_close(masked.narrow(1, 0, 2), separate.narrow(1, 0, 2), 1e-12);
    EXPECT_GT(max(abs(masked - separate)).item(), 1e-4);
}

// The output depends only on the differences of rotary positions.
TEST(PositionIds, AffectLlamaOnlyByTheirDifferences) {
    nn::Llama model = llama();
    const Tensor x = ids().narrow(1, 0, 4);
    expect_close(model(x, Tensor(), numbers({2, 3, 4, 5}, {1, 4})).detach(), model(x).detach(),
                 1e-12);
    // Tokens at every second position are equal to tokens with padding between them. The mask
    // keeps the tokens in one document.
    const Tensor spread =
        model(x.narrow(1, 0, 3), ones({2, 3}, {.dtype = i64}), numbers({0, 2, 4}, {1, 3}));
    const Tensor padded = stack({x.narrow(1, 0, 3), zeros({2, 3}, {.dtype = i64})}, 2);
    const Tensor mask = numbers({1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}, {2, 6});
    const Tensor expected = model(padded.reshape({2, 6}), mask);
    for (std::int64_t t = 0; t < 3; ++t)
        expect_close(spread.select(1, t).detach(), expected.select(1, 2 * t).detach(), 1e-12);
    EXPECT_GT(max(abs(spread - model(x.narrow(1, 0, 3)))).item(), 1e-5);
}

// Positions 2 to 5 select the rows that a model with a shifted table has at 0 to 3.
TEST(PositionIds, SelectTheRowsOfLearnedPositions) {
    const auto shift = [](Tensor weight) {
        const NoGrad no_grad;
        weight.copy_(cat({weight.narrow(0, 2, 4), weight.narrow(0, 0, 2)}, 0).clone());
    };
    const Tensor x = ids().narrow(1, 0, 4), positions = numbers({2, 3, 4, 5}, {1, 4});
    nn::Gpt gpt_model = gpt(), shifted_gpt = gpt();
    shift(shifted_gpt.transformer.wpe.weight);
    expect_close(gpt_model(x, positions).detach(), shifted_gpt(x).detach(), 1e-12);
    nn::BertForMaskedLM bert_model = bert(), shifted_bert = bert();
    shift(shifted_bert.bert.embeddings.position.weight);
    expect_close(bert_model(x, Tensor(), Tensor(), positions).detach(), shifted_bert(x).detach(),
                 1e-12);
}

// The classifier uses the first token, which attends to the whole sequence.
TEST(PositionIds, AffectTheClassifierOfBert) {
    nn::BertConfig config = bert().config;
    manual_seed(4);
    nn::BertForSequenceClassification model(config);
    const Tensor x = ids(), classes = numbers({0, 1}, {2});
    const Tensor reversed = numbers({5, 4, 3, 2, 1, 0}, {1, 6});
    const nn::ModelOutput output = model.outputs(x, classes, {}, {}, reversed);
    expect_same_bits(output.loss, model.loss(x, classes, {}, {}, reversed));
    EXPECT_GT(max(abs(output.logits - model(x))).item(), 1e-6);
    expect_same_bits(model.outputs({{"input_ids", x}, {"position_ids", reversed}}).logits,
                     output.logits);
}

// "shift_labels" has the labels that Accelerate's adapter for Ulysses creates.
TEST(PositionIds, AreReadFromBatchesWithShiftedLabels) {
    const Tensor old = ids();
    const Tree batch = {{"input_ids", ids()},
                        {"labels", old},
                        {"shift_labels", labels()},
                        {"position_ids", packed()}};
    nn::Gpt gpt_model = gpt();
    expect_close(gpt_model.outputs(batch).loss, loss_of(gpt_model, packed()), 1e-12);
    nn::Llama llama_model = llama();
    expect_close(llama_model.outputs(batch).loss, loss_of(llama_model, packed()), 1e-12);
}

TEST(PositionIds, RejectInvalidShapesDtypesAndPositions) {
    const auto expect_refused = [](auto model, const char* who) {
        const auto call = [&](const Tensor& positions) { logits_of(model, ids(), positions); };
        const std::string name = who;
        const std::string shape = name +
                                  ": position_ids must have the shape of the ids or [1, "
                                  "time]: position_ids [6], ids [2, 6]";
        expect_error<ShapeError>({shape.c_str()}, [&] { call(arange(6)); });
        expect_error<ShapeError>({"", "position_ids [2, 5], ids [2, 6]"}, [&] {
            call(zeros({2, 5}, {.dtype = i64}));
        });
        const std::string dtype = name + ": position_ids must be i64 or i32: they are float32";
        expect_error<DTypeError>({dtype.c_str()}, [&] { call(zeros({2, 6})); });
        const std::string negative =
            name + ": position_ids must be from 0 to 5: token 2 of sequence 1 has the position -1";
        expect_error<IndexError>({negative.c_str()}, [&] {
            call(numbers({0, 1, 2, 3, 4, 5, 0, 1, -1, 3, 4, 5}, {2, 6}));
        });
        expect_error<IndexError>({"", "token 5 of sequence 0 has the position 6"}, [&] {
            call(numbers({1, 2, 3, 4, 5, 6}, {1, 6}));
        });
    };
    expect_refused(gpt(), "gpt");
    expect_refused(llama(), "llama");
    expect_refused(bert(), "bert");
}

}  // namespace
}  // namespace axle
