#include <limits>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/ops/index_checks.h"
#include "core/ops/losses/loss_helpers.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/loss.h"

namespace axle {
namespace {

constexpr const char* kCtcLoss = "ctc_loss";

// The targets in the form that the kernels need: contiguous i64 tensors.
struct CtcLabels {
    Tensor labels, starts, target_lengths, input_lengths;

    kernels::CtcTargets view(std::int64_t blank) const {
        return {.labels = labels.view(),
                .starts = starts.view(),
                .target_lengths = target_lengths.view(),
                .input_lengths = input_lengths.view(),
                .blank = blank};
    }
};

// Throws ValueError unless every length is in [0, most] and, if total is not negative, the lengths
// add up to it. Lengths in the memory of a GPU are not read.
void check_lengths(const char* name, const Tensor& lengths, std::int64_t most, std::int64_t total) {
    if (!lengths.device().is_cpu()) return;
    std::int64_t count = 0;
    for (const double value : lengths.to_vector()) {
        const auto length = static_cast<std::int64_t>(value);
        if (length < 0 || length > most)
            throw ValueError(str(kCtcLoss, ": ", name, " must be in [0, ", most, "]: ", length));
        count += length;
    }
    if (total >= 0 && count != total)
        throw ValueError(str(kCtcLoss, ": ", name,
                             " must add up to the number of targets: the sum is ", count,
                             ", the number of targets is ", total));
}

// Checks lengths [N] (or [] for one sample) and returns them as contiguous i64 on the device.
Tensor lengths_on(const char* name, const Tensor& lengths, std::int64_t samples, Device device,
                  std::int64_t most, std::int64_t total) {
    check_device(kCtcLoss, {&lengths});
    check_index_dtype(kCtcLoss, lengths, name);
    if (lengths.dim() > 1 || lengths.numel() != samples)
        throw ShapeError(str(kCtcLoss, ": ", name, " must be [", samples, "]: ", lengths.shape()));
    const Tensor flat = contiguous(to(reshape(lengths, {samples}), i64));
    check_lengths(name, flat, most, total);
    if (device.is_cuda() && flat.device().is_cuda()) check_index_range(kCtcLoss, flat, most + 1);
    if (device.is_meta()) return empty({samples}, {.dtype = i64, .device = device});
    return to(flat, device);
}

// Checks the operands and returns the targets of log-probabilities [T, N, C].
CtcLabels ctc_labels(const Tensor& probs, const Tensor& targets, const Tensor& input_lengths,
                     const Tensor& target_lengths, std::int64_t blank, bool is_single) {
    const Device device = probs.device();
    const bool is_padded = targets.dim() == 2;
    const std::int64_t samples = probs.size(1), classes = probs.size(2), total = targets.numel();
    const std::int64_t most = is_padded ? targets.size(1) : total;
    CtcLabels result;
    result.input_lengths =
        lengths_on("input_lengths", input_lengths, samples, device, probs.size(0), -1);
    // A single target can have padding too.
    result.target_lengths = lengths_on("target_lengths", target_lengths, samples, device, most,
                                       is_padded || is_single ? -1 : total);
    const TensorOptions as_index = {.dtype = i64, .device = device};
    Tensor labels = reshape(to(targets, i64), {total});
    if (is_padded || is_single) {
        const Tensor position = arange(most, as_index);
        const Tensor used = reshape(lt(position, unsqueeze(result.target_lengths, 1)), {total});
        // Padding can be any number. It becomes a class that is not the blank, if there is one.
        labels = masked_fill(labels, logical_not(used), blank == 0 && classes > 1 ? 1 : 0);
        result.starts = arange(samples, as_index) * most;
    } else {
        result.starts = cumsum(result.target_lengths, 0) - result.target_lengths;
    }
    const Tensor is_blank = eq(labels, Scalar(blank));
    if (device.is_cpu() && classes > 1)
        if (const std::int64_t count = sum(is_blank).item_int(); count > 0)
            throw IndexError(str(kCtcLoss, ": targets must not contain the blank, class ", blank,
                                 ": ", count, count == 1 ? " target is" : " targets are",
                                 " the blank"));
    check_index_range(kCtcLoss, classes > 1 ? masked_fill(labels, is_blank, -1) : labels, classes);
    result.labels = contiguous(labels);
    return result;
}
}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options) {
    const profiler::OpScope scope(kCtcLoss);
    const Device device = check_device(kCtcLoss, {&log_probs, &targets});
    check_floating(kCtcLoss, log_probs, "log_probs");
    check_index_dtype(kCtcLoss, targets, "targets");
    const bool is_single = log_probs.dim() == 2;
    const Tensor wide = to(log_probs, wide_dtype(log_probs.dtype()));
    const Tensor probs = is_single ? unsqueeze(wide, 1) : wide;
    if (probs.dim() != 3 || targets.dim() < 1 || targets.dim() > 2 ||
        (targets.dim() == 2 && targets.size(0) != probs.size(1)))
        throw ShapeError(str(kCtcLoss,
                             ": needs log_probs [T, N, classes] or [T, classes] and targets ",
                             "[N, S] or [sum of target lengths]: log_probs ", log_probs.shape(),
                             ", targets ", targets.shape()));
    const std::int64_t samples = probs.size(1), blank = options.blank;
    if (blank < 0 || blank >= probs.size(2))
        throw ValueError(str(kCtcLoss, ": blank must be in [0, ", probs.size(2), "): ", blank));
    const CtcLabels labels =
        ctc_labels(probs, targets, input_lengths, target_lengths, blank, is_single);
    const TensorOptions as_f64 = {.dtype = f64, .device = device};
    Tensor alphas = Tensor::empty({probs.size(0), 2 * labels.labels.numel() + samples}, as_f64);
    Tensor losses = Tensor::empty({samples}, as_f64);
    launch(device, [&](auto& on) {
        kernels::ctc_loss(on, probs.view(), labels.view(blank), alphas.view(), losses.view());
    });
    Tensor y = losses;
    if (options.zero_infinity)
        y = masked_fill(y, eq(y, std::numeric_limits<double>::infinity()), 0);
    y = record(kCtcLoss, to(y, probs.dtype()), {probs},
               [probs = saved(probs), alphas = saved(alphas), losses = saved(losses),
                all = saved(labels.labels), starts = saved(labels.starts),
                lengths = saved(labels.target_lengths), steps = saved(labels.input_lengths), blank,
                zero_infinity = options.zero_infinity](const Grads& dy, Needs) -> Grads {
                   if (grad_enabled()) refuse_double_backward(kCtcLoss);
                   const Tensor at = probs, rows = alphas, values = losses;
                   const CtcLabels saved_labels = {all, starts, lengths, steps};
                   const Tensor dlosses = contiguous(to(dy[0], f64));
                   Tensor d = exp(at);
                   launch(at.device(), [&](auto& on) {
                       kernels::ctc_loss_backward(on, at.view(), saved_labels.view(blank),
                                                  rows.view(), values.view(), dlosses.view(),
                                                  zero_infinity, d.view());
                   });
                   return {d};
               });
    if (options.reduction == Reduction::mean)
        y = div(y, to(clamp(labels.target_lengths, 1.0, std::nullopt), y.dtype()));
    if (is_single) y = reshape(y, {});
    return reduce_losses(y, options.reduction, result_dtype(log_probs.dtype()));
}

}  // namespace axle
