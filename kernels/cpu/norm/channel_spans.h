// The arithmetic of batch norm and group norm on contiguous memory. The header has SIMD functions
// for the instruction set of this CPU, and helpers of both kernels. Layer norm also uses these
// functions for the sums of its rows.
//
// The functions for planes process `count` consecutive spans of `length` elements, with one
// coefficient per plane. The functions for rows have one coefficient per element; they are used for
// planes so small that a row of many planes is one span.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/reduce/reduce_spans.h"
#include "kernels/dtype.h"
#include "kernels/exec.h"
#include "kernels/view.h"
#include "kernels/walk.h"

namespace axle::kernels {

// The operands of y = (x - centre) scale + shift. y can be the same memory as x.
template <class L>
struct AffineSpan {
    const L *x, *centre, *scale, *shift;
    L* y;
};
void affine_planes(const AffineSpan<float>& span, std::int64_t count, std::int64_t length);
void affine_planes(const AffineSpan<double>& span, std::int64_t count, std::int64_t length);
void affine_row(const AffineSpan<float>& span, std::int64_t n);

// Adds the sum of g to `sum` and the sum of g (x - centre) to `product` for each plane. g is dy, or
// x - centre if dy is null. The elements of a plane are summed in the type of x.
void span_sums_planes(const float* dy, const float* x, const float* centre, std::int64_t count,
                      std::int64_t length, double* sum, double* product);
void span_sums_planes(const double* dy, const double* x, const double* centre, std::int64_t count,
                      std::int64_t length, double* sum, double* product);
// Adds the same sums as span_sums_planes() for each of n columns to sum[column] and
// product[column]. Each column has one element in each of `rows` <= 8 rows.
void span_sums_rows(const float* const* dy, const float* const* x, int rows, const float* centre,
                    std::int64_t n, float* sum, float* product);

// The operands of dx = a dy + b (x - centre) + c. dx can be the same memory as dy or x.
template <class L>
struct GradientSpan {
    const L *dy, *x, *centre, *a, *b, *c;
    L* dx;
};
void gradient_planes(const GradientSpan<float>& span, std::int64_t count, std::int64_t length);
void gradient_planes(const GradientSpan<double>& span, std::int64_t count, std::int64_t length);
void gradient_row(const GradientSpan<float>& span, std::int64_t n);

// The number of elements processed together while they are in L1. Longer planes are split.
inline constexpr std::int64_t kPiece = 2048;
inline constexpr std::int64_t kGrain = std::int64_t{1} << 15;  // target of elements per task

// The count, mean and sum of squared deviations of some numbers. The moments of two lists of
// numbers can be merged without cancellation (Chan, Golub and LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979).
struct Moments {
    double count = 0, mean = 0, squares = 0;

    void add(const Moments& other) {
        if (other.count == 0) return;
        const double total = count + other.count, distance = other.mean - mean;
        mean += distance * (other.count / total);
        squares += other.squares + distance * distance * (count * other.count / total);
        count = total;
    }
    // Adds n elements. `sum` is the sum of their deviations from centre, and `square` is the sum of
    // the squares of these deviations. The result is accurate if centre is within a few standard
    // deviations of the elements' mean. It is also accurate if centre is the mean of all previous
    // elements. The distance between the two means then contributes to the standard deviation of
    // all elements.
    void add_deviations(double n, double centre, double sum, double square) {
        add({n, centre + sum / n, std::max(square - sum * sum / n, 0.0)});
    }
    double variance() const { return squares / count; }
};
// Adds a plane of at most kPiece elements to each of `count` moments.
template <class L>
void add_planes(const L* x, std::int64_t count, std::int64_t length, Moments* moments) {
    constexpr std::int64_t kTogether = 32;
    const auto n = static_cast<double>(length);
    for (std::int64_t p = 0; p < count; p += kTogether, moments += kTogether) {
        const std::int64_t planes = std::min(kTogether, count - p);
        L centre[kTogether];
        double sum[kTogether] = {}, square[kTogether] = {};
        for (std::int64_t k = 0; k < planes; ++k)
            centre[k] =
                static_cast<L>(moments[k].count > 0 ? moments[k].mean
                                                    : sum_span(x + (p + k) * length, length) / n);
        span_sums_planes(static_cast<const L*>(nullptr), x + p * length, centre, planes, length,
                         sum, square);
        for (std::int64_t k = 0; k < planes; ++k)
            moments[k].add_deviations(n, static_cast<double>(centre[k]), sum[k], square[k]);
    }
}

// A tensor [N, C, S] in row-major memory.
struct DensePlanes {
    const void* data = nullptr;
    DType dtype = DType::f32;

    // Returns n elements that start at `offset` as lanes. Uses `buffer` unless the type of the
    // elements is L.
    template <class L>
    const L* load(std::int64_t offset, std::int64_t n, L* buffer) const {
        return load_lanes<L>(at(data, dtype, offset), dtype, 1, n, buffer);
    }
};
// Returns x, or a copy in scratch memory if x is not row-major.
DensePlanes planes_of(Cpu& on, Scratch& scratch, const ConstView& x);

// A span of the result y. Callers compute into lanes(); store() converts the lanes to y's dtype.
template <class L>
class Target {
  public:
    Target(const View& y, std::int64_t offset, std::int64_t n, L* buffer)
        : data_(at(y.data, y.dtype, offset)),
          dtype_(y.dtype),
          n_(n),
          lanes_(is_lanes<L>(y.dtype, 1, n) ? static_cast<L*>(data_) : buffer) {}
    L* lanes() const { return lanes_; }
    void store() const { store_lanes<L>(lanes_, data_, dtype_, 1, n_); }

  private:
    void* data_;
    DType dtype_;
    std::int64_t n_;
    L* lanes_;
};

// Returns a weight or another per-channel vector as lanes, which are in scratch memory if v must be
// converted. If v has no data, all elements are `none`.
template <class L>
const L* vector_or(Scratch& scratch, const ConstView& v, std::int64_t n, L none) {
    L* buffer = scratch.take<L>(n);
    if (v.data != nullptr) return load_lanes<L>(v.data, v.dtype, v.stride[0], n, buffer);
    std::fill(buffer, buffer + n, none);
    return buffer;
}

}  // namespace axle::kernels
