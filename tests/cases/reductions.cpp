#include "core/reductions.h"

#include <cmath>
#include <limits>

#include "core/ops.h"
#include "tests/cases/reduction_cases.h"

namespace axle::tests {

namespace {

Input uniform(const Shape& shape) { return floats(shape); }

void truth(Cases& cases) {
    const std::vector<Row> rows = {{ties({3, 4})},           {ties({3, 67})}, {specials({3, 11})},
                                   {ties({4, 0})},           {ties({0, 4})},  {ints({3, 5}, -1, 2)},
                                   {ints({3, 5}, 0, 2, u8)}, {mask({4, 3})}};
    const auto both = [&](const std::string& name, const Reduce& f) {
        plain(cases, name, str("torch.", name, "(x[0], -1)"), rows, [=](In x) {
            return f(x[0], -1, false);
        }).own_dtype = true;
        cases.back().large = {ties({257, 263})};
        plain(cases, name + "/all", str("torch.", name, "(x[0])"), rows, [=](In x) {
            return f(x[0], {}, false);
        }).own_dtype = true;
        plain(cases, name + "/two", str("torch.", name, "(x[0], (0, 2), keepdim=True)"),
              {{ties({2, 9, 2})}, {mask({2, 67, 3})}},
              [=](In x) {
                  return f(x[0], {0, 2}, true);
              })
            .own_dtype = true;
        refuses<IndexError>(cases, name, {"2"}, [=] { f(floats_of({2, 3}), 2, false); });
        refuses<UsageError>(cases, name, {}, [=] { f(Tensor(), {}, false); });
    };
    both("any", [](const Tensor& x, const Dims& d, bool k) { return any(x, d, k); });
    both("all", [](const Tensor& x, const Dims& d, bool k) { return all(x, d, k); });
    plain(cases, "count_nonzero", "torch.count_nonzero(x[0], -1)", rows,
          [](In x) { return count_nonzero(x[0], -1); });
    plain(cases, "count_nonzero/all", "torch.count_nonzero(x[0])", rows,
          [](In x) { return count_nonzero(x[0]); });
    refuses<ValueError>(cases, "count_nonzero", {"duplicate"}, [] {
        count_nonzero(floats_of({2, 3}), {0, -2});
    });
}

void sums_without_nan(Cases& cases) {
    reduces(cases, "nansum", "torch.nansum(x[0], ", uniform,
            [](const Tensor& x, const Dims& d, bool k) { return nansum(x, d, k); });
    reduces(cases, "nanmean", "torch.nanmean(x[0], ", uniform,
            [](const Tensor& x, const Dims& d, bool k) { return nanmean(x, d, k); });
    // The square roots of negative elements are NaN. In the second input of nanmean, all
    // square roots are NaN.
    plain(cases, "nansum/nan", "torch.nansum(torch.sqrt(x[0]), -1)",
          {{floats({3, 67})}, {floats({4, 3})}}, [](In x) { return nansum(sqrt(x[0]), -1); });
    plain(cases, "nanmean/nan", "torch.nanmean(torch.sqrt(x[0]), -1)",
          {{floats({3, 67})}, {floats({4, 3}, -2, -1)}},
          [](In x) { return nanmean(sqrt(x[0]), -1); });
    plain(cases, "nansum/ints", "torch.nansum(x[0])", {{ints({3, 67}, -9, 9, i32)}, {mask({9})}},
          [](In x) { return nansum(x[0]); });
    refuses<DTypeError>(cases, "nanmean", {"int64"}, [] { nanmean(ints_of({2})); });
    refuses<IndexError>(cases, "nansum", {"1"}, [] { nansum(floats_of({2}), 1); });
}

void products_and_logs(Cases& cases) {
    // The gradient is a product of many rounded factors, so the tolerance is larger.
    const auto along = [&](const char* name, const char* torch, std::int64_t dim, bool keep,
                           std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return prod(x[0], dim, keep); },
                         .rows = std::move(rows),
                         .twice = true,
                         .tolerance = {.f16 = 8e-3, .bf16 = 6e-2}});
    };
    along("prod", "x[0].prod(-1)", -1, false,
          {{floats({3, 4})},
           {floats({})},
           {floats({0, 4})},
           {floats({4, 0})},
           {floats({5, 1})},
           {floats({3, 67}, 0.5, 1.5)},
           {floats({2, 64}, 0.5, 1.5)}});
    cases.back().large = {floats({263, 67}, 0.5, 1.5)};
    along("prod/first", "x[0].prod(0, keepdim=True)", 0, true,
          {{floats({4, 3})}, {floats({7, 3, 5})}, {floats({0, 3})}});
    // Some rows have one zero, other rows have several zeros.
    along("prod/zeros", "x[0].prod(-1)", -1, false, {{ties({9, 4})}, {ties({3, 7})}});
    cases.push_back({.name = "prod/all",
                     .torch = "x[0].prod()",
                     .call = [](In x) { return prod(x[0]); },
                     .rows = {{floats({2, 3})}, {floats({})}, {floats({0, 3})}},
                     .twice = true});
    plain(cases, "prod/other", "x[0].prod(-1)",
          {{ints({3, 67}, -2, 3)},
           {ints({5, 4}, -9, 9, i32)},
           {ints({9}, 1, 9, u8)},
           {mask({3, 67})},
           {specials({4})},
           {specials({3, 11})}},
          [](In x) { return prod(x[0], -1); });
    refuses<IndexError>(cases, "prod", {"1"}, [] { prod(floats_of({2}), 1); });
    refuses<UsageError>(cases, "prod", {}, [] { prod(Tensor()); });

    const MakeInput wide = [](const Shape& shape) { return floats(shape, -8, 8); };
    reduces(cases, "logsumexp", "torch.logsumexp(x[0], ", wide,
            [](const Tensor& x, const Dims& d, bool k) { return logsumexp(x, d, k); });
    // The gradient e^(x - y) depends on the rounding of the result y.
    for (OpCase& c : cases)
        if (c.op() == "logsumexp") c.tolerance = {.f16 = 8e-3, .bf16 = 6e-2};
    plain(cases, "logsumexp/far", "torch.logsumexp(x[0], -1)",
          {{floats({3, 67}, 800, 900)},
           {specials({11})},
           {specials({4})},
           {specials({3, 1})},
           {specials({5, 2})}},
          [](In x) { return logsumexp(x[0], -1); });
    plain(cases, "logsumexp/log", "torch.logsumexp(torch.log(x[0]), -1)",
          {{ints({3, 5}, 0, 1)}, {ints({3, 67}, 0, 3, i32)}},
          [](In x) { return logsumexp(log(x[0]), -1); });
    plain(
        cases, "logsumexp/nothing", "torch.logsumexp(x[0], 0)", {{floats({0, 3})}},
        [](In x) { return logsumexp(x[0], 0); }, true);
    plain(cases, "logsumexp/ints", "torch.logsumexp(x[0], 0)", {{ints({5, 3}, -3, 3)}},
          [](In x) { return logsumexp(x[0], 0); });
    refuses<IndexError>(cases, "logsumexp", {"1"}, [] { logsumexp(floats_of({2}), 1); });

    const auto cumulative = [&](const char* name, const char* torch, std::int64_t dim,
                                std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return logcumsumexp(x[0], dim); },
                         .rows = std::move(rows),
                         .tolerance = {.f16 = 1e-2, .bf16 = 8e-2}});
    };
    cumulative("logcumsumexp", "torch.logcumsumexp(x[0], -1)", -1,
               {{floats({3, 4})},
                {floats({})},
                {floats({0, 4})},
                {floats({5, 1})},
                {floats({3, 67}, -8, 8)}});
    cumulative("logcumsumexp/first", "torch.logcumsumexp(x[0], 0)", 0,
               {{floats({4, 3})}, {floats({7, 3, 5})}});
    plain(cases, "logcumsumexp/far", "torch.logcumsumexp(x[0], -1)",
          {{floats({3, 67}, -900, 900)}, {specials({4})}, {specials({3, 11})}},
          [](In x) { return logcumsumexp(x[0], -1); });
    refuses<DTypeError>(cases, "logcumsumexp", {"int64"}, [] { logcumsumexp(ints_of({2}), 0); });
}

void norms(Cases& cases) {
    const double infinity = std::numeric_limits<double>::infinity();
    struct Order {
        const char *variant, *torch;
        double p;
    };
    const Order orders[] = {{"", "2", 2},
                            {"/zero", "0", 0},
                            {"/half", "0.5", 0.5},
                            {"/one", "1", 1},
                            {"/fraction", "1.5", 1.5},
                            {"/three", "3", 3},
                            {"/negative", "-1", -1},
                            {"/inf", "inf", infinity},
                            {"/minus_inf", "-inf", -infinity}};
    for (const auto& [variant, text, p] : orders) {
        const std::string name = str("vector_norm", variant);
        const double order = p;
        // An infinite norm has no derivative where the largest absolute values are equal.
        const MakeInput make = [=](const Shape& shape) {
            Input input = std::isinf(order) ? distinct(shape) : floats(shape);
            if (std::isinf(order)) input.low = 1;
            return input;
        };
        reduces(cases, name, str("torch.linalg.vector_norm(x[0], ", text, ", "), make,
                [order](const Tensor& x, const Dims& d, bool k) {
                    return vector_norm(x, order, d, k);
                });
        // Powers below 1 enlarge the rounding errors of small elements.
        for (OpCase& c : cases)
            if (c.name.starts_with(name) && (order == 0.5 || order == -1))
                c.tolerance = {.f32 = 1e-5, .f16 = 8e-3, .bf16 = 6e-2};
        // These rows have zeros, for which the gradient is a subgradient.
        plain(
            cases, name + "/zeros", str("torch.linalg.vector_norm(x[0], ", text, ", dim=-1)"),
            {{ties({9, 2})}, {ties({3, 7})}},
            [order](In x) { return vector_norm(x[0], order, -1); }, true);
        plain(cases, name + "/specials", str("torch.linalg.vector_norm(x[0], ", text, ", dim=-1)"),
              {{specials({7, 1})}, {specials({2, 3})}},
              [order](In x) { return vector_norm(x[0], order, -1); });
    }
    reduces(cases, "norm", "torch.norm(x[0], 2, ", uniform,
            [](const Tensor& x, const Dims& d, bool k) { return norm(x, 2, d, k); });
    plain(
        cases, "norm/nothing", "torch.norm(x[0], 2, dim=0)", {{floats({0, 3})}},
        [](In x) { return norm(x[0], 2, 0); }, true);
    refuses<DTypeError>(cases, "norm", {"int64"}, [] { norm(ints_of({2})); });
    refuses<IndexError>(cases, "norm", {"1"}, [] { norm(floats_of({2}), 2, 1); });
    refuses<ValueError>(cases, "vector_norm", {"[0, 3]"}, [=] {
        vector_norm(floats_of({0, 3}), infinity, 0);
    });

    cases.push_back({.name = "renorm",
                     .torch = "torch.renorm(x[0], 2, 0, 3)",
                     .call = [](In x) { return renorm(x[0], 2, 0, 3); },
                     .rows = {{floats({4, 5})}, {floats({3, 67})}, {floats({0, 3})}},
                     .twice = true});
    cases.push_back({.name = "renorm/last",
                     .torch = "torch.renorm(x[0], 1, -1, 2.5)",
                     .call = [](In x) { return renorm(x[0], 1, -1, 2.5); },
                     .rows = {{floats({4, 5, 2})}},
                     .twice = true});
    refuses<ShapeError>(cases, "renorm", {"[2]"}, [] { renorm(floats_of({2}), 2, 0, 1); });
    refuses<ValueError>(cases, "renorm", {"-1"}, [] { renorm(floats_of({2, 2}), -1, 0, 1); });
}

void deviations(Cases& cases) {
    const std::size_t first = cases.size();
    reduces(cases, "std", "torch.std(x[0], correction=1, ", uniform,
            [](const Tensor& x, const Dims& d, bool k) { return axle::std(x, d, 1, k); });
    reduces(cases, "std/population", "torch.std(x[0], correction=0, ", uniform,
            [](const Tensor& x, const Dims& d, bool k) { return axle::std(x, d, 0, k); });
    plain(
        cases, "std/equal", "torch.std(x[0], -1)", {{ties({25, 2})}},
        [](In x) { return axle::std(x[0], -1); }, true);
    plain(cases, "std/single", "torch.std(x[0], -1)", {{floats({3, 1})}, {floats({2, 0})}},
          [](In x) { return axle::std(x[0], -1); });
    const auto pairs = [&](const char* name, auto f) {
        cases.push_back({.name = name,
                         .torch = str("torch.", name, "(x[0], -1)"),
                         .call = [=](In x) { return f(x[0], -1, 1, false); },
                         .rows = {{floats({3, 4})}, {floats({3, 67})}, {floats({0, 4})}},
                         .twice = true});
        cases.push_back({.name = str(name, "/all"),
                         .torch = str("torch.", name, "(x[0], correction=0, keepdim=True)"),
                         .call = [=](In x) { return f(x[0], {}, 0, true); },
                         .rows = {{floats({2, 3, 4})}},
                         .twice = true});
        refuses<DTypeError>(cases, name, {"int64"}, [=] { f(ints_of({2}), {}, 1, false); });
    };
    pairs("var_mean",
          [](const Tensor& x, const Dims& d, double c, bool k) { return var_mean(x, d, c, k); });
    pairs("std_mean",
          [](const Tensor& x, const Dims& d, double c, bool k) { return std_mean(x, d, c, k); });
    refuses<DTypeError>(cases, "std", {"int64"}, [] { axle::std(ints_of({2})); });
    refuses<IndexError>(cases, "std", {"1"}, [] { axle::std(floats_of({2}), 1); });
    for (std::size_t i = first; i < cases.size(); ++i) cases[i].layout_bits = false;
}

void differences(Cases& cases) {
    cases.push_back({.name = "diff",
                     .torch = "torch.diff(x[0])",
                     .call = [](In x) { return diff(x[0]); },
                     .rows = {{floats({3, 4})}, {floats({3, 67})}, {floats({0, 3})}, {floats({1})}},
                     .twice = true});
    cases.push_back({.name = "diff/second",
                     .torch = "torch.diff(x[0], 2, 0, x[1], x[2])",
                     .call = [](In x) { return diff(x[0], 2, 0, x[1], x[2]); },
                     .rows = {{floats({4, 3}), floats({1, 3}), floats({2, 3})}},
                     .twice = true});
    plain(cases, "diff/other", "torch.diff(x[0])",
          {{ints({67}, -9, 9)}, {ints({3, 5}, 0, 200, u8)}, {mask({9})}},
          [](In x) { return diff(x[0]); });
    plain(
        cases, "diff/none", "torch.diff(x[0], 0)", {{floats({3, 4})}},
        [](In x) { return diff(x[0], 0); }, true);
    plain(
        cases, "diff/more", "torch.diff(x[0], 5)", {{floats({3, 4})}},
        [](In x) { return diff(x[0], 5); }, true);
    refuses<ShapeError>(cases, "diff", {"[]"}, [] { diff(floats_of({})); });
    refuses<ShapeError>(cases, "diff", {"prepend", "[2, 2]"}, [] {
        diff(floats_of({3, 2}), 1, 1, floats_of({2, 2}));
    });
    refuses<ValueError>(cases, "diff", {"-1"}, [] { diff(floats_of({2}), -1); });
    cases.push_back(
        {.name = "trapezoid",
         .torch = "torch.trapezoid(x[0], dx=0.5)",
         .call = [](In x) { return trapezoid(x[0], 0.5); },
         .rows = {{floats({3, 4})}, {floats({3, 67})}, {floats({0, 3})}, {floats({2, 0})}},
         .twice = true});
    cases.push_back({.name = "trapezoid/points",
                     .torch = "torch.trapezoid(x[0], x[1], dim=0)",
                     .call = [](In x) { return trapezoid(x[0], x[1], 0); },
                     .rows = {{floats({4, 3}), floats({4})}, {floats({4, 3}), floats({4, 3})}},
                     .twice = true});
    plain(cases, "trapezoid/ints", "torch.trapezoid(x[0])", {{ints({9}, -9, 9)}},
          [](In x) { return trapezoid(x[0]); });
    refuses<ShapeError>(cases, "trapezoid", {"[3]", "[2, 4]"}, [] {
        trapezoid(floats_of({2, 4}), floats_of({3}));
    });
    refuses<ShapeError>(cases, "trapezoid", {"[]"}, [] { trapezoid(floats_of({})); });
}

}  // namespace

void add_reductions_cases(Cases& cases) {
    truth(cases);
    sums_without_nan(cases);
    products_and_logs(cases);
    norms(cases);
    deviations(cases);
    differences(cases);
    set_autocast(cases, Autocast::f32,
                 {"prod", "logsumexp", "vector_norm", "norm", "renorm", "trapezoid"});
}

}  // namespace axle::tests
