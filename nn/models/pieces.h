// The pieces of the transformer models: embeddings, blocks and head.
//
// Pieces refer to the model, which must outlive them and must not be moved. A batch is a map with
// the keys of the model's outputs(batch), such as "input_ids"; "shift_labels" and other keys are
// ignored. If the batch is itself a tensor, it is "input_ids". The last piece returns the logits.
// The cost of a block is the number of its parameters; the cost of a head over the vocabulary is
// the number of elements of its weight; embeddings and classifiers have the cost 0.
//
// If processes divide the model (dist/tensor_parallel/), the pieces apply its policies. The first
// piece throws ValueError if the batch has no "input_ids", and ShapeError unless they are
// [batch, time] with a supported length.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/pieces.h"

namespace axle::nn {

// Return the pieces of a model in the order of the forward pass.
std::vector<Piece> pieces(Gpt& model);
std::vector<Piece> pieces(Llama& model);
std::vector<Piece> pieces(BertForMaskedLM& model);
std::vector<Piece> pieces(BertForSequenceClassification& model);

// Returns the pieces of a model of one of these types. Throws ValueError for other types.
std::vector<Piece> pieces_of(Module& model);

// The function of the last piece of a language model. It can also compute label_loss() of its
// output. Use std::function::target() to access it.
struct HeadPiece {
    // Returns logits [..., classes] of x [..., width].
    std::function<Tensor(const Tensor& x)> logits;
    // Returns the mean cross entropy of the logits of x [..., width], which has N rows, and targets
    // [N]. Does not store all logits, unless the head has a bias and is not divided.
    std::function<Tensor(const Tensor& x, const Tensor& targets)> loss;

    Tensor operator()(const Tensor& x, const Tree&) const { return logits(x); }
    // Returns label_loss() of the logits of x, and throws its errors.
    Tensor label_loss(const Tensor& x, const Tree& batch) const;
};

// Returns the mean cross entropy of logits [..., classes] for batch["labels"] [...], or for
// batch["shift_labels"] if the batch has them, without positions with the label -100. Throws
// ValueError if the batch has neither, and the errors of cross_entropy().
Tensor label_loss(const Tensor& logits, const Tree& batch);

}  // namespace axle::nn
