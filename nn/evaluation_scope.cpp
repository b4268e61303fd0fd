#include "nn/evaluation_scope.h"

#include <exception>

#include "core/system/log.h"

namespace axle::nn {

EvaluationScope::EvaluationScope(const char* op, Module& model) : op_(op) {
    for (const auto& [name, module] : model.named_modules())
        before_.emplace_back(module, module->is_training());
    model.eval();
}

EvaluationScope::~EvaluationScope() {
    // train() also changes children. before_ contains parents before their children, so that the
    // mode of each child is restored after the mode of its parent.
    try {
        for (const auto& [module, training] : before_) module->train(training);
    } catch (...) {
        report_error_noexcept(std::current_exception(),
                              {op_, ": cannot restore the training mode: "}, "; call train()");
    }
}

}  // namespace axle::nn
