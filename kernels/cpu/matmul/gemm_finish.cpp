// The last step of a matrix product. While a tile of sums is still in L1, bias and activation are
// applied, and the results (and, if requested, the values before the activation) are written. This
// avoids additional passes over c. The multiplication by slopes is a later pass over c, because
// slopes are read faster in long rows than in the short rows of a tile.
#include "kernels/cpu/matmul/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/gemm_finish.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <type_traits>

#include <hwy/cache_control.h>

#include "kernels/cpu/pointwise/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

// Store a pack, or its first n lanes.
HWY_INLINE void store_result(Pack x, float* to) { x.store(to); }
HWY_INLINE void store_result(Pack x, BFloat16* to) { store_bf16(x, to); }
HWY_INLINE void store_result(Pack x, float* to, std::int64_t n) { x.store(to, n); }
HWY_INLINE void store_result(Pack x, BFloat16* to, std::int64_t n) {
    BFloat16 lanes[Pack::kLanes];
    store_bf16(x, lanes);
    std::copy_n(lanes, n, to);
}

// The argument g of finish_rows() if there is no output `pre`.
struct NoOutput {};

// Finishes the tile and stores f(v) in `out` and g(v) in `pre`. f and g may share computations.
template <class F, class G, class Out>
HWY_INLINE void finish_rows(F f, G g, const float* tile, std::int64_t tile_step, std::int64_t rows,
                            std::int64_t columns, const TileFinish<float>& how, Out* out,
                            Out* pre) {
    constexpr bool kHasPre = !std::is_same_v<G, NoOutput>;
    for (std::int64_t i = 0; i < rows; ++i, out += how.out_step) {
        const float* sum = tile + i * tile_step;
        const float* add = how.add == nullptr ? nullptr : how.add + i * how.add_step;
        for (std::int64_t j = 0; j < columns; j += Pack::kLanes) {
            const std::int64_t n = columns - j < Pack::kLanes ? columns - j : Pack::kLanes;
            if (n == Pack::kLanes) {
                Pack v = Pack::load(sum + j);
                if (add != nullptr) v = v + Pack::load(add + j);
                if (how.bias != nullptr) v = v + Pack::load(how.bias + j);
                if constexpr (kHasPre) store_result(g(v), pre + j);
                store_result(f(v), out + j);
            } else {
                Pack v = Pack::load(sum + j, n);
                if (add != nullptr) v = v + Pack::load(add + j, n);
                if (how.bias != nullptr) v = v + Pack::load(how.bias + j, n);
                if constexpr (kHasPre) store_result(g(v), pre + j, n);
                store_result(f(v), out + j, n);
            }
        }
        if constexpr (kHasPre) pre += how.pre_step;
    }
}

template <class Out>
void finish(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
            const TileFinish<float>& how, Out* out, Out* pre) {
    const auto run = [&](auto f, auto g) HWY_ATTR {
        finish_rows(f, g, tile, tile_step, rows, columns, how, out, pre);
    };
    const auto same = [](Pack x) HWY_ATTR { return x; };
    if (how.activation == Activation::none)
        return pre == nullptr ? run(same, NoOutput{}) : run(same, same);
    formula::visit_activation(how.activation, [&](auto f) HWY_ATTR {
        const auto value = [f](Pack x) HWY_ATTR { return f.value(x); };
        const auto slope = [f](Pack x) HWY_ATTR { return f.slope(x); };
        if (pre == nullptr)
            run(value, NoOutput{});
        else if (how.stores_slopes)
            run(value, slope);
        else
            run(value, same);
    });
}

void finish_f32(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                const TileFinish<float>& how) {
    if (how.out_bf16 == nullptr)
        finish(tile, tile_step, rows, columns, how, how.out, how.pre);
    else
        finish(tile, tile_step, rows, columns, how, how.out_bf16, how.pre_bf16);
}

void stream_f32(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                float* out, std::int64_t out_step) {
    const FloatTag d;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; j += Pack::kLanes)
            hn::Stream(hn::Load(d, tile + i * tile_step + j), d, out + i * out_step + j);
}

// Computes out[i] = x[i] f(at[i]).
template <class F>
HWY_INLINE void product_span(F f, const float* x, const float* at, float* out, std::int64_t n) {
    std::int64_t i = 0;
    // The rows are short, so elements are prefetched less far ahead than in long passes.
    constexpr std::int64_t kAhead = 256;
    for (; i + Pack::kLanes <= n; i += Pack::kLanes) {
        hwy::Prefetch(at + i + kAhead);
        (Pack::load(x + i) * f(Pack::load(at + i))).store(out + i);
    }
    if (i < n) (Pack::load(x + i, n - i) * f(Pack::load(at + i, n - i))).store(out + i, n - i);
}

// Computes out[i] = x[i] activation'(at[i]), or x[i] at[i] without an activation.
void slopes_f32(Activation activation, const float* x, const float* at, float* out,
                std::int64_t n) {
    if (activation == Activation::none)
        return product_span([](Pack v) HWY_ATTR { return v; }, x, at, out, n);
    formula::visit_activation(activation, [&](auto f) HWY_ATTR {
        product_span([f](Pack v) HWY_ATTR { return f.slope(v); }, x, at, out, n);
    });
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "kernels/cpu/lanes.h"
#include "kernels/ops/pointwise.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

AXLE_DISPATCH(finish_f32);
AXLE_DISPATCH(slopes_f32);
AXLE_DISPATCH(stream_f32);

double activate(double x, Activation activation) {
    if (activation == Activation::none) return x;
    return formula::visit_activation(activation, [x](auto f) { return f.value(x); });
}

// Returns activation'(x), or x without an activation.
double slope_or_self(Activation activation, double x) {
    if (activation == Activation::none) return x;
    return formula::visit_activation(activation, [x](auto f) { return f.slope(x); });
}

void slopes(Activation activation, const float* x, const float* v, float* out, std::int64_t n) {
    AXLE_CALL(slopes_f32)(activation, x, v, out, n);
}
void slopes(Activation activation, const double* x, const double* v, double* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * slope_or_self(activation, v[i]);
}

template <class T>
void multiply_row(Activation activation, DType dtype, void* c, std::int64_t c_stride,
                  const void* slope_of, std::int64_t slope_stride, std::int64_t n) {
    alignas(64) T c_lanes[kBlock];
    alignas(64) T slope_lanes[kBlock];
    for (std::int64_t i = 0; i < n; i += kBlock) {
        const std::int64_t count = std::min(kBlock, n - i);
        void* const to = at(c, dtype, i * c_stride);
        const T* x = load_lanes<T>(to, dtype, c_stride, count, c_lanes);
        const T* v = load_lanes<T>(at(slope_of, dtype, i * slope_stride), dtype, slope_stride,
                                   count, slope_lanes);
        T* const out = const_cast<T*>(x);  // c itself, or the buffer
        slopes(activation, x, v, out, count);
        store_lanes<T>(out, to, dtype, c_stride, count);
    }
}

}  // namespace

void multiply_slopes(const MatmulEpilogue& epilogue, DType dtype, void* c, std::int64_t c_stride,
                     const void* slope_of, std::int64_t slope_stride, std::int64_t n) {
    if (epilogue.activation == Activation::none) return;
    const auto row = dtype == DType::f64 ? multiply_row<double> : multiply_row<float>;
    row(epilogue.stores_slopes ? Activation::none : epilogue.activation, dtype, c, c_stride,
        slope_of, slope_stride, n);
}

void stream_tile(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 float* out, std::int64_t out_step) {
    AXLE_CALL(stream_f32)(tile, tile_step, rows, columns, out, out_step);
}

template <>
void finish_tile(const float* tile, std::int64_t tile_step, std::int64_t rows, std::int64_t columns,
                 const TileFinish<float>& how) {
    AXLE_CALL(finish_f32)(tile, tile_step, rows, columns, how);
}

template <>
void finish_tile(const double* tile, std::int64_t tile_step, std::int64_t rows,
                 std::int64_t columns, const TileFinish<double>& how) {
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            double v = tile[i * tile_step + j];
            if (how.add != nullptr) v += how.add[i * how.add_step + j];
            if (how.bias != nullptr) v += how.bias[j];
            if (how.pre != nullptr)
                how.pre[i * how.pre_step + j] =
                    how.stores_slopes ? slope_or_self(how.activation, v) : v;
            how.out[i * how.out_step + j] = activate(v, how.activation);
        }
    }
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
