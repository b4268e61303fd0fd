// Runs elementwise kernels: splits the operands into blocks of contiguous lanes.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::kernels {

// A function that computes out[i] = f(in[0][i], in[1][i], ...) for n contiguous lanes. `formula`
// points to the parameters of f. out can be one of the inputs.
using Span = void (*)(const void* formula, const void* const* in, void* out, std::int64_t n);

// An operand and the type of the lanes that the span reads.
struct SpanInput {
    ConstView view;
    DType lane;
};
struct SpanOutput {
    View view;
    DType lane;
};

// Computes all elements of `out` by calls of `span`, one block of lanes at a time. Operands that
// are strided, or whose dtype differs from their lanes, are copied to and from buffers of lanes.
// There are zero to three inputs, all of the output's shape (broadcast by stride 0 where needed).
// The split into tasks does not depend on the number of threads.
void run_spans(Cpu& on, Span span, const void* formula, const SpanInput* in, int inputs,
               const SpanOutput& out);

// Returns the dtype of the lanes in which elements of dtype t are computed. Booleans are computed
// as the u8 values 0 and 1.
constexpr DType span_lane(DType t) { return t == DType::boolean ? DType::u8 : lane_dtype(t); }

}  // namespace axle::kernels
