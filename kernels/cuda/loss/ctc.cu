// The CTC loss. A block processes one sample, and its threads share the states of a step. The
// gradient has the same bits in every run: labels that occur more than once form a list, which one
// thread sums in order.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/loss.h"
#include "kernels/rules/ctc_rules.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    forward(ConstView log_probs, CtcTargets targets, double* alphas, double* losses) {
    for (std::int64_t n = blockIdx.x; n < log_probs.shape[1]; n += gridDim.x) {
        const CtcSample<T> sample(log_probs, targets, n);
        double* row = alphas + sample.column;
        const double* before = row;
        for (std::int64_t t = 0; t < sample.steps; ++t) {
            for (std::int64_t s = threadIdx.x; s < sample.states(); s += kThreads)
                row[s] = sample.alpha(t, s, before);
            __syncthreads();
            before = row;
            row += sample.width;
        }
        if (threadIdx.x == 0) losses[n] = sample.loss(before);
    }
}

struct BackwardTask {
    const double *alphas, *losses, *dlosses;
    bool zero_infinity;
    double *betas, *probabilities;   // two rows of states, and one row
    std::int64_t* next;              // the position of the next equal label of the sample, or -1
    bool* is_first;                  // whether no earlier label is equal
    std::int64_t step, sample_step;  // strides of the gradient
};

// Links the equal labels of a sample.
template <class T>
__device__ void link_labels(const CtcSample<T>& sample, std::int64_t* next, bool* is_first) {
    for (std::int64_t k = threadIdx.x; k < sample.label_count; k += kThreads) {
        const std::int64_t c = sample.label(k);
        bool first = true;
        for (std::int64_t j = 0; first && j < k; ++j) first = sample.label(j) != c;
        is_first[k] = first;
        next[k] = -1;
        for (std::int64_t j = sample.label_count - 1; j > k; --j)
            if (sample.label(j) == c) next[k] = j;
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    backward(ConstView log_probs, CtcTargets targets, BackwardTask task, T* gradient) {
    const std::int64_t all_steps = log_probs.shape[0];
    for (std::int64_t n = blockIdx.x; n < log_probs.shape[1]; n += gridDim.x) {
        const CtcSample<T> sample(log_probs, targets, n);
        T* const d = gradient + n * task.sample_step;
        const double loss = task.losses[n], dloss = task.dlosses[n];
        const bool is_infinite = loss == -kNoPath;
        const T instead = task.zero_infinity ? T(0) : std::numeric_limits<T>::quiet_NaN();
        for (std::int64_t t = is_infinite ? 0 : sample.steps; t < all_steps; ++t)
            for (std::int64_t c = threadIdx.x; c < sample.classes; c += kThreads)
                d[t * task.step + c] = t < sample.steps ? instead : T(0);
        if (is_infinite) continue;

        std::int64_t* const next = task.next + (sample.column - n) / 2;
        bool* const is_first = task.is_first + (sample.column - n) / 2;
        link_labels(sample, next, is_first);
        double* const p = task.probabilities + sample.column;
        double* now = task.betas + sample.column;
        double* after = now + sample.width;
        for (std::int64_t t = sample.steps - 1; t >= 0; --t) {
            const double* const row = task.alphas + t * sample.width + sample.column;
            T* const to = d + t * task.step;
            double blanks = 0;
            for (std::int64_t s = threadIdx.x; s < sample.states(); s += kThreads) {
                now[s] = sample.beta(t, s, after);
                p[s] = sample.probability(t, s, row[s], now[s], loss);
                if (s % 2 == 0) blanks += p[s];
            }
            for (std::int64_t c = threadIdx.x; c < sample.classes; c += kThreads)
                to[c] *= static_cast<T>(dloss);
            blanks = block_sum<kThreads>(blanks);
            __syncthreads();  // waits for `to` and p
            if (threadIdx.x == 0) to[sample.blank] -= static_cast<T>(blanks * dloss);
            __syncthreads();  // waits for thread 0, because an invalid label can be the blank
            for (std::int64_t k = threadIdx.x; k < sample.label_count; k += kThreads) {
                if (!is_first[k]) continue;
                double sum = 0;
                for (std::int64_t j = k; j >= 0; j = next[j]) sum += p[2 * j + 1];
                to[sample.label(k)] -= static_cast<T>(sum * dloss);
            }
            __syncthreads();  // waits until p has been read
            double* const free = after;
            after = now;
            now = free;
        }
    }
}

std::int64_t blocks_for(std::int64_t samples) { return samples < 65536 ? samples : 65536; }

}  // namespace

void ctc_loss(Cuda& on, ConstView log_probs, const CtcTargets& targets, View alphas, View losses) {
    const std::int64_t samples = log_probs.shape[1];
    if (samples == 0) return;
    visit_f32_f64(log_probs.dtype, [&]<class T>() {
        start(on, {{blocks_for(samples)}, kThreads}, &forward<T>, log_probs, targets,
              alphas.as<double>(), losses.as<double>());
    });
}

void ctc_loss_backward(Cuda& on, ConstView log_probs, const CtcTargets& targets, ConstView alphas,
                       ConstView losses, ConstView dlosses, bool zero_infinity, View d) {
    const std::int64_t samples = log_probs.shape[1], total = targets.labels.shape[0];
    if (samples == 0) return;
    DeviceScratch scratch(on);
    const BackwardTask task = {alphas.as<double>(),
                               losses.as<double>(),
                               dlosses.as<double>(),
                               zero_infinity,
                               scratch.take<double>(2 * alphas.shape[1]),
                               scratch.take<double>(alphas.shape[1]),
                               scratch.take<std::int64_t>(total + 1),
                               scratch.take<bool>(total + 1),
                               d.stride[0],
                               d.stride[1]};
    visit_f32_f64(log_probs.dtype, [&]<class T>() {
        start(on, {{blocks_for(samples)}, kThreads}, &backward<T>, log_probs, targets, task,
              d.as<T>());
    });
}

}  // namespace axle::kernels
