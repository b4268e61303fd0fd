#include <algorithm>
#include <set>

#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

// Returns an error text unless all values are in [low, high). Cases of random ops check ranges and
// structure; tests/core/ops/random_test.cpp checks distributions.
std::string outside(const Tensor& y, double low, double high) {
    for (const double value : y.to_vector())
        if (!(value >= low && value < high))
            return str(value, " is outside [", low, ", ", high, ")");
    return "";
}

// Returns an error text unless every row of y contains different classes with nonzero weights.
std::string repeated_or_impossible(const Tensor& weights, const Tensor& y) {
    const auto w = weights.to_vector(), chosen = y.to_vector();
    const auto classes = static_cast<std::size_t>(weights.size(-1));
    const auto samples = static_cast<std::size_t>(y.size(-1));
    for (std::size_t row = 0; row * samples < chosen.size(); ++row) {
        std::set<double> seen;
        for (std::size_t i = 0; i < samples; ++i) {
            const double value = chosen[row * samples + i];
            if (!seen.insert(value).second) return str("class ", value, " is drawn twice");
            if (!(w[row * classes + static_cast<std::size_t>(value)] > 0))
                return str("class ", value, " is drawn, but its weight is 0");
        }
    }
    return "";
}

void add_bad_random_calls(Cases& cases) {
    refuses<ValueError>(cases, "randint", {"3"}, [] { randint(3, 3, {2}); });
    refuses<ValueError>(cases, "gumbel_softmax", {"tau", "0"},
                        [] { gumbel_softmax(floats_of({2}), 0); });
    refuses<DTypeError>(cases, "gumbel_softmax", {"int64"}, [] { gumbel_softmax(ints_of({2})); });
    refuses<ValueError>(cases, "dropout", {"1.5"}, [] { dropout(floats_of({2}), 1.5); });
    refuses<ValueError>(cases, "dropout", {"-0.5"}, [] { dropout(floats_of({2}), -0.5); });
    refuses<Error>(cases, "multinomial", {"[3]", "4"}, [] { multinomial(floats_of({3}), 4); });
    refuses<Error>(cases, "multinomial", {}, [] { multinomial(floats_of({3}), 0); });
    refuses<DTypeError>(cases, "multinomial", {"int64"}, [] { multinomial(ints_of({3}), 1); });
    refuses<ValueError>(cases, "multinomial", {}, [] { multinomial(zeros({3}), 1); });
    refuses<ValueError>(cases, "multinomial", {}, [] { multinomial(full({3}, -1.0), 1); });
    refuses<DTypeError>(cases, "rand", {"int64"}, [] { rand({3}, {i64}); });
    refuses<DTypeError>(cases, "randn", {"int64"}, [] { randn({3}, {i64}); });
    refuses<DTypeError>(cases, "rand_like", {"int64"}, [] { rand_like(ints_of({3})); });
    refuses<DTypeError>(cases, "randn_like", {"bool"}, [] { randn_like(bools_of({3})); });
    refuses<ValueError>(cases, "randint_like", {"0"}, [] { randint_like(floats_of({3}), 0); });
    refuses<ShapeError>(cases, "randperm", {"-1"}, [] { randperm(-1); });
    refuses<ValueError>(cases, "randperm", {"uint8", "257"}, [] { randperm(257, {u8}); });
    refuses<ValueError>(cases, "bernoulli", {"1.5"}, [] { bernoulli(1.5, {2}); });
    refuses<ValueError>(cases, "bernoulli", {"-1"}, [] { bernoulli(full({2}, -1.0)); });
    refuses<DTypeError>(cases, "bernoulli", {"int64"}, [] { bernoulli(ints_of({3})); });
    refuses<ValueError>(cases, "normal", {"-1"}, [] { normal(0, -1, {2}); });
    refuses<ValueError>(cases, "normal", {"-1"}, [] { normal(0, full({2}, -1.0)); });
    refuses<ValueError>(cases, "normal", {"-2"}, [] { normal(floats_of({2}), -2); });
    refuses<ShapeError>(cases, "normal", {"[2]", "[3]"},
                        [] { normal(floats_of({2}), floats_of({3})); });
}

// Returns an error text unless y contains the numbers 0 to n - 1, where n is its size.
std::string no_permutation(const Tensor& y) {
    auto values = y.to_vector();
    std::sort(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] != static_cast<double>(i)) return str("does not contain ", i);
    return "";
}

// Adds cases of ops whose result has the shape and dtype of their operand, and of randperm().
void add_like_cases(Cases& cases) {
    const auto like = [&](std::string name, double low, double high,
                          std::function<Outputs(In)> call) {
        cases.push_back(
            {.name = std::move(name),
             .call = std::move(call),
             .rows = {{floats({3, 67}, 0, 1)}, {floats({}, 0, 1)}, {floats({0, 4}, 0, 1)}},
             .gradient = false,
             .check = [=](In x, const Outputs& y) {
                 if (y[0].dtype() != x[0].dtype()) return str("dtype ", y[0].dtype());
                 if (y[0].shape() != x[0].shape()) return str("shape ", y[0].shape());
                 return outside(y[0], low, high);
             }});
    };
    like("rand_like", 0, 1, [](In x) { return rand_like(x[0]); });
    like("randn_like", -8, 8, [](In x) { return randn_like(x[0]); });
    like("randint_like", 0, 5, [](In x) { return randint_like(x[0], 5); });
    like("randint_like/low", -3, 5, [](In x) { return randint_like(x[0], -3, 5); });
    like("bernoulli", 0, 2, [](In x) { return bernoulli(x[0]); });
    like("normal", -9, 10, [](In x) { return normal(x[0], x[0]); });
    like("normal/mean", -9, 10, [](In x) { return normal(x[0]); });
    like("normal/std", -9, 10, [](In x) { return normal(1, x[0]); });
    const auto permutation = [&](std::string name, DType dtype, std::function<Outputs(In)> call) {
        cases.push_back({.name = std::move(name),
                         .call = std::move(call),
                         .rows = no_inputs(),
                         .gradient = false,
                         .check = [=](In, const Outputs& y) {
                             if (y[0].dtype() != dtype) return str("dtype ", y[0].dtype());
                             return no_permutation(y[0]);
                         }});
    };
    permutation("randperm", i64, [](In) { return randperm(67); });
    permutation("randperm/f32", f32, [](In) { return randperm(5, {f32}); });
    permutation("randperm/none", i32, [](In) { return randperm(0, {i32}); });
    permutation("randperm/one", i64, [](In) { return randperm(1); });
}

}  // namespace

void add_random_cases(Cases& cases) {
    const auto random = [&](std::string name, std::function<Outputs(In)> call, double low,
                            double high, DType dtype) {
        cases.push_back({.name = std::move(name),
                         .call = std::move(call),
                         .rows = no_inputs(),
                         .gradient = false,
                         .check = [=](In, const Outputs& y) {
                             if (y[0].dtype() != dtype) return str("dtype ", y[0].dtype());
                             return outside(y[0], low, high);
                         }});
    };
    random(
        "rand",
        [](In) {
            return rand({3, 67});
        },
        0, 1, f32);
    random(
        "rand/bf16", [](In) { return rand({1000}, {bf16}); }, 0, 1, bf16);
    random(
        "rand/empty",
        [](In) {
            return rand({0, 3}, {f64});
        },
        0, 1, f64);
    random(
        "randn",
        [](In) {
            return randn({3, 67});
        },
        -8, 8, f32);
    random(
        "randn/empty", [](In) { return randn({0}, {f64}); }, 0, 1, f64);
    random(
        "randint",
        [](In) {
            return randint(-3, 4, {3, 67});
        },
        -3, 4, i64);
    random(
        "randint/i32", [](In) { return randint(7, 8, {}, {i32}); }, 7, 8, i32);

    const std::vector<Row> rows = {
        {floats({4, 5})}, {floats({})}, {floats({0, 3})}, {floats({1, 1})}, {floats({3, 67})}};
    cases.push_back({.name = "dropout",
                     .call = [](In x) { return dropout(x[0], 0.25); },
                     .rows = rows,
                     .large = {floats({257, 263})},
                     .twice = true,
                     .check =
                         [](In x, const Outputs& y) {
                             const auto from = x[0].to_vector(), to = y[0].to_vector();
                             for (std::size_t i = 0; i < to.size(); ++i)
                                 if (to[i] != 0 && std::abs(to[i] * 0.75 - from[i]) > 0.02)
                                     return str(from[i], " became ", to[i]);
                             return std::string();
                         }});
    cases.push_back({.name = "dropout/off",
                     .torch = "F.dropout(x[0], 0.25, False)",
                     .call = [](In x) { return dropout(x[0], 0.25, false); },
                     .rows = rows,
                     .twice = true});
    cases.push_back({.name = "dropout/everything",
                     .torch = "F.dropout(x[0], 1.0)",
                     .call = [](In x) { return dropout(x[0], 1); },
                     .rows = rows});

    cases.push_back(
        {.name = "multinomial",
         .call = [](In x) { return multinomial(x[0], 3); },
         .rows = {{floats({5}, 0.25, 4)},
                  {floats({4, 3}, 0.25, 4)},
                  {floats({0, 3}, 0.25, 4)},
                  {floats({3, 67}, 0.25, 4)}},
         .gradient = false,
         .check = [](In x, const Outputs& y) { return repeated_or_impossible(x[0], y[0]); }});
    cases.push_back(
        {.name = "multinomial/replacement",
         .call = [](In x) { return multinomial(x[0], 8, true); },
         .rows = {{floats({5}, 0.25, 4)}, {floats({2, 1}, 0.25, 4)}, {floats({3, 67}, 0.25, 4)}},
         .gradient = false,
         .check =
             [](In x, const Outputs& y) {
                 return outside(y[0], 0, static_cast<double>(x[0].size(-1)));
             }});
    const auto is_distribution = [](In, const Outputs& y) -> std::string {
        return all(abs(sum(y[0], {-1}) - 1) < 0.02).item() != 0 ? "" : "a sum is not 1";
    };
    cases.push_back({.name = "gumbel_softmax",
                     .call = [](In x) { return gumbel_softmax(x[0], 0.5); },
                     .rows = {{floats({4, 5})}, {floats({0, 3})}, {floats({3, 67})}},
                     .autocast = Autocast::f32,
                     .check = is_distribution});
    cases.push_back({.name = "gumbel_softmax/hard",
                     .call = [](In x) { return gumbel_softmax(x[0], 2, true); },
                     .rows = {{floats({4, 5})}, {floats({0, 3})}, {floats({3, 67})}},
                     .gradient = false,
                     .autocast = Autocast::f32,
                     .check = is_distribution});
    add_like_cases(cases);
    add_bad_random_calls(cases);
}

}  // namespace axle::tests
