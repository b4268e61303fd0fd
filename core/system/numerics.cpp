#include "core/system/numerics.h"

#include <atomic>

namespace axle {
namespace {

constinit std::atomic<bool> deterministic = false;
constinit std::atomic<MatmulPrecision> matmul_precision = MatmulPrecision::highest;

}  // namespace

void use_deterministic_algorithms(bool on) { deterministic = on; }
bool are_deterministic_algorithms_enabled() { return deterministic; }

void set_float32_matmul_precision(MatmulPrecision precision) { matmul_precision = precision; }
MatmulPrecision get_float32_matmul_precision() { return matmul_precision; }

}  // namespace axle
