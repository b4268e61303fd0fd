#include <algorithm>

#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_pick_cases(Cases& cases) {
    cases.push_back({.name = "index",
                     .torch = "x[0][x[1]]",
                     .call = [](In x) { return index(x[0], {x[1]}); },
                     .rows = {{floats({5, 4}), ints({3}, -5, 5)},
                              {floats({5}), ints({2, 3}, -5, 5, i32)},
                              {floats({5, 2}), ints({}, -5, 5)},
                              {floats({5, 0}), ints({2}, -5, 5)},
                              {floats({5, 2}), ints({0}, -5, 5)},
                              {floats({67, 3}), ints({35}, -67, 67)}},
                     .large = {floats({257, 263}), ints({301}, -257, 257)},
                     .twice = true});
    cases.push_back({.name = "index/view",
                     .torch = "x[0][1:3, None, ..., -1]",
                     .call =
                         [](In x) {
                             return index(x[0], {Slice(1, 3), None, Ellipsis, -1});
                         },
                     .rows = {{floats({4, 2, 3})}, {floats({4, 3})}, {floats({4, 0, 3})}},
                     .twice = true});
    cases.push_back({.name = "index/adjacent",
                     .torch = "x[0][:, x[1], x[2]]",
                     .call =
                         [](In x) {
                             return index(x[0], {Slice(), x[1], x[2]});
                         },
                     .rows = {{floats({2, 3, 4, 2}), ints({5, 1}, -3, 3), ints({2}, -4, 4)},
                              {floats({2, 3, 4}), ints({}, -3, 3), ints({2}, -4, 4, i32)}},
                     .twice = true});
    cases.push_back({.name = "index/apart",
                     .torch = "x[0][x[1], ::2, x[2]]",
                     .call =
                         [](In x) {
                             return index(x[0], {x[1], Slice(None, None, 2), x[2]});
                         },
                     .rows = {{floats({3, 5, 4}), ints({2, 3}, -3, 3), ints({3}, -4, 4)},
                              {floats({3, 2, 4, 2}), ints({3}, -3, 3), ints({}, -4, 4)}},
                     .twice = true});
    cases.push_back({.name = "index/mixed",
                     .torch = "x[0][..., 0, x[1], None, x[2]]",
                     .call =
                         [](In x) {
                             return index(x[0], {Ellipsis, 0, x[1], None, x[2]});
                         },
                     .rows = {{floats({3, 2, 4}), ints({2, 3}, -2, 2), ints({3}, -4, 4)},
                              {floats({2, 3, 2, 4}), ints({2, 1}, -2, 2), ints({2}, -4, 4)}},
                     .twice = true});
    cases.push_back({.name = "gather",
                     // PyTorch does not accept i32 indices.
                     .torch = "x[0].gather(1, x[1].long())",
                     .call = [](In x) { return gather(x[0], 1, x[1]); },
                     .rows = {{floats({3, 5}), ints({3, 4}, 0, 5)},
                              {floats({3, 5, 2}), ints({2, 7, 1}, 0, 5)},
                              {floats({3, 5}), ints({3, 0}, 0, 5)},
                              {floats({3, 67}), ints({3, 67}, 0, 67, i32)},
                              {floats({2, 1}), ints({2, 3}, 0, 1)}},
                     .large = {floats({257, 263}), ints({257, 301}, 0, 263)},
                     .twice = true});
    cases.push_back({.name = "gather/first",
                     .torch = "x[0].gather(0, x[1])",
                     .call = [](In x) { return gather(x[0], 0, x[1]); },
                     .rows = {{floats({5, 3}), ints({4, 3}, 0, 5)},
                              {floats({9}), ints({20}, 0, 9)},
                              {floats({5, 67}), ints({2, 40}, 0, 5)}},
                     .twice = true});
    const std::vector<Row> rows = {{floats({4, 5, 3}), ints({6}, 0, 4)},
                                   {floats({4, 4}), ints({0}, 0, 4)},
                                   {floats({4, 4, 0}), ints({3}, 0, 4)},
                                   {floats({9, 67}), ints({5}, 0, 9, i32)}};
    cases.push_back({.name = "index_select",
                     .torch = "x[0].index_select(0, x[1])",
                     .call = [](In x) { return index_select(x[0], 0, x[1]); },
                     .rows = rows,
                     .large = {floats({257, 263}), ints({400}, 0, 257)},
                     .twice = true});
    cases.push_back({.name = "index_select/inner",
                     .torch = "x[0].index_select(1, x[1])",
                     .call = [](In x) { return index_select(x[0], 1, x[1]); },
                     .rows = rows,
                     .twice = true});
    cases.push_back({.name = "index_select/one_dim",
                     .torch = "x[0].index_select(-1, x[1])",
                     .call = [](In x) { return index_select(x[0], -1, x[1]); },
                     .rows = {{floats({67}), ints({80}, 0, 67)}},
                     .twice = true});
    cases.push_back({.name = "scatter_add",
                     .torch = "x[0].scatter_add(1, x[1].long(), x[2])",
                     .call = [](In x) { return scatter_add(x[0], 1, x[1], x[2]); },
                     .rows = {{floats({3, 5}), ints({3, 4}, 0, 5), floats({3, 4})},
                              {floats({3, 5}), ints({2, 9}, 0, 5), floats({2, 9})},
                              {floats({3, 5}), ints({3, 0}, 0, 5), floats({3, 0})},
                              {floats({3, 67}), ints({3, 67}, 0, 67, i32), floats({3, 67})}},
                     .large = {floats({257, 263}), ints({257, 301}, 0, 263), floats({257, 301})},
                     .twice = true});
    cases.push_back({.name = "scatter_add/first",
                     .torch = "x[0].scatter_add(0, x[1], x[2])",
                     .call = [](In x) { return scatter_add(x[0], 0, x[1], x[2]); },
                     .rows = {{floats({2, 5}), ints({9, 5}, 0, 2), floats({9, 5})},
                              {floats({5}), ints({67}, 0, 5), floats({67})}},
                     .large = {floats({50, 263}), ints({301, 263}, 0, 50), floats({301, 263})},
                     .twice = true});
    // These cases add many terms to one element, so they need larger tolerances.
    for (std::size_t i = cases.size() - 2; i < cases.size(); ++i)
        cases[i].tolerance = {.f16 = 2e-2, .bf16 = 1e-1};
}

void add_embedding_cases(Cases& cases) {
    const std::vector<Row> rows = {{ints({2, 3}, 0, 5), floats({5, 4})},
                                   {ints({}, 0, 5), floats({5, 4})},
                                   {ints({0, 3}, 0, 5), floats({5, 4})},
                                   {ints({9}, 0, 5, i32), floats({5, 67})},
                                   {ints({7}, 2, 3), floats({5, 1})}};
    const Row large = {ints({7, 301}, 0, 90), floats({90, 65})};
    const auto add = [&](const char* name, const char* torch, std::optional<std::int64_t> padding,
                         bool smooth) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return embedding(x[0], x[1], padding); },
                         .rows = rows,
                         .large = large,
                         .smooth = smooth,
                         .tolerance = {.f16 = 1e-2, .bf16 = 6e-2}});
    };
    add("embedding", "F.embedding(*x)", {}, true);
    // The gradient of the padding row is defined as 0, so finite differences would differ.
    add("embedding/padding", "F.embedding(*x, padding_idx=2)", 2, false);
    add("embedding/last_is_padding", "F.embedding(*x, padding_idx=-1)", -1, false);
    cases.push_back(
        {.name = "one_hot",
         .torch = "F.one_hot(x[0], 5)",
         .call = [](In x) { return one_hot(x[0], 5); },
         .rows = {{ints({2, 3}, 0, 5)}, {ints({}, 0, 5)}, {ints({0, 3}, 0, 5)}, {ints({67}, 0, 5)}},
         .gradient = false});
}

std::string descending(const Tensor& x, const Tensor& values, const Tensor& index) {
    const auto from = x.to_vector(), v = values.to_vector(), at = index.to_vector();
    const auto n = static_cast<std::size_t>(x.size(-1)),
               k = static_cast<std::size_t>(values.size(-1));
    for (std::size_t i = 0; i < v.size(); ++i) {
        if (from[i / k * n + static_cast<std::size_t>(at[i])] != v[i])
            return "index and value differ";
        if (i % k == 0) continue;
        if (v[i] > v[i - 1]) return "values should descend";
        if (v[i] == v[i - 1] && at[i] < at[i - 1]) return "the lower index of a tie comes first";
    }
    return "";
}

void add_choice_cases(Cases& cases) {
    const auto top = [&](const char* name, const char* torch, std::int64_t dim, bool largest,
                         std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return topk(x[0], 3, dim, largest); },
                         .rows = std::move(rows),
                         .large = {distinct({257, 263})},
                         .twice = true});
    };
    top("topk", "x[0].topk(3)", -1, true,
        {{distinct({7})}, {distinct({2, 3})}, {distinct({0, 5})}, {distinct({3, 67})}});
    top("topk/smallest", "x[0].topk(3, 0, largest=False)", 0, false,
        {{distinct({7})}, {distinct({5, 2})}, {distinct({67, 2, 2})}});
    // Long rows select the GPU kernels that split rows into parts, here for one row and for two
    // rows. For rows of 5000 elements, one block processes each row.
    cases.push_back({.name = "topk/seven",
                     .torch = "x[0].topk(7)",
                     .call = [](In x) { return topk(x[0], 7); },
                     .rows = {{distinct({9})}, {distinct({3, 67})}},
                     .gpu_rows = {{floats({70001})}, {floats({2, 33000})}, {floats({3, 5000})}},
                     .twice = true});
    // On a GPU, rows of up to 2048 elements are sorted in shared memory, and longer rows by CUB if
    // k is larger than 1024.
    cases.push_back({.name = "topk/most",
                     .torch = "x[0].topk(x[0].size(0), 0, largest=False)",
                     .call =
                         [](In x) {
                             const int dim = x[0].size(0) == 1 ? 1 : 0;
                             const std::int64_t k = std::min<std::int64_t>(1100, x[0].size(dim));
                             return topk(x[0], k, dim, false);
                         },
                     .rows = {{distinct({67, 2})}},
                     .gpu_rows = {{floats({1500, 2})}, {ties({1, 3001})}},
                     .twice = true});
    cases.push_back({.name = "topk/ties",
                     .call = [](In x) { return topk(x[0], 5); },
                     .rows = {{ties({9})}, {ties({3, 67})}},
                     .gradient = false,
                     .check = [](In x, const Outputs& y) { return descending(x[0], y[0], y[1]); }});

    const auto whole = [&](const char* name, const char* torch, std::int64_t dim, bool descending,
                           std::vector<Row> rows) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = [=](In x) { return sort(x[0], dim, descending); },
                         .rows = std::move(rows),
                         .large = {distinct({257, 263})},
                         .twice = true});
    };
    whole("sort", "x[0].sort(dim=-1, stable=True)", -1, false,
          {{distinct({7})},
           {distinct({})},
           {distinct({0, 5})},
           {distinct({5, 0})},
           {distinct({5, 1})},
           {distinct({3, 67})},
           {distinct({2, 3, 4})}});
    whole("sort/descending", "x[0].sort(dim=-1, descending=True, stable=True)", -1, true,
          {{distinct({7})}, {distinct({})}, {distinct({3, 67})}});
    whole("sort/first", "x[0].sort(dim=0, stable=True)", 0, false,
          {{distinct({5, 3})}, {distinct({67, 2, 2})}});
    whole("sort/middle", "x[0].sort(dim=1, descending=True, stable=True)", 1, true,
          {{distinct({2, 5, 3})}, {distinct({2, 67, 3})}});
    // Inputs that require a stable order of equal elements: NaN, both zeros and integers.
    const std::vector<Row> equals = {{ties({9})},
                                     {ties({3, 67})},
                                     {specials({3, 11})},
                                     {specials({2, 67})},
                                     {ints({4, 67}, -9, 9)},
                                     {ints({4, 67}, -9, 9, i32)},
                                     {ints({300}, 0, 256, u8)},
                                     {mask({3, 67})}};
    for (const bool descending : {false, true})
        cases.push_back(
            {.name = descending ? "sort/equals_descending" : "sort/equals",
             .torch = str("x[0].sort(stable=True, descending=", descending ? "True)" : "False)"),
             .call = [=](In x) { return sort(x[0], -1, descending); },
             .rows = equals,
             .gradient = false});
    cases.push_back({.name = "argsort",
                     .torch = "x[0].argsort(dim=-1, stable=True)",
                     .call = [](In x) { return argsort(x[0]); },
                     .rows = {{ties({9})}, {distinct({})}, {distinct({0, 5})}, {specials({3, 67})}},
                     .gradient = false});
    cases.push_back({.name = "argsort/first",
                     .torch = "x[0].argsort(dim=0, descending=True, stable=True)",
                     .call = [](In x) { return argsort(x[0], 0, true); },
                     .rows = {{ties({67, 3})}, {ints({9, 2}, -3, 3)}},
                     .gradient = false});

    const std::vector<Row> rows = {{floats({4, 5})},    {floats({5, 4})},  {floats({0, 3})},
                                   {floats({2, 3, 3})}, {floats({3, 67})}, {floats({1, 1})}};
    for (const int diagonal : {0, 1, -2}) {
        const std::string variant = diagonal > 0 ? "/above" : diagonal < 0 ? "/below" : "";
        cases.push_back({.name = "tril" + variant,
                         .torch = str("x[0].tril(", diagonal, ")"),
                         .call = [diagonal](In x) { return tril(x[0], diagonal); },
                         .rows = rows,
                         .large = {floats({257, 263})},
                         .twice = true});
        cases.push_back({.name = "triu" + variant,
                         .torch = str("x[0].triu(", diagonal, ")"),
                         .call = [diagonal](In x) { return triu(x[0], diagonal); },
                         .rows = rows,
                         .large = {floats({257, 263})},
                         .twice = true});
    }
    cases.push_back({.name = "tril/mask",
                     .torch = "x[0].tril()",
                     .call = [](In x) { return tril(x[0]); },
                     .rows = {{mask({5, 5})}, {ints({3, 7}, 1, 9)}},
                     .gradient = false});
}

void add_bad_index_calls(Cases& cases) {
    refuses<DTypeError>(cases, "index", {"float32"},
                        [] { index(floats_of({2}), {floats_of({1})}); });
    refuses<IndexError>(cases, "index", {"2", "[2, 3]"}, [] { index(floats_of({2, 3}), {2}); });
    refuses<IndexError>(cases, "index", {"-4", "dimension 1", "size 3"}, [] {
        index(floats_of({2, 3}), {Slice(), indices({0, -4})});
    });
    refuses<IndexError>(cases, "index", {"2", "[3]"}, [] { index(floats_of({3}), {0, 0}); });
    refuses<IndexError>(cases, "index", {"[2]", "[3, 2]"}, [] {
        index(floats_of({3, 2}), {bools_of({2})});
    });
    refuses<IndexError>(cases, "index", {"Ellipsis"}, [] {
        index(floats_of({3, 2}), {Ellipsis, Ellipsis});
    });
    refuses<ShapeError>(cases, "index", {"[2]", "[3]"}, [] {
        index(floats_of({3, 2}), {indices({0, 1}), indices({0, 1, 0})});
    });
    refuses<DTypeError>(cases, "gather", {"float32"},
                        [] { gather(floats_of({2}), 0, floats_of({1})); });
    refuses<IndexError>(cases, "gather", {"7"}, [] { gather(floats_of({2}), 0, indices({0, 7})); });
    refuses<IndexError>(cases, "gather", {"-1"}, [] { gather(floats_of({2}), 0, indices({-1})); });
    refuses<ShapeError>(cases, "gather", {"[2, 3]", "[2]"}, [] {
        gather(floats_of({2, 3}), 1, ints_of({2}));
    });
    refuses<ShapeError>(cases, "gather", {"[2, 3]", "[3, 1]"}, [] {
        gather(floats_of({2, 3}), 1, zeros({3, 1}, {i64}));
    });
    refuses<DTypeError>(cases, "index_select", {"float32"},
                        [] { index_select(floats_of({2}), 0, floats_of({1})); });
    refuses<IndexError>(cases, "index_select", {"2"},
                        [] { index_select(floats_of({2}), 0, indices({2})); });
    refuses<ShapeError>(cases, "index_select", {"[2, 1]"}, [] {
        index_select(floats_of({2, 3}), 1, ints_of({2, 1}));
    });
    refuses<DTypeError>(cases, "scatter_add", {"float32", "float64"},
                        [] { scatter_add(floats_of({2}), 0, ints_of({1}), ones({1}, {f64})); });
    refuses<IndexError>(cases, "scatter_add", {"5"},
                        [] { scatter_add(floats_of({2}), 0, indices({5}), floats_of({1})); });
    refuses<ShapeError>(cases, "scatter_add", {"[2, 3]", "[2, 2]"}, [] {
        scatter_add(floats_of({2, 3}), 1, zeros({2, 3}, {i64}), floats_of({2, 2}));
    });
    refuses<DTypeError>(cases, "embedding", {"float32"}, [] {
        embedding(floats_of({2}), floats_of({3, 4}));
    });
    refuses<IndexError>(cases, "embedding", {"3"}, [] {
        embedding(indices({3}), floats_of({3, 4}));
    });
    refuses<IndexError>(cases, "embedding", {"-1"}, [] {
        embedding(indices({-1}), floats_of({3, 4}));
    });
    refuses<ShapeError>(cases, "embedding", {"[3]"},
                        [] { embedding(ints_of({2}), floats_of({3})); });
    refuses<DTypeError>(cases, "one_hot", {"float32"}, [] { one_hot(floats_of({2}), 3); });
    refuses<IndexError>(cases, "one_hot", {"3"}, [] { one_hot(indices({3}), 3); });
    refuses<IndexError>(cases, "sort", {"2"}, [] { sort(floats_of({2, 3}), 2); });
    refuses<IndexError>(cases, "argsort", {"-2"}, [] { argsort(floats_of({2}), -2); });
    refuses<UsageError>(cases, "argsort", {}, [] { argsort(Tensor()); });
    refuses<ShapeError>(cases, "tril", {"[3]"}, [] { tril(floats_of({3})); });
    refuses<ShapeError>(cases, "triu", {"[]"}, [] { triu(floats_of({})); });
    refuses<Error>(cases, "topk", {"[3]", "4"}, [] { topk(floats_of({3}), 4); });
    refuses<Error>(cases, "topk", {"-1"}, [] { topk(floats_of({3}), -1); });
}

}  // namespace

void add_index_cases(Cases& cases) {
    add_pick_cases(cases);
    add_embedding_cases(cases);
    add_choice_cases(cases);
    set_autocast(cases, Autocast::widest, {"scatter_add"});
    case_named(cases, "embedding").gpu_rows = {{ints({5000}, 0, 700), floats({700, 24})}};
    case_named(cases, "scatter_add/first").gpu_rows = {
        {floats({300}), ints({5000}, 0, 300), floats({5000})}};
    case_named(cases, "sort").gpu_rows = {
        {ties({70001})}, {specials({3, 5000})}, {floats({2, 2049})}};
    case_named(cases, "sort/descending").gpu_rows = {
        {ties({3, 2048})}, {floats({500, 33})}, {specials({900, 1})}};
    case_named(cases, "sort/first").gpu_rows = {{ties({2000, 7})}, {floats({33, 500})}};
    add_bad_index_calls(cases);
}

}  // namespace axle::tests
