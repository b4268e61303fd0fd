#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

using Reduction = std::function<Tensor(const Tensor&, const Dims&, bool)>;

// Adds cases that reduce over all dimensions, over the last, the first or a middle dimension, and
// over two dimensions.
void over_dims(Cases& cases, const std::string& name, const std::string& torch,
               Input (*values)(const Shape&), const Reduction& f) {
    const auto add = [&](const std::string& variant, std::vector<Row> rows, Dims dims, bool keep) {
        std::string torch_dims;
        for (const std::int64_t dim : dims) torch_dims += str(dim, ", ");
        torch_dims = dims.empty() ? "None" : str("(", torch_dims, ")");
        cases.push_back(
            {.name = name + variant,
             .torch = str(torch, "dim=", torch_dims, ", keepdim=", keep ? "True" : "False", ")"),
             .call = [=](In x) { return f(x[0], dims, keep); },
             .rows = std::move(rows),
             .large = {values({257, 1, 263})},
             .twice = true});
    };
    add("", {{values({3, 4})}, {values({2, 3, 2, 2})}, {values({3, 67})}}, {}, false);
    add("/keepdim", {{values({3, 4})}}, {}, true);
    add("/last", {{values({3, 4})}, {values({0, 4})}, {values({3, 67})}, {values({2})}}, {-1},
        false);
    add("/first", {{values({3, 4})}, {values({3, 0})}, {values({67, 3})}, {values({67, 1, 5})}},
        {0}, true);
    add("/middle", {{values({2, 3, 4})}, {values({0, 2, 3})}, {values({3, 5, 2, 2})}}, {1}, false);
    add("/two", {{values({2, 3, 4})}, {values({2, 0, 3})}, {values({2, 3, 67})}}, {0, -1}, false);
    add("/kept_two", {{values({2, 3, 4})}, {values({2, 3, 2, 3})}}, {0, -2}, true);
}

// Clears layout_bits of the cases at index `from` and later, because the layout changes the order
// in which a variance is summed.
void layout_rounds(Cases& cases, std::size_t from) {
    for (std::size_t i = from; i < cases.size(); ++i) cases[i].layout_bits = false;
}

void all_of(Cases& cases, std::string name, std::string torch, std::vector<Row> rows, bool gradient,
            std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .gradient = gradient,
                     .smooth = false});
}

Input any(const Shape& shape) { return floats(shape); }

void add_extreme_cases(Cases& cases) {
    over_dims(cases, "max", "x[0].amax(", distinct,
              [](const Tensor& x, const Dims& d, bool k) { return max(x, d, k); });
    over_dims(cases, "min", "x[0].amin(", distinct,
              [](const Tensor& x, const Dims& d, bool k) { return min(x, d, k); });
    const std::vector<Row> even = {{ties({4, 5})}, {ties({3, 67})}, {ties({2, 1})}};
    all_of(cases, "max/ties", "x[0].amax(-1)", even, true, [](In x) { return max(x[0], {-1}); });
    all_of(cases, "min/ties", "x[0].amin(-1)", even, true, [](In x) { return min(x[0], {-1}); });
    all_of(cases, "max/all_ties", "x[0].amax()", even, true, [](In x) { return max(x[0]); });
    all_of(cases, "min/all_ties", "x[0].amin()", even, true, [](In x) { return min(x[0]); });
    const std::vector<Row> whole = {
        {ints({3, 67}, -9, 9)}, {ints({5}, 0, 200, u8)}, {specials({11})}, {specials({3, 11})}};
    all_of(cases, "max/other", "x[0].amax(-1)", whole, false, [](In x) { return max(x[0], {-1}); });
    all_of(cases, "min/other", "x[0].amin(-1)", whole, false, [](In x) { return min(x[0], {-1}); });

    for (const bool largest : {true, false}) {
        const std::string name = largest ? "argmax" : "argmin";
        const auto find = [=](const Tensor& x, std::int64_t dim, bool keep) {
            return largest ? argmax(x, dim, keep) : argmin(x, dim, keep);
        };
        all_of(cases, name, str("torch.", name, "(x[0], -1)"),
               {{floats({3, 4})},
                {floats({})},
                {floats({0, 4})},
                {floats({5, 1})},
                {ties({3, 67})},
                {specials({11})},
                {ints({4, 9}, -2, 3)}},
               false, [=](In x) { return find(x[0], -1, false); });
        cases.back().large = {ties({257, 263})};
        all_of(cases, name + "/first", str("torch.", name, "(x[0], 0, keepdim=True)"),
               {{ties({3, 4})}, {ties({67, 5})}, {ties({9, 2, 3})}}, false,
               [=](In x) { return find(x[0], 0, true); });
    }
}

void add_cumsum_cases(Cases& cases) {
    const auto along = [&](const char* name, const char* torch, std::int64_t dim,
                           std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return cumsum(x[0], dim); },
                         .rows = std::move(rows),
                         .large = {floats({257, 263})},
                         .twice = true,
                         .tolerance = {.f16 = 8e-3, .bf16 = 6e-2}});
    };
    along("cumsum", "x[0].cumsum(-1)", -1,
          {{floats({3, 4})},
           {floats({})},
           {floats({0, 4})},
           {floats({4, 0})},
           {floats({5, 1})},
           {floats({3, 67})},
           {floats({2, 600})}});
    along("cumsum/first", "x[0].cumsum(0)", 0,
          {{floats({4, 3})}, {floats({67, 3, 5})}, {floats({0, 3})}});
    along("cumsum/middle", "x[0].cumsum(1)", 1, {{floats({2, 5, 3})}, {floats({2, 67, 3})}});
    cases.push_back({.name = "cumsum/other",
                     .torch = "x[0].cumsum(-1)",
                     .call = [](In x) { return cumsum(x[0], -1); },
                     .rows = {{ints({3, 67}, -9, 9)},
                              {ints({5, 4}, -9, 9, i32)},
                              {ints({67}, 200, 256, u8)},
                              {mask({3, 67})},
                              {specials({4})},
                              {specials({3, 11})}},
                     .gradient = false});
}

void add_cumprod_cases(Cases& cases) {
    const auto along = [&](const char* name, const char* torch, std::int64_t dim,
                           std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return cumprod(x[0], dim); },
                         .rows = std::move(rows),
                         .large = {floats({257, 263}, 0.5, 1.5)},
                         .tolerance = {.f16 = 8e-3, .bf16 = 6e-2}});
    };
    along("cumprod", "x[0].cumprod(-1)", -1,
          {{floats({3, 4})},
           {floats({})},
           {floats({0, 4})},
           {floats({4, 0})},
           {floats({5, 1})},
           {floats({3, 67})},
           {floats({2, 600}, 0.5, 1.5)}});
    along("cumprod/first", "x[0].cumprod(0)", 0,
          {{floats({4, 3})}, {floats({67, 3, 5})}, {floats({0, 3})}});
    along("cumprod/middle", "x[0].cumprod(1)", 1, {{floats({2, 5, 3})}, {floats({2, 67, 3})}});
    // Some rows have one zero, other rows have several zeros.
    along("cumprod/zeros", "x[0].cumprod(-1)", -1, {{ties({9, 4})}, {ties({3, 67})}});
    cases.back().large = {};
    cases.push_back({.name = "cumprod/other",
                     .torch = "x[0].cumprod(-1)",
                     .call = [](In x) { return cumprod(x[0], -1); },
                     .rows = {{ints({3, 67}, -2, 3)},
                              {ints({5, 4}, -9, 9, i32)},
                              {ints({9}, 1, 9, u8)},
                              {mask({3, 67})},
                              {specials({4})},
                              {specials({3, 11})}},
                     .gradient = false});
}

void add_bad_reduce_calls(Cases& cases) {
    refuses<UsageError>(cases, "sum", {}, [] { sum(Tensor()); });
    refuses<IndexError>(cases, "sum", {"2"}, [] { sum(floats_of({2, 3}), {2}); });
    refuses<Error>(cases, "sum", {}, [] { sum(floats_of({2, 3}), {0, -2}); });
    refuses<DTypeError>(cases, "mean", {"int64"}, [] { mean(ints_of({2})); });
    refuses<IndexError>(cases, "mean", {"-3"}, [] { mean(floats_of({2, 3}), {-3}); });
    refuses<DTypeError>(cases, "var", {"int64"}, [] { var(ints_of({2})); });
    refuses<IndexError>(cases, "max", {"1"}, [] { max(floats_of({2}), {1}); });
    refuses<Error>(cases, "max", {"[0, 3]"}, [] { max(floats_of({0, 3})); });
    refuses<IndexError>(cases, "argmax", {"1"}, [] { argmax(floats_of({2}), 1); });
    refuses<Error>(cases, "argmax", {"[0, 3]"}, [] { argmax(floats_of({0, 3}), 0); });
    refuses<IndexError>(cases, "cumsum", {"1"}, [] { cumsum(floats_of({2}), 1); });
    refuses<Error>(cases, "min", {"[0, 3]"}, [] { min(floats_of({0, 3}), {0}); });
    refuses<Error>(cases, "argmin", {"[2, 0]"}, [] { argmin(floats_of({2, 0}), 1); });
    refuses<IndexError>(cases, "cumprod", {"1"}, [] { cumprod(floats_of({2}), 1); });
    refuses<UsageError>(cases, "cumprod", {}, [] { cumprod(Tensor(), 0); });
}

}  // namespace

void add_reduce_cases(Cases& cases) {
    over_dims(cases, "sum", "x[0].sum(", any,
              [](const Tensor& x, const Dims& d, bool k) { return sum(x, d, k); });
    over_dims(cases, "mean", "x[0].mean(", any,
              [](const Tensor& x, const Dims& d, bool k) { return mean(x, d, k); });
    const std::size_t first_variance = cases.size();
    over_dims(cases, "var", "x[0].var(correction=1, ", any,
              [](const Tensor& x, const Dims& d, bool k) { return var(x, d, 1, k); });
    over_dims(cases, "var/population", "x[0].var(correction=0, ", any,
              [](const Tensor& x, const Dims& d, bool k) { return var(x, d, 0, k); });
    layout_rounds(cases, first_variance);

    const std::vector<Row> empty = {{floats({0, 3})}, {floats({0})}};
    all_of(cases, "sum/nothing", "x[0].sum()", empty, true, [](In x) { return sum(x[0]); });
    all_of(cases, "sum/no_rows", "x[0].sum(0)", empty, true, [](In x) { return sum(x[0], {0}); });
    all_of(cases, "mean/nothing", "x[0].mean()", empty, true, [](In x) { return mean(x[0]); });
    all_of(cases, "var/nothing", "x[0].var()", empty, false, [](In x) { return var(x[0]); });
    all_of(cases, "var/single", "x[0].var(-1)", {{floats({1})}, {floats({3, 1})}}, false,
           [](In x) { return var(x[0], {-1}); });
    all_of(cases, "sum/scalar", "x[0].sum(-1)", {{floats({})}}, true,
           [](In x) { return sum(x[0], {-1}); });
    all_of(cases, "mean/scalar", "x[0].mean(0, keepdim=True)", {{floats({})}}, true,
           [](In x) { return mean(x[0], {0}, true); });
    all_of(cases, "max/scalar", "x[0].amax()", {{floats({})}}, true,
           [](In x) { return max(x[0]); });
    all_of(cases, "min/scalar", "x[0].amin()", {{floats({})}}, true,
           [](In x) { return min(x[0]); });
    all_of(cases, "sum/ints", "x[0].sum()",
           {{ints({3, 67}, -9, 9, i32)},
            {ints({300}, 200, 256, u8)},
            {mask({3, 67})},
            {ints({0}, 0, 9)}},
           false, [](In x) { return sum(x[0]); });
    all_of(cases, "sum/int_rows", "x[0].sum(1)", {{ints({3, 67}, -9, 9, i32)}, {mask({3, 67})}},
           false, [](In x) { return sum(x[0], {1}); });
    all_of(cases, "sum/specials", "x[0].sum()", {{specials({11})}, {specials({3})}}, false,
           [](In x) { return sum(x[0]); });
    // The values are far from zero: a variance computed from the sum of squares would lose almost
    // all digits in f32.
    all_of(cases, "var/far", "x[0].var(-1)", {{floats({3, 67}, 1000, 1002)}}, false,
           [](In x) { return var(x[0], {-1}); });
    cases.back().tolerance = {.f32 = 1e-5};
    add_extreme_cases(cases);
    add_cumsum_cases(cases);
    add_cumprod_cases(cases);
    set_autocast(cases, Autocast::f32, {"sum", "cumsum", "cumprod"});
    for (const char* name : {"sum/last", "sum/first", "var/last", "var/first", "max/last",
                             "max/first", "argmax", "argmax/first"})
        case_named(cases, name).gpu_rows = {
            {floats({20003})}, {floats({2, 32768})}, {floats({4001, 5})}, {floats({2000, 40})}};
    // These sizes select the GPU kernels that split one or two rows into chunks, process rows in
    // tiles, or use one thread per row or chunk.
    case_named(cases, "cumsum").gpu_rows = {
        {floats({100001})}, {floats({2, 40000})}, {floats({3, 5000})}};
    case_named(cases, "cumsum/first").gpu_rows = {
        {floats({5000, 40})}, {floats({5000, 3})}, {floats({50, 700})}};
    // The factors are near 1, so that long products neither overflow nor vanish.
    const auto factors = [](const Shape& shape) {
        constexpr double kLow = 1 - 5.0 / 512;
        return Row{floats(shape, kLow, kLow + 2.0 / 64)};
    };
    case_named(cases, "cumprod").gpu_rows = {factors({100001}), factors({2, 40000}),
                                             factors({3, 5000})};
    case_named(cases, "cumprod/first").gpu_rows = {factors({5000, 40}), factors({5000, 3}),
                                                   factors({50, 700})};
    // The relative error of a product of n factors is at most n * 2^-24, and usually grows as
    // sqrt(n).
    for (const char* name : {"cumprod", "cumprod/first"})
        case_named(cases, name).gpu_tolerance.f32 = 2e-4;
    add_bad_reduce_calls(cases);
}

}  // namespace axle::tests
