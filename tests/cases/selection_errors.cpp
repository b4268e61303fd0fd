// The calls that the ops of core/selection.h must reject.
#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_bad_calls_of_masks(Cases& cases) {
    refuses<UsageError>(cases, "nonzero", {}, [] { nonzero(Tensor()); });
    refuses<UsageError>(cases, "argwhere", {}, [] { argwhere(Tensor()); });
    refuses<DTypeError>(cases, "masked_select", {"int64"},
                        [] { masked_select(floats_of({2}), ints_of({2})); });
    refuses<ShapeError>(cases, "masked_select", {"[2]", "[3]"},
                        [] { masked_select(floats_of({2}), bools_of({3})); });
    refuses<IndexError>(cases, "masked_scatter", {"the mask selects 3", "source [2] has 2"},
                        [] { masked_scatter(floats_of({3}), bools_of({3}), floats_of({2})); });
    refuses<IndexError>(cases, "masked_scatter", {"the mask selects 3", "source [0] has 0"},
                        [] { masked_scatter(floats_of({3}), bools_of({3}), floats_of({0})); });
    refuses<DTypeError>(cases, "masked_scatter", {"float32", "int64"},
                        [] { masked_scatter(floats_of({3}), bools_of({3}), ints_of({3})); });
    refuses<UsageError>(cases, "isin", {}, [] { isin(floats_of({3}), Tensor()); });
}

void add_bad_calls_of_scatter(Cases& cases) {
    refuses<DTypeError>(cases, "scatter", {"float32", "float64"},
                        [] { scatter(floats_of({2}), 0, ints_of({1}), ones({1}, {f64})); });
    refuses<DTypeError>(cases, "scatter", {"float32"},
                        [] { scatter(floats_of({2}), 0, floats_of({1}), 1); });
    refuses<IndexError>(cases, "scatter", {"5"},
                        [] { scatter(floats_of({2}), 0, indices({5}), floats_of({1})); });
    refuses<IndexError>(cases, "scatter", {"-1"},
                        [] { scatter(floats_of({2}), 0, indices({-1}), 3); });
    refuses<ShapeError>(cases, "scatter", {"[2, 3]", "[2, 2]"}, [] {
        scatter(floats_of({2, 3}), 1, zeros({2, 3}, {i64}), floats_of({2, 2}));
    });
    refuses<ShapeError>(cases, "scatter", {"[3, 1]", "[2, 3]"}, [] {
        scatter(floats_of({2, 3}), 1, zeros({3, 1}, {i64}), floats_of({3, 1}));
    });
    refuses<IndexError>(cases, "scatter_reduce", {"2"}, [] {
        scatter_reduce(floats_of({2}), 0, indices({2}), floats_of({1}), IndexReduction::amax);
    });
    refuses<DTypeError>(cases, "scatter_reduce", {"mean"}, [] {
        scatter_reduce(bools_of({2}), 0, indices({1}), bools_of({1}), IndexReduction::mean);
    });
    refuses<IndexError>(cases, "take", {"-4"}, [] { take(floats_of({3}), indices({-4})); });
    refuses<DTypeError>(cases, "take", {"float32"}, [] { take(floats_of({3}), floats_of({1})); });
    refuses<IndexError>(cases, "put", {"3"},
                        [] { put(floats_of({3}), indices({3}), floats_of({1})); });
    refuses<ShapeError>(cases, "put", {"[2]", "[3]"}, [] {
        put(floats_of({3}), indices({0, 1}), floats_of({3}));
    });
    refuses<ShapeError>(cases, "take_along_dim", {"[2, 3]", "[1]"}, [] {
        take_along_dim(floats_of({2, 3}), indices({0}), 1);
    });
    refuses<ShapeError>(cases, "take_along_dim", {"[2, 1]", "[3, 1]"}, [] {
        take_along_dim(floats_of({2, 3}), zeros({3, 1}, {i64}), 1);
    });
}

void add_bad_calls_of_slices(Cases& cases) {
    refuses<ShapeError>(cases, "index_add", {"[3, 2]", "[2]", "[1, 2]"}, [] {
        index_add(floats_of({3, 2}), 0, indices({0, 1}), floats_of({1, 2}));
    });
    refuses<DTypeError>(cases, "index_add", {"float32", "int64"},
                        [] { index_add(floats_of({3}), 0, indices({0}), ints_of({1})); });
    refuses<ShapeError>(cases, "index_copy", {"[1, 1]"}, [] {
        index_copy(floats_of({3}), 0, zeros({1, 1}, {i64}), floats_of({1}));
    });
    refuses<IndexError>(cases, "index_copy", {"3"},
                        [] { index_copy(floats_of({3}), 0, indices({3}), floats_of({1})); });
    refuses<IndexError>(cases, "index_fill", {"-4"},
                        [] { index_fill(floats_of({3}), 0, indices({-4}), 1); });
    refuses<ShapeError>(cases, "index_fill", {"[1]"},
                        [] { index_fill(floats_of({3}), 0, indices({0}), floats_of({1})); });
    refuses<IndexError>(cases, "index_reduce", {"1"}, [] {
        index_reduce(floats_of({3}), 1, indices({0}), floats_of({1}), IndexReduction::amax);
    });
    refuses<ShapeError>(cases, "index_put", {"[2]", "[3]"}, [] {
        index_put(floats_of({4}), {indices({0, 1, 2})}, floats_of({2}));
    });
    refuses<ShapeError>(cases, "index_put", {"[2]", "[3]"},
                        [] { index_put(floats_of({4}), {Slice(0, 3)}, floats_of({2})); });
    refuses<ShapeError>(cases, "index_put", {"[2]", "[3]"}, [] {
        index_put(ones({4}, {.requires_grad = true}), {indices({0, 1, 2})}, floats_of({2}));
    });
    refuses<IndexError>(cases, "index_put", {"too many indices", "[4]"}, [] {
        index_put(ones({4}, {.requires_grad = true}), {0, 1}, floats_of({}));
    });
    refuses<ValueError>(cases, "index_put", {"0"},
                        [] { index_put(floats_of({4}), {Slice(0, 3, 0)}, floats_of({})); });
    refuses<UsageError>(cases, "index_put", {}, [] { index_put(floats_of({4}), {0}, Tensor()); });
    refuses<ShapeError>(cases, "select_scatter", {"[3]", "[2]"}, [] {
        select_scatter(floats_of({2, 3}), floats_of({3}), 1, 0);
    });
    refuses<ShapeError>(cases, "slice_scatter", {"[2, 1]", "[2, 2]"}, [] {
        slice_scatter(floats_of({2, 3}), floats_of({2, 1}), 1, 0, 2);
    });
    refuses<ShapeError>(cases, "diagonal_scatter", {"[3]", "[2]"}, [] {
        diagonal_scatter(floats_of({2, 3}), floats_of({3}));
    });
    refuses<IndexError>(cases, "select_scatter", {"3", "[2, 3]"}, [] {
        select_scatter(floats_of({2, 3}), floats_of({2}), 1, 3);
    });
    refuses<ValueError>(cases, "slice_scatter", {"0"}, [] {
        slice_scatter(floats_of({2, 3}), floats_of({2, 1}), 1, 0, 2, 0);
    });
    refuses<ValueError>(cases, "diagonal_scatter", {"1", "[2, 3]"}, [] {
        diagonal_scatter(floats_of({2, 3}), floats_of({2}), 0, 1, 1);
    });
}

}  // namespace

void add_bad_selection_calls(Cases& cases) {
    add_bad_calls_of_masks(cases);
    add_bad_calls_of_scatter(cases);
    add_bad_calls_of_slices(cases);
}

}  // namespace axle::tests
