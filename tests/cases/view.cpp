#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void movement(Cases& cases, std::string name, std::vector<Row> rows,
              std::function<Outputs(In)> call) {
    cases.push_back(
        {.name = std::move(name), .call = std::move(call), .rows = std::move(rows), .twice = true});
}

// A view op: its results must share the memory of its operand.
void no_copy(Cases& cases, std::string name, std::vector<Row> rows,
             std::function<Outputs(In)> call) {
    movement(cases, std::move(name), std::move(rows), std::move(call));
    cases.back().check = [](In x, const Outputs& y) {
        for (const Tensor& part : y)
            if (part.impl()->storage != x[0].impl()->storage) return "should be a view";
        return "";
    };
}

void add_shape_cases(Cases& cases) {
    no_copy(cases, "view",
            {{floats({4, 6})}, {floats({0, 3})}, {floats({2, 1, 2})}, {floats({2, 67})}}, [](In x) {
                return view(x[0], {-1, 2});
            });
    cases.back().strided = false;  // other layouts cannot be viewed this way
    no_copy(cases, "view/unit_dims", {{floats({4, 6})}, {floats({0, 3})}, {floats({1, 1})}},
            [](In x) {
                return view(x[0], {1, x[0].size(0), 1, x[0].size(1)});
            });
    no_copy(cases, "view/scalar", {{floats({1, 1})}, {floats({})}},
            [](In x) { return view(x[0], {}); });
    movement(
        cases, "reshape",
        {{floats({4, 6})}, {floats({0, 3})}, {floats({})}, {floats({2, 1, 2})}, {floats({3, 67})}},
        [](In x) { return reshape(x[0], {-1}); });
    movement(cases, "reshape/transposed", {{floats({4, 6})}, {floats({0, 2})}, {floats({6, 1})}},
             [](In x) {
                 return reshape(transpose(x[0], 0, 1), {2, -1});
             });
    movement(cases, "flatten",
             {{floats({2, 3, 4})}, {floats({})}, {floats({2, 0})}, {floats({67})}},
             [](In x) { return flatten(x[0]); });
    movement(cases, "flatten/middle", {{floats({2, 3, 4, 2})}, {floats({2, 0, 3, 1})}},
             [](In x) { return flatten(x[0], 1, -2); });
    no_copy(cases, "expand",
            {{floats({2, 1})}, {floats({0, 1})}, {floats({1, 1})}, {floats({67, 1})}}, [](In x) {
                return expand(x[0], {3, -1, 5});
            });
    no_copy(cases, "expand/scalar", {{floats({})}, {floats({1})}}, [](In x) {
        return expand(x[0], {2, 3});
    });
    no_copy(cases, "expand/to_nothing", {{floats({1, 3})}}, [](In x) {
        return expand(x[0], {0, 3});
    });
    no_copy(cases, "squeeze",
            {{floats({3, 1, 2})}, {floats({67, 1})}, {floats({3, 4})}, {floats({0, 1})}},
            [](In x) { return squeeze(x[0], 1); });
    no_copy(cases, "squeeze/last", {{floats({3, 1})}, {floats({1})}, {floats({})}},
            [](In x) { return squeeze(x[0], -1); });
    no_copy(cases, "unsqueeze", {{floats({3, 2})}, {floats({})}, {floats({0, 3})}, {floats({67})}},
            [](In x) { return unsqueeze(x[0], -1); });
    no_copy(cases, "unsqueeze/first", {{floats({3, 2})}, {floats({})}},
            [](In x) { return unsqueeze(x[0], 0); });
    movement(cases, "sum_to",
             {{floats({2, 3, 4})}, {floats({2, 3, 1})}, {floats({0, 3, 4})}, {floats({3, 67})}},
             [](In x) {
                 return sum_to(x[0], {3, 1});
             });
    movement(cases, "sum_to/scalar", {{floats({5})}, {floats({})}, {floats({3, 67})}},
             [](In x) { return sum_to(x[0], {}); });
    movement(cases, "sum_to/same", {{floats({2, 3})}}, [](In x) { return sum_to(x[0], {2, 3}); });
}

void add_order_cases(Cases& cases) {
    no_copy(cases, "transpose",
            {{floats({3, 4})}, {floats({2, 3, 4})}, {floats({0, 5})}, {floats({3, 67})}},
            [](In x) { return transpose(x[0], 0, -1); });
    no_copy(cases, "permute",
            {{floats({2, 3, 4})}, {floats({2, 0, 1})}, {floats({1, 1, 1})}, {floats({2, 2, 67})}},
            [](In x) {
                return permute(x[0], {2, 0, -2});
            });
}

void add_part_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({3, 4})}, {floats({0, 4})}, {floats({1, 5, 2})}, {floats({3, 67})}};
    no_copy(cases, "narrow", rows, [](In x) { return narrow(x[0], 1, 1, 3); });
    no_copy(cases, "narrow/nothing", rows, [](In x) { return narrow(x[0], 1, 4, 0); });
    no_copy(cases, "slice", rows, [](In x) { return slice(x[0], 1, 1, INT64_MAX, 2); });
    no_copy(cases, "slice/from_end", rows, [](In x) { return slice(x[0], 1, -3, -1); });
    no_copy(cases, "slice/beyond", rows, [](In x) { return slice(x[0], -1, -100, 100, 3); });
    no_copy(cases, "slice/nothing", rows, [](In x) { return slice(x[0], 1, 3, 2); });
    no_copy(cases, "select", {{floats({3, 4})}, {floats({2})}, {floats({2, 0})}, {floats({3, 67})}},
            [](In x) { return select(x[0], 0, 1); });
    no_copy(cases, "select/last", {{floats({3, 4})}, {floats({2})}, {floats({0, 2})}},
            [](In x) { return select(x[0], -1, -1); });

    const std::vector<Row> to_split = {
        {floats({7, 2})}, {floats({6, 3})}, {floats({7, 0})}, {floats({0, 2})}, {floats({67})}};
    no_copy(cases, "split", to_split, [](In x) { return split(x[0], 3); });
    no_copy(cases, "split/sizes", {{floats({2, 6})}, {floats({0, 6})}}, [](In x) {
        return split(x[0], Dims{1, 0, 5}, 1);
    });
    movement(cases, "split/one_used", to_split, [](In x) { return split(x[0], 3).back(); });
    no_copy(cases, "chunk", to_split, [](In x) { return chunk(x[0], 3); });
    no_copy(cases, "chunk/last", {{floats({2, 7})}, {floats({2, 2})}},
            [](In x) { return chunk(x[0], 3, -1); });
}

void add_join_cases(Cases& cases) {
    movement(cases, "cat",
             {{floats({2, 3}), floats({2, 1}), floats({2, 4})},
              {floats({0, 3}), floats({0, 1}), floats({0, 2})},
              {floats({2, 0}), floats({2, 1}), floats({2, 2})},
              {floats({3, 67}), floats({3, 1}), floats({3, 5})}},
             [](In x) { return cat(x, 1); });
    cases.back().large = {floats({257, 263}), floats({257, 4})};
    movement(cases, "cat/first", {{floats({2, 3}), floats({1, 3})}, {floats({3}), floats({0})}},
             [](In x) { return cat(x); });
    movement(cases, "cat/promoted", {{floats({2, 3}), ints({1, 3}, -9, 9)}},
             [](In x) { return cat(x, -2); });
    movement(cases, "stack",
             {{floats({2, 3}), floats({2, 3}), floats({2, 3})},
              {floats({}), floats({}), floats({})},
              {floats({0, 3}), floats({0, 3})},
              {floats({3, 67}), floats({3, 67})}},
             [](In x) { return stack(x); });
    movement(cases, "stack/last", {{floats({2, 3}), floats({2, 3})}, {floats({}), floats({})}},
             [](In x) { return stack(x, -1); });
}

}  // namespace

void add_view_cases(Cases& cases) {
    add_shape_cases(cases);
    add_order_cases(cases);
    add_part_cases(cases);
    add_join_cases(cases);
}

}  // namespace axle::tests
