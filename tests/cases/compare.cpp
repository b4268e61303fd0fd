#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void comparison(Cases& cases, std::string name, std::string torch,
                std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = {{ties({4, 5}), ties({4, 5})},
                              {ties({3, 1, 4}), ties({2, 1})},
                              {ties({}), ties({5})},
                              {ties({0, 3}), ties({1, 3})},
                              {ties({3, 67}), ties({67})},
                              {specials({11, 1}), specials({1, 11})},
                              {ints({67}, -2, 3), ints({67}, -2, 3)},
                              {ints({3, 5}, 0, 3, u8), ints({5}, 0, 3, i32)},
                              {mask({7}), ints({7}, 0, 3)},
                              {ties({7}), ints({7}, -2, 3)}},
                     .large = {ties({257, 263}), ties({257, 1})},
                     .gradient = false});
}

void with_number(Cases& cases, std::string name, std::string torch,
                 std::function<Outputs(In)> call) {
    cases.push_back(
        {.name = std::move(name),
         .torch = std::move(torch),
         .call = std::move(call),
         .rows =
             {{ties({3, 67})}, {ties({})}, {ties({0, 3})}, {specials({11})}, {ints({9}, -2, 3)}},
         .gradient = false});
}

void add_bad_compare_calls(Cases& cases) {
    refuses<ShapeError>(cases, "lt", {"[2]", "[3]"}, [] { lt(floats_of({2}), floats_of({3})); });
    refuses<ShapeError>(cases, "where", {"[2]", "[3]"},
                        [] { where(bools_of({2}), floats_of({3}), floats_of({3})); });
    refuses<DTypeError>(cases, "where", {"float32"},
                        [] { where(floats_of({2}), floats_of({2}), floats_of({2})); });
    refuses<ShapeError>(cases, "masked_fill", {"[2]", "[3]"},
                        [] { masked_fill(floats_of({2}), bools_of({3}), 0); });
    refuses<DTypeError>(cases, "masked_fill", {"int64"},
                        [] { masked_fill(floats_of({2}), ints_of({2}), 0); });
}

}  // namespace

void add_compare_cases(Cases& cases) {
    comparison(cases, "eq", "torch.eq(x[0], x[1])", [](In x) { return eq(x[0], x[1]); });
    comparison(cases, "ne", "torch.ne(x[0], x[1])", [](In x) { return ne(x[0], x[1]); });
    comparison(cases, "lt", "torch.lt(x[0], x[1])", [](In x) { return lt(x[0], x[1]); });
    comparison(cases, "le", "torch.le(x[0], x[1])", [](In x) { return le(x[0], x[1]); });
    comparison(cases, "gt", "torch.gt(x[0], x[1])", [](In x) { return gt(x[0], x[1]); });
    comparison(cases, "ge", "torch.ge(x[0], x[1])", [](In x) { return ge(x[0], x[1]); });
    with_number(cases, "eq/number", "torch.eq(x[0], 1)", [](In x) { return eq(x[0], 1); });
    with_number(cases, "ne/number", "torch.ne(x[0], 1)", [](In x) { return ne(x[0], 1); });
    with_number(cases, "lt/number", "torch.lt(x[0], 0.5)", [](In x) { return lt(x[0], 0.5); });
    with_number(cases, "le/number", "torch.le(x[0], 1)", [](In x) { return le(x[0], 1); });
    with_number(cases, "gt/number", "torch.gt(x[0], 0.5)", [](In x) { return gt(x[0], 0.5); });
    with_number(cases, "ge/number", "torch.ge(x[0], 1)", [](In x) { return ge(x[0], 1); });

    cases.push_back({.name = "where",
                     .torch = "torch.where(*x)",
                     .call = [](In x) { return where(x[0], x[1], x[2]); },
                     .rows = {{mask({4, 5}), floats({4, 5}), floats({4, 5})},
                              {mask({3, 1}), floats({4}), floats({})},
                              {mask({}), floats({3}), floats({2, 1})},
                              {mask({0, 3}), floats({1, 3}), floats({3})},
                              {mask({67}), floats({3, 67}), floats({3, 1})}},
                     .large = {mask({263}), floats({257, 263}), floats({257, 1})},
                     .twice = true});
    cases.push_back({.name = "where/promoted",
                     .torch = "torch.where(*x)",
                     .call = [](In x) { return where(x[0], x[1], x[2]); },
                     .rows = {{mask({4, 5}), floats({4, 5}), ints({5}, -9, 9)}},
                     .twice = true});
    const auto where_number = [&](const char* name, const char* torch,
                                  std::function<Outputs(In)> call) {
        cases.push_back({.name = name,
                         .torch = torch,
                         .call = std::move(call),
                         .rows = {{mask({4, 5}), floats({4, 5})},
                                  {mask({3, 1}), floats({4})},
                                  {mask({3}), floats({})},
                                  {mask({0, 3}), floats({3})}},
                         .twice = true});
    };
    where_number("where/number", "torch.where(x[0], x[1], 0.5)",
                 [](In x) { return where(x[0], x[1], 0.5); });
    where_number("where/number_first", "torch.where(x[0], 2, x[1])",
                 [](In x) { return where(x[0], 2, x[1]); });
    cases.push_back({.name = "masked_fill",
                     .torch = "x[0].masked_fill(x[1], -1.5)",
                     .call = [](In x) { return masked_fill(x[0], x[1], -1.5); },
                     .rows = {{floats({4, 5}), mask({4, 5})},
                              {floats({2, 3, 4}), mask({3, 1})},
                              {floats({}), mask({})},
                              {floats({0, 3}), mask({3})},
                              {floats({1, 3}), mask({2, 4, 1})},
                              {floats({3, 67}), mask({67})}},
                     .large = {floats({257, 263}), mask({263})},
                     .twice = true});
    cases.push_back({.name = "masked_fill/infinite",
                     .torch = "x[0].masked_fill(x[1], -inf)",
                     .call = [](In x) { return masked_fill(x[0], x[1], -1.0 / 0.0); },
                     .rows = {{floats({4, 5}), mask({5})}},
                     .gradient = false});
    set_autocast(cases, Autocast::widest, {"where"});
    add_bad_compare_calls(cases);
}

}  // namespace axle::tests
