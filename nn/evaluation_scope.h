// A scope in which a model is in evaluation mode.
#pragma once

#include <utility>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

// Switches a model to evaluation mode. The destructor restores the mode of every module, and logs
// an exception of Module::train(). The model must outlive the scope and must not be moved during
// it.
class EvaluationScope {
  public:
    // `op` names the caller in the log and must be a string literal.
    EvaluationScope(const char* op, Module& model);
    ~EvaluationScope();
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;

  private:
    const char* op_;
    std::vector<std::pair<Module*, bool>> before_;  // each module and its earlier training mode
};

}  // namespace axle::nn
