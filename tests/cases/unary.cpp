#include "core/ops.h"
#include "tests/cases/unary_cases.h"

namespace axle::tests {

namespace {

void add_bad_unary_calls(Cases& cases) {
    refuses<UsageError>(cases, "exp", {}, [] { exp(Tensor()); });
    refuses<UsageError>(cases, "softsign", {}, [] { softsign(Tensor()); });
    refuses<ValueError>(cases, "clamp", {},
                        [] { clamp(floats_of({2}), std::nullopt, std::nullopt); });
    refuses<DTypeError>(cases, "neg", {"eq"}, [] { neg(bools_of({2})); });
}

}  // namespace

void add_unary_cases(Cases& cases) {
    unary(cases, "neg", "torch.neg(x[0])", -2, 2, neg);
    unary(cases, "abs", "torch.abs(x[0])", -2, 2, abs);
    kinked(cases, "abs", "torch.abs(x[0])", abs);
    unary(cases, "exp", "torch.exp(x[0])", -4, 4, exp);
    unary(cases, "log", "torch.log(x[0])", 0.25, 4, log);
    unary(cases, "sqrt", "torch.sqrt(x[0])", 0.25, 4, sqrt);
    unary(cases, "rsqrt", "torch.rsqrt(x[0])", 0.25, 4, rsqrt);
    unary(cases, "tanh", "torch.tanh(x[0])", -2, 2, tanh);
    saturates(cases, "tanh", "torch.tanh(x[0])", tanh);
    unary(cases, "sigmoid", "torch.sigmoid(x[0])", -4, 4, sigmoid);
    saturates(cases, "sigmoid", "torch.sigmoid(x[0])", sigmoid);
    unary(cases, "relu", "torch.relu(x[0])", -2, 2, relu);
    kinked(cases, "relu", "torch.relu(x[0])", relu);
    cases.push_back({.name = "relu/nan_slope",
                     .torch = "torch.relu(x[0])",
                     .call = [](In x) { return relu(x[0]); },
                     .rows = {{specials({11})}},
                     .smooth = false});
    unary(cases, "gelu", "F.gelu(x[0])", -4, 4, [](const Tensor& x) { return gelu(x); });
    saturates(cases, "gelu", "F.gelu(x[0])", [](const Tensor& x) { return gelu(x); });
    unary(cases, "gelu/tanh", "F.gelu(x[0], approximate='tanh')", -4, 4,
          [](const Tensor& x) { return gelu(x, Gelu::tanh); });
    saturates(cases, "gelu/tanh", "F.gelu(x[0], approximate='tanh')",
              [](const Tensor& x) { return gelu(x, Gelu::tanh); });
    unary(cases, "silu", "F.silu(x[0])", -4, 4, silu);
    saturates(cases, "silu", "F.silu(x[0])", silu);
    unary(cases, "softsign", "F.softsign(x[0])", -4, 4, softsign);
    // Integers are converted to f32.
    on_ints(cases, "exp", "torch.exp(x[0])", exp);
    on_ints(cases, "log", "torch.log(x[0])", log);
    on_ints(cases, "sqrt", "torch.sqrt(x[0])", sqrt);
    on_ints(cases, "rsqrt", "torch.rsqrt(x[0])", rsqrt);
    on_ints(cases, "tanh", "torch.tanh(x[0])", tanh);
    on_ints(cases, "sigmoid", "torch.sigmoid(x[0])", sigmoid);
    // PyTorch's softsign does not accept booleans.
    on_ints(cases, "softsign", "F.softsign(x[0])", softsign);
    cases.back().rows.pop_back();
    unary(cases, "clamp", "x[0].clamp(-0.5, 1)", -2, 2,
          [](const Tensor& x) { return clamp(x, -0.5, 1.0); });
    unary(cases, "clamp/below", "x[0].clamp(min=-0.5)", -2, 2,
          [](const Tensor& x) { return clamp(x, -0.5, {}); });
    unary(cases, "clamp/above", "x[0].clamp(max=0.5)", -2, 2,
          [](const Tensor& x) { return clamp(x, {}, 0.5); });
    kinked(cases, "clamp", "x[0].clamp(-1, 1)",
           [](const Tensor& x) { return clamp(x, -1.0, 1.0); });
    set_autocast(cases, Autocast::f32, {"exp", "log", "rsqrt"});
    add_bad_unary_calls(cases);
}

}  // namespace axle::tests
