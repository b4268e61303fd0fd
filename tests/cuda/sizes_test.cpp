// Tests GPU kernels with sizes (OpCase::gpu_rows) that select other code paths than the small rows
// of the op cases. Also tests multinomial, arange, products of integers, gradient clipping and
// optimizers.
#include <limits>

#include "core/ops.h"
#include "core/random.h"
#include "optim/adam.h"
#include "optim/algorithms/adagrad.h"
#include "optim/algorithms/adam_variants.h"
#include "optim/algorithms/lion.h"
#include "optim/clip.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/core/ops/every_op.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {

namespace {

class OpOfManySizesOnGpu : public OpTest {
  protected:
    void SetUp() override {
        if (!cuda::is_available()) GTEST_SKIP() << "no GPU: " << cuda::why_unavailable();
    }
};

TEST_P(OpOfManySizesOnGpu, MatchesTheCpu) {
    OpCase c = op_case();
    c.tolerance = c.gpu_tolerance;
    for (const Row& row : c.gpu_rows) {
        SCOPED_TRACE(describe(row));
        for (const DType dtype : {f64, f32, f16, bf16}) {
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            std::vector<Tensor> exact;
            for (std::size_t i = 0; i < x.size(); ++i)
                exact.push_back(row[i].floating() ? to(x[i], f64) : x[i]);
            expect_result(c, row, on_cpu(run(c, row, on_gpu(x))), run(c, row, exact), dtype);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpOfManySizesOnGpu, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.gpu_rows.empty();
                         })),
                         test_name);

class MultinomialOnGpu : public GpuTest {};

// If more than 1024 samples are drawn from each row, all weights of a row are sorted by their
// random keys.
TEST_F(MultinomialOnGpu, DrawsWithoutReplacementLikeTheCpu) {
    const Tensor weights = make_inputs({.name = "multinomial"}, {floats({3, 2003}, 0, 4)}, f64)[0];
    for (const std::int64_t samples : {20, 1100}) {
        manual_seed(9);
        const Tensor gpu = multinomial(on_gpu(weights), samples);
        manual_seed(9);
        expect_same_bits(to(gpu, Device::cpu()), multinomial(weights, samples));
    }
}

class ArangeAndIntegerMatmulOnGpu : public GpuTest {};

TEST_F(ArangeAndIntegerMatmulOnGpu, MatchTheCpuBitForBit) {
    for (const DType dtype : {i64, i32, u8}) {
        const std::vector<Tensor> x =
            make_inputs({.name = "matmul"},
                        {ints({2, 37, 70}, 0, 200, dtype), ints({70, 41}, 0, 200, dtype)}, f64);
        expect_same_bits(to(matmul(on_gpu(x[0]), on_gpu(x[1])), Device::cpu()), matmul(x[0], x[1]));
        expect_same_bits(to(arange(3, 90, 7, {dtype, kGpu}), Device::cpu()),
                         arange(3, 90, 7, {dtype}));
    }
    for (const DType dtype : {f64, f32, f16, bf16})
        expect_same_bits(to(arange(-3.5, 9, 0.37, {dtype, kGpu}), Device::cpu()),
                         arange(-3.5, 9, 0.37, {dtype}));
}

class GradientClippingOnGpu : public GpuTest {};

// Returns parameters of different sizes, including 0. Most of them have a gradient. Clipping 1300
// parameters, or updating 400, needs several kernel launches.
std::vector<Tensor> parameters_with_gradients(Device device, DType dtype, std::int64_t count) {
    std::vector<Tensor> params;
    for (std::int64_t i = 0; i < count; ++i) {
        const Shape shape = i == 3 ? Shape{70001} : Shape{i % 7, i % 20};
        const auto x = make_inputs({.name = str("clip", i)}, {floats(shape), floats(shape)}, f32);
        Tensor p = to(to(x[0], dtype), device).set_requires_grad();
        if (i % 9 != 5) p.set_grad(to(x[1], dtype == f64 ? f64 : f32).to(device));
        params.push_back(p);
    }
    return params;
}

TEST_F(GradientClippingOnGpu, MatchesTheCpu) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const DType dtype : {f64, f32, bf16}) {
        for (const double power : {2.0, 1.0, 3.0, 0.5, -1.0, infinity}) {
            SCOPED_TRACE(str(dtype, " ", power));
            const auto gpu = parameters_with_gradients(kGpu, dtype, 1300);
            const auto cpu = parameters_with_gradients(Device::cpu(), dtype, 1300);
            expect_close(to(optim::get_total_norm(gpu, power), Device::cpu()),
                         optim::get_total_norm(cpu, power), 1e-5);
            optim::clip_grad_norm_(gpu, 0.7, power);
            optim::clip_grad_norm_(cpu, 0.7, power);
            optim::clip_grad_value_(gpu, 0.001);
            optim::clip_grad_value_(cpu, 0.001);
            for (std::size_t i = 0; i < cpu.size(); ++i)
                if (cpu[i].grad().defined())
                    expect_close(to(gpu[i].grad(), Device::cpu()), cpu[i].grad(), 1e-6);
        }
    }
}

template <class Optimizer, class Options>
void expect_alike(const Options& options, DType dtype) {
    const auto gpu = parameters_with_gradients(kGpu, dtype, 400);
    const auto cpu = parameters_with_gradients(Device::cpu(), dtype, 400);
    Optimizer there(gpu, options), here(cpu, options);
    manual_seed(4);
    for (int i = 0; i < 3; ++i) there.step();
    manual_seed(4);
    for (int i = 0; i < 3; ++i) here.step();
    for (std::size_t i = 0; i < cpu.size(); ++i)
        expect_same_bits(to(gpu[i].detach(), Device::cpu()), cpu[i].detach());
}

class OptimizersOnGpu : public GpuTest {};

TEST_F(OptimizersOnGpu, MatchTheCpuBitForBit) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
        SCOPED_TRACE(dtype);
        expect_alike<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .amsgrad = true}, dtype);
        expect_alike<optim::Adam>(optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1}, dtype);
        expect_alike<optim::SGD>(optim::SGDOptions{.lr = 0.01}, dtype);
        expect_alike<optim::SGD>(
            optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
            dtype);
        expect_alike<optim::AdamW>(
            optim::AdamWOptions{.lr = 1e-3, .weight_decay = 0.1, .stochastic_rounding = true},
            dtype);
        expect_alike<optim::SGD>(optim::SGDOptions{.lr = 0.01, .stochastic_rounding = true}, dtype);
        expect_alike<optim::RMSprop>(optim::RMSpropOptions{.momentum = 0.9, .centered = true},
                                     dtype);
        expect_alike<optim::RMSprop>(optim::RMSpropOptions{.stochastic_rounding = true}, dtype);
        expect_alike<optim::Adagrad>(optim::AdagradOptions{.lr_decay = 0.1}, dtype);
        expect_alike<optim::Adadelta>(optim::AdadeltaOptions{.weight_decay = 0.1}, dtype);
        expect_alike<optim::Adamax>(optim::AdamaxOptions{}, dtype);
        expect_alike<optim::NAdam>(optim::NAdamOptions{.momentum_decay = 0.1}, dtype);
        expect_alike<optim::RAdam>(optim::RAdamOptions{.lr = 0.01, .weight_decay = 0.1}, dtype);
        expect_alike<optim::Lion>(optim::LionOptions{.lr = 0.01, .weight_decay = 0.1}, dtype);
        expect_alike<optim::Rprop>(optim::RpropOptions{}, dtype);
        expect_alike<optim::ASGD>(optim::ASGDOptions{.t0 = 1}, dtype);
    }
}

}  // namespace
}  // namespace axle::tests
