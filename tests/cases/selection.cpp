#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_mask_cases(Cases& cases) {
    const std::vector<Row> rows = {{ties({2, 3})},           {ties({5})},        {ties({})},
                                   {ties({0, 3})},           {ties({2, 0})},     {mask({3, 35})},
                                   {ints({2, 2, 3}, -1, 2)}, {specials({2, 11})}};
    for (const char* name : {"nonzero", "argwhere"}) {
        cases.push_back({.name = name,
                         .torch = str("torch.", name, "(x[0])"),
                         .call = std::string(name) == "nonzero"
                                     ? [](In x) { return Outputs(nonzero(x[0])); }
                                     : [](In x) { return Outputs(argwhere(x[0])); },
                         .rows = rows,
                         .gradient = false,
                         .reads_values = true});
    }
    cases.push_back({.name = "masked_select",
                     .torch = "x[0].masked_select(x[1])",
                     .call = [](In x) { return masked_select(x[0], x[1]); },
                     .rows = {{floats({2, 3}), mask({2, 3})},
                              {floats({2, 3}), mask({3})},
                              {floats({3}), mask({2, 1})},
                              {floats({}), mask({})},
                              {floats({0, 3}), mask({3})},
                              {floats({3, 67}), mask({3, 67})}},
                     .twice = true,
                     .reads_values = true});
    cases.push_back({.name = "masked_scatter",
                     .torch = "x[0].masked_scatter(x[1], x[2])",
                     .call = [](In x) { return masked_scatter(x[0], x[1], x[2]); },
                     .rows = {{floats({2, 3}), mask({2, 3}), floats({6})},
                              {floats({2, 3}), mask({3}), floats({3, 4})},
                              {floats({3}), mask({2, 1}), floats({9})},
                              {floats({0, 3}), mask({3}), floats({0})},
                              {floats({3, 67}), mask({3, 67}), floats({300})}},
                     .large = {floats({257, 263}), mask({257, 263}), floats({67591})},
                     .twice = true});
    const std::vector<Row> tests = {{ints({2, 3}, -3, 4), ints({2}, -3, 4)},
                                    {ints({}, 0, 2), ints({1}, 0, 2, i32)},
                                    {ties({3, 67}), ints({3}, -2, 3)},
                                    {specials({11}), specials({11})},
                                    {ints({9}, 0, 9), ints({0}, 0, 9)},
                                    {ints({0, 3}, 0, 9), ints({3, 2}, 0, 9)},
                                    {ints({3, 67}, 0, 300), ints({5, 20}, 0, 300)},
                                    {specials({22}), specials({22})},
                                    {ints({30}, 0, 40, u8), ints({17}, 0, 40, u8)}};
    for (const bool invert : {false, true})
        cases.push_back(
            {.name = invert ? "isin/invert" : "isin",
             .torch = str("torch.isin(x[0], x[1], invert=", invert ? "True)" : "False)"),
             .call = [=](In x) { return isin(x[0], x[1], invert); },
             .rows = tests,
             .gradient = false});
    cases.push_back({.name = "isin/number",
                     .torch = "torch.isin(x[0], 2)",
                     .call = [](In x) { return isin(x[0], 2); },
                     .rows = {{ties({2, 3})}, {ints({9}, 0, 3)}},
                     .gradient = false});
}

// Returns rows for ops that replace elements along dim 1 at the index 2 * [0, 1, ...] + x[1]. All
// elements of the index differ, because the gradient of an overwritten element is not its
// derivative.
std::vector<Row> rows_of_scatter() {
    return {{floats({3, 10}), ints({3, 4}, 0, 2), floats({3, 4})},
            {floats({3, 10}), ints({2, 3}, 0, 2), floats({3, 5})},
            {floats({3, 10}), ints({3, 0}, 0, 2), floats({3, 0})},
            {floats({3, 135}), ints({3, 67}, 0, 2), floats({3, 67})}};
}
Tensor different(const Tensor& offsets) {
    return add(offsets, mul(arange(offsets.size(-1), {.device = offsets.device()}), 2));
}
// PyTorch has no gradient for a src that is larger than the index.
const char* const kPartOfSrc = "x[2][tuple(map(slice, x[1].shape))]";
const char* const kDifferent = "(x[1] + 2 * torch.arange(x[1].size(-1)))";

void add_scatter_cases(Cases& cases) {
    cases.push_back({.name = "scatter",
                     .torch = str("x[0].scatter(1, ", kDifferent, ", ", kPartOfSrc, ")"),
                     .call = [](In x) { return scatter(x[0], 1, different(x[1]), x[2]); },
                     .rows = rows_of_scatter(),
                     .large = {floats({257, 602}), ints({257, 301}, 0, 2), floats({257, 301})},
                     .gpu_rows = {{floats({2, 9000}), ints({2, 4500}, 0, 2), floats({2, 4500})}},
                     .twice = true});
    cases.push_back({.name = "scatter/first",
                     .torch = str("x[0].scatter(0, x[1].long(), ", kPartOfSrc, ")"),
                     .call = [](In x) { return scatter(x[0], 0, x[1], x[2]); },
                     .rows = {{floats({5, 3}), ints({1, 3}, 0, 5, i32), floats({4, 3})},
                              {floats({5, 67}), ints({1, 67}, 0, 5, i32), floats({1, 67})}},
                     .twice = true});
    // If an index is repeated, the last of its elements is stored.
    cases.push_back({.name = "scatter/repeated",
                     .torch = "x[0].scatter(-1, x[1], x[2])",
                     .call = [](In x) { return scatter(x[0], -1, x[1], x[2]); },
                     .rows = {{floats({3, 5}), ints({3, 67}, 0, 5), floats({3, 67})},
                              {ints({7}, 0, 9), ints({20}, 0, 7), ints({20}, 0, 9)},
                              {mask({7}), ints({20}, 0, 7), mask({20})}},
                     .gpu_rows = {{floats({600}), ints({5000}, 0, 600), floats({5000})}},
                     .gradient = false});
    cases.push_back({.name = "scatter/number",
                     .torch = "x[0].scatter(1, x[1], 2.5)",
                     .call = [](In x) { return scatter(x[0], 1, x[1], 2.5); },
                     .rows = {{floats({3, 5}), ints({3, 4}, 0, 5)},
                              {floats({0, 5}), ints({0, 4}, 0, 5)},
                              {floats({3, 67}), ints({2, 40}, 0, 67)}},
                     .twice = true});
    const std::vector<Row> flat = {{floats({3, 4}), ints({2, 3}, -12, 12)},
                                   {floats({7}), ints({}, -7, 7, i32)},
                                   {floats({}), ints({2}, 0, 1)},
                                   {floats({2, 0}), ints({0}, 0, 9)},
                                   {floats({3, 67}), ints({35}, -200, 200)}};
    cases.push_back({.name = "take",
                     .torch = "x[0].take(x[1].long())",
                     .call = [](In x) { return take(x[0], x[1]); },
                     .rows = flat,
                     .twice = true});
    cases.push_back(
        {.name = "put",
         .torch = str("x[0].put(", kDifferent, " - x[0].numel(), x[2])"),
         .call = [](In x) { return put(x[0], sub(different(x[1]), x[0].numel()), x[2]); },
         .rows = {{floats({3, 4}), ints({5}, 0, 2), floats({5})},
                  {floats({0, 4}), ints({0}, 0, 2), floats({0})},
                  {floats({3, 67}), ints({35}, 0, 2), floats({5, 7})}},
         .twice = true});
    cases.push_back({.name = "put/accumulate",
                     .torch = "x[0].put(x[1], x[2], accumulate=True)",
                     .call = [](In x) { return put(x[0], x[1], x[2], true); },
                     .rows = {{floats({3, 4}), ints({2, 6}, -12, 12), floats({12})}},
                     .twice = true,
                     .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
    cases.push_back({.name = "take_along_dim",
                     .torch = "torch.take_along_dim(x[0], x[1].long(), 1)",
                     .call = [](In x) { return take_along_dim(x[0], x[1], 1); },
                     .rows = {{floats({3, 5}), ints({3, 4}, -5, 5)},
                              {floats({1, 5}), ints({3, 2}, 0, 5, i32)},
                              {floats({3, 5, 2}), ints({1, 7, 1}, 0, 5)},
                              {floats({0, 5}), ints({1, 2}, 0, 5)},
                              {floats({3, 67}), ints({1, 35}, 0, 67)}},
                     .twice = true});
    cases.push_back({.name = "take_along_dim/flat",
                     .torch = "torch.take_along_dim(x[0], x[1])",
                     .call = [](In x) { return take_along_dim(x[0], x[1]); },
                     .rows = {{floats({3, 5}), ints({2, 4}, 0, 15)}},
                     .twice = true});
}

constexpr std::pair<IndexReduction, const char*> kIndexReductions[] = {
    {IndexReduction::sum, "sum"},
    {IndexReduction::prod, "prod"},
    {IndexReduction::mean, "mean"},
    {IndexReduction::amax, "amax"},
    {IndexReduction::amin, "amin"}};

void add_reduction_cases(Cases& cases) {
    const auto add = [&](const std::string& name, const std::string& torch, IndexReduction reduce,
                         std::vector<Row> rows, std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = std::move(rows),
                         .twice = reduce != IndexReduction::prod,
                         .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
    };
    const std::vector<Row> rows = {{floats({3, 5}), ints({3, 4}, 0, 5), distinct({3, 4})},
                                   {floats({3, 5}), ints({2, 9}, 0, 5), distinct({2, 11})},
                                   {floats({3, 5}), ints({3, 0}, 0, 5), floats({3, 0})},
                                   {floats({3, 67}), ints({3, 67}, 0, 67), distinct({3, 67})}};
    const std::vector<Row> slices = {{floats({3, 5, 2}), ints({4}, 0, 5), distinct({3, 4, 2})},
                                     {floats({3, 5}), ints({0}, 0, 5), floats({3, 0})},
                                     {floats({3, 35}), ints({67}, 0, 35), distinct({3, 67})}};
    for (const auto& [reduce, name] : kIndexReductions)
        for (const bool self : {true, false}) {
            const std::string variant = str(reduce == IndexReduction::sum ? "" : str("/", name),
                                            self ? "" : "/without_self");
            const std::string arguments =
                str("'", name, "', include_self=", self ? "True)" : "False)");
            add("scatter_reduce" + variant,
                str("x[0].scatter_reduce(1, x[1], ", kPartOfSrc, ", ", arguments), reduce, rows,
                [=](In x) { return scatter_reduce(x[0], 1, x[1], x[2], reduce, self); });
            if (reduce == IndexReduction::sum) continue;  // not supported by PyTorch's index_reduce
            add(str("index_reduce", variant), "x[0].index_reduce(1, x[1], x[2], " + arguments,
                reduce, slices,
                [=](In x) { return index_reduce(x[0], 1, x[1], x[2], reduce, self); });
        }
    // These cases have integers, ties and zeros.
    for (const auto& [reduce, name] : kIndexReductions)
        cases.push_back(
            {.name = str("scatter_reduce/", name, "/ints"),
             .torch = str("x[0].scatter_reduce(0, x[1], x[2], '", name, "')"),
             .call = [=](In x) { return scatter_reduce(x[0], 0, x[1], x[2], reduce); },
             .rows = {{ints({5}, -4, 5), ints({20}, 0, 5), ints({20}, -4, 5)},
                      {ints({5, 3}, -4, 5, i32), ints({9, 3}, 0, 5), ints({9, 3}, -4, 5, i32)}},
             .gradient = false});
    for (const auto& [reduce, name] : kIndexReductions)
        cases.push_back({.name = str("scatter_reduce/", name, "/ties"),
                         .torch = str("x[0].scatter_reduce(0, x[1], x[2], '", name, "')"),
                         .call = [=](In x) { return scatter_reduce(x[0], 0, x[1], x[2], reduce); },
                         .rows = {{ties({9}), ints({9}, 0, 9), ties({9})},
                                  {ties({9}), ints({20}, 0, 9), ties({20})}},
                         .smooth = false,
                         .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
}

void add_slice_cases(Cases& cases) {
    const std::vector<Row> added = {{floats({3, 5, 2}), ints({4}, 0, 5), floats({3, 4, 2})},
                                    {floats({3, 5}), ints({0}, 0, 5), floats({3, 0})},
                                    {floats({0, 5}), ints({3}, 0, 5), floats({0, 3})},
                                    {floats({3, 35}), ints({67}, 0, 35, i32), floats({3, 67})}};
    cases.push_back({.name = "index_add",
                     .torch = "x[0].index_add(1, x[1], x[2])",
                     .call = [](In x) { return index_add(x[0], 1, x[1], x[2]); },
                     .rows = added,
                     .large = {floats({257, 50}), ints({301}, 0, 50), floats({257, 301})},
                     .twice = true,
                     .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
    cases.push_back({.name = "index_add/alpha",
                     .torch = "x[0].index_add(0, x[1], x[2], alpha=-0.5)",
                     .call = [](In x) { return index_add(x[0], 0, x[1], x[2], -0.5); },
                     .rows = {{floats({5, 3}), ints({4}, 0, 5), floats({4, 3})},
                              {floats({5}), ints({1}, 0, 5), floats({1})}},
                     .twice = true,
                     .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
    const std::vector<Row> copied = {{floats({3, 9, 2}), ints({4}, 0, 2), floats({3, 4, 2})},
                                     {floats({3, 5}), ints({0}, 0, 2), floats({3, 0})},
                                     {floats({3, 67}), ints({33}, 0, 2), floats({3, 33})}};
    cases.push_back({.name = "index_copy",
                     .torch = str("x[0].index_copy(1, ", kDifferent, ", x[2])"),
                     .call = [](In x) { return index_copy(x[0], 1, different(x[1]), x[2]); },
                     .rows = copied,
                     .twice = true});
    const std::vector<Row> filled = {{floats({3, 5, 2}), ints({4}, -5, 5)},
                                     {floats({3, 5}), ints({0}, -5, 5)},
                                     {floats({3, 67}), ints({35}, -67, 67, i32)}};
    cases.push_back({.name = "index_fill",
                     .torch = "x[0].index_fill(1, x[1].long(), 1.5)",
                     .call = [](In x) { return index_fill(x[0], 1, x[1], 1.5); },
                     .rows = filled,
                     .twice = true});
    cases.push_back({.name = "index_fill/tensor",
                     .torch = str("x[0].index_fill(0, ", kDifferent, ", x[2])"),
                     .call = [](In x) { return index_fill(x[0], 0, different(x[1]), x[2]); },
                     .rows = {{floats({9, 3}), ints({4}, 0, 2), floats({})},
                              {floats({9}), ints({1}, 0, 2), floats({})}},
                     .twice = true});
    cases.push_back({.name = "index_put",
                     .torch = str("x[0].index_put((", kDifferent, ",), x[2])"),
                     .call = [](In x) { return index_put(x[0], {different(x[1])}, x[2]); },
                     .rows = {{floats({9, 3}), ints({4}, 0, 2), floats({4, 3})},
                              {floats({9, 3}), ints({4}, 0, 2), floats({1, 3})},
                              {floats({9, 3}), ints({0}, 0, 2), floats({1, 3})},
                              {floats({9, 67}), ints({4}, 0, 2), floats({1, 67})}},
                     .twice = true});
    cases.push_back(
        {.name = "index_put/accumulate",
         .torch = "x[0].index_put((x[1], x[2]), x[3], accumulate=True)",
         .call =
             [](In x) {
                 return index_put(x[0], {x[1], x[2]}, x[3], true);
             },
         .rows = {{floats({4, 3}), ints({5}, -4, 4), ints({5}, -3, 3), floats({5})},
                  {floats({4, 3, 2}), ints({5, 1}, -4, 4), ints({2}, -3, 3), floats({1, 2, 2})}},
         .twice = true,
         .tolerance = {.f16 = 2e-2, .bf16 = 1e-1}});
}

void add_part_cases(Cases& cases) {
    const auto part = [&](const char* name, const char* torch, std::vector<Row> rows,
                          std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = std::move(rows),
                         .twice = true});
    };
    part("select_scatter", "x[0].select_scatter(x[1], 1, -2)",
         {{floats({3, 4}), floats({3})},
          {floats({0, 2}), floats({0})},
          {floats({2, 3, 67}), floats({2, 67})}},
         [](In x) { return select_scatter(x[0], x[1], 1, -2); });
    part("slice_scatter", "x[0].slice_scatter(x[1], 1, 1, -1, 2)",
         {{floats({3, 6}), floats({3, 2})},
          {floats({0, 4}), floats({0, 1})},
          {floats({3, 67}), floats({3, 33})}},
         [](In x) { return slice_scatter(x[0], x[1], 1, 1, -1, 2); });
    part("slice_scatter/all", "x[0].slice_scatter(x[1])", {{floats({3, 2}), floats({3, 2})}},
         [](In x) { return slice_scatter(x[0], x[1]); });
    part("diagonal_scatter", "x[0].diagonal_scatter(x[1], 1)",
         {{floats({3, 4}), floats({3})},
          {floats({3, 0}), floats({0})},
          {floats({35, 67}), floats({35})}},
         [](In x) { return diagonal_scatter(x[0], x[1], 1); });
    part("diagonal_scatter/dims", "x[0].diagonal_scatter(x[1], -1, 2, 0)",
         {{floats({3, 2, 4}), floats({2, 3})}},
         [](In x) { return diagonal_scatter(x[0], x[1], -1, 2, 0); });
}

}  // namespace

void add_selection_cases(Cases& cases) {
    add_mask_cases(cases);
    add_scatter_cases(cases);
    add_reduction_cases(cases);
    add_slice_cases(cases);
    add_part_cases(cases);
    set_autocast(cases, Autocast::widest, {"index_copy", "index_put"});
    add_bad_selection_calls(cases);
}

}  // namespace axle::tests
