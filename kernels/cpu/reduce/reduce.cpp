// Reductions. A plan sorts the dimensions into kept and reduced ones and merges them. There are two
// walks, and both read x once:
//
//     rows     computes one result at a time; its elements are runs of the innermost reduced
//              dimension
//     columns  computes up to 512 adjacent results together; their totals stay in L1 while x is
//              added to them, eight rows at a time
//
// The walk over rows is usually used if the innermost reduced dimension is contiguous. The walk
// over columns is used if a kept dimension is contiguous (ReducePlan::by_columns()). Elements with
// any other stride or type are gathered in blocks that stay in L1. If there are few results, the
// reduced elements are split as well; partial results are stored in scratch memory and combined in
// order.
//
// f32 sums are computed in SIMD lanes over 2048 elements (rows) or eight (columns); totals are f64.
#include "kernels/ops/reduce.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/cpu/reduce/reduce_spans.h"
#include "kernels/cpu/reduce/reduce_walk.h"

namespace axle::kernels {
namespace {

template <class L>
struct Sum {
    using Lane = L;
    static constexpr bool kFolds = true;
    // Unsigned numbers wrap around on overflow.
    using Acc = std::conditional_t<std::is_floating_point_v<L>, double, std::uint64_t>;
    using Result = std::conditional_t<std::is_floating_point_v<L>, double, std::int64_t>;
    Acc divisor = 1;

    Acc start() const { return 0; }
    void row(const L* x, std::int64_t n, std::int64_t, std::int64_t, Acc& total) const {
        if constexpr (std::is_floating_point_v<L>)
            total += sum_span(x, n);
        else
            for (std::int64_t i = 0; i < n; ++i) total += static_cast<Acc>(x[i]);
    }
    void columns(const L* const* rows, int count, std::int64_t width, std::int64_t, std::int64_t,
                 Acc* total) const {
        if constexpr (std::is_same_v<L, float>) {
            sum_columns(rows, count, width, total);
        } else {
            for (int r = 0; r < count; ++r)
                for (std::int64_t c = 0; c < width; ++c) total[c] += static_cast<Acc>(rows[r][c]);
        }
    }
    Acc join(Acc a, Acc b) const { return a + b; }
    Result finish(Acc a) const { return static_cast<Result>(divisor == 1 ? a : a / divisor); }
};

// Combines elements with several independent accumulators, which hide the latency of an operation.
// Op::next(accumulator, element) combines an accumulator with an element, and Op::join(a, b)
// combines two accumulators.
template <class Op, class L>
struct Chains {
    using Lane = L;
    static constexpr bool kFolds = true;
    // Unsigned numbers wrap around on overflow.
    using Acc = std::conditional_t<std::is_floating_point_v<L>, double, std::uint64_t>;
    using Result = std::conditional_t<std::is_floating_point_v<L>, double, std::int64_t>;

    Acc start() const { return Op::kIdentity; }
    void row(const L* x, std::int64_t n, std::int64_t, std::int64_t, Acc& total) const {
        constexpr int kChains = 8;
        Acc chains[kChains];
        std::fill_n(chains, kChains, start());
        std::int64_t i = 0;
        for (; i + kChains <= n; i += kChains)
            for (int k = 0; k < kChains; ++k)
                chains[k] = Op::next(chains[k], static_cast<Acc>(x[i + k]));
        for (; i < n; ++i) chains[0] = Op::next(chains[0], static_cast<Acc>(x[i]));
        for (const Acc chain : chains) total = Op::join(total, chain);
    }
    void columns(const L* const* rows, int count, std::int64_t width, std::int64_t, std::int64_t,
                 Acc* total) const {
        for (int r = 0; r < count; ++r)
            for (std::int64_t c = 0; c < width; ++c)
                total[c] = Op::next(total[c], static_cast<Acc>(rows[r][c]));
    }
    Acc join(Acc a, Acc b) const { return Op::join(a, b); }
    Result finish(Acc a) const { return static_cast<Result>(a); }
};
struct Times {
    static constexpr int kIdentity = 1;
    template <class T>
    static T next(T a, T x) {
        return a * x;
    }
    template <class T>
    static T join(T a, T b) {
        return a * b;
    }
};
struct PlusUnlessNan {
    static constexpr int kIdentity = 0;
    static double next(double a, double x) { return a + (x == x ? x : 0.0); }
    static double join(double a, double b) { return a + b; }
};

// Sums the squared deviations of elements from centre[result].
template <class L>
struct Square {
    using Lane = L;
    static constexpr bool kFolds = false;
    using Acc = double;
    const L* centre;
    double divisor;

    Acc start() const { return 0; }
    void row(const L* x, std::int64_t n, std::int64_t, std::int64_t result, Acc& total) const {
        total += square_span(x, centre[result], n);
    }
    void columns(const L* const* rows, int count, std::int64_t width, std::int64_t,
                 std::int64_t result, Acc* total) const {
        const L* c = centre + result;
        if constexpr (std::is_same_v<L, float>) {
            square_columns(rows, count, width, c, total);
        } else {
            for (int r = 0; r < count; ++r)
                for (std::int64_t k = 0; k < width; ++k)
                    total[k] += (rows[r][k] - c[k]) * (rows[r][k] - c[k]);
        }
    }
    Acc join(Acc a, Acc b) const { return a + b; }
    Acc finish(Acc a) const { return a / divisor; }
};

// Returns whether b replaces a: b is more extreme, or b is the first NaN.
template <bool kMax, class L>
bool beats(L b, L a) {
    if (kMax ? b > a : b < a) return true;
    return b != b && a == a;
}

// Returns the initial value: the lowest value of L if kMax is true, else the highest value.
template <bool kMax, class L>
constexpr L initial_extreme() {
    using Limits = std::numeric_limits<L>;
    if constexpr (Limits::has_infinity) return kMax ? -Limits::infinity() : Limits::infinity();
    return kMax ? Limits::min() : Limits::max();
}

template <class L, bool kMax>
struct Extreme {
    using Lane = L;
    static constexpr bool kFolds = true;
    using Acc = L;

    Acc start() const { return initial_extreme<kMax, L>(); }
    void row(const L* x, std::int64_t n, std::int64_t, std::int64_t, Acc& total) const {
        total = join(total, of(x, n));
    }
    void columns(const L* const* rows, int count, std::int64_t width, std::int64_t, std::int64_t,
                 Acc* total) const {
        if constexpr (std::is_same_v<L, float>) {
            if (kMax)
                max_columns(rows, count, width, total);
            else
                min_columns(rows, count, width, total);
        } else {
            for (int r = 0; r < count; ++r)
                for (std::int64_t c = 0; c < width; ++c) total[c] = join(total[c], rows[r][c]);
        }
    }
    Acc join(Acc a, Acc b) const { return beats<kMax>(b, a) ? b : a; }
    Acc finish(Acc a) const { return a; }

    // Returns the largest or smallest of n > 0 elements, or NaN if one of them is NaN.
    static L of(const L* x, std::int64_t n) {
        if constexpr (std::is_same_v<L, float>) return kMax ? max_block(x, n) : min_block(x, n);
        L best = x[0];
        for (std::int64_t i = 1; i < n; ++i) best = beats<kMax>(x[i], best) ? x[i] : best;
        return best;
    }
};

template <class L, bool kMax>
struct ArgExtreme {
    using Lane = L;
    static constexpr bool kFolds = false;
    struct Acc {
        L value;
        std::int64_t index;  // -1 before the first element
    };

    Acc start() const { return {L(0), -1}; }
    // Computes the extreme value of each block first. A block is searched for the position only if
    // this value replaces the total.
    void row(const L* x, std::int64_t n, std::int64_t position, std::int64_t, Acc& total) const {
        for (std::int64_t i = 0; i < n; i += kBlock) {
            const std::int64_t length = std::min(kBlock, n - i);
            const L best = Extreme<L, kMax>::of(x + i, length);
            if (total.index >= 0 && !beats<kMax>(best, total.value)) continue;
            std::int64_t k = i;
            while (x[k] != best && !(x[k] != x[k] && best != best)) ++k;
            total = {best, position + k};
        }
    }
    void columns(const L* const* rows, int count, std::int64_t width, std::int64_t position,
                 std::int64_t, Acc* total) const {
        for (int r = 0; r < count; ++r)
            for (std::int64_t c = 0; c < width; ++c)
                total[c] = join(total[c], {rows[r][c], position + r});
    }
    Acc join(Acc a, Acc b) const { return a.index < 0 || beats<kMax>(b.value, a.value) ? b : a; }
    std::int64_t finish(Acc a) const { return a.index; }
};

template <class F>
void visit_lane(DType dtype, F&& f) {
    if (!is_floating(dtype)) return f.template operator()<std::int64_t>();
    visit_f32_f64(lane_dtype(dtype), f);
}

template <bool kMax>
void extreme(Cpu& on, const ConstView& x, const View& y) {
    const ReducePlan plan(x, y);
    visit_lane(x.dtype, [&]<class L>() {
        reduce(on, plan, Extreme<L, kMax>(), x, ToView{plan, y});
    });
}

template <bool kMax>
void arg_extreme(Cpu& on, const ConstView& x, const View& y) {
    const ReducePlan plan(x, y);
    visit_lane(x.dtype, [&]<class L>() {
        reduce(on, plan, ArgExtreme<L, kMax>(), x, ToView{plan, y});
    });
}

}  // namespace

void sum(Cpu& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_lane(x.dtype, [&]<class L>() { reduce(on, plan, Sum<L>(), x, ToView{plan, y}); });
}

void prod(Cpu& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_lane(x.dtype, [&]<class L>() {
        reduce(on, plan, Chains<Times, L>(), x, ToView{plan, y});
    });
}

void nansum(Cpu& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() {
        reduce(on, plan, Chains<PlusUnlessNan, L>(), x, ToView{plan, y});
    });
}

void mean(Cpu& on, ConstView x, View y) {
    const ReducePlan plan(x, y);
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() {
        reduce(on, plan, Sum<L>{static_cast<double>(plan.n)}, x, ToView{plan, y});
    });
}

void max(Cpu& on, ConstView x, View y) { extreme<true>(on, x, y); }
void min(Cpu& on, ConstView x, View y) { extreme<false>(on, x, y); }
void argmax(Cpu& on, ConstView x, View y) { arg_extreme<true>(on, x, y); }
void argmin(Cpu& on, ConstView x, View y) { arg_extreme<false>(on, x, y); }

void var(Cpu& on, ConstView x, double correction, View y) {
    const ReducePlan plan(x, y);
    const auto n = static_cast<double>(plan.n);
    visit_f32_f64(lane_dtype(x.dtype), [&]<class L>() {
        Scratch scratch(on);
        L* mean = scratch.take<L>(plan.outputs);
        reduce(on, plan, Sum<L>{n}, x, ToArray<L>{mean});
        reduce(on, plan, Square<L>{mean, std::max(0.0, n - correction)}, x, ToView{plan, y});
    });
}

}  // namespace axle::kernels
