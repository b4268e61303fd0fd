// Batch norm and group norm. x is read once for the statistics, by a reduction
// (kernels/cuda/reduce/reduce.cuh), and a second time for the result y. The reduction sums, in f64,
// the differences between each element and the first element of its channel or group, and the
// squares of these differences. This is accurate if the first element is within about a thousand
// standard deviations of the mean.
#include <cmath>

#include "kernels/cuda/norm/channel_norm.cuh"

namespace axle::kernels {
namespace {

// A reduction that computes the mean and rstd of each result and updates the running statistics.
// The first element of a result is x[result * step].
template <class T>
struct Moments {
    using Lane = Compute<T>;
    using C = Lane;
    using Acc = PairOf<double>;
    static constexpr int kInputs = 1;
    const T* x;
    std::int64_t step;
    double n, eps;
    C *mean, *rstd;
    NormVector running_mean, running_var;
    double momentum;

    __device__ double centre(std::int64_t result) const {
        return static_cast<double>(static_cast<C>(x[result * step]));
    }
    __device__ Acc start() const { return {0, 0}; }
    template <int kCount>
    __device__ void take(Acc& acc, const C (&values)[kCount], const C (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t result) const {
        const double middle = centre(result);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const double d = static_cast<double>(values[i]) - middle;
            acc.a += d, acc.b += d * d;
        }
    }
    __device__ Acc join(const Acc& a, const Acc& b) const { return a + b; }
    __device__ void write(std::int64_t result, const Acc& acc) const {
        const double off = acc.a / n, squares = acc.b - acc.a * off;
        const double kept = squares < 0 ? 0 : squares;
        const double middle = centre(result) + off;
        mean[result] = static_cast<C>(middle);
        rstd[result] = static_cast<C>(1 / sqrt(kept / n + eps));
        move(running_mean, result, middle);
        move(running_var, result, kept / (n - 1));
    }
    __device__ void move(const NormVector& running, std::int64_t c, double newest) const {
        if (running.data == nullptr) return;
        const std::int64_t at = c * running.stride;
        const double before = load_as<double>(running.data, running.dtype, at);
        store_as(const_cast<void*>(running.data), running.dtype, at,
                 (1 - momentum) * before + momentum * newest);
    }
};

// Computes y = (x - mean) rstd weight + bias for each element.
template <class T>
struct Apply {
    using C = Compute<T>;
    Planes planes;
    const T* x;
    T* y;
    const C *mean, *rstd;
    NormVector weight, bias;

    template <int kN>
    __device__ void at(std::int64_t i, std::uint32_t plane) const {
        const std::int64_t channel = planes.channel(plane), k = planes.statistic(plane);
        const C centre = mean[k], scale = rstd[k] * channel_value(weight, channel, C(1));
        const C shift = channel_value(bias, channel, C(0));
        const Pack<T, kN> from = load_pack<T, kN>(x + i);
        Pack<T, kN> to;
#pragma unroll
        for (int j = 0; j < kN; ++j)
            to.at[j] = convert<T>((static_cast<C>(from.at[j]) - centre) * scale + shift);
        store_pack(y + i, to);
    }
};

// Returns y if it has the dtype of the computation, else scratch memory of that dtype.
View result_in(DeviceScratch& scratch, const View& y, DType dtype) {
    if (y.dtype == dtype) return y;
    return dense_like(y, scratch.take<char>(y.numel() * size_of(dtype)), dtype);
}

// Calls f<T>(x, y) with row-major views of one dtype T, and converts the result if y has another
// dtype.
template <class F>
void with_operands(Cuda& on, const ConstView& x, const View& y, F&& f) {
    DeviceScratch scratch(on);
    const DType dtype = norm_dtype({x, y});
    const ConstView from = as_contiguous(on, scratch, as_dtype(on, scratch, x, dtype));
    const View to = result_in(scratch, y, dtype);
    visit_float(dtype, [&]<class T>() { f.template operator()<T>(from, to); });
    if (y.dtype != dtype) copy(on, to, y);
}

template <class T>
void apply(Cuda& on, const ConstView& x, const View& y, std::int64_t groups, const void* mean,
           const void* rstd, const ConstView& weight, const ConstView& bias) {
    using C = Compute<T>;
    start_on_planes<T>(
        on,
        Apply<T>{Planes(x, groups), x.as<T>(), y.as<T>(), static_cast<const C*>(mean),
                 static_cast<const C*>(rstd), NormVector(weight), NormVector(bias)},
        packs<T>(x.data) && packs<T>(y.data));
}

}  // namespace

void batch_norm(Cuda& on, ConstView x, ConstView weight, ConstView bias, double eps, View y,
                View mean, View rstd, View running_mean, View running_var, double momentum) {
    with_operands(on, x, y, [&]<class T>(const ConstView& from, const View& to) {
        using C = Compute<T>;
        const Planes planes(from, 0);
        const View all =
            dense_view(from.data, from.dtype, {planes.batch, planes.channels, planes.size});
        const Moments<T> moments = {from.as<T>(),
                                    planes.size,
                                    static_cast<double>(planes.batch * planes.size),
                                    eps,
                                    mean.as<C>(),
                                    rstd.as<C>(),
                                    NormVector(running_mean),
                                    NormVector(running_var),
                                    momentum};
        reduce<T>(on, ReducePlan(all, dense_view(nullptr, all.dtype, {1, planes.channels, 1})),
                  moments, all);
        apply<T>(on, from, to, 0, mean.data, rstd.data, weight, bias);
    });
}

void batch_norm_apply(Cuda& on, ConstView x, ConstView mean, ConstView rstd, ConstView weight,
                      ConstView bias, View y) {
    if (x.numel() == 0) return;
    with_operands(on, x, y, [&]<class T>(const ConstView& from, const View& to) {
        apply<T>(on, from, to, 0, mean.data, rstd.data, weight, bias);
    });
}

void group_norm(Cuda& on, ConstView x, std::int64_t groups, ConstView weight, ConstView bias,
                double eps, View y, View mean, View rstd) {
    if (x.numel() == 0) return;
    with_operands(on, x, y, [&]<class T>(const ConstView& from, const View& to) {
        using C = Compute<T>;
        const std::int64_t count = from.shape[0] * groups, size = from.numel() / count;
        const View all = dense_view(from.data, from.dtype, {count, size});
        const Moments<T> moments = {from.as<T>(),
                                    size,
                                    static_cast<double>(size),
                                    eps,
                                    mean.as<C>(),
                                    rstd.as<C>(),
                                    NormVector({}),
                                    NormVector({}),
                                    0};
        reduce<T>(on, ReducePlan(all, dense_view(nullptr, all.dtype, {count, 1})), moments, all);
        apply<T>(on, from, to, groups, mean.data, rstd.data, weight, bias);
    });
}

}  // namespace axle::kernels
