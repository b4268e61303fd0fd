// Measures operations on tensors: the forward pass and the gradient of every op case with a large
// size, and the overhead of eager execution on tiny tensors.
//
// The operands of a case fit into L2, so these rows show the overhead of an op over its kernels.
// bench_kernels measures the bandwidth of kernels in memory. The bytes of operands and results are
// counted, and with the gradient they are counted three times.
#include "core/ops.h"

#include <memory>
#include <string>
#include <vector>

#include "bench/row.h"
#include "core/autograd/autograd.h"
#include "nn/layers/mlp.h"
#include "optim/sgd.h"
#include "tests/op_case.h"

namespace axle::bench {
namespace {

double bytes_of(const std::vector<Tensor>& tensors) {
    double total = 0;
    for (const Tensor& x : tensors) total += static_cast<double>(x.numel() * size_of(x.dtype()));
    return total;
}

void add_forward(const tests::OpCase& c) {
    const auto x = tests::make_inputs(c, c.large, f32);
    const double bytes = bytes_of(x) + bytes_of(tests::forward(c, x));
    add_row({.name = c.name,
             .prepare = [&c]() -> Call {
                 const auto inputs = tests::make_inputs(c, c.large, f32);
                 return [&c, inputs] {
                     const NoGrad scope;
                     benchmark::DoNotOptimize(c.call(inputs));
                 };
             },
             .flops = c.flops ? c.flops(x) : 0,
             .bytes = bytes,
             .cold = false});
}

void add_gradient(const tests::OpCase& c) {
    const auto x = tests::make_inputs(c, c.large, f32);
    const double bytes = bytes_of(x) + bytes_of(tests::forward(c, x));
    const auto prepare = [&c]() -> Call {
        std::vector<Tensor> inputs, leaves, roots, weights;
        for (Tensor& t : tests::make_inputs(c, c.large, f32)) {
            inputs.push_back(t);
            if (is_floating(t.dtype())) leaves.push_back(t.set_requires_grad());
        }
        for (const Tensor& y : tests::forward(c, inputs))
            weights.push_back(y.requires_grad() ? ones_like(y).detach() : Tensor());
        return [=, &c]() mutable {
            const tests::Outputs outputs = c.call(inputs);
            std::vector<Tensor> from, with;
            for (std::size_t i = 0; i < outputs.size(); ++i)
                if (weights[i].defined()) from.push_back(outputs[i]), with.push_back(weights[i]);
            benchmark::DoNotOptimize(autograd::grad(from, leaves, with));
        };
    };
    add_row({.name = c.name + "/gradient",
             .prepare = prepare,
             .flops = c.flops ? 3 * c.flops(x) : 0,
             .bytes = 3 * bytes,
             .cold = false});
}

// Returns a call that runs a training step of a small MLP: forward, backward and the update of SGD.
Call tiny_mlp_step() {
    struct Trainer {
        nn::Mlp model{{64, 64, 10}};
        optim::SGD optimizer{model.parameters(), {.lr = 0.01}};
        Tensor x = randn({8, 64}), y = randint(0, 10, {8});
    };
    const auto trainer = std::make_shared<Trainer>();
    return [trainer] {
        cross_entropy(trainer->model(trainer->x), trainer->y).backward();
        trainer->optimizer.step();
        trainer->optimizer.zero_grad();
    };
}

void add_overheads() {
    const auto add = [](const char* name, std::function<Call()> prepare) {
        add_row({.name = std::string("overhead/") + name, .prepare = prepare, .cold = false});
    };
    add("empty_8x64", []() -> Call { return [] { benchmark::DoNotOptimize(empty({8, 64})); }; });
    add("view_8x64", []() -> Call {
        return [x = randn({8, 64})] { benchmark::DoNotOptimize(x.view({64, 8})); };
    });
    add("add_8x64", []() -> Call {
        return [a = randn({8, 64}), b = randn({8, 64})] {
            const NoGrad scope;
            benchmark::DoNotOptimize(axle::add(a, b));
        };
    });
    add("add_8x64/recorded", []() -> Call {
        return [a = randn({8, 64}, {.requires_grad = true}), b = randn({8, 64})] {
            benchmark::DoNotOptimize(axle::add(a, b));
        };
    });
    add("matmul_8x64x64", []() -> Call {
        return [a = randn({8, 64}), b = randn({64, 64})] {
            const NoGrad scope;
            benchmark::DoNotOptimize(axle::matmul(a, b));
        };
    });
    add("tiny_mlp_step", tiny_mlp_step);
}

void add_rows() {
    add_overheads();
    for (const tests::OpCase& c : tests::op_cases()) {
        if (c.large.empty()) continue;
        add_forward(c);
        if (c.gradient) add_gradient(c);
    }
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    axle::bench::add_rows();
    return axle::bench::run_rows(argc, argv);
}
