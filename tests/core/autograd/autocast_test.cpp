// The dtype in which each kind of op computes under autocast.
#include "core/autograd/autocast.h"

#include <functional>
#include <map>
#include <string>

#include "core/ops.h"
#include "gtest/gtest.h"

namespace axle {
namespace {

using Calls = std::map<std::string, std::function<Tensor(const Tensor&)>>;

Tensor targets() { return tensor(std::vector<std::int64_t>{0, 1, 1, 0}, {4}); }

// Ops on a positive x [4, 4].
const Calls& low_precision_ops() {
    static const Calls calls = {
        {"matmul", [](const Tensor& x) { return matmul(x, x); }},
        {"batched matmul",
         [](const Tensor& x) {
             return matmul(x.view({1, 4, 4}), x);
         }},
        {"linear", [](const Tensor& x) { return linear(x, x, x.select(0, 0)); }},
        {"feed_forward",
         [](const Tensor& x) { return feed_forward(x, x, {}, x, {}, Activation::relu); }},
        {"conv2d",
         [](const Tensor& x) {
             return conv2d(x.view({1, 4, 4}), x.view({4, 1, 2, 2}));
         }},
        {"conv_transpose2d",
         [](const Tensor& x) {
             return conv_transpose2d(x.view({1, 4, 4}), x.view({1, 4, 2, 2}));
         }},
        {"scaled_dot_product_attention",
         [](const Tensor& x) {
             const Tensor q = x.view({1, 1, 4, 4});
             return scaled_dot_product_attention(q, q, q);
         }},
    };
    return calls;
}

const Calls& f32_ops() {
    static const Calls calls = {
        {"exp", [](const Tensor& x) { return exp(x); }},
        {"log", [](const Tensor& x) { return log(x); }},
        {"rsqrt", [](const Tensor& x) { return rsqrt(x); }},
        {"pow", [](const Tensor& x) { return pow(x, 2.0); }},
        {"pow of tensors", [](const Tensor& x) { return pow(x, x); }},
        {"softmax", [](const Tensor& x) { return softmax(x); }},
        {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
        {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
        {"group_norm", [](const Tensor& x) { return group_norm(x, 2); }},
        {"sum", [](const Tensor& x) { return sum(x); }},
        {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
        {"mse_loss", [](const Tensor& x) { return mse_loss(x, x); }},
        {"cross_entropy", [](const Tensor& x) { return cross_entropy(x, targets()); }},
        {"linear_cross_entropy",
         [](const Tensor& x) { return linear_cross_entropy(x, x, targets()); }},
    };
    return calls;
}

const Calls& dtype_preserving_ops() {
    static const Calls calls = {
        {"relu", [](const Tensor& x) { return relu(x); }},
        {"gelu", [](const Tensor& x) { return gelu(x); }},
        {"add", [](const Tensor& x) { return x + x; }},
        {"mean", [](const Tensor& x) { return mean(x); }},
        {"reshape", [](const Tensor& x) { return x.view({16}); }},
    };
    return calls;
}

class AutocastOps : public testing::TestWithParam<DType> {
  protected:
    Tensor x = tensor({1, 2, 1, 2, 3, 1, 2, 1, 1, 1, 3, 1, 2, 3, 1, 2}, {4, 4});
};

// Covers 8.autocast.
TEST_P(AutocastOps, RunProductsInLowPrecision) {
    const AutocastGuard guard(GetParam());
    for (const auto& [name, call] : low_precision_ops())
        for (const DType input_dtype : {f32, f16, bf16})
            EXPECT_EQ(call(x.to(input_dtype)).dtype(), GetParam()) << name << " of " << input_dtype;
}

// Covers 8.autocast.
TEST_P(AutocastOps, RunReductionsAndLossesInF32) {
    for (const auto& [name, call] : f32_ops()) {
        const Tensor plain = call(x);
        const AutocastGuard guard(GetParam());
        for (const DType input_dtype : {f32, GetParam()})
            EXPECT_EQ(call(x.to(input_dtype)).dtype(), f32) << name << " of " << input_dtype;
        EXPECT_EQ(plain.dtype(), f32) << name;
    }
}

// Covers 8.autocast.
TEST_P(AutocastOps, KeepDTypeForOtherOps) {
    const AutocastGuard guard(GetParam());
    for (const auto& [name, call] : dtype_preserving_ops())
        for (const DType input_dtype : {f32, GetParam()})
            EXPECT_EQ(call(x.to(input_dtype)).dtype(), input_dtype)
                << name << " of " << input_dtype;
}

// Covers 8.autocast.
TEST_P(AutocastOps, PromoteOperandsToWidestDType) {
    const Tensor index = zeros({4, 4}, {i64}), low = x.to(GetParam());
    const AutocastGuard guard(GetParam());
    EXPECT_EQ(add(x, low).dtype(), f32);
    EXPECT_EQ(scatter_add(x, 0, index, low).dtype(), f32);
    EXPECT_EQ(scatter_add(low, 0, index, x).dtype(), f32);
    EXPECT_EQ(scatter_add(low, 0, index, low).dtype(), GetParam());
}

// Covers 8.autocast.
TEST_P(AutocastOps, KeepF64) {
    const Tensor wide = x.to(f64);
    const AutocastGuard guard(GetParam());
    for (const Calls& calls : {low_precision_ops(), f32_ops(), dtype_preserving_ops()})
        for (const auto& [name, call] : calls) EXPECT_EQ(call(wide).dtype(), f64) << name;
}

// Covers 8.autocast.
TEST_P(AutocastOps, ReturnGradientsInDTypeOfWeight) {
    for (const Calls& calls : {low_precision_ops(), f32_ops()})
        for (const auto& [name, call] : calls) {
            Tensor w = x.clone().set_requires_grad();
            const AutocastGuard guard(GetParam());
            sum(call(w)).backward();
            EXPECT_EQ(w.grad().dtype(), f32) << name;
        }
}

INSTANTIATE_TEST_SUITE_P(LowDtypes, AutocastOps, testing::Values(f16, bf16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace axle
