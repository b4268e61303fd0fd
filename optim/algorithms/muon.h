// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon), as in torch.optim.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct MuonOptions {
    double lr = 1e-3;
    double weight_decay = 0.1;  // multiplies the parameter by 1 - lr weight_decay
    double momentum = 0.95;
    bool nesterov = true;
    // A Newton-Schulz step replaces the normalized matrix X by (a I + b A + c A A) X with A = X
    // X^T.
    std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
    double eps = 1e-7;  // the smallest norm by which the momentum is divided
    std::int64_t ns_steps = 5;
    // The factor of lr for a parameter [rows, columns]: sqrt(max(1, rows / columns)) for "original"
    // or nullopt, 0.2 sqrt(max(rows, columns)) for "match_rms_adamw" (arXiv:2502.16982), and
    // sqrt(rows / columns) for "spectral_unclamped".
    std::optional<std::string> adjust_lr_fn = std::nullopt;
    // Must be false, because Muon rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "Muon";
    double& momentum_ref() { return momentum; }
    std::vector<NamedOption> named();
    // Throws ValueError unless lr, weight_decay and eps are 0 or more, momentum is in [0, 1),
    // ns_steps is in [1, 100), adjust_lr_fn is nullopt or one of the names above, and
    // stochastic_rounding is false.
    void check(const char* op) const;
    static void check_param(const Tensor& param);  // throws ShapeError unless it is a matrix
};

// The Muon optimizer for matrices: it orthogonalizes the momentum with Newton-Schulz steps, in bf16
// as in PyTorch. Use another optimizer for embeddings, biases and norms. The constructors throw
// ShapeError unless all parameters have two dimensions. The saved state of a parameter contains
// "momentum_buffer".
class Muon : public TensorOptimizer<MuonOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::span<const char* const> buffer_names() const override;
    bool saves_step() const override { return false; }
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
