// What may be traded between speed and the sameness or precision of results, for the process.
#pragma once

#include <cstdint>

namespace axle::inline v0 {

// Only algorithms that give the same bits in every run of a program on one kind of machine; an op
// that has none throws UsageError. The CPU's always do. Off at first.
void use_deterministic_algorithms(bool on);
bool are_deterministic_algorithms_enabled();

// How a GPU multiplies f32 matrices: in f32, or from operands rounded to TF32 (10 bits of mantissa,
// f32's range), which is several times faster. PyTorch's names: "highest" and "high". highest at
// first.
enum class MatmulPrecision : std::uint8_t { highest, high };
void set_float32_matmul_precision(MatmulPrecision precision);
MatmulPrecision get_float32_matmul_precision();

}  // namespace axle::inline v0
