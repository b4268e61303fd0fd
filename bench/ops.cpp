// Usage: bench_ops [TEXT]
//
// Measures the ops whose names contain TEXT, or all ops, with one and with two threads: the forward
// pass and the gradient of every op case with a large size, and the overhead of eager execution on
// tiny tensors.
//
// The operands of a case fit into L2, so these rows show the overhead of an op over its kernels,
// which `axle bench` measures. Counts the bytes of operands and results, three times if the
// gradient is included. Rates are compared with the peak of f32 multiply-adds or of L2.
#include "core/ops.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "nn/layers/mlp.h"
#include "optim/sgd.h"
#include "tests/op_case.h"
#include "tools/axle/bench/machine.h"
#include "tools/axle/bench/timing.h"

namespace axle::bench {
namespace {

using Call = std::function<void()>;

struct OpRow {
    std::string name;
    std::function<Call()> prepare;  // creates the operands and returns a call that uses them
    double flops = 0;  // operations of a call; if 0, the speed is computed from `bytes`
    double bytes = 0;  // bytes that a call reads and writes; if 0, only the time is shown
};

std::vector<OpRow>& rows() {
    static std::vector<OpRow> list;
    return list;
}
void add_row(OpRow row) { rows().push_back(std::move(row)); }

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
                     c.call(inputs);
                 };
             },
             .flops = c.flops ? c.flops(x) : 0,
             .bytes = bytes});
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
            autograd::grad(from, leaves, with);
        };
    };
    add_row({.name = c.name + "/gradient",
             .prepare = prepare,
             .flops = c.flops ? 3 * c.flops(x) : 0,
             .bytes = 3 * bytes});
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
        add_row({.name = std::string("overhead/") + name, .prepare = std::move(prepare)});
    };
    add("empty_8x64", []() -> Call { return [] { empty({8, 64}); }; });
    add("view_8x64", []() -> Call { return [x = randn({8, 64})] { x.view({64, 8}); }; });
    add("add_8x64", []() -> Call {
        return [a = randn({8, 64}), b = randn({8, 64})] {
            const NoGrad scope;
            axle::add(a, b);
        };
    });
    add("add_8x64/recorded", []() -> Call {
        return
            [a = randn({8, 64}, {.requires_grad = true}), b = randn({8, 64})] { axle::add(a, b); };
    });
    add("matmul_8x64x64", []() -> Call {
        return [a = randn({8, 64}), b = randn({64, 64})] {
            const NoGrad scope;
            axle::matmul(a, b);
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

void run(const OpRow& row, int threads) {
    const Peaks& peak = peaks(threads);
    const Timing timing = time_hot(0.2, row.prepare());
    std::printf("%-44s %d threads %12.2f us", row.name.c_str(), threads, timing.seconds * 1e6);
    if (row.flops > 0) {
        const double rate = 1e-9 * row.flops / timing.seconds;
        std::printf(" %9.1f GFLOP/s %4.0f%%", rate, 100 * rate / peak.f32);
    } else if (row.bytes > 0) {
        const double rate = 1e-9 * row.bytes / timing.seconds;
        std::printf(" %9.1f GB/s    %4.0f%%", rate, 100 * rate / peak.cache);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    axle::bench::add_rows();
    const std::string wanted = argc > 1 ? argv[1] : "";
    for (const auto& row : axle::bench::rows())
        if (row.name.find(wanted) != std::string::npos)
            for (const int threads : {1, 2}) axle::bench::run(row, threads);
}
