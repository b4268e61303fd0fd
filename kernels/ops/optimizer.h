// Optimizers and gradient clipping over tables of tensors: one call updates all tensors of a model.
//
// A table row is a contiguous range of elements. Kernels concatenate all rows and split the result
// into chunks of a fixed size, so that ten thousand small biases cost no more than one large
// matrix. Values that change from step to step are read through pointers when the kernel runs. In
// GPU kernels, these pointers (groups, scalars, norms, factors) point to GPU memory; tables are in
// host memory and are copied with the launch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/view.h"

namespace axle::kernels {

class Cpu;
class Cuda;

// A row of a table of tensors: a contiguous range of elements.
struct Run {
    void* data = nullptr;
    std::int64_t begin = 0;  // the number of elements in all rows before this one
    std::int64_t numel = 0;
    DType dtype = DType::f32;  // any floating dtype
};

// A parameter with its gradient and its optimizer state. The state is f64 for an f64 parameter and
// f32 otherwise.
struct Slot {
    void* param = nullptr;
    const void* grad = nullptr;  // any floating dtype
    void* master = nullptr;      // f32 copy from which a 16-bit parameter is rounded, or null
    void* first = nullptr;       // momentum buffer, or Adam's first moment
    void* second = nullptr;      // Adam's second moment
    void* second_max = nullptr;  // running maximum of `second` for AMSGrad, or null
    float* step = nullptr;       // number of updates so far, incremented by the kernel
    std::uint64_t seed = 0;      // seed of stochastic rounding
    std::int64_t begin = 0;      // number of elements in all rows before this one
    std::int64_t numel = 0;
    std::int32_t group = 0;  // index into the array of parameter groups
    DType param_dtype = DType::f32;
    DType grad_dtype = DType::f32;
    // If true, a 16-bit parameter is rounded stochastically (kernels/ops/rounding.h) with random
    // numbers that depend only on seed, step and element. Otherwise it is rounded to nearest.
    bool stochastic = false;
    // The index of the row's first element in its parameter, a multiple of 8, which selects the
    // random numbers. It is not 0 if the row is a later part of the parameter.
    std::int64_t first_element = 0;
};

// Adds a row to the end of the table and sets its `begin`.
template <class Row>
void append(std::vector<Row>& table, Row row) {
    row.begin = table.empty() ? 0 : table.back().begin + table.back().numel;
    table.push_back(row);
}

// The SGD hyperparameters of one parameter group.
struct SgdGroup {
    double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false, maximize = false;
    bool operator==(const SgdGroup&) const = default;
};
struct AdamGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    // If true, weight decay is decoupled as in AdamW; otherwise it is added to the gradient.
    bool decoupled = false;
    bool maximize = false;
    bool operator==(const AdamGroup&) const = default;
};

// The scalars of one step. Gradients are multiplied by inv_scale * clip. If found_inf is not 0, the
// step is skipped and the step counts do not change.
struct StepScalars {
    double inv_scale = 1, clip = 1, found_inf = 0;
};

// Performs one step of torch.optim.SGD, where g is the gradient (negated to maximize) plus
// weight_decay * p:
//     b = momentum * b + (1 - dampening) * g          (b = g in the first step)
//     p -= lr * (nesterov ? g + momentum * b : b)
// With momentum 0, p -= lr * g. Slots of such a group need no `first`, and need `step` only for
// stochastic rounding. scalars can be null.
void sgd(Cpu& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);
void sgd(Cuda& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);

// Performs step t of torch.optim.Adam or AdamW:
//     p *= 1 - lr * weight_decay                      (decoupled; else g += weight_decay * p)
//     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//     p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
// With AMSGrad, the last line uses the largest v so far. scalars can be null.
void adam(Cpu& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);
void adam(Cuda& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);

// Computes *norm = (sum |x|^p)^(1/p) over all rows, or max |x| for p = infinity, summed in f64. The
// result is NaN if any element is NaN. p must not be 0 or -infinity. The norm of an empty table is
// 0.
void norm(Cpu& on, std::span<const Run> runs, double p, double* norm);
void norm(Cuda& on, std::span<const Run> runs, double p, double* norm);

// Computes *coefficient = min(1, max_norm / (*norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_.
// If *norm is NaN, the coefficient is NaN.
void clip_coefficient(Cpu& on, const double* norm, double max_norm, double* coefficient);
void clip_coefficient(Cuda& on, const double* norm, double max_norm, double* coefficient);

// Multiplies all elements by *factor. Does not access the elements if *factor is 1.
void scale(Cpu& on, std::span<const Run> runs, const double* factor);
void scale(Cuda& on, std::span<const Run> runs, const double* factor);

// Computes x = min(max(x, low), high) for all elements x. NaN elements stay NaN.
void clamp(Cpu& on, std::span<const Run> runs, double low, double high);
void clamp(Cuda& on, std::span<const Run> runs, double low, double high);

// Sets *found_inf = 1 if any element is infinite or NaN; otherwise *found_inf is not changed.
void find_non_finite(Cpu& on, std::span<const Run> runs, double* found_inf);
void find_non_finite(Cuda& on, std::span<const Run> runs, double* found_inf);

}  // namespace axle::kernels
