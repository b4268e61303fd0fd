// Optimizers and gradient clipping over tables of tensors: one call for a whole model.
//
// A table row is a contiguous run of elements; rows are numbered one after another, and kernels cut
// the concatenation into chunks of a fixed size, so that ten thousand biases cost no more than one
// matrix. Whatever changes from step to step is read through a pointer when the kernel runs. On a
// GPU these pointers (groups, scalars, norms, factors) are to its memory; tables lie in the host's
// and are copied with the launch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// A row of a table of tensors.
struct Run {
    void* data = nullptr;
    std::int64_t begin = 0;  // elements of the rows before this one
    std::int64_t numel = 0;
    DType dtype = DType::f32;  // a floating one
};

// A parameter with its gradient and its state. State is f64 for an f64 parameter, else f32.
struct Slot {
    void* param = nullptr;
    const void* grad = nullptr;  // any floating dtype
    void* master = nullptr;      // f32 copy that a 16-bit parameter is rounded from, or null
    void* first = nullptr;       // momentum buffer, or Adam's first moment
    void* second = nullptr;      // Adam's second moment
    void* second_max = nullptr;  // its running maximum: AMSGrad where not null
    float* step = nullptr;       // updates so far, counted by the kernel
    std::uint64_t seed = 0;      // of `stochastic`
    std::int64_t begin = 0;      // elements of the rows before this one
    std::int64_t numel = 0;
    std::int32_t group = 0;  // index into the table of hyperparameters
    DType param_dtype = DType::f32;
    DType grad_dtype = DType::f32;
    // A 16-bit parameter is rounded as kernels/ops/rounding.h says, with random numbers that depend
    // on the seed, the step and the element alone; else to nearest.
    bool stochastic = false;
};

// Appends a row; its `begin` is set here.
template <class Row>
void append(std::vector<Row>& table, Row row) {
    row.begin = table.empty() ? 0 : table.back().begin + table.back().numel;
    table.push_back(row);
}

// Of one parameter group.
struct SgdGroup {
    double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false, maximize = false;
    bool operator==(const SgdGroup&) const = default;
};
struct AdamGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    bool decoupled = false;  // weight decay as AdamW's, else added to the gradient
    bool maximize = false;
    bool operator==(const AdamGroup&) const = default;
};

// Of one step: gradients are multiplied by inv_scale * clip on their way in, and where found_inf is
// not 0 nothing is changed, step counts included.
struct StepScalars {
    double inv_scale = 1, clip = 1, found_inf = 0;
};

// As torch.optim.SGD, where g is the gradient (negated to maximize) plus weight_decay * p:
//     b = momentum * b + (1 - dampening) * g          (b = g in the first step)
//     p -= lr * (nesterov ? g + momentum * b : b)
// Slots of a group with momentum 0 need no `first`, and `step` to be stochastic alone. scalars may
// be null.
void sgd(Cpu& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);
void sgd(Cuda& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);

// As torch.optim.Adam and AdamW, in step t:
//     p *= 1 - lr * weight_decay                      (decoupled; else g += weight_decay * p)
//     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//     p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
// with the largest v so far in the last line for AMSGrad. scalars may be null.
void adam(Cpu& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);
void adam(Cuda& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);

// *norm = (sum |x|^p)^(1/p) over all rows, max |x| for p = infinity, summed in f64; NaN if any
// element is. p is not 0 and not -infinity. An empty table has norm 0.
void norm(Cpu& on, std::span<const Run> runs, double p, double* norm);
void norm(Cuda& on, std::span<const Run> runs, double p, double* norm);

// *coefficient = min(1, max_norm / (*norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; NaN stays.
void clip_coefficient(Cpu& on, const double* norm, double max_norm, double* coefficient);
void clip_coefficient(Cuda& on, const double* norm, double max_norm, double* coefficient);

// x *= *factor; nothing is touched where the factor is 1.
void scale(Cpu& on, std::span<const Run> runs, const double* factor);
void scale(Cuda& on, std::span<const Run> runs, const double* factor);

// x = min(max(x, low), high); NaN stays.
void clamp(Cpu& on, std::span<const Run> runs, double low, double high);
void clamp(Cuda& on, std::span<const Run> runs, double low, double high);

// *found_inf = 1 if any element is infinite or NaN, else it is left alone.
void find_non_finite(Cpu& on, std::span<const Run> runs, double* found_inf);
void find_non_finite(Cuda& on, std::span<const Run> runs, double* found_inf);

}  // namespace axle::inline v0::kernels
