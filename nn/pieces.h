// A model as a sequence of pieces, which a pipeline divides into stages (dist/pipeline/).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "core/tree/tree.h"
#include "nn/module.h"

namespace axle::nn {

// A part of a model: a function from the output of the previous piece to the input of the next
// piece.
struct Piece {
    std::string name;
    // The modules whose parameters and buffers the piece uses, and other parameters that it uses. A
    // parameter that several pieces use is tied.
    std::vector<Module*> modules;
    std::vector<Tensor> tensors = {};
    // Returns the output of the piece. x is the output of the previous piece, and undefined in the
    // first piece. `batch` is the input of the model.
    std::function<Tensor(const Tensor& x, const Tree& batch)> forward = {};
    double cost = 1;  // relative run time of the piece, for balancing stages
};

}  // namespace axle::nn
