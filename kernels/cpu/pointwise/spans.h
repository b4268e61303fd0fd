// The driver of all elementwise kernels.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels {

// out[i] = f(in[0][i], in[1][i], ...) over n contiguous lanes; f's parameters at `formula`. out may
// be one of the inputs.
using Span = void (*)(const void* formula, const void* const* in, void* out, std::int64_t n);

// An operand and the type of lane that the span wants it in.
struct SpanInput {
    ConstView view;
    DType lane;
};
struct SpanOutput {
    View view;
    DType lane;
};

// Walks the operands (none to three inputs of the output's shape), bringing each block to lanes and
// back. Elements are cut into tasks by shape alone.
void run_spans(Cpu& on, Span span, const void* formula, const SpanInput* in, int inputs,
               const SpanOutput& out);

// Booleans are computed as the bytes 0 and 1.
constexpr DType span_lane(DType t) { return t == DType::boolean ? DType::u8 : lane_dtype(t); }

}  // namespace axle::inline v0::kernels
