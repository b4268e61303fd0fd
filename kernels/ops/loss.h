// The fused cross-entropy loss, and checks of its targets.
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
// error of kind bad_target. The kernels below ignore rows with bad targets.
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
// with any floating dtype and stride (stride 0 uses one value for all rows). dlogits has logits'
// shape and dtype (for f32 logits, it can also be f16 or bf16), any strides, and can be the same
// view as logits.
void cross_entropy_backward(Cpu& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);
void cross_entropy_backward(Cuda& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);

}  // namespace axle::kernels
