// Commands of interop.cpp for a sentence transformer: a BERT whose hidden states are averaged over
// the tokens of a text and normalized.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "nn/models/bert.h"
#include "optim/adam.h"

namespace axle::bench {

class SentenceTransformer {
  public:
    // Loads all-MiniLM-L6-v2 or a model of its layout, which truncates texts at 256 tokens.
    explicit SentenceTransformer(const std::string& folder)
        : tokenizer_(data::PretrainedTokenizer::from_pretrained(folder)),
          encoder_(nn::Bert::from_pretrained(folder)) {}

    nn::Bert& encoder() { return encoder_; }

    // Returns the ids of each text without padding.
    Tree ids(const std::vector<data::TextPair>& texts) const {
        Tree rows = Tree::list();
        for (const data::Encoding& encoding : tokenizer_.encode_batch(texts, {kTruncation})) {
            Tree row = Tree::list();
            for (const std::int64_t id : encoding.ids) row.push_back(id);
            rows.push_back(row);
        }
        return rows;
    }

    // Returns the embeddings [B, C] of a batch.
    Tensor operator()(const std::vector<data::TextPair>& texts) {
        data::EncodeOptions options = kTruncation;
        options.padding = data::Padding{};
        std::vector<std::int64_t> ids, mask;
        for (const data::Encoding& encoding : tokenizer_.encode_batch(texts, options)) {
            ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
            mask.insert(mask.end(), encoding.attention_mask.begin(), encoding.attention_mask.end());
        }
        const auto size = std::ssize(texts);
        const Shape shape = {size, std::ssize(ids) / size};
        const Tensor attention = tensor(mask, shape), weights = attention.to(f32).unsqueeze(-1);
        const Tensor hidden = encoder_(tensor(ids, shape), attention);
        return normalize(sum(hidden * weights, {1}) / sum(weights, {1}));
    }

  private:
    inline static const data::EncodeOptions kTruncation = {.truncation =
                                                               data::Truncation{.max_length = 256}};

    data::PretrainedTokenizer tokenizer_;
    nn::Bert encoder_;
};

// Reads a JSON list of texts.
inline std::vector<data::TextPair> texts_in(const std::string& path) {
    std::vector<data::TextPair> texts;
    for (const Tree& text : from_json(read_file(path)).elements())
        texts.emplace_back(text.string());
    return texts;
}

// The command sentences-embed FOLDER TEXTS OUTPUT writes the "embeddings" of the texts, which are
// computed in batches of 16, to OUTPUT. It returns the ids of each text.
inline Tree embed_sentences(const std::vector<std::string>& args) {
    SentenceTransformer model(args.at(0));
    const auto texts = texts_in(args.at(1));
    const NoGrad no_grad;
    std::vector<Tensor> parts;
    for (auto at = texts.begin(); at != texts.end();) {
        const auto end = at + std::min<std::ptrdiff_t>(16, texts.end() - at);
        parts.push_back(model({at, end}));
        at = end;
    }
    save_safetensors(args.at(2), NamedTensors{{"embeddings", cat(parts)}});
    return model.ids(texts);
}

// The command sentences-train FOLDER TEXTS TO STEPS trains without dropout, so that the embedding
// of an even text is most similar to the embedding of the text after it, among the texts of a batch
// (MultipleNegativesRankingLoss). Step i uses the texts from 16 i. The command writes the encoder
// to TO and returns the losses.
inline Tree train_sentences(const std::vector<std::string>& args) {
    SentenceTransformer model(args.at(0));
    const auto texts = texts_in(args.at(1));
    optim::AdamW adamw(model.encoder().parameters(), {.lr = 5e-5});
    Tree losses = Tree::list();
    for (std::size_t step = 0, steps = std::stoull(args.at(3)); step < steps; ++step) {
        std::vector<data::TextPair> first, second;
        for (std::size_t i = 16 * step; i < 16 * (step + 1); i += 2)
            first.push_back(texts.at(i)), second.push_back(texts.at(i + 1));
        const Tensor scores = 20 * matmul(model(first), model(second).t());
        const Tensor loss = cross_entropy(scores, arange(scores.size(0)));
        loss.backward();
        adamw.step();
        adamw.zero_grad();
        losses.push_back(loss.item());
    }
    model.encoder().save_pretrained(args.at(2));
    return losses;
}

}  // namespace axle::bench
