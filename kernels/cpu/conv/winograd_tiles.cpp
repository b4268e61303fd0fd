// The transforms of Winograd's algorithm. Each lane of a pack is another tile, or another output
// channel for the weights.
#include "kernels/cpu/conv/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/winograd_tiles.cpp"
#include "kernels/cpu/targets.h"
//
#include <hwy/foreach_target.h>
//
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace axle::kernels::HWY_NAMESPACE {

using Vec = Pack::Vec;

// Computes the column [v0, v1, v2, v3] = G [g0, g1, g2].
HWY_INLINE void transform_taps(Vec g0, Vec g1, Vec g2, Vec& v0, Vec& v1, Vec& v2, Vec& v3) {
    const Vec half = hn::Set(FloatTag(), 0.5F);
    const Vec outer = hn::Mul(half, hn::Add(g0, g2)), inner = hn::Mul(half, g1);
    v0 = g0, v1 = hn::Add(outer, inner), v2 = hn::Sub(outer, inner), v3 = g2;
}

void transform_weights(const float* from, const std::int64_t* order, std::int64_t n,
                       std::int64_t rows, float* to, std::int64_t point_step) {
    for (std::int64_t c = 0; c < n; ++c, from += 9 * rows, to += rows)
        for (std::int64_t r = 0; r < rows; r += Pack::kLanes) {
            const std::int64_t count = rows - r < Pack::kLanes ? rows - r : Pack::kLanes;
            const auto tap = [&](int i, int j) HWY_ATTR {
                return Pack::load(from + order[3 * i + j] * rows + r, count).v;
            };
            Vec columns[4][3];
            for (int j = 0; j < 3; ++j)
                transform_taps(tap(0, j), tap(1, j), tap(2, j), columns[0][j], columns[1][j],
                               columns[2][j], columns[3][j]);
            for (int i = 0; i < 4; ++i) {
                Vec u[4];
                transform_taps(columns[i][0], columns[i][1], columns[i][2], u[0], u[1], u[2], u[3]);
                for (int j = 0; j < 4; ++j)
                    Pack(u[j]).store(to + (4 * i + j) * point_step + r, count);
            }
        }
}

void gather_tiles(const float* from, std::int64_t row_step, std::int64_t n, float* to,
                  std::int64_t to_step) {
    const FloatTag d;
    for (int i = 0; i < 4; ++i, from += row_step, to += 4 * to_step)
        for (std::int64_t t = 0; t < n; t += Pack::kLanes) {
            Vec even, odd;
            load_interleaved(d, from + 2 * t, even, odd);
            hn::StoreU(even, d, to + t);
            hn::StoreU(odd, d, to + to_step + t);
            load_interleaved(d, from + 2 * t + 2, even, odd);
            hn::StoreU(even, d, to + 2 * to_step + t);
            hn::StoreU(odd, d, to + 3 * to_step + t);
        }
}

// Stores v = B^T d B for one vector of tiles. Element (i, j) of d is at d[i row_step + j
// column_step], and the result at to[point point_step].
HWY_INLINE void transform_tile(const float* d, std::int64_t row_step, std::int64_t column_step,
                               float* to, std::int64_t point_step) {
    Vec rows[4][4];
    for (int j = 0; j < 4; ++j, d += column_step) {
        const Vec d0 = Pack::load(d).v, d1 = Pack::load(d + row_step).v;
        const Vec d2 = Pack::load(d + 2 * row_step).v, d3 = Pack::load(d + 3 * row_step).v;
        rows[0][j] = hn::Sub(d0, d2), rows[1][j] = hn::Add(d1, d2);
        rows[2][j] = hn::Sub(d2, d1), rows[3][j] = hn::Sub(d1, d3);
    }
    for (int i = 0; i < 4; ++i, to += 4 * point_step) {
        const Vec(&r)[4] = rows[i];
        Pack(hn::Sub(r[0], r[2])).store(to);
        Pack(hn::Add(r[1], r[2])).store(to + point_step);
        Pack(hn::Sub(r[2], r[1])).store(to + 2 * point_step);
        Pack(hn::Sub(r[1], r[3])).store(to + 3 * point_step);
    }
}

void transform_source(const float* d, std::int64_t step, std::int64_t n, float* to,
                      std::int64_t point_step, std::int64_t panel_step) {
    constexpr std::int64_t kWidth = 2 * Pack::kLanes;
    for (std::int64_t t = 0; t < n; t += Pack::kLanes)
        transform_tile(d + t, 4 * step, step, to + t / kWidth * panel_step + t % kWidth,
                       point_step);
}

void transform_sums(const float* sums, std::int64_t point_step, std::int64_t n, float bias,
                    float* lines, std::int64_t line_step) {
    const FloatTag d;
    const Vec added = hn::Set(d, bias);
    for (std::int64_t t = 0; t < n; t += Pack::kLanes) {
        Vec top[4], bottom[4];
        for (int j = 0; j < 4; ++j) {
            const float* const column = sums + j * point_step + t;
            const Vec m0 = Pack::load(column).v, m1 = Pack::load(column + 4 * point_step).v;
            const Vec m2 = Pack::load(column + 8 * point_step).v;
            const Vec m3 = Pack::load(column + 12 * point_step).v;
            top[j] = hn::Add(hn::Add(m0, m1), m2);
            bottom[j] = hn::Sub(hn::Sub(m1, m2), m3);
        }
        const auto store = [&](const Vec(&s)[4], float* line) HWY_ATTR {
            const Vec left = hn::Add(hn::Add(s[0], s[1]), s[2]);
            const Vec right = hn::Sub(hn::Sub(s[1], s[2]), s[3]);
            hn::StoreInterleaved2(hn::Add(left, added), hn::Add(right, added), d, line + 2 * t);
        };
        store(top, lines);
        store(bottom, lines + line_step);
    }
}

void transform_dy(const float* from, std::int64_t row_step, std::int64_t pixel_step, std::int64_t n,
                  std::int64_t rows, float* to, std::int64_t point_step) {
    const Vec zero = hn::Zero(FloatTag());
    for (std::int64_t t = 0; t < n; ++t, from += 2 * pixel_step, to += rows)
        for (std::int64_t r = 0; r < rows; r += Pack::kLanes) {
            Vec lines[4][2];
            for (int j = 0; j < 2; ++j) {
                const float* const pixel = from + j * pixel_step + r;
                const Vec above = Pack::load(pixel).v, below = Pack::load(pixel + row_step).v;
                lines[0][j] = above, lines[1][j] = hn::Add(above, below);
                lines[2][j] = hn::Sub(above, below), lines[3][j] = hn::Sub(zero, below);
            }
            for (int i = 0; i < 4; ++i) {
                const Vec left = lines[i][0], right = lines[i][1];
                float* const point = to + 4 * i * point_step + r;
                Pack(left).store(point);
                Pack(hn::Add(left, right)).store(point + point_step);
                Pack(hn::Sub(left, right)).store(point + 2 * point_step);
                Pack(hn::Sub(zero, right)).store(point + 3 * point_step);
            }
        }
}

void transform_x(const float* from, std::int64_t row_step, std::int64_t pixel_step, std::int64_t n,
                 float* to, std::int64_t point_step) {
    for (std::int64_t t = 0; t < n; ++t, from += 2 * pixel_step, to += 2 * Pack::kLanes)
        for (std::int64_t k = 0; k < 2 * Pack::kLanes; k += Pack::kLanes)
            transform_tile(from + k, row_step, pixel_step, to + k, point_step);
}

void transform_du(const float* sums, std::int64_t point_step, float* taps) {
    const Vec half = hn::Set(FloatTag(), 0.5F);
    // Computes [t0, t1, t2] = G^T [m0, m1, m2, m3].
    const auto reduce = [&](Vec m0, Vec m1, Vec m2, Vec m3, Vec& t0, Vec& t1, Vec& t2) HWY_ATTR {
        const Vec inner = hn::Mul(half, hn::Add(m1, m2));
        t0 = hn::Add(m0, inner), t1 = hn::Mul(half, hn::Sub(m1, m2)), t2 = hn::Add(inner, m3);
    };
    const auto point = [&](int i, int j)
                           HWY_ATTR { return Pack::load(sums + (4 * i + j) * point_step).v; };
    Vec columns[3][4];
    for (int j = 0; j < 4; ++j)
        reduce(point(0, j), point(1, j), point(2, j), point(3, j), columns[0][j], columns[1][j],
               columns[2][j]);
    for (int i = 0; i < 3; ++i, taps += 3 * Pack::kLanes) {
        const Vec(&c)[4] = columns[i];
        Vec t[3];
        reduce(c[0], c[1], c[2], c[3], t[0], t[1], t[2]);
        for (int j = 0; j < 3; ++j) Pack(t[j]).store(taps + j * Pack::kLanes);
    }
}

WinogradKernels winograd_f32() {
    return {&transform_weights, &gather_tiles, &transform_source, &transform_sums,
            &transform_dy,      &transform_x,  &transform_du};
}

}  // namespace axle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace axle::kernels {
namespace {
AXLE_DISPATCH(winograd_f32);
}  // namespace

const WinogradKernels& winograd_kernels() {
    static const WinogradKernels kernels = AXLE_CALL(winograd_f32)();
    return kernels;
}

}  // namespace axle::kernels

#endif  // HWY_ONCE
