// SparseAdam, like torch.optim.SparseAdam: for embeddings whose rows are mostly unused in a step.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct SparseAdamOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    bool maximize = false;
    // Must be false, because SparseAdam rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "SparseAdam";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless lr and eps are positive, betas are in [0, 1), and
    // stochastic_rounding is false.
    void check(const char* op) const;
};

// Adam that updates only the rows of a parameter whose gradient is not all zero. Rows are slices
// along the first dimension. Other rows keep their values and moments. Gradients are dense tensors:
// the gradient of an embedding is zero in all rows that the batch did not use. PyTorch's sparse
// gradients do not contain these rows. Unlike PyTorch's SparseAdam, this class does not update a
// used row whose gradient is exactly zero. All rows share one step count, which also counts steps
// without any row. A step waits for the device. The saved state of a parameter contains "step",
// "exp_avg" and "exp_avg_sq".
class SparseAdam : public TensorOptimizer<SparseAdamOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

  protected:
    std::span<const char* const> buffer_names() const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
