#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

using Function = Tensor (*)(const Tensor&);

void unary(Cases& cases, const std::string& name, double low, double high, Function f) {
    const auto call = [f](In x) { return f(x[0]); };
    cases.push_back({.name = name,
                     .call = call,
                     .rows = {{floats({7}, low, high)},
                              {floats({}, low, high)},
                              {floats({2, 0, 3}, low, high)},
                              {floats({3, 1}, low, high)},
                              {floats({3, 67}, low, high)}},
                     .large = {floats({257, 263}, low, high)},
                     .twice = true});
    cases.push_back(
        {.name = name + "/specials", .call = call, .rows = {{specials({11})}}, .gradient = false});
}

void on_ints(Cases& cases, const std::string& name, Function f) {
    cases.push_back({.name = name + "/ints",
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ints({3, 5}, 1, 9)}, {ints({67}, 1, 9, i32)}, {mask({7})}},
                     .gradient = false});
}

// Where the function is flat, the gradient must be 0 and not NaN.
void saturates(Cases& cases, const std::string& name, Function f) {
    cases.push_back(
        {.name = name + "/far",
         .call = [f](In x) { return f(x[0]); },
         .rows = {{floats({67}, -32, 32)}, {floats({9}, 80, 96)}, {floats({9}, -96, -80)}},
         .twice = true});
}

void kinked(Cases& cases, const std::string& name, Function f) {
    cases.push_back({.name = name + "/ties",
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ties({67})}},
                     .smooth = false});
    cases.push_back({.name = name + "/ints",
                     .call = [f](In x) { return f(x[0]); },
                     .rows = {{ints({3, 5}, -9, 9)}, {ints({67}, -9, 9, i32)}},
                     .gradient = false});
}

}  // namespace

void add_unary_cases(Cases& cases) {
    unary(cases, "neg", -2, 2, neg);
    unary(cases, "abs", -2, 2, abs);
    kinked(cases, "abs", abs);
    unary(cases, "exp", -4, 4, exp);
    unary(cases, "log", 0.25, 4, log);
    unary(cases, "sqrt", 0.25, 4, sqrt);
    unary(cases, "rsqrt", 0.25, 4, rsqrt);
    unary(cases, "tanh", -2, 2, tanh);
    saturates(cases, "tanh", tanh);
    unary(cases, "sigmoid", -4, 4, sigmoid);
    saturates(cases, "sigmoid", sigmoid);
    unary(cases, "relu", -2, 2, relu);
    kinked(cases, "relu", relu);
    unary(cases, "gelu", -4, 4, [](const Tensor& x) { return gelu(x); });
    saturates(cases, "gelu", [](const Tensor& x) { return gelu(x); });
    unary(cases, "gelu/tanh", -4, 4, [](const Tensor& x) { return gelu(x, Gelu::tanh); });
    saturates(cases, "gelu/tanh", [](const Tensor& x) { return gelu(x, Gelu::tanh); });
    unary(cases, "silu", -4, 4, silu);
    saturates(cases, "silu", silu);
    // Integers are converted to f32.
    on_ints(cases, "exp", exp);
    on_ints(cases, "log", log);
    on_ints(cases, "sqrt", sqrt);
    on_ints(cases, "rsqrt", rsqrt);
    on_ints(cases, "tanh", tanh);
    on_ints(cases, "sigmoid", sigmoid);
    unary(cases, "clamp", -2, 2, [](const Tensor& x) { return clamp(x, -0.5, 1.0); });
    unary(cases, "clamp/below", -2, 2, [](const Tensor& x) { return clamp(x, -0.5, {}); });
    unary(cases, "clamp/above", -2, 2, [](const Tensor& x) { return clamp(x, {}, 0.5); });
    kinked(cases, "clamp", [](const Tensor& x) { return clamp(x, -1.0, 1.0); });
}

}  // namespace axle::tests
