#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void movement(Cases& cases, std::string name, std::string torch, std::vector<Row> rows,
              std::function<Outputs(In)> call) {
    cases.push_back({.name = std::move(name),
                     .torch = std::move(torch),
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .twice = true});
}

// Adds cases of a view op, whose results must share the memory of its operand.
void no_copy(Cases& cases, std::string name, std::string torch, std::vector<Row> rows,
             std::function<Outputs(In)> call) {
    movement(cases, std::move(name), std::move(torch), std::move(rows), std::move(call));
    cases.back().check = [](In x, const Outputs& y) {
        for (const Tensor& part : y)
            if (part.impl()->storage != x[0].impl()->storage) return "should be a view";
        return "";
    };
}

void add_shape_cases(Cases& cases) {
    no_copy(cases, "view", "x[0].view(-1, 2)",
            {{floats({4, 6})}, {floats({0, 3})}, {floats({2, 1, 2})}, {floats({2, 67})}}, [](In x) {
                return view(x[0], {-1, 2});
            });
    cases.back().strided = false;  // other layouts cannot be viewed this way
    no_copy(cases, "view/unit_dims", "x[0].view(1, x[0].size(0), 1, x[0].size(1))",
            {{floats({4, 6})}, {floats({0, 3})}, {floats({1, 1})}}, [](In x) {
                return view(x[0], {1, x[0].size(0), 1, x[0].size(1)});
            });
    no_copy(cases, "view/scalar", "x[0].view(())", {{floats({1, 1})}, {floats({})}},
            [](In x) { return view(x[0], {}); });
    movement(
        cases, "reshape", "x[0].reshape(-1)",
        {{floats({4, 6})}, {floats({0, 3})}, {floats({})}, {floats({2, 1, 2})}, {floats({3, 67})}},
        [](In x) { return reshape(x[0], {-1}); });
    movement(cases, "reshape/transposed", "x[0].T.reshape(2, -1)",
             {{floats({4, 6})}, {floats({0, 2})}, {floats({6, 1})}}, [](In x) {
                 return reshape(transpose(x[0], 0, 1), {2, -1});
             });
    movement(cases, "flatten", "x[0].flatten()",
             {{floats({2, 3, 4})}, {floats({})}, {floats({2, 0})}, {floats({67})}},
             [](In x) { return flatten(x[0]); });
    movement(cases, "flatten/middle", "x[0].flatten(1, -2)",
             {{floats({2, 3, 4, 2})}, {floats({2, 0, 3, 1})}},
             [](In x) { return flatten(x[0], 1, -2); });
    no_copy(cases, "expand", "x[0].expand(3, -1, 5)",
            {{floats({2, 1})}, {floats({0, 1})}, {floats({1, 1})}, {floats({67, 1})}}, [](In x) {
                return expand(x[0], {3, -1, 5});
            });
    no_copy(cases, "expand/scalar", "x[0].expand(2, 3)", {{floats({})}, {floats({1})}}, [](In x) {
        return expand(x[0], {2, 3});
    });
    no_copy(cases, "expand/to_nothing", "x[0].expand(0, 3)", {{floats({1, 3})}}, [](In x) {
        return expand(x[0], {0, 3});
    });
    no_copy(cases, "squeeze", "x[0].squeeze(1)",
            {{floats({3, 1, 2})}, {floats({67, 1})}, {floats({3, 4})}, {floats({0, 1})}},
            [](In x) { return squeeze(x[0], 1); });
    no_copy(cases, "squeeze/last", "x[0].squeeze(-1)",
            {{floats({3, 1})}, {floats({1})}, {floats({})}},
            [](In x) { return squeeze(x[0], -1); });
    no_copy(cases, "squeeze/all", "x[0].squeeze()",
            {{floats({1, 3, 1, 2})}, {floats({1, 1})}, {floats({})}, {floats({0, 1})}},
            [](In x) { return squeeze(x[0]); });
    no_copy(cases, "unsqueeze", "x[0].unsqueeze(-1)",
            {{floats({3, 2})}, {floats({})}, {floats({0, 3})}, {floats({67})}},
            [](In x) { return unsqueeze(x[0], -1); });
    no_copy(cases, "unsqueeze/first", "x[0].unsqueeze(0)", {{floats({3, 2})}, {floats({})}},
            [](In x) { return unsqueeze(x[0], 0); });
    movement(cases, "sum_to", "x[0].sum_to_size(3, 1)",
             {{floats({2, 3, 4})}, {floats({2, 3, 1})}, {floats({0, 3, 4})}, {floats({3, 67})}},
             [](In x) {
                 return sum_to(x[0], {3, 1});
             });
    movement(cases, "sum_to/scalar", "x[0].sum_to_size(())",
             {{floats({5})}, {floats({})}, {floats({3, 67})}},
             [](In x) { return sum_to(x[0], {}); });
    movement(cases, "sum_to/same", "x[0].sum_to_size(2, 3)", {{floats({2, 3})}}, [](In x) {
        return sum_to(x[0], {2, 3});
    });
}

void add_order_cases(Cases& cases) {
    no_copy(cases, "transpose", "x[0].transpose(0, -1)",
            {{floats({3, 4})}, {floats({2, 3, 4})}, {floats({0, 5})}, {floats({3, 67})}},
            [](In x) { return transpose(x[0], 0, -1); });
    no_copy(cases, "permute", "x[0].permute(2, 0, -2)",
            {{floats({2, 3, 4})}, {floats({2, 0, 1})}, {floats({1, 1, 1})}, {floats({2, 2, 67})}},
            [](In x) {
                return permute(x[0], {2, 0, -2});
            });
}

void add_part_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({3, 4})}, {floats({0, 4})}, {floats({1, 5, 2})}, {floats({3, 67})}};
    no_copy(cases, "narrow", "x[0].narrow(1, 1, 3)", rows,
            [](In x) { return narrow(x[0], 1, 1, 3); });
    no_copy(cases, "narrow/nothing", "x[0].narrow(1, 4, 0)", rows,
            [](In x) { return narrow(x[0], 1, 4, 0); });
    no_copy(cases, "slice", "x[0][:, 1::2]", rows,
            [](In x) { return slice(x[0], 1, 1, INT64_MAX, 2); });
    no_copy(cases, "slice/from_end", "x[0][:, -3:-1]", rows,
            [](In x) { return slice(x[0], 1, -3, -1); });
    no_copy(cases, "slice/beyond", "x[0][..., -100:100:3]", rows,
            [](In x) { return slice(x[0], -1, -100, 100, 3); });
    no_copy(cases, "slice/nothing", "x[0][:, 3:2]", rows,
            [](In x) { return slice(x[0], 1, 3, 2); });
    no_copy(cases, "select", "x[0].select(0, 1)",
            {{floats({3, 4})}, {floats({2})}, {floats({2, 0})}, {floats({3, 67})}},
            [](In x) { return select(x[0], 0, 1); });
    no_copy(cases, "select/last", "x[0].select(-1, -1)",
            {{floats({3, 4})}, {floats({2})}, {floats({0, 2})}},
            [](In x) { return select(x[0], -1, -1); });

    const std::vector<Row> to_split = {
        {floats({7, 2})}, {floats({6, 3})}, {floats({7, 0})}, {floats({0, 2})}, {floats({67})}};
    no_copy(cases, "split", "x[0].split(3)", to_split, [](In x) { return split(x[0], 3); });
    no_copy(cases, "split/sizes", "x[0].split([1, 0, 5], 1)", {{floats({2, 6})}, {floats({0, 6})}},
            [](In x) {
                return split(x[0], Dims{1, 0, 5}, 1);
            });
    movement(cases, "split/one_used", "x[0].split(3)[-1]", to_split,
             [](In x) { return split(x[0], 3).back(); });
    no_copy(cases, "chunk", "x[0].chunk(3)", to_split, [](In x) { return chunk(x[0], 3); });
    no_copy(cases, "chunk/last", "x[0].chunk(3, -1)", {{floats({2, 7})}, {floats({2, 2})}},
            [](In x) { return chunk(x[0], 3, -1); });
}

void add_join_cases(Cases& cases) {
    movement(cases, "cat", "torch.cat(x, 1)",
             {{floats({2, 3}), floats({2, 1}), floats({2, 4})},
              {floats({0, 3}), floats({0, 1}), floats({0, 2})},
              {floats({2, 0}), floats({2, 1}), floats({2, 2})},
              {floats({3, 67}), floats({3, 1}), floats({3, 5})}},
             [](In x) { return cat(x, 1); });
    cases.back().large = {floats({257, 263}), floats({257, 4})};
    movement(cases, "cat/first", "torch.cat(x)",
             {{floats({2, 3}), floats({1, 3})}, {floats({3}), floats({0})}},
             [](In x) { return cat(x); });
    movement(cases, "cat/left_out", "torch.cat(x, 1)",
             {{floats({0}), floats({2, 3}), floats({0}), floats({2, 1})}},
             [](In x) { return cat(x, 1); });
    movement(cases, "cat/promoted", "torch.cat(x, -2)", {{floats({2, 3}), ints({1, 3}, -9, 9)}},
             [](In x) { return cat(x, -2); });
    movement(cases, "stack", "torch.stack(x)",
             {{floats({2, 3}), floats({2, 3}), floats({2, 3})},
              {floats({}), floats({}), floats({})},
              {floats({0, 3}), floats({0, 3})},
              {floats({3, 67}), floats({3, 67})}},
             [](In x) { return stack(x); });
    movement(cases, "stack/last", "torch.stack(x, -1)",
             {{floats({2, 3}), floats({2, 3})}, {floats({}), floats({})}},
             [](In x) { return stack(x, -1); });
}

void add_bad_view_calls(Cases& cases) {
    refuses<ShapeError>(cases, "view", {"[4, 6]", "[5, -1]"}, [] {
        view(floats_of({4, 6}), {5, -1});
    });
    refuses<ShapeError>(cases, "view", {"[4, 6]", "[-1, -1]"}, [] {
        view(floats_of({4, 6}), {-1, -1});
    });
    refuses<ShapeError>(cases, "view", {"[6, 4]", "[24]"}, [] {
        view(transpose(floats_of({4, 6}), 0, 1), {24});
    });
    refuses<ShapeError>(cases, "reshape", {"[4, 6]", "[5, 5]"}, [] {
        reshape(floats_of({4, 6}), {5, 5});
    });
    refuses<ShapeError>(cases, "reshape", {"[0, 2]"}, [] { reshape(floats_of({0, 2}), {-1, 0}); });
    refuses<UsageError>(cases, "reshape", {}, [] { reshape(Tensor(), {2}); });
    refuses<ShapeError>(cases, "reshape", {"overflows", "[4]"}, [] {
        reshape(floats_of({4}), {std::int64_t{1} << 40, std::int64_t{1} << 40, -1});
    });
    refuses<ShapeError>(cases, "expand", {"[2, 3]", "[2, 4]"}, [] {
        expand(floats_of({2, 3}), {2, 4});
    });
    refuses<ShapeError>(cases, "expand", {"[2, 3]", "[3]"}, [] { expand(floats_of({2, 3}), {3}); });
    refuses<ShapeError>(cases, "sum_to", {"[2, 3]", "[4]"}, [] { sum_to(floats_of({2, 3}), {4}); });
    refuses<Error>(cases, "permute", {"[2, 3]", "[0]"}, [] { permute(floats_of({2, 3}), {0}); });
    refuses<Error>(cases, "permute", {"[1, 1]"}, [] { permute(floats_of({2, 3}), {1, 1}); });
    refuses<IndexError>(cases, "permute", {"5"}, [] { permute(floats_of({2, 3}), {0, 5}); });
    refuses<IndexError>(cases, "transpose", {"2"}, [] { transpose(floats_of({2, 3}), 0, 2); });
    refuses<IndexError>(cases, "unsqueeze", {"3"}, [] { unsqueeze(floats_of({2}), 3); });
    refuses<IndexError>(cases, "squeeze", {"-3"}, [] { squeeze(floats_of({2, 3}), -3); });
    refuses<IndexError>(cases, "flatten", {"2"}, [] { flatten(floats_of({2, 3}), 2); });
    refuses<Error>(cases, "flatten", {}, [] { flatten(floats_of({2, 3, 4}), 2, 1); });
    refuses<IndexError>(cases, "select", {"3"}, [] { select(floats_of({2, 3}), 1, 3); });
    refuses<IndexError>(cases, "select", {"-3"}, [] { select(floats_of({2, 3}), 0, -3); });
    refuses<Error>(cases, "select", {"0-d"}, [] { select(floats_of({}), 0, 0); });
    refuses<IndexError>(cases, "narrow", {}, [] { narrow(floats_of({2, 3}), 1, 2, 2); });
    refuses<Error>(cases, "narrow", {}, [] { narrow(floats_of({2, 3}), 1, 0, -1); });
    refuses<ValueError>(cases, "slice", {"0"}, [] { slice(floats_of({2, 3}), 1, 0, 2, 0); });
    refuses<ValueError>(cases, "slice", {"-1"}, [] { slice(floats_of({2, 3}), 1, 0, 2, -1); });
    refuses<ValueError>(cases, "split", {"0"}, [] { split(floats_of({4}), 0); });
    refuses<ShapeError>(cases, "split", {"[1, 2]", "4"}, [] { split(floats_of({4}), Dims{1, 2}); });
    refuses<ShapeError>(cases, "split", {"[5, -1]", "4"}, [] {
        split(floats_of({4}), Dims{5, -1});
    });
    // The sum of these sizes is 4 modulo 2^64.
    refuses<ShapeError>(cases, "split", {"[4]"}, [] {
        split(floats_of({4}), Dims{INT64_MAX, INT64_MAX, 6});
    });
    refuses<ValueError>(cases, "chunk", {"0"}, [] { chunk(floats_of({4}), 0); });
    refuses<IndexError>(cases, "chunk", {"1"}, [] { chunk(floats_of({4}), 2, 1); });
    refuses<ShapeError>(cases, "chunk", {"0-d"}, [] { chunk(floats_of({}), 2); });
    refuses<ShapeError>(cases, "cat", {"[2, 3]", "[3, 4]"}, [] {
        cat({floats_of({2, 3}), floats_of({3, 4})}, 0);
    });
    refuses<ShapeError>(cases, "cat", {"[2, 3]", "[2]"}, [] {
        cat({floats_of({2, 3}), floats_of({2})});
    });
    refuses<Error>(cases, "cat", {}, [] { cat({}); });
    refuses<ShapeError>(cases, "stack", {"[2, 3]", "[2]"}, [] {
        stack({floats_of({2, 3}), floats_of({2})});
    });
    refuses<Error>(cases, "stack", {}, [] { stack({}); });
    refuses<UsageError>(cases, "stack", {"undefined"}, [] { stack({floats_of({2}), Tensor()}); });
    refuses<UsageError>(cases, "cat", {"undefined"}, [] { cat({Tensor(), floats_of({2})}); });
}

}  // namespace

void add_view_cases(Cases& cases) {
    add_shape_cases(cases);
    add_order_cases(cases);
    add_part_cases(cases);
    add_join_cases(cases);
    set_autocast(cases, Autocast::widest, {"cat", "stack"});
    add_bad_view_calls(cases);
}

}  // namespace axle::tests
