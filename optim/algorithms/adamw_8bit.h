// AdamW with 8-bit moments (Dettmers et al., 2022, "8-bit Optimizers via Block-wise Quantization",
// arXiv:2110.02861), with the names and defaults of bitsandbytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "optim/tensor_optimizer.h"

namespace axle::optim {

struct AdamW8bitOptions {
    double lr = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double weight_decay = 1e-2;
    // Must be false, because AdamW8bit rounds parameters to nearest.
    bool stochastic_rounding = false;

    static constexpr const char* kName = "AdamW8bit";
    double& momentum_ref() { return betas[0]; }
    std::vector<NamedOption> named();
    // Throws ValueError unless betas are in [0, 1), all other numbers are 0 or more, and
    // stochastic_rounding is false.
    void check(const char* op) const;
};

// AdamW whose moments need two bytes per element. A block is 256 elements in row-major order. The
// saved state of a parameter contains "step", and for parameters with at least 4096 elements
//     "state1", "state2"    the codes of the first and of the second moment, u8
//     "absmax1", "absmax2"  the largest magnitude in each block
// An element is its code's number (dynamic_code()) times the largest magnitude of its block. A step
// computes new moments in f32 (f64 for f64 parameters), updates the parameter with them, and then
// rounds them to the nearest numbers. Smaller parameters have "state1" and "state2" in f32 (or
// f64), which makes them equal to AdamW. A step copies a gradient that is not f32 (f64 for f64
// parameters), that is strided, or that is scaled by a GradScaler. It also copies a strided
// parameter. Otherwise, it needs temporary memory only for a part of a parameter.
class AdamW8bit : public TensorOptimizer<AdamW8bitOptions> {
  public:
    using TensorOptimizer::TensorOptimizer;

    static constexpr std::int64_t kBlock = 256, kMinElements = 4096;
    // Returns the 256 numbers of the codes, f32 in ascending order: dynamic tree quantization, in
    // [-1, 1] with a sign or in [0, 1] without one.
    static Tensor dynamic_code(bool has_sign);

  protected:
    std::span<const char* const> buffer_names() const override;
    std::optional<Shape> buffer_shape(const Tensor& param, std::size_t group,
                                      std::size_t buffer) const override;
    DType buffer_dtype(const Tensor& param, std::size_t buffer) const override;
    void step_param(const Tensor& param, const ParamState& state, const TensorStep& step,
                    const Group& group) override;
};

}  // namespace axle::optim
