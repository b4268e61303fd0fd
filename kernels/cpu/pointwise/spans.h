// The driver of all elementwise kernels.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// Computes out[i] = f(in[0][i], in[1][i], ...) for n contiguous lanes; `formula` points to f's
// parameters. out can be one of the inputs.
using Span = void (*)(const void* formula, const void* const* in, void* out, std::int64_t n);

// An operand and the lane type that the span expects.
struct SpanInput {
    ConstView view;
    DType lane;
};
struct SpanOutput {
    View view;
    DType lane;
};

// Iterates over the operands (zero to three inputs of the output's shape) and converts each block
// to lanes and back. The partitioning into tasks depends on the shape only.
void run_spans(Cpu& on, Span span, const void* formula, const SpanInput* in, int inputs,
               const SpanOutput& out);

// Returns the lane dtype of a span. Booleans are computed as the bytes 0 and 1.
constexpr DType span_lane(DType t) { return t == DType::boolean ? DType::u8 : lane_dtype(t); }

}  // namespace axle::kernels
