// The backward pass of batch norm and group norm. dy and x are read once for the sums of dy and of
// dy (x - mean), per channel or per sample and channel. A small kernel computes the coefficients b
// and c from these sums. Then dy and x are read a second time to compute dx = a dy + b (x - mean) +
// c, where a = rstd weight.
#include "kernels/cuda/norm/channel_norm.cuh"

namespace axle::kernels {
namespace {

// Computes the sums {sum(dy), sum(dy (x - mean))} of each plane (for batch norm, of each channel).
template <class T>
struct Sums {
    using Lane = Compute<T>;
    using C = Lane;
    using Acc = PairOf<double>;
    static constexpr int kInputs = 2;
    Planes planes;
    const C* mean;
    Acc* sums;

    __device__ Acc start() const { return {0, 0}; }
    template <int kCount>
    __device__ void take(Acc& acc, const C (&dy)[kCount], const C (&x)[kCount], std::int64_t,
                         std::int64_t, std::int64_t result) const {
        const C middle = mean[planes.statistic(static_cast<std::uint32_t>(result))];
        C sum = 0, product = 0;
#pragma unroll
        for (int i = 0; i < kCount; ++i) sum += dy[i], product += dy[i] * (x[i] - middle);
        acc.a += static_cast<double>(sum), acc.b += static_cast<double>(product);
    }
    __device__ Acc join(const Acc& a, const Acc& b) const { return a + b; }
    __device__ void write(std::int64_t result, const Acc& acc) const { sums[result] = acc; }
};

// The coefficients b and c of dx, which are computed from the sums of one group or channel.
template <class C>
struct Coefficients {
    C b, c;
};

// Computes the coefficients with one thread per channel (batch norm) or group. A group has `width`
// consecutive sums.
template <class C>
__global__ void find_coefficients(std::int64_t count, std::int64_t width, std::int64_t channels,
                                  double elements, const PairOf<double>* sums, const C* rstd,
                                  NormVector weight, Coefficients<C>* out) {
    const std::int64_t k = thread_in_grid();
    if (k >= count) return;
    double mean_g = 0, mean_gd = 0;
    for (std::int64_t i = k * width; i < (k + 1) * width; ++i) {
        const auto w = static_cast<double>(channel_value(weight, i % channels, C(1)));
        mean_g += w * sums[i].a, mean_gd += w * sums[i].b;
    }
    const auto r = static_cast<double>(rstd[k]);
    out[k] = {static_cast<C>(-r * r * r * mean_gd / elements),
              static_cast<C>(-r * mean_g / elements)};
}

// Computes dweight and dbias with one thread per channel, which adds the sums of all samples. In
// batch norm, each channel has a single sum.
template <class C>
__global__ void find_gradients(std::int64_t samples, Planes planes, const PairOf<double>* sums,
                               const C* rstd, C* dweight, C* dbias) {
    const std::int64_t channel = thread_in_grid();
    if (channel >= planes.channels) return;
    double of_weight = 0, of_bias = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
        const std::int64_t plane = n * planes.channels + channel;
        const C r = rstd[planes.statistic(static_cast<std::uint32_t>(plane))];
        of_weight += sums[plane].b * static_cast<double>(r);
        of_bias += sums[plane].a;
    }
    if (dweight != nullptr) dweight[channel] = static_cast<C>(of_weight);
    if (dbias != nullptr) dbias[channel] = static_cast<C>(of_bias);
}

// Computes dx = a dy + b (x - mean) + c with a = rstd weight for each element.
template <class T>
struct Gradient {
    using C = Compute<T>;
    Planes planes;
    const T *dy, *x;
    T* dx;
    const C *mean, *rstd;
    NormVector weight;
    const Coefficients<C>* coefficients;  // if null, b and c are 0

    template <int kN>
    __device__ void at(std::int64_t i, std::uint32_t plane) const {
        const std::int64_t k = planes.statistic(plane);
        const C a = rstd[k] * channel_value(weight, planes.channel(plane), C(1));
        const Pack<T, kN> of_dy = load_pack<T, kN>(dy + i);
        Pack<T, kN> to;
        if (coefficients == nullptr) {
#pragma unroll
            for (int j = 0; j < kN; ++j) to.at[j] = convert<T>(a * static_cast<C>(of_dy.at[j]));
        } else {
            const C centre = mean[k], b = coefficients[k].b, c = coefficients[k].c;
            const Pack<T, kN> of_x = load_pack<T, kN>(x + i);
#pragma unroll
            for (int j = 0; j < kN; ++j)
                to.at[j] = convert<T>(a * static_cast<C>(of_dy.at[j]) +
                                      (b * (static_cast<C>(of_x.at[j]) - centre) + c));
        }
        store_pack(dx + i, to);
    }
};

// Runs the backward pass. `groups` is 0 for batch norm.
template <class T>
void run(Cuda& on, const ConstView& dy, const ConstView& x, std::int64_t groups,
         const ConstView& weight, const void* mean_data, const void* rstd_data,
         bool batch_statistics, const View& dx, const View& dweight, const View& dbias) {
    using C = Compute<T>;
    constexpr int kThreads = 128;
    const auto blocks = [](std::int64_t n) { return (n + kThreads - 1) / kThreads; };
    const Planes planes(x, groups);
    const bool batch = groups == 0;
    const C* const mean = static_cast<const C*>(mean_data);
    const C* const rstd = static_cast<const C*>(rstd_data);
    DeviceScratch scratch(on);
    PairOf<double>* sums = nullptr;
    if (batch_statistics || dweight.data != nullptr || dbias.data != nullptr) {
        sums = scratch.take<PairOf<double>>(batch ? planes.channels : planes.count());
        const View all = dense_view(x.data, x.dtype, {planes.batch, planes.channels, planes.size});
        const View kept =
            dense_view(nullptr, x.dtype, {batch ? 1 : planes.batch, planes.channels, 1});
        reduce<T>(on, ReducePlan(all, kept), Sums<T>{planes, mean, sums},
                  dense_like(all, const_cast<void*>(dy.data), dy.dtype), all);
    }
    if (dweight.data != nullptr || dbias.data != nullptr)
        start(on, {{blocks(planes.channels)}, kThreads}, &find_gradients<C>,
              batch ? 1 : planes.batch, planes, static_cast<const PairOf<double>*>(sums), rstd,
              dweight.as<C>(), dbias.as<C>());
    if (dx.data == nullptr) return;
    Coefficients<C>* coefficients = nullptr;
    if (batch_statistics) {
        const std::int64_t count = batch ? planes.channels : planes.batch * groups;
        coefficients = scratch.take<Coefficients<C>>(count);
        start(on, {{blocks(count)}, kThreads}, &find_coefficients<C>, count,
              batch ? 1 : planes.width, planes.channels,
              static_cast<double>(x.numel()) / static_cast<double>(count),
              static_cast<const PairOf<double>*>(sums), rstd, NormVector(weight), coefficients);
    }
    start_on_planes<T>(on,
                       Gradient<T>{planes, dy.as<T>(), x.as<T>(), dx.as<T>(), mean, rstd,
                                   NormVector(weight), coefficients},
                       packs<T>(dy.data) && packs<T>(x.data) && packs<T>(dx.data));
}

void backward(Cuda& on, const ConstView& dy, const ConstView& x, std::int64_t groups,
              const ConstView& weight, const ConstView& mean, const ConstView& rstd,
              bool batch_statistics, const View& dx, const View& dweight, const View& dbias) {
    if (x.numel() == 0) {
        for (const View& v : {dweight, dbias})
            if (v.data != nullptr && v.numel() > 0) fill(on, 0.0, v);
        return;
    }
    DeviceScratch scratch(on);
    const DType dtype = norm_dtype({x, dy, dx});
    const ConstView from_x = as_contiguous(on, scratch, as_dtype(on, scratch, x, dtype));
    const ConstView from_dy = as_contiguous(on, scratch, as_dtype(on, scratch, dy, dtype));
    View to = dx;
    if (dx.data != nullptr && dx.dtype != dtype)
        to = dense_like(dx, scratch.take<char>(dx.numel() * size_of(dtype)), dtype);
    visit_float(dtype, [&]<class T>() {
        run<T>(on, from_dy, from_x, groups, weight, mean.data, rstd.data, batch_statistics, to,
               dweight, dbias);
    });
    if (dx.data != nullptr && dx.dtype != dtype) copy(on, to, dx);
}

}  // namespace

void batch_norm_backward(Cuda& on, ConstView dy, ConstView x, ConstView weight, ConstView mean,
                         ConstView rstd, bool batch_statistics, View dx, View dweight, View dbias) {
    backward(on, dy, x, 0, weight, mean, rstd, batch_statistics, dx, dweight, dbias);
}

void group_norm_backward(Cuda& on, ConstView dy, ConstView x, std::int64_t groups, ConstView weight,
                         ConstView mean, ConstView rstd, View dx, View dweight, View dbias) {
    backward(on, dy, x, groups, weight, mean, rstd, true, dx, dweight, dbias);
}

}  // namespace axle::kernels
