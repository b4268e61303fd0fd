#include "core/system/numerics.h"

#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

// Covers 8.TF32, 25.allow_tf32.
TEST(MatmulPrecision, DefaultsToHighestAndDoesNotAffectCpu) {
    EXPECT_EQ(get_float32_matmul_precision(), MatmulPrecision::highest);
    manual_seed(1);
    const Tensor a = randn({17, 33}), b = randn({33, 9});
    const Tensor exact = matmul(a, b);
    set_float32_matmul_precision(MatmulPrecision::high);
    EXPECT_EQ(get_float32_matmul_precision(), MatmulPrecision::high);
    EXPECT_EQ(matmul(a, b).to_vector(), exact.to_vector());
    set_float32_matmul_precision(MatmulPrecision::highest);
    EXPECT_EQ(get_float32_matmul_precision(), MatmulPrecision::highest);
}

}  // namespace
}  // namespace axle
