// Helpers of losses: dtypes, reductions, checks, and the losses of class indices.
#pragma once

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"

namespace axle {

// Return the dtype in which a loss is computed, and the dtype of its result. Under autocast, the
// result is f32 for f16 and bf16.
inline DType wide_dtype(DType t) { return t == f64 ? f64 : f32; }
inline DType result_dtype(DType t) { return autocast_dtype() ? wide_dtype(t) : t; }

// Returns losses, reduced and converted to the dtype of the result.
inline Tensor reduce_losses(const Tensor& losses, Reduction reduction, DType result) {
    if (reduction == Reduction::none) return to(losses, result);
    return to(reduction == Reduction::mean ? mean(losses) : sum(losses), result);
}

inline void check_smoothing(const char* op, double smoothing) {
    if (!(smoothing >= 0 && smoothing <= 1))
        throw ValueError(str(op, ": label_smoothing must be in [0, 1]: ", smoothing));
}

// Throws ShapeError unless both operands have the same shape.
inline void check_same_shape(const char* op, const Tensor& x, const Tensor& target) {
    if (x.shape() != target.shape())
        throw ShapeError(str(op, ": shapes differ: x ", x.shape(), ", target ", target.shape()));
}

// If `weight`, the factors of the classes, is defined, throws DTypeError unless it is floating,
// ShapeError unless it is [classes], and DeviceError if it is not on the device of x.
inline void check_class_weight(const char* op, const Tensor& x, const Tensor& weight,
                               std::int64_t classes) {
    if (!weight.defined()) return;
    check_device(op, {&x, &weight});
    check_floating(op, weight, "weight");
    if (weight.shape() != Shape{classes})
        throw ShapeError(
            str(op, ": weight must be [", classes, "], one number per class: ", weight.shape()));
}

// Returns the number of targets that are not ignored, as a 0-d tensor.
inline Tensor valid_targets(const Tensor& targets, std::int64_t ignore_index, DType dtype) {
    return to(sum(ne(targets, Scalar(ignore_index))), dtype);
}

// The losses of class indices before their reduction, and the divisor of their mean.
struct TargetLosses {
    Tensor losses, divisor;
};
// Returns -log_probs[target] times the weight of the target, in the dtype `wide` and the shape of
// the targets (likelihood.cpp). The loss of an ignored target is 0. The classes are dimension dim
// of log_probs; weight [C] can be undefined. All targets that are not ignored must be classes.
TargetLosses target_losses(const Tensor& log_probs, const Tensor& targets, int dim,
                           const Tensor& weight, std::int64_t ignore_index, DType wide);

}  // namespace axle
