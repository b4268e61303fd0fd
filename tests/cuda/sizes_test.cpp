// Sizes that select other code paths of the kernels than the op cases do.
#include <limits>

#include "core/ops.h"
#include "core/random.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/core/ops/every_op.h"
#include "tests/cuda/gpu.h"

namespace axle::tests {

const std::vector<OpCase>& size_cases() {
    static const std::vector<OpCase> cases = [] {
        std::vector<OpCase> all;
        const auto add = [&](const char* name, std::vector<Row> rows, auto call,
                             Tolerances tolerance = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2}) {
            all.push_back(
                {.name = name, .call = call, .rows = std::move(rows), .tolerance = tolerance});
        };
        // Rows that consist of whole packs, and rows that do not.
        const std::vector<Row> rows = {{floats({2, 16400})}, {floats({2, 16403})}};
        add("softmax", rows, [](In x) { return softmax(x[0]) * 1000; });
        add("log_softmax", rows, [](In x) { return log_softmax(x[0]); });
        add("layer_norm/long",
            {{floats({18, 8200}), floats({8200}), floats({8200})},
             {floats({2, 16403}), floats({16403}), floats({16403})}},
            [](In x) { return layer_norm(x[0], x[1], x[2]); });
        add("rms_norm/long",
            {{floats({18, 8200}), floats({8200})}, {floats({2, 16403}), floats({16403})}},
            [](In x) { return rms_norm(x[0], x[1]); });
        const std::vector<Row> sums = {
            {floats({20003})}, {floats({2, 32768})}, {floats({4001, 5})}, {floats({2000, 40})}};
        for (const int dim : {0, -1}) {
            add(dim == 0 ? "sum/long/first" : "sum/long/last", sums,
                [dim](In x) { return sum(x[0], {dim}); });
            add(dim == 0 ? "var/long/first" : "var/long/last", sums,
                [dim](In x) { return var(x[0], {dim}); });
            add(dim == 0 ? "max/long/first" : "max/long/last", sums,
                [dim](In x) { return max(x[0], {dim}); });
            add(dim == 0 ? "argmax/long/first" : "argmax/long/last", sums,
                [dim](In x) { return argmax(x[0], dim); });
            all.back().gradient = false;
        }
        // Rows are split into parts, into parts of two rows each, or processed by one block each.
        add("topk/long", {{floats({70001})}, {floats({2, 33000})}, {floats({3, 5000})}},
            [](In x) { return topk(x[0], 7); });
        // Sorted in shared memory.
        add("topk/most", {{floats({1500, 2})}, {ties({1, 3001})}},
            [](In x) { return topk(x[0], 1100, x[0].size(0) == 1 ? 1 : 0, false); });
        add("sort/long", {{ties({70001})}, {specials({3, 5000})}, {floats({2, 2049})}},
            [](In x) { return sort(x[0]); });
        add("sort/full", {{ties({3, 2048})}, {floats({500, 33})}, {specials({900, 1})}},
            [](In x) { return sort(x[0], -1, true); });
        add("sort/columns", {{ties({2000, 7})}, {floats({33, 500})}},
            [](In x) { return sort(x[0], 0); });
        // Rows are split into chunks, into chunks of two rows each, or into tiles; and one thread
        // per row.
        add("cumsum/long", {{floats({100001})}, {floats({2, 40000})}, {floats({3, 5000})}},
            [](In x) { return cumsum(x[0], -1); });
        add("cumsum/columns", {{floats({5000, 40})}, {floats({5000, 3})}, {floats({50, 700})}},
            [](In x) { return cumsum(x[0], 0); });
        add("embedding/many", {{ints({5000}, 0, 700), floats({700, 24})}},
            [](In x) { return embedding(x[0], x[1]); });
        add("scatter_add/few", {{floats({300}), ints({5000}, 0, 300), floats({5000})}},
            [](In x) { return scatter_add(x[0], 0, x[1], x[2]); });
        add("cross_entropy/classes", {{floats({3, 20001}), ints({3}, 0, 20001)}},
            [](In x) { return cross_entropy(x[0], x[1]); });
        return all;
    }();
    return cases;
}

namespace {

class SizeOnGpu : public GpuTest, public testing::WithParamInterface<int> {};

TEST_P(SizeOnGpu, MatchesTheCpu) {
    const OpCase& c = size_cases()[static_cast<std::size_t>(GetParam())];
    for (const Row& row : c.rows) {
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

std::string size_name(const testing::TestParamInfo<int>& info) {
    std::string name = size_cases()[static_cast<std::size_t>(info.param)].name;
    for (char& letter : name)
        if (letter == '/') letter = '_';
    return name;
}
INSTANTIATE_TEST_SUITE_P(Cases, SizeOnGpu, testing::Range(0, static_cast<int>(size_cases().size())),
                         size_name);

class SelectionOnGpu : public GpuTest {};

// Weights are sorted if a row has more than 1024 samples.
TEST_F(SelectionOnGpu, DrawsWithoutReplacementLikeTheCpu) {
    const Tensor weights = make_inputs({.name = "multinomial"}, {floats({3, 2003}, 0, 4)}, f64)[0];
    for (const std::int64_t samples : {20, 1100}) {
        manual_seed(9);
        const Tensor gpu = multinomial(on_gpu(weights), samples);
        manual_seed(9);
        expect_same_bits(to(gpu, Device::cpu()), multinomial(weights, samples));
    }
}

class IntegersOnGpu : public GpuTest {};

TEST_F(IntegersOnGpu, MultiplyAndCountLikeTheCpu) {
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

class GradientsOnGpu : public GpuTest {};

// More parameters than fit in one launch, including empty and unaligned ones.
std::vector<Tensor> parameters_with_gradients(Device device, DType dtype) {
    std::vector<Tensor> params;
    for (std::int64_t i = 0; i < 150; ++i) {
        const Shape shape = i == 3 ? Shape{70001} : Shape{i % 7, i};
        const auto x = make_inputs({.name = str("clip", i)}, {floats(shape), floats(shape)}, f32);
        Tensor p = to(to(x[0], dtype), device).set_requires_grad();
        if (i % 9 != 5) p.set_grad(to(x[1], dtype == f64 ? f64 : f32).to(device));
        params.push_back(p);
    }
    return params;
}

TEST_F(GradientsOnGpu, ComputeNormsAndClipLikeTheCpu) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const DType dtype : {f64, f32, bf16}) {
        for (const double power : {2.0, 1.0, 3.0, 0.5, -1.0, infinity}) {
            SCOPED_TRACE(str(dtype, " ", power));
            const auto gpu = parameters_with_gradients(kGpu, dtype);
            const auto cpu = parameters_with_gradients(Device::cpu(), dtype);
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
    const auto gpu = parameters_with_gradients(kGpu, dtype);
    const auto cpu = parameters_with_gradients(Device::cpu(), dtype);
    Optimizer there(gpu, options), here(cpu, options);
    manual_seed(4);
    for (int i = 0; i < 3; ++i) there.step();
    manual_seed(4);
    for (int i = 0; i < 3; ++i) here.step();
    for (std::size_t i = 0; i < cpu.size(); ++i)
        expect_same_bits(to(gpu[i].detach(), Device::cpu()), cpu[i].detach());
}

TEST_F(GradientsOnGpu, UpdateParametersToTheSameBitsAsTheCpu) {
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
    }
}

}  // namespace
}  // namespace axle::tests
