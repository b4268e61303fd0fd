// Compares op cases on a GPU, in several dtypes and layouts, with the CPU in f64. Also tests
// documented properties of results, and random numbers.
#include "core/ops.h"

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "tests/core/ops/every_op.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {

Tensor on_gpu(const Tensor& x) {
    if (!x.defined()) return x;
    auto impl = std::make_shared<Impl>();
    const auto bytes = static_cast<std::int64_t>(x.impl()->storage->bytes());
    // The storage is copied as bytes, because gaps can contain invalid values.
    const Tensor all = Tensor::from_blob(x.impl()->storage->data(), {bytes}, u8);
    impl->storage = to(all, kGpu).impl()->storage;
    impl->shape = x.shape();
    impl->strides = x.strides();
    impl->offset = x.impl()->offset;
    impl->dtype = x.dtype();
    return Tensor(std::move(impl));
}

std::vector<Tensor> on_gpu(const std::vector<Tensor>& x) {
    std::vector<Tensor> moved;
    moved.reserve(x.size());
    for (const Tensor& t : x) moved.push_back(on_gpu(t));
    return moved;
}

Result on_cpu(Result r) {
    const NoGrad no_grad;
    for (Tensor& y : r.outputs) {
        EXPECT_TRUE(y.device().is_cuda());
        y = to(y, Device::cpu());
    }
    for (Tensor& g : r.grads) {
        if (!g.defined()) continue;
        EXPECT_TRUE(g.device().is_cuda());
        g = to(g, Device::cpu());
    }
    return r;
}

namespace {

class OpOnGpu : public OpTest {
  protected:
    void SetUp() override {
        if (!cuda::is_available()) GTEST_SKIP() << "no GPU: " << cuda::why_unavailable();
    }
};

TEST_P(OpOnGpu, MatchesTheCpu) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        for (const DType dtype : {f64, f32, f16, bf16}) {
            if (!has_floats(row) && dtype != f64) continue;
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            std::vector<Tensor> exact;
            for (std::size_t i = 0; i < x.size(); ++i)
                exact.push_back(row[i].floating() ? to(x[i], f64) : x[i]);
            expect_result(c, row, on_cpu(run(c, row, on_gpu(x))), run(c, row, exact), dtype);
        }
    }
}

// Operands are transposed, have gaps, start at an odd element, or are broadcast by stride 0.
TEST_P(OpOnGpu, MatchesTheCpuForTransposedSlicedAndExpandedOperands) {
    const OpCase& c = op_case();
    if (!c.strided) return;
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        const std::vector<Tensor> x = make_inputs(c, row, f32);
        for (const Layout layout : {Layout::transposed, Layout::sliced, Layout::expanded}) {
            SCOPED_TRACE(str("layout ", static_cast<int>(layout)));
            std::vector<Tensor> laid_out, exact;
            for (std::size_t i = 0; i < x.size(); ++i) {
                laid_out.push_back(with_layout(x[i], layout));
                exact.push_back(row[i].floating() ? to(laid_out[i], f64) : laid_out[i]);
            }
            expect_result(c, row, on_cpu(run(c, row, on_gpu(laid_out))), run(c, row, exact), f32);
        }
    }
}

class OpOutputsOnGpu : public OpOnGpu {};

TEST_P(OpOutputsOnGpu, HaveDocumentedProperties) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        for (const DType dtype : {f64, f32, f16, bf16}) {
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            const std::vector<Tensor> there = on_gpu(x);
            EXPECT_EQ(c.check(there, forward(c, there)), "") << describe(row) << " " << dtype;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpOnGpu, testing::ValuesIn(names_of([](const OpCase& c) {
                             return (!c.torch.empty() || c.gradient) && !c.rows[0].empty();
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpOutputsOnGpu, testing::ValuesIn(names_of([](const OpCase& c) {
                             return c.check != nullptr && !c.rows[0].empty();
                         })),
                         test_name);

class RandomOnGpu : public GpuTest {};

Tensor drawn(Device device, const std::function<void(Tensor&)>& draw, DType dtype) {
    manual_seed(5);
    Tensor x = empty({1003}, {.dtype = dtype, .device = device});
    draw(x);
    return to(x, Device::cpu());
}

TEST_F(RandomOnGpu, DrawsTheSameNumbersAsTheCpu) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
        const auto uniform = [](Tensor& x) { x.uniform_(-1.1, 2.3); };
        expect_same_bits(drawn(kGpu, uniform, dtype), drawn(Device::cpu(), uniform, dtype));
        const auto normal = [](Tensor& x) { x.normal_(1, 2); };
        expect_close(drawn(kGpu, normal, dtype), drawn(Device::cpu(), normal, dtype),
                     dtype == f64   ? 1e-12
                     : dtype == f32 ? 1e-6
                     : dtype == f16 ? 1e-3
                                    : 8e-3);
    }
    manual_seed(7);
    const Tensor gpu = randint(-5, 100, {777}, {.dtype = i32, .device = kGpu});
    manual_seed(7);
    expect_same_bits(to(gpu, Device::cpu()), randint(-5, 100, {777}, {.dtype = i32}));
    manual_seed(8);
    const Tensor order = randperm(1003, {.dtype = i64, .device = kGpu});
    const Tensor flags = bernoulli(0.3, {1003}, {.device = kGpu});
    manual_seed(8);
    expect_same_bits(to(order, Device::cpu()), randperm(1003));
    expect_same_bits(to(flags, Device::cpu()), bernoulli(0.3, {1003}));
}

}  // namespace

}  // namespace axle::tests
