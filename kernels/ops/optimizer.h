// Optimizers and gradient clipping over tables of tensors: one call updates all tensors of a model.
//
// A table row is a contiguous range of elements. Kernels concatenate all rows and split the result
// into chunks of a fixed size. So ten thousand small biases cost the same as one large matrix.
// Values that change from step to step are read through pointers when the kernel runs. In GPU
// kernels, these pointers (groups, scalars, norms, factors) point to GPU memory; tables are in host
// memory and are copied with the launch.
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
    std::int64_t begin = 0;  // the number of elements in all earlier rows
    std::int64_t numel = 0;
    DType dtype = DType::f32;  // any floating dtype
};

// A parameter with its gradient and its optimizer state. The state is f64 for an f64 parameter and
// f32 otherwise. The comment of each optimizer below names the arrays of its state.
struct Slot {
    void* param = nullptr;
    const void* grad = nullptr;  // any floating dtype
    void* master = nullptr;      // f32 copy from which a 16-bit parameter is rounded, or null
    void* state[3] = {};         // null if the optimizer has no such array
    float* step = nullptr;       // updates so far, incremented by the kernel; can be null in sgd()
    std::uint64_t seed = 0;      // seed of stochastic rounding
    std::int64_t begin = 0;      // number of elements in all earlier rows
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

// The scalars of one step. Gradients are multiplied by inv_scale * clip. If found_inf is not 0, the
// step is skipped and the step counts do not change.
struct StepScalars {
    double inv_scale = 1, clip = 1, found_inf = 0;
};

// The hyperparameters of one parameter group. Every group begins with two doubles that take_rates()
// (kernels/ops/step_state.h) writes: the learning rate, and the momentum or beta1. Optimizers
// without momentum do not use `no_momentum`. If `decoupled` is true, and in Lion, weight decay
// multiplies the parameter by 1 - lr * weight_decay; otherwise weight_decay * p is added to the
// gradient.
struct SgdGroup {
    double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false, maximize = false;
    bool operator==(const SgdGroup&) const = default;
};
struct AdamGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    bool decoupled = false, maximize = false;
    bool operator==(const AdamGroup&) const = default;
};
struct RmsPropGroup {
    double lr = 0, momentum = 0, alpha = 0, eps = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const RmsPropGroup&) const = default;
};
struct AdagradGroup {
    double lr = 0, no_momentum = 0, lr_decay = 0, eps = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const AdagradGroup&) const = default;
};
struct AdadeltaGroup {
    double lr = 0, no_momentum = 0, rho = 0, eps = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const AdadeltaGroup&) const = default;
};
struct AdamaxGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const AdamaxGroup&) const = default;
};
struct NAdamGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    double cooling = 0;  // 0.96^momentum_decay
    bool decoupled = false, maximize = false;
    bool operator==(const NAdamGroup&) const = default;
};
struct RAdamGroup {
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    bool decoupled = false, maximize = false;
    bool operator==(const RAdamGroup&) const = default;
};
struct LionGroup {
    double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const LionGroup&) const = default;
};
struct RpropGroup {
    double lr = 0, no_momentum = 0, eta_minus = 0, eta_plus = 0, min_step = 0, max_step = 0;
    bool maximize = false;
    bool operator==(const RpropGroup&) const = default;
};
struct AsgdGroup {
    double lr = 0, no_momentum = 0, lambd = 0, alpha = 0, t0 = 0, weight_decay = 0;
    bool maximize = false;
    bool operator==(const AsgdGroup&) const = default;
};

// Each of the functions sgd() to asgd() performs one step of an optimizer, as in torch.optim (Lion
// as in its paper). `g` is the gradient, multiplied by the scalars, negated to maximize, and with
// weight decay added unless it is decoupled; t is the step count after the step. scalars can be
// null.

// Performs one step of SGD; state: {b}.
//     b = momentum * b + (1 - dampening) * g          (b = g in the first step)
//     p -= lr * (nesterov ? g + momentum * b : b)
// With momentum 0, p -= lr * g. Slots of such a group need no b, and need `step` only for
// stochastic rounding.
void sgd(Cpu& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);
void sgd(Cuda& on, std::span<const Slot> slots, const SgdGroup* groups, const StepScalars* scalars);

// Performs one step of Adam or AdamW; state: {m, v, the largest v so far}.
//     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//     p -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
// If the slot has the third array (AMSGrad), the last line uses it in place of v.
void adam(Cpu& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);
void adam(Cuda& on, std::span<const Slot> slots, const AdamGroup* groups,
          const StepScalars* scalars);

// Performs one step of RMSprop; state: {v, b, m}.
//     v = alpha v + (1 - alpha) g^2,  m = alpha m + (1 - alpha) g
//     u = g / (sqrt(v - m^2) + eps),  b = momentum b + u,  p -= lr b
// Without the array m, m is 0 (not centered). Without the array b, b is u (no momentum).
void rmsprop(Cpu& on, std::span<const Slot> slots, const RmsPropGroup* groups,
             const StepScalars* scalars);
void rmsprop(Cuda& on, std::span<const Slot> slots, const RmsPropGroup* groups,
             const StepScalars* scalars);

// Performs one step of Adagrad; state: {s}.
//     s += g^2,  p -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
void adagrad(Cpu& on, std::span<const Slot> slots, const AdagradGroup* groups,
             const StepScalars* scalars);
void adagrad(Cuda& on, std::span<const Slot> slots, const AdagradGroup* groups,
             const StepScalars* scalars);

// Performs one step of Adadelta; state: {v, u}.
//     v = rho v + (1 - rho) g^2,  d = sqrt(u + eps) / sqrt(v + eps) * g
//     u = rho u + (1 - rho) d^2,  p -= lr d
void adadelta(Cpu& on, std::span<const Slot> slots, const AdadeltaGroup* groups,
              const StepScalars* scalars);
void adadelta(Cuda& on, std::span<const Slot> slots, const AdadeltaGroup* groups,
              const StepScalars* scalars);

// Performs one step of Adamax; state: {m, u}.
//     m = beta1 m + (1 - beta1) g,  u = max(beta2 u, |g| + eps),  p -= lr / (1 - beta1^t) * m / u
void adamax(Cpu& on, std::span<const Slot> slots, const AdamaxGroup* groups,
            const StepScalars* scalars);
void adamax(Cuda& on, std::span<const Slot> slots, const AdamaxGroup* groups,
            const StepScalars* scalars);

// Performs one step of NAdam; state: {m, v, product}, where product is one number, the product of
// mu(1) to mu(t).
//     mu(t) = beta1 (1 - cooling^t / 2),  m and v as for Adam
//     p -= lr ((1 - mu(t)) / (1 - product) g + mu(t + 1) / (1 - product mu(t + 1)) m) /
//          (sqrt(v / (1 - beta2^t)) + eps)
void nadam(Cpu& on, std::span<const Slot> slots, const NAdamGroup* groups,
           const StepScalars* scalars);
void nadam(Cuda& on, std::span<const Slot> slots, const NAdamGroup* groups,
           const StepScalars* scalars);

// Performs one step of RAdam; state: {m, v}, as for Adam.
//     n = 2 / (1 - beta2) - 1,  n(t) = n - 2 t beta2^t / (1 - beta2^t)
//     p -= lr / (1 - beta1^t) * m * r
// with r = 1 if n(t) <= 5, and otherwise
//     r = sqrt((n(t) - 4) (n(t) - 2) n / ((n - 4) (n - 2) n(t))) sqrt(1 - beta2^t) / (sqrt(v) +
//     eps)
void radam(Cpu& on, std::span<const Slot> slots, const RAdamGroup* groups,
           const StepScalars* scalars);
void radam(Cuda& on, std::span<const Slot> slots, const RAdamGroup* groups,
           const StepScalars* scalars);

// Performs one step of Lion (arXiv:2302.06675) with decoupled weight decay; state: {m}.
//     p -= lr sign(beta1 m + (1 - beta1) g),  m = beta2 m + (1 - beta2) g
void lion(Cpu& on, std::span<const Slot> slots, const LionGroup* groups,
          const StepScalars* scalars);
void lion(Cuda& on, std::span<const Slot> slots, const LionGroup* groups,
          const StepScalars* scalars);

// Performs one step of Rprop; state: {the previous g, the step sizes s}. If the product of g and
// the previous g is negative, g is set to 0 and s is multiplied by eta_minus; if the product is
// positive, s is multiplied by eta_plus. s is limited to [min_step, max_step]. Then
// p -= sign(g) s.
void rprop(Cpu& on, std::span<const Slot> slots, const RpropGroup* groups,
           const StepScalars* scalars);
void rprop(Cuda& on, std::span<const Slot> slots, const RpropGroup* groups,
           const StepScalars* scalars);

// Performs one step of ASGD; state: {the average a, eta, mu}. eta and mu are one number each.
//     p = p (1 - lambd eta) - eta g,  a += mu (p - a)    (a = p if mu is 1)
//     eta = lr / (1 + lambd lr t)^alpha,  mu = 1 / max(1, t - t0)
// On a GPU, the last bits of eta may differ from the CPU, because the results of pow() differ.
void asgd(Cpu& on, std::span<const Slot> slots, const AsgdGroup* groups,
          const StepScalars* scalars);
void asgd(Cuda& on, std::span<const Slot> slots, const AsgdGroup* groups,
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
