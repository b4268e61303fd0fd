// Losses that are fused because their inputs are large.
#pragma once

#include <cstdint>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

struct CrossEntropyParams {
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;
};

// The first row whose target is neither ignore_index nor in [0, classes), or -1. targets [N], i64
// or i32, any stride.
std::int64_t first_bad_target(ConstView targets, std::int64_t classes, std::int64_t ignore_index);
// The same as trouble of kind bad_target. The kernels below then ignore the row.
void check_targets(Cuda& on, ConstView targets, std::int64_t classes, std::int64_t ignore_index);

// loss[n] = -sum_c t_c log softmax(logits[n])_c with t = (1 - s) onehot(target) + s / C, s the
// label smoothing; zero for ignored rows. lse[n] is the log-sum-exp of the row. logits [N, C]
// floating, any strides; targets are good; loss and lse [N], f64 for f64 and else f32, any stride.
void cross_entropy(Cpu& on, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse);
void cross_entropy(Cuda& on, ConstView logits, ConstView targets, const CrossEntropyParams& params,
                   View loss, View lse);

// dlogits[n] = (softmax(logits[n]) - t) dloss[n], zero for ignored rows. dloss [N] of any floating
// dtype and stride (0: the same for all). dlogits has the dtype of logits and may be the same view.
void cross_entropy_backward(Cpu& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);
void cross_entropy_backward(Cuda& on, ConstView logits, ConstView targets, ConstView lse,
                            ConstView dloss, const CrossEntropyParams& params, View dlogits);

}  // namespace axle::inline v0::kernels
