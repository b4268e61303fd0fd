#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void constant(Cases& cases, std::string name, std::string torch, std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = no_inputs(),
                     .gradient = false});
}

void like(Cases& cases, std::string name, std::string torch, std::function<Outputs(In)> call,
          bool values = true) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = {{floats({2, 3})}, {floats({})}, {floats({0, 4})}, {ints({5}, 0, 9)}},
                     .values = values,
                     .gradient = false,
                     .check = [](In, const Outputs& y) {
                         return y[0].is_contiguous() ? "" : "should be contiguous";
                     }});
}

void add_bad_create_calls(Cases& cases) {
    refuses<ShapeError>(cases, "tensor", {"[2, 3]", "5"}, [] {
        tensor(std::vector<double>(5), {2, 3});
    });
    refuses<ShapeError>(cases, "tensor", {"[3]", "2"}, [] {
        tensor(std::vector<std::int64_t>{1, 2}, {3});
    });
    refuses<ShapeError>(
        cases, "zeros", {"[2, -1]"},
        [] {
            zeros({2, -1});
        },
        "shape: ");
    refuses<ShapeError>(
        cases, "empty", {},
        [] {
            empty({std::int64_t{1} << 40, std::int64_t{1} << 40});
        },
        "shape: ");
    refuses<ValueError>(cases, "arange", {"step"}, [] { arange(0, 5, 0); });
    refuses<ValueError>(cases, "arange", {}, [] { arange(0, 5, -1); });
    refuses<ValueError>(cases, "arange", {"int64", "1e+20"},
                        [] { arange(1e20, 1e20 + 1e5, 5e4, {i64}); });
    refuses<ShapeError>(cases, "linspace", {"-1"}, [] { linspace(0, 1, -1); });
    refuses<ShapeError>(cases, "logspace", {"-2"}, [] { logspace(0, 1, -2); });
    refuses<ShapeError>(cases, "eye", {"-1"}, [] { eye(-1); });
    refuses<ShapeError>(cases, "eye", {"n 3, m -2"}, [] { eye(3, -2); });
    refuses<ShapeError>(cases, "meshgrid", {"[2, 3]"}, [] { meshgrid({floats_of({2, 3})}); });
    refuses<ValueError>(cases, "meshgrid", {"empty"}, [] { meshgrid({}); });
    refuses<ShapeError>(cases, "cartesian_prod", {"[]"}, [] { cartesian_prod({floats_of({})}); });
    refuses<ShapeError>(cases, "combinations", {"[2, 3]"}, [] { combinations(floats_of({2, 3})); });
    refuses<ValueError>(cases, "combinations", {"-1"}, [] { combinations(floats_of({2}), -1); });
    refuses<ShapeError>(cases, "tril_indices", {"-3"}, [] { tril_indices(-3, 2); });
    refuses<DTypeError>(cases, "triu_indices", {"float32"}, [] { triu_indices(3, 2, 0, {f32}); });
}

void add_sequence_cases(Cases& cases) {
    constant(cases, "linspace", "torch.linspace(-1, 2, 7, dtype=torch.float64)",
             [](In) { return linspace(-1, 2, 7, {f64}); });
    constant(cases, "linspace/f32", "torch.linspace(3, -0.7, 67)",
             [](In) { return linspace(3, -0.7, 67); });
    constant(cases, "linspace/ints", "torch.linspace(0, 10, 4, dtype=torch.int64)",
             [](In) { return linspace(0, 10, 4, {i64}); });
    constant(cases, "linspace/truncated", "torch.linspace(4.3, -0.9, 50, dtype=torch.int64)",
             [](In) { return linspace(4.3, -0.9, 50, {i64}); });
    constant(cases, "linspace/one", "torch.linspace(3, 5, 1)",
             [](In) { return linspace(3, 5, 1); });
    constant(cases, "linspace/none", "torch.linspace(3, 5, 0)",
             [](In) { return linspace(3, 5, 0); });
    constant(cases, "logspace", "torch.logspace(-1, 2, 7, dtype=torch.float64)",
             [](In) { return logspace(-1, 2, 7, 10, {f64}); });
    constant(cases, "logspace/base", "torch.logspace(0, 5, 6, base=2)",
             [](In) { return logspace(0, 5, 6, 2); });
    constant(cases, "logspace/truncated", "torch.logspace(0.5, 4.9, 5, dtype=torch.int64)",
             [](In) { return logspace(0.5, 4.9, 5, 10, {i64}); });
    constant(cases, "eye", "torch.eye(3)", [](In) { return eye(3); });
    constant(cases, "eye/wide", "torch.eye(2, 5, dtype=torch.int64)",
             [](In) { return eye(2, 5, {i64}); });
    constant(cases, "eye/tall", "torch.eye(5, 2, dtype=torch.bool)",
             [](In) { return eye(5, 2, {boolean}); });
    constant(cases, "eye/empty", "torch.eye(0, 3)", [](In) { return eye(0, 3); });
    const std::pair<int, const char*> diagonals[] = {
        {0, ""}, {2, "/above"}, {-1, "/below"}, {9, "/far_above"}, {-9, "/far_below"}};
    for (const auto& [diagonal, variant] : diagonals) {
        constant(cases, str("tril_indices", variant),
                 str("torch.tril_indices(4, 3, ", diagonal, ")"),
                 [diagonal = diagonal](In) { return tril_indices(4, 3, diagonal); });
        constant(cases, str("triu_indices", variant),
                 str("torch.triu_indices(4, 3, ", diagonal, ")"),
                 [diagonal = diagonal](In) { return triu_indices(4, 3, diagonal); });
    }
    constant(cases, "tril_indices/i32", "torch.tril_indices(0, 3, dtype=torch.int32)",
             [](In) { return tril_indices(0, 3, 0, {i32}); });
}

void add_grid_cases(Cases& cases) {
    const auto grid = [&](std::string name, std::string torch, std::vector<Row> rows,
                          std::function<Outputs(In)> call) {
        cases.push_back({.name = std::move(name),
                         .torch = std::move(torch),
                         .call = std::move(call),
                         .rows = std::move(rows),
                         .twice = true});
    };
    const std::vector<Row> rows = {{floats({3}), floats({67})},
                                   {floats({2}), floats({}), floats({3})},
                                   {floats({0}), floats({4})},
                                   {floats({5})}};
    grid("meshgrid", "torch.meshgrid(*x, indexing='ij')", rows, [](In x) { return meshgrid(x); });
    grid("meshgrid/xy", "torch.meshgrid(*x, indexing='xy')", rows,
         [](In x) { return meshgrid(x, GridIndexing::xy); });
    grid("cartesian_prod", "torch.cartesian_prod(*x)",
         {{floats({3}), floats({67})},
          {floats({2}), floats({1}), floats({3})},
          {floats({0}), floats({4})},
          {floats({5})}},
         [](In x) { return cartesian_prod(x); });
    grid("combinations", "torch.combinations(x[0])",
         {{floats({4})}, {floats({35})}, {floats({1})}, {floats({0})}},
         [](In x) { return combinations(x[0]); });
    grid("combinations/replacement", "torch.combinations(x[0], 3, True)",
         {{floats({4})}, {floats({0})}}, [](In x) { return combinations(x[0], 3, true); });
    set_autocast(cases, Autocast::widest, {"cartesian_prod"});
}

}  // namespace

void add_create_cases(Cases& cases) {
    cases.push_back({.name = "empty",
                     .call =
                         [](In) {
                             return empty({2, 0, 3});
                         },
                     .rows = no_inputs(),
                     .values = false,
                     .gradient = false,
                     .check =
                         [](In, const Outputs& y) {
                             return y[0].shape() == Shape{2, 0, 3} ? "" : "should be [2, 0, 3]";
                         }});
    like(
        cases, "empty_like", "", [](In x) { return empty_like(x[0]); }, false);

    constant(cases, "zeros", "torch.zeros(2, 3)", [](In) { return zeros({2, 3}); });
    constant(cases, "zeros/scalar", "torch.zeros((), dtype=torch.int64)",
             [](In) { return zeros({}, {i64}); });
    constant(cases, "ones", "torch.ones(3, 67, dtype=torch.float64)", [](In) {
        return ones({3, 67}, {f64});
    });
    constant(cases, "ones/empty", "torch.ones(0, 3, dtype=torch.bool)", [](In) {
        return ones({0, 3}, {boolean});
    });
    constant(cases, "full", "torch.full((2, 3), 1.5)", [](In) { return full({2, 3}, 1.5); });
    constant(cases, "full/ints", "torch.full((7,), -3, dtype=torch.int32)",
             [](In) { return full({7}, -3, {i32}); });
    like(cases, "zeros_like", "torch.zeros_like(x[0])", [](In x) { return zeros_like(x[0]); });
    like(cases, "ones_like", "torch.ones_like(x[0])", [](In x) { return ones_like(x[0]); });
    like(cases, "full_like", "torch.full_like(x[0], 3)", [](In x) { return full_like(x[0], 3); });

    constant(cases, "arange", "torch.arange(5)", [](In) { return arange(5); });
    constant(cases, "arange/none", "torch.arange(0)", [](In) { return arange(0); });
    constant(cases, "arange/steps", "torch.arange(1, 11, 3)", [](In) { return arange(1, 11, 3); });
    constant(cases, "arange/backwards", "torch.arange(5, -1, -2)",
             [](In) { return arange(5, -1, -2); });
    constant(cases, "arange/floats", "torch.arange(0, 1, 0.1, dtype=torch.float64)",
             [](In) { return arange(0.0, 1.0, 0.1, {f64}); });
    constant(cases, "arange/fractions", "torch.arange(1.7, 9, 2.5, dtype=torch.int64)",
             [](In) { return arange(1.7, 9, 2.5, {i64}); });
    constant(cases, "arange/fractions_backwards", "torch.arange(5.5, 0, -1.5, dtype=torch.int64)",
             [](In) { return arange(5.5, 0, -1.5, {i64}); });
    constant(cases, "arange/f32", "torch.arange(-1, 1, 0.25, dtype=torch.float32)",
             [](In) { return arange(-1.0, 1.0, 0.25, {f32}); });

    constant(cases, "tensor", "torch.tensor([[1, -2.5, 3], [4, 5, 6]])", [](In) {
        return tensor(std::vector<double>{1, -2.5, 3, 4, 5, 6}, {2, 3});
    });
    constant(cases, "tensor/ints", "torch.tensor([[1], [1 << 40], [-3]])", [](In) {
        return tensor(std::vector<std::int64_t>{1, std::int64_t{1} << 40, -3}, {3, 1});
    });
    constant(cases, "tensor/none", "torch.empty(0, 2)", [](In) {
        return tensor(std::vector<double>{}, {0, 2});
    });
    add_sequence_cases(cases);
    add_grid_cases(cases);
    add_bad_create_calls(cases);
}

}  // namespace axle::tests
