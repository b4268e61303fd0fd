// Losses with PyTorch's names and defaults. core/ops.h includes this header and states the rules of
// all ops.
//
// Losses are computed in f64 if an operand is f64, and otherwise in f32 (mse_loss: in the promoted
// dtype of the operands). The result has the promoted dtype of the operands; under autocast, f16
// and bf16 give f32. Weights, and the targets of the functions for binary cross entropy, do not
// change these dtypes. Reduction::mean and Reduction::sum give a 0-d tensor, and Reduction::none
// gives one loss per element or per sample. A `weight` contains factors of the losses; only in
// linear_cross_entropy(), it is the matrix of the linear layer.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace axle {

enum class Reduction : std::uint8_t { none, mean, sum };

// --- classes and likelihoods (losses/cross_entropy.cpp, losses/linear_cross_entropy.cpp,
// losses/likelihood.cpp, losses/ctc.cpp)
struct CrossEntropyOptions {
    Tensor weight = {};  // the factor of each class, [C]
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;
    // The mean is over all targets except ignore_index, weighted if there are class weights, and
    // NaN if all targets are ignored. For class probabilities, it is over all samples.
    Reduction reduction = Reduction::mean;
};
// Returns the cross entropy of logits [N, C, ...] (or [C]) and targets, in nats. The targets are
// class indices [N, ...] (or []), or floating class probabilities of the logits' shape. With
// Reduction::none, the result is [N, ...]. Throws ValueError unless label_smoothing is in [0, 1],
// and with class probabilities unless ignore_index is negative. Throws IndexError for a target that
// is neither a class nor ignore_index.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});
// Returns cross_entropy(linear(x, weight), targets) without storing the [N, C] logits. x is [N, K],
// weight is [C, K], and targets are class indices [N]. Cannot be differentiated twice. Throws the
// errors of cross_entropy, DTypeError unless x and weight have one dtype, ValueError for
// Reduction::none, and UsageError for class weights.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const CrossEntropyOptions& options = {});
struct NllLossOptions {
    Tensor weight = {};  // the factor of each class, [C]
    std::int64_t ignore_index = -100;
    Reduction reduction = Reduction::mean;  // as in CrossEntropyOptions
};
// Returns the negative log-likelihood of log-probabilities [N, C, ...] (or [C]) and class indices
// [N, ...] (or []). Throws IndexError for a target that is neither a class nor ignore_index.
Tensor nll_loss(const Tensor& log_probs, const Tensor& targets, const NllLossOptions& options = {});
enum class KlDivReduction : std::uint8_t { none, mean, sum, batchmean };
struct KlDivOptions {
    // batchmean divides the sum by N, which gives the divergence of distributions [N, ...]. mean
    // divides the sum by the number of elements.
    KlDivReduction reduction = KlDivReduction::mean;
    bool log_target = false;  // whether the target contains log-probabilities
};
// Returns the terms target * (ln(target) - x) of the Kullback-Leibler divergence of
// log-probabilities x and probabilities target, which broadcast. With log_target, the terms are
// e^target * (target - x).
Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});
struct GaussianNllLossOptions {
    bool full = false;  // adds ln(2 pi) / 2
    double eps = 1e-6;  // the lower bound of variances; their gradients ignore the bound
    Reduction reduction = Reduction::mean;
};
// Returns the negative log-likelihood of targets under normal distributions with means x and
// variances var, (ln var + (x - target)^2 / var) / 2. x and target broadcast. var has the shape of
// x, or this shape without the last dimension, or with one dimension of size 1 instead. Throws
// ValueError for a negative number var, and on a CPU also for a negative element.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var,
                         const GaussianNllLossOptions& options = {});
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, double var,
                         const GaussianNllLossOptions& options = {});
struct PoissonNllLossOptions {
    bool log_input = true;  // whether x is the logarithm of the mean
    bool full = false;      // adds Stirling's approximation of ln(target!) for targets above 1
    double eps = 1e-8;      // added to x before the logarithm if log_input is false
    Reduction reduction = Reduction::mean;
};
// Returns the negative log-likelihood of counts under Poisson distributions: e^x - target * x
// for means e^x, and x - target * ln(x + eps) for means x. x and target broadcast.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target,
                        const PoissonNllLossOptions& options = {});
struct CtcLossOptions {
    std::int64_t blank = 0;                 // the class of the blank
    bool zero_infinity = false;             // replaces infinite losses and their gradients by 0
    Reduction reduction = Reduction::mean;  // the mean of losses that are divided by target lengths
};
// Returns the connectionist temporal classification loss (Graves et al., 2006) of log-probabilities
// [T, N, C]. targets are class indices without blanks: padded [N, S], or the concatenation of all
// targets [sum of target lengths]. input_lengths and target_lengths are [N] and can be on the CPU.
// A single sample is [T, C] with targets [S] and lengths [] or [1]. The gradient is exact for
// log-probabilities from log_softmax, as in PyTorch, and cannot be differentiated. The recursions
// are computed in f64. Throws ValueError unless blank is a class, for lengths that are negative or
// exceed T or S, and if the lengths of concatenated targets do not add up to the number of targets.
// Throws IndexError for a target that is not a class or is the blank. Lengths and targets on a GPU
// out of range are reported errors; the sum of lengths on a GPU is not checked.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options = {});

// --- differences of x and target, which have the same shape (losses/regression.cpp)
// Return squared differences (mse_loss) or absolute differences (l1_loss). A weight of x's shape
// can be given; the mean then divides by the sum of the weights, as in PyTorch.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                const Tensor& weight = {});
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
               const Tensor& weight = {});
struct SmoothL1LossOptions {
    double beta = 1;
    Reduction reduction = Reduction::mean;
};
// For the differences d, returns d^2 / (2 beta) where |d| < beta, else |d| - beta / 2. Throws
// ValueError if beta is negative.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target,
                      const SmoothL1LossOptions& options = {});
struct HuberLossOptions {
    double delta = 1;
    Tensor weight = {};                     // the factor of each loss, of x's shape
    Reduction reduction = Reduction::mean;  // the mean is over all elements
};
// For the differences d, returns d^2 / 2 where |d| < delta, else delta * (|d| - delta / 2). Throws
// ValueError unless delta is positive.
Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& options = {});

// --- two classes for each element (losses/binary.cpp)
struct BinaryCrossEntropyOptions {
    Tensor weight = {};  // factor of each loss; broadcast to the shape of x
    // The factor of the loss of positive targets, broadcast to the shape of x. Only for logits.
    Tensor pos_weight = {};
    Reduction reduction = Reduction::mean;  // the mean is over all elements
};
// Returns the binary cross entropy of probabilities x in [0, 1] and targets in [0, 1], which have
// the same shape. Logarithms are at least -100 and gradients are finite, as in PyTorch. Throws
// UsageError if pos_weight is set, and on a CPU ValueError for an x outside of [0, 1]. Prefer the
// function with logits, which is more accurate.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {});
// Returns the binary cross entropy of sigmoid(x) and targets, where x are the logits. Values and
// gradients are finite and accurate for all finite logits.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options = {});
struct SigmoidFocalLossOptions {
    // The weight of positive targets; other targets have the weight 1 - alpha. A negative number
    // disables weights.
    double alpha = 0.25;
    double gamma = 2;  // the exponent of 1 - p, where p is the probability of the target
    Reduction reduction = Reduction::none;
};
// Returns the focal loss (arXiv:1708.02002) of logits x and targets in [0, 1], which have the same
// shape, as torchvision.ops.sigmoid_focal_loss does.
Tensor sigmoid_focal_loss(const Tensor& x, const Tensor& target,
                          const SigmoidFocalLossOptions& options = {});
struct MultiLabelSoftMarginLossOptions {
    Tensor weight = {};  // factors, which broadcast to x; [C] has a factor for each class
    Reduction reduction = Reduction::mean;
};
// Returns binary_cross_entropy_with_logits of x [..., C] and targets of the same shape, averaged
// over the classes. With Reduction::none, the result is [...].
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                   const MultiLabelSoftMarginLossOptions& options = {});

// --- margins (losses/margin.cpp). The targets of the first three losses are 1 or -1, and broadcast
// with x.
// Returns ln(1 + e^(-target * x)), which is finite for all finite x.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target,
                        Reduction reduction = Reduction::mean);
struct MarginRankingLossOptions {
    double margin = 0;
    Reduction reduction = Reduction::mean;
};
// Returns max(0, margin - target * (x1 - x2)). Throws ShapeError unless x1, x2 and target have the
// same number of dimensions and broadcast.
Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                           const MarginRankingLossOptions& options = {});
struct HingeEmbeddingLossOptions {
    double margin = 1;
    Reduction reduction = Reduction::mean;
};
// Returns x where the target is 1, and max(0, margin - x) where the target is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target,
                            const HingeEmbeddingLossOptions& options = {});
struct MultiMarginLossOptions {
    int p = 1;  // the exponent, 1 or 2
    double margin = 1;
    Tensor weight = {};  // the factor of each class, [C]
    Reduction reduction = Reduction::mean;
};
// Returns the sum of max(0, margin - x[target] + x[i])^p over all classes i other than the target,
// divided by C. x is [N, C] (or [C]) and targets are class indices [N] (or []). Throws ValueError
// unless p is 1 or 2.
Tensor multi_margin_loss(const Tensor& x, const Tensor& target,
                         const MultiMarginLossOptions& options = {});
// Returns the sum of max(0, 1 - x[j] + x[i]) over all classes j of a sample and all other classes
// i, divided by C. x is [N, C] or [C]. target has the same shape: the class indices of a sample are
// the elements before its first -1. Uses memory for N C^2 elements.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                              Reduction reduction = Reduction::mean);

// --- distances (losses/embedding.cpp)
struct CosineEmbeddingLossOptions {
    double margin = 0;
    Reduction reduction = Reduction::mean;
};
// Returns 1 - cos(x1, x2) where the target is 1, and max(0, cos(x1, x2) - margin) where it is -1.
// x1 and x2 are [N, D] and the target is [N], or [D] and [].
Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                             const CosineEmbeddingLossOptions& options = {});
struct TripletMarginLossOptions {
    double margin = 1;
    double p = 2;       // the norm of differences over the last dimension; can be infinite
    double eps = 1e-6;  // added to each difference
    // Uses the distance of positive and negative if it is less than the distance of anchor and
    // negative.
    bool swap = false;
    Reduction reduction = Reduction::mean;
};
// Returns max(0, margin + distance(anchor, positive) - distance(anchor, negative)). The operands
// are [..., D] with the same number of dimensions, and broadcast (ShapeError). Throws ValueError
// unless the margin is positive and p is not negative.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});
struct TripletMarginWithDistanceLossOptions {
    // Returns the distances of two tensors. The default is the Euclidean distance of
    // triplet_margin_loss.
    std::function<Tensor(const Tensor&, const Tensor&)> distance_function = {};
    double margin = 1;
    bool swap = false;
    Reduction reduction = Reduction::mean;
};
// Returns the same loss as triplet_margin_loss, but with the distance function in `options`.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& options = {});

}  // namespace axle
