#include "nn/models/pieces.h"

#include <cstdint>
#include <string>
#include <typeinfo>

#include "core/autograd/autograd.h"
#include "core/text/type_name.h"
#include "nn/layers/sequence_policy.h"
#include "nn/models/extension_points.h"
#include "nn/models/transformer.h"

namespace axle::nn {
namespace {

// Returns the tensor under `key` in the batch, or an undefined tensor if the key is missing or its
// value is null.
Tensor find(const Tree& batch, const char* key) {
    const Tree* const value = batch.is_map() ? batch.find(key) : nullptr;
    return value == nullptr || value->is_null() ? Tensor() : value->tensor();
}

Tensor ids_of(const char* who, const Tree& batch) {
    const Tensor ids = batch.is_tensor() ? batch.tensor() : find(batch, "input_ids");
    if (!ids.defined()) throw ValueError(str(who, ": the batch has no \"input_ids\""));
    if (ids.dim() != 2)
        throw ShapeError(str(who, ": ids must be [batch, time]: they are ", ids.shape()));
    return ids;
}

void check_length(const char* who, const Tensor& ids, const Tensor& position_ids, const char* limit,
                  std::int64_t longest) {
    if (!position_ids.defined() && whole_length(ids.size(1)) > longest)
        throw ShapeError(str(who, ": time must be at most ", limit, ' ', longest, ": ids are ",
                             ids.shape(),
                             sequence_policy() == nullptr ? "" : ", a part of each sequence"));
}

// Return the input of the first block, the final hidden state, and the logits. If processes divide
// the model, its policies compute these tensors (extension_points.h).
Tensor entered(const BlockStack& stack, const Tensor& x) {
    return stack.stack_policy ? stack.stack_policy->enter(x) : x;
}
Tensor left(const BlockStack& stack, const Tensor& x) {
    return stack.stack_policy ? stack.stack_policy->leave(x) : x;
}
Tensor logits_of(const LanguageHead& head, const Tensor& x) {
    if (head.head_policy) return head.head_policy->logits(x, head.head_weight(), head.head_bias());
    return linear(x, head.head_weight(), head.head_bias());
}

// Returns the mean cross entropy of the logits of x [..., C] and targets [N], for a head without
// bias.
Tensor loss_of(const LanguageHead& head, const Tensor& x, const Tensor& targets) {
    const Tensor rows = x.reshape({-1, x.size(-1)});
    if (head.head_policy)
        return head.head_policy->loss(rows, head.head_weight(), head.head_bias(), targets);
    return linear_cross_entropy(rows, head.head_weight(), targets);
}

Tensor labels_of(const Tree& batch) {
    // As in outputs(), "shift_labels" take precedence.
    const Tensor shifted = find(batch, "shift_labels");
    const Tensor labels = shifted.defined() ? shifted : find(batch, "labels");
    if (!labels.defined())
        throw ValueError("label_loss: the batch has neither \"labels\" nor \"shift_labels\"");
    return labels.reshape({-1});
}

double cost_of(const Module& block) { return static_cast<double>(block.num_parameters()); }

// Returns f(x), which is computed again in the backward pass if `recomputes` is true.
template <class F>
Tensor call(bool recomputes, const Tensor& x, F&& f) {
    if (!recomputes) return f(x);
    return checkpoint([f](const std::vector<Tensor>& in) { return f(in[0]); }, {x});
}

// Returns the head of a model whose logits have no bias. `norm` is applied to the output of the
// last block.
template <class Norm>
HeadPiece head_of(const LanguageHead& head, const BlockStack& body, Norm& norm) {
    return {[&](const Tensor& x) { return logits_of(head, left(body, norm(x))); },
            [&](const Tensor& x, const Tensor& targets) {
                return loss_of(head, left(body, norm(x)), targets);
            }};
}

TokenPositions gpt_positions(const Gpt& model, const Tree& batch) {
    return token_positions("gpt", find(batch, "position_ids"), ids_of("gpt", batch),
                           model.config.block_size);
}

Piece bert_embeddings(Bert& bert) {
    return {.name = "embeddings",
            .modules = {&bert.embeddings},
            .forward =
                [&bert](const Tensor&, const Tree& batch) {
                    const Tensor ids = ids_of("bert", batch),
                                 positions = find(batch, "position_ids");
                    check_length("bert", ids, positions, "max_position_embeddings",
                                 bert.config.max_position_embeddings);
                    return entered(bert.encoder,
                                   bert.embeddings(ids, find(batch, "token_type_ids"), positions));
                },
            .cost = 0};
}

void add_bert_layers(std::vector<Piece>& pieces, Bert& bert) {
    for (BertLayer& layer : bert.encoder.layer)
        pieces.push_back({.name = str("encoder.layer.", pieces.size() - 1),
                          .modules = {&layer},
                          .forward =
                              [&layer](const Tensor& x, const Tree& batch) {
                                  const Tensor mask = padding_mask(
                                      "bert", find(batch, "attention_mask"), ids_of("bert", batch));
                                  return layer(x, mask);
                              },
                          .cost = cost_of(layer)});
}

}  // namespace

std::vector<Piece> pieces(Gpt& model) {
    GptTransformer& body = model.transformer;
    std::vector<Piece> pieces;
    pieces.push_back({.name = "embeddings",
                      .modules = {&body.wte, &body.wpe, &body.embd_dropout},
                      .forward =
                          [&model, &body](const Tensor&, const Tree& batch) {
                              const Tensor ids = ids_of("gpt", batch);
                              check_length("gpt", ids, find(batch, "position_ids"), "block_size",
                                           model.config.block_size);
                              const Tensor positions = gpt_positions(model, batch).positions;
                              return entered(
                                  body, body.embd_dropout(body.wte(ids) +
                                                          position_rows(body.wpe.weight,
                                                                        ids.size(1), positions)));
                          },
                      .cost = 0});
    for (GptBlock& block : body.h)
        pieces.push_back({.name = str("h.", pieces.size() - 1),
                          .modules = {&block},
                          .forward =
                              [&model, &body, &block](const Tensor& x, const Tree& batch) {
                                  const Tensor mask = gpt_positions(model, batch).documents;
                                  return call(
                                      body.checkpoint_blocks && body.is_training(), x,
                                      [&block, mask](const Tensor& in) { return block(in, mask); });
                              },
                          .cost = cost_of(block)});
    pieces.push_back({.name = "head",
                      .modules = {&body.ln_f},
                      .tensors = {body.wte.weight},
                      .forward = head_of(model, body, body.ln_f),
                      .cost = static_cast<double>(body.wte.weight.numel())});
    return pieces;
}

std::vector<Piece> pieces(Llama& model) {
    LlamaModel& body = model.model;
    std::vector<Piece> pieces;
    pieces.push_back({.name = "embeddings",
                      .modules = {&body.embed_tokens},
                      .forward =
                          [&body](const Tensor&, const Tree& batch) {
                              return entered(body, body.embed_tokens(ids_of("llama", batch)));
                          },
                      .cost = 0});
    for (LlamaDecoderLayer& layer : body.layers)
        pieces.push_back({.name = str("layers.", pieces.size() - 1),
                          .modules = {&layer},
                          .forward =
                              [&body, &layer](const Tensor& x, const Tree& batch) {
                                  const LlamaContext context = body.context_of(
                                      ids_of("llama", batch), find(batch, "attention_mask"),
                                      find(batch, "position_ids"), x.dtype());
                                  return call(body.checkpoint_layers && body.is_training(), x,
                                              [&layer, context](const Tensor& in) {
                                                  return layer(in, context.mask, context.rotation);
                                              });
                              },
                          .cost = cost_of(layer)});
    pieces.push_back({.name = "head",
                      .modules = {&body.norm},
                      .tensors = {model.lm_head},
                      .forward = head_of(model, body, body.norm),
                      .cost = static_cast<double>(model.lm_head.numel())});
    return pieces;
}

std::vector<Piece> pieces(BertForMaskedLM& model) {
    std::vector<Piece> pieces = {bert_embeddings(model.bert)};
    add_bert_layers(pieces, model.bert);
    pieces.push_back(
        {.name = "head",
         .modules = {&model.predictions},
         .forward = HeadPiece{
             [&model](const Tensor& x) { return model.predictions(left(model.bert.encoder, x)); },
             [&model](const Tensor& x, const Tensor& targets) {
                 const Tensor h = left(model.bert.encoder, x);
                 return model.predictions.loss(h.reshape({-1, h.size(-1)}), targets);
             }},
         .cost = static_cast<double>(model.predictions.decoder.numel())});
    return pieces;
}

std::vector<Piece> pieces(BertForSequenceClassification& model) {
    std::vector<Piece> pieces = {bert_embeddings(model.bert)};
    add_bert_layers(pieces, model.bert);
    pieces.push_back({.name = "head",
                      .modules = {&*model.bert.pooler, &model.dropout, &model.classifier},
                      .forward =
                          [&model](const Tensor& x, const Tree&) {
                              return model.classifier(
                                  model.dropout(model.bert.pooled(left(model.bert.encoder, x))));
                          },
                      .cost = 0});
    return pieces;
}

std::vector<Piece> pieces_of(Module& model) {
    if (auto* const gpt = dynamic_cast<Gpt*>(&model)) return pieces(*gpt);
    if (auto* const llama = dynamic_cast<Llama*>(&model)) return pieces(*llama);
    if (auto* const bert = dynamic_cast<BertForMaskedLM*>(&model)) return pieces(*bert);
    if (auto* const bert = dynamic_cast<BertForSequenceClassification*>(&model))
        return pieces(*bert);
    throw ValueError(str("pieces_of: the pieces of this type of model are unknown: ",
                         type_name(typeid(model)), "; pass its pieces instead"));
}

Tensor HeadPiece::label_loss(const Tensor& x, const Tree& batch) const {
    return loss(x, labels_of(batch));
}

Tensor label_loss(const Tensor& logits, const Tree& batch) {
    return cross_entropy(logits.reshape({-1, logits.size(-1)}), labels_of(batch));
}

}  // namespace axle::nn
