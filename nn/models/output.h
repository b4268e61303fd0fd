// ModelOutput: the loss and the logits of one forward pass of a model. Also declares inputs_of(),
// which reads the inputs of a model from a batch.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"

namespace axle::nn {

// The loss and the logits of one forward pass, like the outputs of the models in Transformers:
//     auto [loss, logits] = model.outputs(batch);
struct ModelOutput {
    Tensor loss = {};  // 0-d; undefined without labels
    Tensor logits = {};

    template <class F>
    void visit(F&& f) {
        f("loss", loss), f("logits", logits);
    }
};

// Returns the tensors of a batch in the order of `keys`. A tensor is undefined if its key is
// missing or the value is null. If the batch is itself a tensor, it is the value of the first key.
// Throws ValueError if the first key is missing or its value is null, if the batch has other keys
// or values that are not tensors, or if it is neither a tensor nor a map. Messages about keys begin
// with `who`.
std::vector<Tensor> inputs_of(const char* who, const Tree& batch,
                              std::initializer_list<std::string_view> keys);

}  // namespace axle::nn
