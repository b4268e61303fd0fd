// Divides the pieces of a model into stages.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"
#include "nn/module.h"
#include "nn/pieces.h"

namespace axle::dist {

// Returns the number of consecutive pieces of each stage, so that the cost of the most expensive
// stage is minimal. Each stage has at least one piece. Throws ValueError if there are fewer pieces
// than stages.
std::vector<int> balanced_sizes(const std::vector<double>& costs, int stages);

// A tensor of the model, and the ranks whose stages use it, in increasing order. The first of these
// ranks owns the tensor: the tensor is counted and saved there.
struct Held {
    std::string name;
    Tensor tensor;
    std::vector<int> ranks;

    int owner() const { return ranks.front(); }
    bool is_on(int rank) const;
};

// The stages of a model: stage s has the pieces [begin(s), begin(s + 1)) and is on rank s % ranks.
class StagePlan {
  public:
    // Divides the pieces into stages. `sizes` has the number of pieces of each stage; if it is
    // empty, the costs of the stages are balanced. Other `sizes` must have one positive number for
    // each stage, with the number of pieces as their sum (ValueError). Also throws ValueError if
    // there are fewer pieces than stages, if a stage has no parameter, or if no piece uses a
    // parameter of the model.
    StagePlan(const nn::Module& model, const std::vector<nn::Piece>& pieces, int ranks, int chunks,
              const std::vector<int>& sizes);

    int begin(int stage) const { return begins_[static_cast<std::size_t>(stage)]; }
    int stages() const { return static_cast<int>(begins_.size()) - 1; }
    // Return the parameters, and the buffers that pieces use, each in the order of the model.
    const std::vector<Held>& parameters() const { return parameters_; }
    const std::vector<Held>& buffers() const { return buffers_; }
    // Returns the entry of a tensor in parameters() or buffers(), or nullptr if it is in neither.
    const Held* find(const Tensor& tensor) const;
    // Returns a description of the stages and parameters, to compare the plans of several ranks.
    std::string text() const;

  private:
    std::vector<int> begins_;
    std::vector<Held> parameters_, buffers_;
    std::unordered_map<const Impl*, const Held*> index_;
};

}  // namespace axle::dist
