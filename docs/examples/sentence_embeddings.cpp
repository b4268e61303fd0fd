// Computes embeddings of sentences with a BERT, and trains it so that questions are similar to
// their answers.
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <axle/axle.h>
#include <axle/data/tokenizers/pretrained_tokenizer.h>

using axle::Tensor;
namespace data = axle::data;
namespace nn = axle::nn;

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

// Writes a small model, so that the program runs without downloads.
void write_model() {
    axle::manual_seed(1);
    nn::Bert({.vocab_size = 13,
              .hidden_size = 32,
              .num_hidden_layers = 2,
              .num_attention_heads = 4,
              .intermediate_size = 64})
        .save_pretrained("minilm");
    std::ofstream("minilm/tokenizer.json") << R"({
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {
            "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "who": 4, "what": 5, "where": 6,
            "is": 7, "?": 8, "axle": 9, "it": 10, "here": 11, "library": 12}},
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}})";
}

}  // namespace

int main() {
    write_model();
    // [embed]
    const auto tokenizer = data::PretrainedTokenizer::from_pretrained("minilm");
    nn::Bert encoder = nn::Bert::from_pretrained("minilm");

    // Returns the embeddings [B, C] of B texts.
    const auto embed = [&](const std::vector<data::TextPair>& texts) {
        std::vector<Tensor> ids, masks;
        for (const data::Encoding& encoding :
             tokenizer.encode_batch(texts, {.truncation = data::Truncation{.max_length = 256}})) {
            ids.push_back(axle::tensor(encoding.ids));
            masks.push_back(axle::tensor(encoding.attention_mask));
        }
        const Tensor mask = data::pad_sequence(masks, {.batch_first = true});
        const Tensor hidden = encoder(data::pad_sequence(ids, {.batch_first = true}), mask);
        const Tensor weights = mask.to(axle::f32).unsqueeze(-1);
        return axle::normalize(sum(hidden * weights, {1}) / sum(weights, {1}));
    };
    // [/embed]
    const std::vector<data::TextPair> questions = {"Who is it?", "What is Axle?", "Where is it?"};
    const std::vector<data::TextPair> answers = {"It is Axle", "Axle is it library", "It is here"};
    {
        const axle::NoGrad no_grad;
        const Tensor alone = embed({questions[0]}), all = embed(questions);
        check(all.shape() == axle::Shape{3, 32});
        check(abs(all[0] - alone[0]).max().item() < 1e-5);  // padding has no effect
        check(std::abs(all.norm(2, {1})[2].item() - 1) < 1e-5);
    }
    double first = 0, last = 0;
    // [train]
    axle::optim::AdamW adamw(encoder.parameters(), {.lr = 2e-3});
    encoder.train();
    for (int step = 0; step < 40; ++step) {
        // The cosine similarities of all questions and answers, divided by a temperature.
        const Tensor scores = matmul(embed(questions), embed(answers).t()) / 0.05;
        const Tensor loss = cross_entropy(scores, axle::arange(scores.size(0)));
        loss.backward();
        adamw.step();
        adamw.zero_grad();
        if (step == 0) first = loss.item();
        last = loss.item();
    }
    encoder.eval();
    encoder.save_pretrained("tuned");
    // [/train]
    check(last < 0.7 * first);
    return 0;
}
