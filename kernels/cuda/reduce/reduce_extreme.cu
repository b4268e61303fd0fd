// Largest and smallest elements and their positions. One kernel handles both maxima and minima: the
// choice of the comparison costs little compared with reading memory.
#include "kernels/cuda/reduce/reduce.cuh"
#include "kernels/ops/reduce.h"

namespace axle::kernels {
namespace {

template <class T>
using Lane = std::conditional_t<std::is_integral_v<T>, std::int64_t, Compute<T>>;

template <class L>
struct End {
    bool largest;

    // Returns whether b replaces a: b is more extreme, or b is the first NaN.
    __device__ bool beats(L b, L a) const {
        return (largest ? b > a : b < a) || (b != b && a == a);
    }
    // Returns the initial value. Every element replaces it or is equal to it.
    __device__ L far() const {
        using Limits = std::numeric_limits<L>;
        if constexpr (Limits::has_infinity)
            return largest ? -Limits::infinity() : Limits::infinity();
        return largest ? Limits::min() : Limits::max();
    }
};

template <class L_>
struct ExtremeReduction {
    using Lane = L_;
    using L = L_;
    using Acc = L;
    static constexpr int kInputs = 1;
    ReduceOutput out;
    End<L> end;

    __device__ Acc start() const { return end.far(); }
    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t,
                         std::int64_t, std::int64_t) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) acc = join(acc, x[i]);
    }
    __device__ Acc join(Acc a, Acc b) const { return end.beats(b, a) ? b : a; }
    __device__ void write(std::int64_t result, Acc acc) const { out(result, acc); }
};

template <class L>
struct Found {
    L value;
    std::int64_t index;
};

template <class L_>
struct ArgExtremeReduction {
    using Lane = L_;
    using L = L_;
    using Acc = Found<L>;
    static constexpr int kInputs = 1;
    static constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();
    ReduceOutput out;
    End<L> end;

    __device__ Acc start() const { return {end.far(), kNowhere}; }
    template <int kCount>
    __device__ void take(Acc& acc, const L (&x)[kCount], const L (&)[kCount], std::int64_t position,
                         std::int64_t step, std::int64_t) const {
        // A thread visits positions in ascending order, so among equal elements it keeps the first
        // one. The initial value has no position and must be replaced.
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            if (end.beats(x[i], acc.value) || acc.index == kNowhere)
                acc = {x[i], position + i * step};
    }
    __device__ Acc join(const Acc& a, const Acc& b) const {
        if (end.beats(b.value, a.value)) return b;
        if (end.beats(a.value, b.value)) return a;
        return a.index < b.index ? a : b;
    }
    __device__ void write(std::int64_t result, const Acc& acc) const { out(result, acc.index); }
};

template <template <class> class Reduction>
void run(Cuda& on, const ConstView& x, const View& y, bool largest) {
    const ReducePlan plan(x, y);
    visit_lanes<true>(x.dtype, [&]<class T>() {
        reduce<T>(on, plan, Reduction<Lane<T>>{ReduceOutput(plan, y), {largest}}, x);
    });
}

}  // namespace

void max(Cuda& on, ConstView x, View y) { run<ExtremeReduction>(on, x, y, true); }
void min(Cuda& on, ConstView x, View y) { run<ExtremeReduction>(on, x, y, false); }
void argmax(Cuda& on, ConstView x, View y) { run<ArgExtremeReduction>(on, x, y, true); }
void argmin(Cuda& on, ConstView x, View y) { run<ArgExtremeReduction>(on, x, y, false); }

}  // namespace axle::kernels
