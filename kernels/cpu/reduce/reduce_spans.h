// Reductions of contiguous f32 and f64 elements with the instruction set of this CPU.
#pragma once

#include <cstdint>

namespace axle::kernels {

// Returns the sum of n contiguous elements. Blocks of 2048 floats are summed in f32 lanes, and
// their sums are added in f64.
double sum_span(const float* x, std::int64_t n);
double sum_span(const double* x, std::int64_t n);
// Returns the sum of (x - centre)^2 over n contiguous elements.
double square_span(const float* x, float centre, std::int64_t n);
double square_span(const double* x, double centre, std::int64_t n);

// Return the maximum or minimum of n > 0 contiguous elements, or NaN if there is a NaN.
float max_block(const float* x, std::int64_t n);
float min_block(const float* x, std::int64_t n);

// Combine up to 8 rows of `width` elements with one total per column. sum_columns() adds the
// elements, and square_columns() adds (x - centre)^2 with one centre per column. max_columns() and
// min_columns() compute the maximum or minimum, or NaN if there is a NaN. The terms of one call are
// summed in f32 before they are added to the f64 totals. As an exception, sum_columns() adds fewer
// than 8 rows in f64.
void sum_columns(const float* const* rows, int count, std::int64_t width, double* total);
void square_columns(const float* const* rows, int count, std::int64_t width, const float* centre,
                    double* total);
void max_columns(const float* const* rows, int count, std::int64_t width, float* total);
void min_columns(const float* const* rows, int count, std::int64_t width, float* total);

}  // namespace axle::kernels
