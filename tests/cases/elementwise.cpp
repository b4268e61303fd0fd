#include "core/elementwise.h"

#include <tuple>
#include <utility>

#include "core/ops.h"
#include "tests/cases/unary_cases.h"

namespace axle::tests {

namespace {

void rounding(Cases& cases) {
    const std::pair<const char*, Function> functions[] = {
        {"floor", floor}, {"ceil", ceil}, {"round", round}, {"trunc", trunc}, {"sign", sign}};
    for (const auto& [name, f] : functions) {
        const std::string torch = str("torch.", name, "(x[0])");
        unary(cases, name, torch.c_str(), -3, 3, f);
        kinked(cases, name, torch.c_str(), f);
    }
    unary(cases, "frac", "torch.frac(x[0])", -3, 3, frac);
    cases.push_back({.name = "round/halves",
                     .torch = "torch.round(x[0] * 0.5)",
                     .call = [](In x) { return round(x[0] * 0.5); },
                     .rows = {{ties({67})}},
                     .smooth = false});
}

void elementary(Cases& cases) {
    struct Range {
        const char* name;
        Function f;
        double low, high;
    };
    const Range ranges[] = {{"sin", sin, -8, 8},
                            {"cos", cos, -8, 8},
                            {"tan", tan, -1.25, 1.25},
                            {"asin", asin, -0.875, 0.875},
                            {"acos", acos, -0.875, 0.875},
                            {"atan", atan, -4, 4},
                            {"sinh", sinh, -2, 2},
                            {"cosh", cosh, -2, 2},
                            {"asinh", asinh, -4, 4},
                            {"acosh", acosh, 1.25, 4},
                            {"atanh", atanh, -0.875, 0.875},
                            {"exp2", exp2, -4, 4},
                            {"expm1", expm1, -2, 2},
                            {"log2", log2, 0.25, 4},
                            {"log10", log10, 0.25, 4},
                            {"log1p", log1p, -0.75, 4},
                            {"erf", erf, -3, 3},
                            {"erfc", erfc, -3, 3},
                            {"erfinv", erfinv, -0.875, 0.875},
                            {"lgamma", lgamma, 0.25, 6},
                            {"square", square, -2, 2},
                            {"reciprocal", reciprocal, 0.25, 4}};
    for (const auto& [name, f, low, high] : ranges)
        unary(cases, name, str("torch.", name, "(x[0])").c_str(), low, high, f);
    unary(cases, "digamma", "torch.digamma(x[0])", 0.25, 6, digamma);
    first_case(cases, "digamma").torch = "digamma(x[0])";
    on_ints(cases, "sin", "torch.sin(x[0])", sin);
    on_ints(cases, "expm1", "torch.expm1(x[0])", expm1);
    on_ints(cases, "square", "torch.square(x[0])", square);
    on_ints(cases, "reciprocal", "torch.reciprocal(x[0])", reciprocal);
    set_autocast(cases, Autocast::f32,
                 {"tan", "asin", "acos", "sinh", "cosh", "expm1", "log2", "log10", "log1p",
                  "erfinv", "reciprocal"});
    refuses<UsageError>(cases, "sin", {}, [] { sin(Tensor()); });
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);

void binary(Cases& cases, const std::string& name, Binary f, const std::vector<Row>& rows) {
    cases.push_back({.name = name,
                     .torch = str("torch.", name.substr(0, name.find('/')), "(x[0], x[1])"),
                     .call = [f](In x) { return f(x[0], x[1]); },
                     .rows = rows});
}

void quotients(Cases& cases) {
    const std::vector<Row> rows = {{floats({3, 67}, -8, 8), floats({3, 67}, 1, 3)},
                                   {floats({4, 1, 5}, -8, 8), floats({3, 1}, -3, -1)},
                                   {floats({2, 0}, 0, 1), floats({}, 1, 2)}};
    const std::vector<Row> int_rows = {{ints({67}, -9, 9), ints({67}, 1, 5)},
                                       {ints({67}, -9, 9, i32), ints({67}, -4, 0, i32)},
                                       {ints({9}, 0, 200, u8), ints({9}, 1, 9, u8)}};
    const std::pair<const char*, Binary> functions[] = {
        {"floor_divide", floor_divide}, {"fmod", fmod}, {"remainder", remainder}};
    for (const auto& [name, f] : functions) {
        binary(cases, name, f, rows);
        cases.back().gradient = name != std::string("floor_divide");
        cases.back().smooth = false;
        binary(cases, str(name, "/ints"), f, int_rows);
        cases.back().gradient = false;
        binary(cases, str(name, "/specials"), f, {{specials({11}), specials({11})}});
        cases.back().gradient = false;
        refuses<ValueError>(cases, name, {"[2, 1]"}, [f = f] {
            f(ints_of({3}), indices({3, 0}).reshape({2, 1}));
        });
    }
    const std::pair<const char*, Tensor (*)(In)> with_number[] = {
        {"floor_divide(x[0], 3)", [](In x) { return floor_divide(x[0], 3); }},
        {"fmod(x[0], -2.5)", [](In x) { return fmod(x[0], -2.5); }},
        {"remainder(x[0], 3)", [](In x) { return x[0] % 3; }}};
    for (const auto& [expression, call] : with_number) {
        const std::string text = expression;
        cases.push_back({.name = text.substr(0, text.find('(')) + "/number",
                         .torch = "torch." + text,
                         .call = call,
                         .rows = {{floats({3, 67}, -8, 8)}, {ints({9}, -9, 9)}, {floats({0, 3})}},
                         .gradient = false});
    }
    refuses<UsageError>(cases, "remainder", {}, [] { Tensor() % 2; });
    refuses<UsageError>(cases, "fmod", {}, [] { fmod(Tensor(), 2); });
    refuses<UsageError>(cases, "floor_divide", {}, [] { floor_divide(Tensor(), 2); });
    binary(cases, "atan2", atan2,
           {{floats({3, 67}), floats({3, 67})},
            {floats({4, 1}), floats({5})},
            {floats({0, 3}), floats({3})}});
    binary(cases, "atan2/origin", atan2, {{ties({67}), ties({67})}});
    cases.back().smooth = false;
    binary(cases, "atan2/specials", atan2, {{specials({11}), specials({1})}});
    cases.back().gradient = false;
    refuses<UsageError>(cases, "floor_divide", {}, [] { floor_divide(floats_of({2}), Tensor()); });
    refuses<ShapeError>(cases, "fmod", {}, [] { fmod(floats_of({2}), floats_of({3})); });
}

void pairs(Cases& cases) {
    const std::vector<Row> rows = {{floats({3, 67}), floats({3, 67})},
                                   {floats({4, 1}), floats({5})},
                                   {floats({0, 3}), floats({3})}};
    const std::pair<const char*, Binary> functions[] = {
        {"fmax", fmax},   {"fmin", fmin},           {"copysign", copysign},
        {"hypot", hypot}, {"logaddexp", logaddexp}, {"logaddexp2", logaddexp2}};
    for (const auto& [name, f] : functions) {
        binary(cases, name, f, rows);
        cases.back().twice = true;
        binary(cases, str(name, "/specials"), f, {{specials({11}), specials({1})}});
        cases.back().gradient = false;
        refuses<UsageError>(cases, name, {}, [f = f] { f(floats_of({2}), Tensor()); });
        refuses<ShapeError>(cases, name, {"[2]", "[3]"},
                            [f = f] { f(floats_of({2}), floats_of({3})); });
    }
    for (const char* const name : {"fmax/specials", "fmin/specials"})
        case_named(cases, name).rows.push_back({specials({11}), specials({11})});
    binary(cases, "xlogy", xlogy,
           {{floats({3, 67}), floats({3, 67}, 0, 2)},
            {floats({4, 1}), floats({5}, 0, 2)},
            {floats({0, 3}), floats({3})}});
    cases.back().twice = true;
    binary(cases, "xlogy/zero", xlogy,
           {{ties({67}), floats({67}, 0, 2)}, {specials({11}), specials({1})}});
    cases.back().gradient = false;
    refuses<UsageError>(cases, "xlogy", {}, [] { xlogy(Tensor(), floats_of({2})); });
    unary(cases, "sinc", "torch.sinc(x[0])", -3, 3, sinc);
    first_case(cases, "sinc").tolerance.f32 = 5e-5;  // the terms of the gradient cancel near 0
    refuses<UsageError>(cases, "sinc", {}, [] { sinc(Tensor()); });
    cases.push_back({.name = "signbit",
                     .torch = "torch.signbit(x[0])",
                     .call = [](In x) { return signbit(x[0]); },
                     .rows = {{floats({3, 67})}, {ints({9}, -4, 4)}, {floats({0, 3})}, {ties({9})}},
                     .gradient = false,
                     .own_dtype = true});
    refuses<UsageError>(cases, "signbit", {}, [] { signbit(Tensor()); });
    cases.push_back(
        {.name = "isclose",
         .torch = "torch.isclose(x[0], x[1], 0.25, 0.125)",
         .call = [](In x) { return isclose(x[0], x[1], {.rtol = 0.25, .atol = 0.125}); },
         .rows = {rows[0], rows[1], rows[2], {ints({67}, -9, 9), ints({67}, -9, 9)}},
         .gradient = false,
         .own_dtype = true});
    cases.push_back({.name = "isclose/nan",
                     .torch = "torch.isclose(x[0], x[1], equal_nan=True)",
                     .call = [](In x) { return isclose(x[0], x[1], {.equal_nan = true}); },
                     .rows = {{specials({11}), specials({11})}, {specials({11}), specials({1})}},
                     .gradient = false,
                     .own_dtype = true});
    refuses<UsageError>(cases, "isclose", {}, [] { isclose(Tensor(), floats_of({2})); });
    refuses<ValueError>(cases, "isclose", {"-1"},
                        [] { isclose(floats_of({2}), floats_of({2}), {.atol = -1}); });
}

void sums_of_products(Cases& cases) {
    cases.push_back({.name = "lerp",
                     .torch = "torch.lerp(x[0], x[1], x[2])",
                     .call = [](In x) { return lerp(x[0], x[1], x[2]); },
                     .rows = {{floats({3, 67}), floats({3, 67}), floats({67}, 0, 1)},
                              {floats({0, 3}), floats({3}), floats({})}}});
    cases.push_back({.name = "lerp/number",
                     .torch = "torch.lerp(x[0], x[1], 0.25)",
                     .call = [](In x) { return lerp(x[0], x[1], 0.25); },
                     .rows = {{floats({3, 5}), floats({3, 5})}}});
    cases.push_back({.name = "addcmul",
                     .torch = "torch.addcmul(x[0], x[1], x[2], value=0.5)",
                     .call = [](In x) { return addcmul(x[0], x[1], x[2], 0.5); },
                     .rows = {{floats({3, 67}), floats({3, 1}), floats({67})},
                              {floats({0, 3}), floats({3}), floats({})}}});
    cases.push_back({.name = "addcdiv",
                     .torch = "torch.addcdiv(x[0], x[1], x[2], value=0.5)",
                     .call = [](In x) { return addcdiv(x[0], x[1], x[2], 0.5); },
                     .rows = {{floats({3, 67}), floats({3, 1}), floats({67}, 1, 3)},
                              {floats({0, 3}), floats({3}), floats({}, 1, 3)}}});
}

void logic(Cases& cases) {
    const std::pair<const char*, Function> unaries[] = {
        {"logical_not", logical_not}, {"isnan", isnan}, {"isinf", isinf}, {"isfinite", isfinite}};
    for (const auto& [name, f] : unaries)
        cases.push_back({.name = name,
                         .torch = str("torch.", name, "(x[0])"),
                         .call = [f = f](In x) { return f(x[0]); },
                         .rows = {{specials({22})},
                                  {ties({3, 67})},
                                  {ties({0, 3})},
                                  {ints({9}, -2, 2)},
                                  {mask({7})}},
                         .gradient = false,
                         .own_dtype = true});
    const std::pair<const char*, Binary> logicals[] = {
        {"logical_and", logical_and}, {"logical_or", logical_or}, {"logical_xor", logical_xor}};
    for (const auto& [name, f] : logicals)
        cases.push_back({.name = name,
                         .torch = str("torch.", name, "(x[0], x[1])"),
                         .call = [f = f](In x) { return f(x[0], x[1]); },
                         .rows = {{ties({3, 67}), ties({67})},
                                  {ties({0, 3}), ties({3})},
                                  {specials({11}), ties({11})},
                                  {ints({9}, -1, 2), mask({9})}},
                         .gradient = false,
                         .own_dtype = true});
    const std::pair<const char*, Binary> bitwises[] = {
        {"bitwise_and", bitwise_and}, {"bitwise_or", bitwise_or}, {"bitwise_xor", bitwise_xor}};
    for (const auto& [name, f] : bitwises) {
        binary(cases, name, f,
               {{ints({3, 5}, -99, 99), ints({5}, -99, 99)},
                {ints({0, 3}, -99, 99), ints({3}, -99, 99)},
                {ints({67}, -99, 99, i32), ints({67}, 0, 99, i32)},
                {ints({9}, 0, 256, u8), ints({9}, 0, 256, u8)},
                {mask({67}), mask({67})}});
        cases.back().gradient = false;
    }
    const std::pair<const char*, Tensor (*)(In)> with_number[] = {
        {"bitwise_and(x[0], 6)", [](In x) { return x[0] & 6; }},
        {"bitwise_or(x[0], 6)", [](In x) { return x[0] | 6; }},
        {"bitwise_xor(x[0], 6)", [](In x) { return x[0] ^ 6; }}};
    for (const auto& [expression, call] : with_number) {
        const std::string text = expression;
        cases.push_back({.name = text.substr(0, text.find('(')) + "/number",
                         .torch = "torch." + text,
                         .call = call,
                         .rows = {{ints({67}, -99, 99)}, {ints({9}, 0, 256, u8)}},
                         .gradient = false});
    }
    refuses<DTypeError>(cases, "bitwise_and", {"float32"}, [] { ints_of({2}) & 1.5; });
    cases.push_back({.name = "bitwise_not",
                     .torch = "torch.bitwise_not(x[0])",
                     .call = [](In x) { return bitwise_not(x[0]); },
                     .rows = {{ints({3, 67}, -99, 99)},
                              {ints({0, 3}, -99, 99)},
                              {ints({9}, 0, 256, u8)},
                              {mask({7})}},
                     .gradient = false});
    refuses<DTypeError>(cases, "bitwise_and", {"float32"},
                        [] { bitwise_and(floats_of({2}), ints_of({2})); });
    cases.push_back({.name = "nan_to_num",
                     .torch = "torch.nan_to_num(x[0], 2, 3, -3)",
                     .call = [](In x) { return nan_to_num(x[0], 2, 3, -3); },
                     .rows = {{specials({22})}, {floats({3, 67})}, {floats({0, 3})}},
                     .smooth = false});
    cases.push_back({.name = "nan_to_num/ints",
                     .torch = "torch.nan_to_num(x[0])",
                     .call = [](In x) { return nan_to_num(x[0]); },
                     .rows = {{ints({5}, -9, 9)}},
                     .gradient = false});
    cases.push_back({.name = "nan_to_num/largest",
                     .torch = "torch.nan_to_num(x[0]).abs() > 1e4",
                     .call = [](In x) { return gt(abs(nan_to_num(x[0])), 1e4); },
                     .rows = {{specials({22})}},
                     .gradient = false,
                     .own_dtype = true});
}

void activations(Cases& cases) {
    struct Activation {
        const char *name, *torch;
        Function f;
        bool has_kinks;
    };
    const Activation rows[] = {
        {"leaky_relu", "F.leaky_relu(x[0], 0.125)",
         [](const Tensor& x) { return leaky_relu(x, 0.125); }, true},
        {"elu", "F.elu(x[0], 0.5)", [](const Tensor& x) { return elu(x, 0.5); }, false},
        {"selu", "F.selu(x[0])", selu, false},
        {"celu", "F.celu(x[0], 0.5)", [](const Tensor& x) { return celu(x, 0.5); }, false},
        {"softplus", "F.softplus(x[0])", [](const Tensor& x) { return softplus(x); }, false},
        {"softplus/beta", "F.softplus(x[0], 2, 3)",
         [](const Tensor& x) { return softplus(x, 2, 3); }, false},
        {"logsigmoid", "F.logsigmoid(x[0])", logsigmoid, false},
        {"mish", "F.mish(x[0])", mish, false},
        {"hardswish", "F.hardswish(x[0])", hardswish, false},
        {"hardsigmoid", "hardsigmoid(x[0])", hardsigmoid, false},
        {"hardtanh", "F.hardtanh(x[0], -1, 2)", [](const Tensor& x) { return hardtanh(x, -1, 2); },
         true},
        {"relu6", "F.relu6(x[0])", relu6, true},
        {"hardshrink", "F.hardshrink(x[0], 1)", [](const Tensor& x) { return hardshrink(x, 1); },
         false},
        {"softshrink", "F.softshrink(x[0], 1)", [](const Tensor& x) { return softshrink(x, 1); },
         false},
        {"tanhshrink", "F.tanhshrink(x[0])", tanhshrink, false},
        {"threshold", "F.threshold(x[0], 1, -0.5)",
         [](const Tensor& x) { return threshold(x, 1, -0.5); }, false},
    };
    for (const auto& [name, torch, f, has_kinks] : rows) {
        unary(cases, name, torch, -4, 4, f);
        if (!has_kinks) continue;
        kinked(cases, name, torch, f);
        cases.pop_back();  // PyTorch's activations do not accept integers
    }
    for (const auto& [name, torch, f] :
         {std::tuple<const char*, const char*, Function>{"elu", "F.elu(x[0])",
                                                         [](const Tensor& x) { return elu(x); }},
          {"logsigmoid", "F.logsigmoid(x[0])", logsigmoid},
          {"mish", "F.mish(x[0])", mish},
          {"hardswish", "F.hardswish(x[0])", hardswish},
          {"hardsigmoid", "hardsigmoid(x[0])", hardsigmoid}})
        saturates(cases, name, torch, f);
    set_autocast(cases, Autocast::f32, {"softplus"});
    refuses<ValueError>(cases, "celu", {"alpha"}, [] { celu(floats_of({2}), 0); });
    refuses<ValueError>(cases, "hardtanh", {"low 2", "high 1"},
                        [] { hardtanh(floats_of({2}), 2, 1); });
    refuses<ValueError>(cases, "softshrink", {"-1"}, [] { softshrink(floats_of({2}), -1); });
}

void gates(Cases& cases) {
    cases.push_back({.name = "prelu",
                     .torch = "F.prelu(x[0], x[1])",
                     .call = [](In x) { return prelu(x[0], x[1]); },
                     .rows = {{floats({4, 3}), floats({1}, 0, 1)},
                              {floats({4, 3}), floats({3}, 0, 1)},
                              {floats({2, 3, 4, 5}), floats({3}, 0, 1)},
                              {floats({0, 3}), floats({3}, 0, 1)}}});
    refuses<ShapeError>(cases, "prelu", {"[1] or [3]", "[2]"}, [] {
        prelu(floats_of({4, 3}), floats_of({2}));
    });
    cases.push_back({.name = "glu",
                     .torch = "F.glu(x[0])",
                     .call = [](In x) { return glu(x[0]); },
                     .rows = {{floats({3, 8})}, {floats({2})}, {floats({0, 4})}}});
    cases.push_back({.name = "glu/first",
                     .torch = "F.glu(x[0], 0)",
                     .call = [](In x) { return glu(x[0], 0); },
                     .rows = {{floats({4, 3, 5})}}});
    refuses<ShapeError>(cases, "glu", {"even", "[2, 3]"}, [] { glu(floats_of({2, 3})); });
    const std::vector<Row> halves = {
        {floats({3, 8})}, {floats({2})}, {floats({0, 4})}, {floats({3, 70})}};
    cases.push_back({.name = "swiglu",
                     .torch = "x[0].chunk(2, -1)[0] * F.silu(x[0].chunk(2, -1)[1])",
                     .call = [](In x) { return swiglu(x[0]); },
                     .rows = halves});
    cases.push_back({.name = "geglu",
                     .torch = "x[0].chunk(2, -1)[0] * F.gelu(x[0].chunk(2, -1)[1])",
                     .call = [](In x) { return geglu(x[0]); },
                     .rows = halves});
    cases.push_back({.name = "softmin",
                     .torch = "F.softmin(x[0], 0)",
                     .call = [](In x) { return softmin(x[0], 0); },
                     .rows = halves,
                     .autocast = Autocast::f32});
    refuses<ShapeError>(cases, "swiglu", {"even", "[2, 3]"}, [] { swiglu(floats_of({2, 3})); });
    refuses<ShapeError>(cases, "geglu", {"even", "[]"}, [] { geglu(floats_of({})); });
    refuses<IndexError>(cases, "softmin", {"2"}, [] { softmin(floats_of({2}), 2); });
    refuses<DTypeError>(cases, "softmin", {"int64"}, [] { softmin(ints_of({2})); });
}

}  // namespace

void add_elementwise_cases(Cases& cases) {
    rounding(cases);
    elementary(cases);
    quotients(cases);
    pairs(cases);
    sums_of_products(cases);
    logic(cases);
    activations(cases);
    gates(cases);
}

}  // namespace axle::tests
