// The fused cross-entropy loss, checks of its targets, and the CTC loss.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

struct CrossEntropyParams {
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;
};

// Returns the first row whose target is neither ignore_index nor in [0, classes), or -1 if there is
// no such row. targets is [N], i64 or i32, with any stride.
std::int64_t first_bad_target(ConstView targets, std::int64_t classes, std::int64_t ignore_index);
// Checks targets on a GPU without waiting. Cuda::take_error() returns one of the bad targets, as an
// error of kind bad_target. The GPU kernels of cross entropy ignore rows with bad targets.
void check_targets(Cuda& on, ConstView targets, std::int64_t classes, std::int64_t ignore_index);

// Computes loss[n] = -sum_c t_c log softmax(logits[n])_c with t = (1 - s) onehot(target) + s / C,
// where s is the label smoothing. The loss of ignored rows is 0. lse[n] receives the log-sum-exp of
// the row. logits is [N, C], floating, with any strides; targets must be valid. loss and lse are
// [N], f64 for f64 logits and f32 otherwise, with any stride.
void cross_entropy(Cpu& on, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse);
void cross_entropy(Cuda& on, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse);

// Computes dlogits[n] = (softmax(logits[n]) - t) dloss[n], and 0 for ignored rows. dloss is [N],
// with any floating dtype and stride (stride 0 uses one value for all rows). dlogits has the shape
// and dtype of logits; for f32 logits, it can also be f16 or bf16. It has any strides and can be
// the same view as logits.
void cross_entropy_backward(Cpu& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);
void cross_entropy_backward(Cuda& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);

// The targets of the loss of connectionist temporal classification (Graves et al., 2006), for N
// samples. All views are contiguous i64. The labels of sample n are labels[starts[n]] to
// labels[starts[n] + target_lengths[n] - 1].
struct CtcTargets {
    ConstView labels;                                 // [total]; classes
    ConstView starts, target_lengths, input_lengths;  // [N]
    std::int64_t blank = 0;                           // the class of the blank
};

// The states of a sample are blank, label, blank, ..., label, blank: 2 L + 1 states for L labels. A
// path stays in a state or moves to the next state; between two different labels, it can skip the
// blank. The kernels limit lengths to their valid ranges, and replace labels that are not classes
// by the blank.

// Computes losses[n] = -ln(sum of the probabilities of all paths of sample n). A path goes through
// the states of the sample in its first input_lengths[n] steps. log_probs is [T, N, C], f32 or f64,
// with any strides. alphas [T, 2 total + N] receives the logarithm of the probability of all paths
// that end in a state at a step; the states of sample n begin at column 2 starts[n] + n. alphas and
// losses [N] are contiguous f64.
void ctc_loss(Cpu& on, ConstView log_probs, const CtcTargets& targets, View alphas, View losses);
void ctc_loss(Cuda& on, ConstView log_probs, const CtcTargets& targets, View alphas, View losses);

// Computes the gradient d[t, n, c] = (e^log_probs - P) dlosses[n], and 0 after the last step of a
// sample. P is the probability that sample n is in a state of class c at step t. If a loss is
// infinite, its gradient is 0 (zero_infinity) or NaN. d is contiguous, has log_probs' shape and
// dtype, and contains e^log_probs at the call. alphas and losses are the results of ctc_loss;
// dlosses is [N], contiguous f64.
void ctc_loss_backward(Cpu& on, ConstView log_probs, const CtcTargets& targets, ConstView alphas,
                       ConstView losses, ConstView dlosses, bool zero_infinity, View d);
void ctc_loss_backward(Cuda& on, ConstView log_probs, const CtcTargets& targets, ConstView alphas,
                       ConstView losses, ConstView dlosses, bool zero_infinity, View d);

}  // namespace axle::kernels
