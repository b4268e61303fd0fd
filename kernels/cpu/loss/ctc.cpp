// The CTC loss. A task processes one sample.
#include <algorithm>
#include <utility>

#include "kernels/ops/loss.h"
#include "kernels/rules/ctc_rules.h"
#include "kernels/thread_pool.h"

namespace axle::kernels {
namespace {

template <class T>
double forward_sample(const CtcSample<T>& sample, double* alphas) {
    double* row = alphas + sample.column;
    const double* before = nullptr;
    for (std::int64_t t = 0; t < sample.steps; ++t) {
        for (std::int64_t s = 0; s < sample.states(); ++s) row[s] = sample.alpha(t, s, before);
        before = row;
        row += sample.width;
    }
    return sample.loss(before);
}

// The gradient of one sample, whose rows are `step` elements apart.
template <class T>
struct SampleGradient {
    T* d;
    std::int64_t step;

    void fill(std::int64_t first, std::int64_t last, std::int64_t classes, T value) const {
        for (std::int64_t t = first; t < last; ++t) std::fill_n(d + t * step, classes, value);
    }
};

// Computes the gradient of a sample. `gradient` contains the probabilities e^log_probs at the call.
// `after` and `now` are scratch memory for the betas of the next and the current step.
template <class T>
void backward_sample(const CtcSample<T>& sample, const double* alphas, double loss, double dloss,
                     double* after, double* now, const SampleGradient<T>& gradient) {
    if (sample.steps == 0) return;
    const double* row = alphas + sample.column + (sample.steps - 1) * sample.width;
    for (std::int64_t t = sample.steps - 1; t >= 0; --t) {
        T* const d = gradient.d + t * gradient.step;
        for (std::int64_t c = 0; c < sample.classes; ++c) d[c] *= static_cast<T>(dloss);
        double blanks = 0;
        for (std::int64_t s = 0; s < sample.states(); ++s) {
            now[s] = sample.beta(t, s, after);
            const double p = sample.probability(t, s, row[s], now[s], loss);
            if (s % 2 == 0)
                blanks += p;
            else
                d[sample.class_of(s)] -= static_cast<T>(p * dloss);
        }
        d[sample.blank] -= static_cast<T>(blanks * dloss);
        std::swap(now, after);
        if (t > 0) row -= sample.width;
    }
}

}  // namespace

void ctc_loss(Cpu&, ConstView log_probs, const CtcTargets& targets, View alphas, View losses) {
    visit_f32_f64(log_probs.dtype, [&]<class T>() {
        parallel_ranges(log_probs.shape[1], 1, [&](std::int64_t n, std::int64_t) {
            losses.as<double>()[n] =
                forward_sample(CtcSample<T>(log_probs, targets, n), alphas.as<double>());
        });
    });
}

void ctc_loss_backward(Cpu& on, ConstView log_probs, const CtcTargets& targets, ConstView alphas,
                       ConstView losses, ConstView dlosses, bool zero_infinity, View d) {
    Scratch scratch(on);
    double* const betas = scratch.take<double>(2 * alphas.shape[1]);
    visit_f32_f64(log_probs.dtype, [&]<class T>() {
        parallel_ranges(log_probs.shape[1], 1, [&](std::int64_t n, std::int64_t) {
            const CtcSample<T> sample(log_probs, targets, n);
            const SampleGradient<T> gradient = {d.as<T>() + n * d.stride[1], d.stride[0]};
            const double loss = losses.as<double>()[n];
            gradient.fill(sample.steps, log_probs.shape[0], sample.classes, T(0));
            if (loss == -kNoPath) {
                const T value = zero_infinity ? T(0) : std::numeric_limits<T>::quiet_NaN();
                return gradient.fill(0, sample.steps, sample.classes, value);
            }
            double* const rows = betas + sample.column;
            backward_sample(sample, alphas.as<double>(), loss, dlosses.as<double>()[n], rows,
                            rows + alphas.shape[1], gradient);
        });
    });
}

}  // namespace axle::kernels
