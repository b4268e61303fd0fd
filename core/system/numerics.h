// Process-wide settings that trade speed for reproducible or precise results.
#pragma once

#include <cstdint>

namespace axle {

// Sets whether ops use only algorithms that give the same bits in every run on one kind of machine.
// CPU ops are always deterministic. The default is false.
void use_deterministic_algorithms(bool on);
bool are_deterministic_algorithms_enabled();

// Selects how a GPU computes matrix products and convolutions of f32 tensors. The names are
// PyTorch's, where they apply to matrix products only. `highest` computes in f32 (the default).
// `high` rounds the operands to TF32 (10 mantissa bits, f32's range), which is several times
// faster.
enum class MatmulPrecision : std::uint8_t { highest, high };
void set_float32_matmul_precision(MatmulPrecision precision);
MatmulPrecision get_float32_matmul_precision();

}  // namespace axle
