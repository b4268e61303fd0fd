#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Returns pairs of operands with equal shapes, and with shapes that are broadcast in several ways.
std::vector<Row> pairs(double low = -2, double high = 2) {
    const auto pair = [&](const Shape& a, const Shape& b) {
        return Row{floats(a, low, high), floats(b, low, high)};
    };
    return {pair({4, 5}, {4, 5}), pair({3, 1, 4}, {2, 1}), pair({}, {5}),
            pair({5}, {}),        pair({0, 3}, {1, 3}),    pair({}, {}),
            pair({3, 67}, {67}),  pair({3, 1}, {1, 67})};
}

// Adds cases of a binary op whose formula must have a second derivative.
void binary(Cases& cases, std::string name, std::string torch, double low,
            std::function<Outputs(In)> call) {
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = call,
                     .rows = pairs(low),
                     .large = {floats({129, 517}, low), floats({517}, low)},
                     .twice = true});
    cases.push_back({.name = name + "/specials",
                     .torch = torch,
                     .call = call,
                     .rows = {{specials({11, 1}), specials({1, 11})}},
                     .gradient = false});
}

void with_number(Cases& cases, std::string name, std::string torch, double low,
                 std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = {{floats({4, 5}, low)},
                              {floats({}, low)},
                              {floats({2, 0, 3}, low)},
                              {floats({3, 67}, low)}},
                     .large = {floats({257, 263}, low)},
                     .twice = true});
}

void on_ints(Cases& cases, std::string name, std::string torch, std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = {{ints({3, 67}, -9, 9), ints({67}, 1, 9)},
                              {ints({3, 5}, -9, 9, i32), ints({3, 1}, 1, 9)},
                              {ints({7}, 0, 99, u8), ints({7}, 1, 9, u8)},
                              {ints({7}, -9, 9), ints({}, 1, 9, i32)},
                              {ints({0, 3}, -9, 9, i32), ints({1, 3}, 1, 9, i32)}},
                     .gradient = false});
}

void add_bad_arithmetic_calls(Cases& cases) {
    refuses<ShapeError>(cases, "add", {"[2, 3]", "[4]"}, [] {
        add(floats_of({2, 3}), floats_of({4}));
    });
    refuses<DeviceError>(cases, "add", {"cpu", "meta"}, [] {
        add(floats_of({2}), ones({2}, {f32, Device::meta()}));
    });
    refuses<UsageError>(cases, "add", {}, [] { add(floats_of({2}), Tensor()); });
    refuses<ShapeError>(cases, "sub", {"[2, 3]", "[2]"}, [] {
        sub(floats_of({2, 3}), floats_of({2}));
    });
    refuses<ShapeError>(cases, "mul", {"[2, 3]", "[0, 3]"}, [] {
        mul(floats_of({2, 3}), floats_of({0, 3}));
    });
    refuses<ShapeError>(cases, "div", {"[2]", "[3]"}, [] { div(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "pow", {"[2]", "[3]"}, [] { pow(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "maximum", {"[2]", "[3]"},
                        [] { maximum(floats_of({2}), floats_of({3})); });
}

}  // namespace

void add_arithmetic_cases(Cases& cases) {
    binary(cases, "add", "torch.add(x[0], x[1])", -2, [](In x) { return add(x[0], x[1]); });
    binary(cases, "sub", "torch.sub(x[0], x[1])", -2, [](In x) { return sub(x[0], x[1]); });
    binary(cases, "mul", "torch.mul(x[0], x[1])", -2, [](In x) { return mul(x[0], x[1]); });
    binary(cases, "div", "torch.div(x[0], x[1])", 0.5, [](In x) { return div(x[0], x[1]); });
    binary(cases, "maximum", "torch.maximum(x[0], x[1])", -2,
           [](In x) { return maximum(x[0], x[1]); });
    binary(cases, "minimum", "torch.minimum(x[0], x[1])", -2,
           [](In x) { return minimum(x[0], x[1]); });
    binary(cases, "pow", "torch.pow(x[0], x[1])", 0.5, [](In x) { return pow(x[0], x[1]); });

    with_number(cases, "add/number", "x[0] + 1.5", -2, [](In x) { return add(x[0], 1.5); });
    with_number(cases, "sub/number", "x[0] - 1.5", -2, [](In x) { return sub(x[0], 1.5); });
    with_number(cases, "mul/number", "x[0] * -2.5", -2, [](In x) { return mul(x[0], -2.5); });
    with_number(cases, "div/number", "x[0] / 3", -2, [](In x) { return div(x[0], 3); });
    with_number(cases, "sub/from_number", "1.5 - x[0]", -2, [](In x) { return sub(1.5, x[0]); });
    with_number(cases, "div/number_by", "1.5 / x[0]", 0.5, [](In x) { return div(1.5, x[0]); });
    with_number(cases, "pow/number", "x[0]**2.5", 0.5, [](In x) { return pow(x[0], 2.5); });
    with_number(cases, "pow/root", "x[0]**0.5", 0.5, [](In x) { return pow(x[0], 0.5); });
    with_number(cases, "pow/base", "2.5**x[0]", -2, [](In x) { return pow(2.5, x[0]); });
    with_number(cases, "pow/negative", "x[0]**-1.5", 0.5, [](In x) { return pow(x[0], -1.5); });
    for (const int exponent : {0, 1, 2, 3, 4})
        with_number(cases, str("pow/", exponent), str("x[0]**", exponent), -2,
                    [exponent](In x) { return pow(x[0], exponent); });

    on_ints(cases, "add/ints", "torch.add(x[0], x[1])", [](In x) { return add(x[0], x[1]); });
    on_ints(cases, "sub/ints", "torch.sub(x[0], x[1])", [](In x) { return sub(x[0], x[1]); });
    on_ints(cases, "mul/ints", "torch.mul(x[0], x[1])", [](In x) { return mul(x[0], x[1]); });
    on_ints(cases, "div/ints", "torch.div(x[0], x[1])", [](In x) { return div(x[0], x[1]); });
    on_ints(cases, "maximum/ints", "torch.maximum(x[0], x[1])",
            [](In x) { return maximum(x[0], x[1]); });
    on_ints(cases, "minimum/ints", "torch.minimum(x[0], x[1])",
            [](In x) { return minimum(x[0], x[1]); });
    on_ints(cases, "pow/ints", "x[0]**3", [](In x) { return pow(x[0], 3); });
    on_ints(cases, "add/int_number", "x[0] + 2", [](In x) { return add(x[0], 2); });
    on_ints(cases, "mul/float_number", "x[0] * 1.5", [](In x) { return mul(x[0], 1.5); });

    // Integers and booleans are promoted to the floating dtype.
    cases.push_back({.name = "mul/promoted",
                     .torch = "x[0] * x[1] * x[2]",
                     .call = [](In x) { return mul(mul(x[0], x[1]), x[2]); },
                     .rows = {{floats({3, 5}), ints({5}, -3, 4), mask({3, 5})},
                              {floats({67}), ints({}, -3, 4, i32), mask({67})}},
                     .twice = true});
    cases.push_back({.name = "mul/itself",
                     .torch = "x[0] * x[0]",
                     .call = [](In x) { return mul(x[0], x[0]); },
                     .rows = {{floats({3, 5})}, {floats({67})}},
                     .twice = true});
    cases.push_back({.name = "pow/zero_base",
                     .torch = "torch.pow(torch.relu(x[0]), x[1])",
                     .call = [](In x) { return pow(relu(x[0]), x[1]); },
                     .rows = {{frozen(ties({67})), ties({67})}},
                     .smooth = false});
    for (const bool largest : {true, false}) {
        cases.push_back(
            {.name = largest ? "maximum/nan_slope" : "minimum/nan_slope",
             .torch = largest ? "torch.maximum(x[0], x[1])" : "torch.minimum(x[0], x[1])",
             .call =
                 [largest](In x) { return largest ? maximum(x[0], x[1]) : minimum(x[0], x[1]); },
             .rows = {{specials({11}), specials({11, 1})}},
             .smooth = false});
        cases.push_back(
            {.name = largest ? "maximum/ties" : "minimum/ties",
             .torch = largest ? "torch.maximum(x[0], x[1])" : "torch.minimum(x[0], x[1])",
             .call =
                 [largest](In x) { return largest ? maximum(x[0], x[1]) : minimum(x[0], x[1]); },
             .rows = {{ties({4, 5}), ties({4, 5})}, {ties({3, 67}), ties({67})}},
             .smooth = false});
    }
    set_autocast(cases, Autocast::f32, {"pow"});
    set_autocast(cases, Autocast::widest, {"add", "sub", "mul", "div", "maximum", "minimum"});
    add_bad_arithmetic_calls(cases);
}

}  // namespace axle::tests
