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

void add_diagonal_cases(Cases& cases) {
    const std::vector<Row> matrices = {
        {floats({4, 4})}, {floats({3, 5})}, {floats({5, 3})}, {floats({0, 3})}, {floats({3, 67})}};
    const std::pair<int, const char*> offsets[] = {
        {0, ""}, {2, "/above"}, {-1, "/below"}, {9, "/beyond"}};
    for (const auto& [offset, variant] : offsets) {
        no_copy(cases, str("diagonal", variant), str("x[0].diagonal(", offset, ")"), matrices,
                [offset = offset](In x) { return diagonal(x[0], offset); });
        movement(cases, str("diag", variant), str("x[0].diag(", offset, ")"), matrices,
                 [offset = offset](In x) { return diag(x[0], offset); });
    }
    no_copy(cases, "diagonal/dims", "x[0].diagonal(-1, 2, -3)",
            {{floats({4, 2, 3})}, {floats({2, 3, 4, 5})}, {floats({2, 0, 4})}},
            [](In x) { return diagonal(x[0], -1, 2, -3); });
    movement(cases, "diag/vector", "x[0].diag(1)", {{floats({3})}, {floats({0})}, {floats({35})}},
             [](In x) { return diag(x[0], 1); });
    const std::vector<Row> vectors = {
        {floats({3})}, {floats({2, 3})}, {floats({0})}, {floats({2, 0})}, {floats({35})}};
    movement(cases, "diag_embed", "x[0].diag_embed()", vectors,
             [](In x) { return diag_embed(x[0]); });
    movement(cases, "diag_embed/dims", "x[0].diag_embed(-2, 0, 1)", vectors,
             [](In x) { return diag_embed(x[0], -2, 0, 1); });
    movement(cases, "diag_embed/swapped", "x[0].diag_embed(1, -1, 0)", vectors,
             [](In x) { return diag_embed(x[0], 1, -1, 0); });
    movement(cases, "diagflat", "torch.diagflat(x[0], -1)",
             {{floats({2, 3})}, {floats({})}, {floats({0, 2})}, {floats({35})}},
             [](In x) { return diagflat(x[0], -1); });
    movement(cases, "trace", "x[0].trace()", matrices, [](In x) { return trace(x[0]); });
    movement(cases, "block_diag", "torch.block_diag(*x)",
             {{floats({2, 3}), floats({1, 2})},
              {floats({2}), floats({}), floats({2, 1})},
              {floats({0, 3}), floats({2, 2})},
              {floats({1, 67}), floats({2, 3})}},
             [](In x) { return block_diag(x); });
}

void add_window_cases(Cases& cases) {
    no_copy(cases, "unfold", "x[0].unfold(-1, 3, 2)",
            {{floats({7})}, {floats({2, 5})}, {floats({0, 4})}, {floats({3, 67})}},
            [](In x) { return unfold(x[0], -1, 3, 2); });
    no_copy(cases, "unfold/first", "x[0].unfold(0, 2, 1)", {{floats({4, 3})}, {floats({2, 0})}},
            [](In x) { return unfold(x[0], 0, 2, 1); });
    no_copy(cases, "unfold/apart", "x[0].unfold(1, 2, 3)", {{floats({2, 9})}, {floats({2, 7, 2})}},
            [](In x) { return unfold(x[0], 1, 2, 3); });
    no_copy(cases, "unfold/nothing", "x[0].unfold(0, 0, 2)", {{floats({4, 3})}, {floats({})}},
            [](In x) { return unfold(x[0], 0, 0, 2); });
    no_copy(cases, "unfold/scalar", "x[0].unfold(0, 1, 1)", {{floats({})}, {floats({1})}},
            [](In x) { return unfold(x[0], 0, 1, 1); });
    movement(cases, "unfold/images", "F.unfold(x[0], (2, 3))",
             {{floats({2, 3, 4, 5})},
              {floats({3, 4, 5})},
              {floats({0, 3, 4, 5})},
              {floats({1, 2, 3, 19})}},
             [](In x) {
                 return unfold(x[0], {2, 3});
             });
    cases.back().large = {floats({4, 8, 33, 35})};
    movement(
        cases, "unfold/options",
        "F.unfold(x[0], (3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 3))",
        {{floats({2, 2, 4, 5})}, {floats({1, 2, 7, 19})}}, [](In x) {
            return unfold(x[0], {3, 2}, {.dilation = {1, 2}, .padding = {2, 1}, .stride = {2, 3}});
        });
    movement(cases, "unfold/pixels", "F.unfold(x[0], 1)", {{floats({2, 3, 2, 3})}},
             [](In x) { return unfold(x[0], 1); });
    movement(cases, "fold", "F.fold(x[0], (3, 4), 2)",
             {{floats({2, 12, 6})}, {floats({4, 6})}, {floats({0, 4, 6})}, {floats({1, 8, 6})}},
             [](In x) {
                 return fold(x[0], {3, 4}, 2);
             });
    movement(cases, "fold/options",
             "F.fold(x[0], (4, 5), (3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 3))",
             {{floats({2, 12, 6})}, {floats({6, 6})}}, [](In x) {
                 return fold(x[0], {4, 5}, {3, 2},
                             {.dilation = {1, 2}, .padding = {2, 1}, .stride = {2, 3}});
             });
    movement(cases, "fold/row", "F.fold(x[0], (1, 68), (1, 2))", {{floats({1, 4, 67})}}, [](In x) {
        return fold(x[0], {1, 68}, {1, 2});
    });
    // An element is the sum of the elements of up to four windows, so rounding errors add up.
    for (OpCase& c : cases)
        if (c.op() == "fold") c.tolerance = {.f16 = 1e-2, .bf16 = 6e-2};
}

void add_dim_order_cases(Cases& cases) {
    no_copy(cases, "movedim", "x[0].movedim((0, -1), (-1, 1))",
            {{floats({2, 3, 4})}, {floats({2, 3, 0, 4})}, {floats({3, 2, 67})}}, [](In x) {
                return movedim(x[0], {0, -1}, {-1, 1});
            });
    no_copy(cases, "movedim/one", "x[0].movedim(1, 0)", {{floats({2, 3, 4})}, {floats({2, 3})}},
            [](In x) { return movedim(x[0], 1, 0); });
    no_copy(cases, "swapaxes", "x[0].swapaxes(0, -1)",
            {{floats({2, 3, 4})}, {floats({0, 5})}, {floats({3, 67})}},
            [](In x) { return swapaxes(x[0], 0, -1); });
    no_copy(cases, "t", "x[0].t()",
            {{floats({2, 3})}, {floats({5})}, {floats({})}, {floats({0, 5})}, {floats({3, 67})}},
            [](In x) { return t(x[0]); });
}

void add_element_order_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({2, 3})}, {floats({4, 1})}, {floats({0, 3})}, {floats({2, 0})}, {floats({3, 67})}};
    movement(cases, "roll", "x[0].roll((1, -5), (0, 1))", rows, [](In x) {
        return roll(x[0], {1, -5}, {0, 1});
    });
    cases.back().large = {floats({257, 263})};
    movement(cases, "roll/flat", "x[0].roll(2)",
             {{floats({2, 3})}, {floats({})}, {floats({0})}, {floats({67})}},
             [](In x) { return roll(x[0], 2); });
    movement(cases, "roll/twice", "x[0].roll((1, 1), (0, 0))", {{floats({3, 2})}, {floats({2, 3})}},
             [](In x) {
                 return roll(x[0], {1, 1}, {0, 0});
             });
    for (const int k : {1, 2, 3, 4, -1})
        movement(cases,
                 k == 1    ? "rot90"
                 : k == -1 ? "rot90/backwards"
                           : str("rot90/", k),
                 str("x[0].rot90(", k, ")"), rows, [=](In x) { return rot90(x[0], k); });
    movement(cases, "rot90/dims", "x[0].rot90(1, (2, 0))", {{floats({2, 3, 4})}}, [](In x) {
        return rot90(x[0], 1, {2, 0});
    });
    movement(cases, "fliplr", "x[0].fliplr()", rows, [](In x) { return fliplr(x[0]); });
    movement(cases, "flipud", "x[0].flipud()", rows, [](In x) { return flipud(x[0]); });
    const std::vector<Row> images = {{floats({2, 8, 2, 3})},
                                     {floats({4, 4, 2})},
                                     {floats({1, 2, 4, 1, 2})},
                                     {floats({4, 3, 7})}};
    movement(cases, "pixel_shuffle", "F.pixel_shuffle(x[0], 2)", images,
             [](In x) { return pixel_shuffle(x[0], 2); });
    movement(cases, "pixel_shuffle/one", "F.pixel_shuffle(x[0], 1)", {{floats({2, 3, 4})}},
             [](In x) { return pixel_shuffle(x[0], 1); });
    movement(cases, "pixel_unshuffle", "F.pixel_unshuffle(x[0], 2)",
             {{floats({2, 3, 4, 6})}, {floats({1, 2, 4})}, {floats({3, 2, 18})}},
             [](In x) { return pixel_unshuffle(x[0], 2); });
    // PyTorch has no gradients of images without pixels, and its pixel_unshuffle returns another
    // shape for them.
    movement(cases, "pixel_shuffle/empty", "F.pixel_shuffle(x[0], 2)",
             {{floats({0, 4, 2, 2})}, {floats({8, 0, 3})}},
             [](In x) { return pixel_shuffle(x[0], 2); });
    cases.back().gradient = false;
    movement(cases, "pixel_unshuffle/empty", "", {{floats({0, 1, 2, 2})}, {floats({1, 0, 4})}},
             [](In x) { return pixel_unshuffle(x[0], 2); });
    cases.back().gradient = false;
    cases.back().check = [](In x, const Outputs& y) {
        const bool fits = y[0].size(-3) == 4 * x[0].size(-3) && y[0].size(-1) == x[0].size(-1) / 2;
        return fits ? "" : "should have four times as many channels";
    };
    movement(cases, "channel_shuffle", "F.channel_shuffle(x[0], 2)",
             {{floats({2, 6, 2, 3})},
              {floats({1, 4, 3})},
              {floats({0, 4, 2, 2})},
              {floats({1, 4, 2, 9})}},
             [](In x) { return channel_shuffle(x[0], 2); });
}

void add_repetition_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({2, 3})}, {floats({0, 3})}, {floats({1, 1})}, {floats({3, 67})}};
    movement(cases, "repeat", "x[0].repeat(2, 1, 3)", rows, [](In x) {
        return repeat(x[0], {2, 1, 3});
    });
    movement(cases, "repeat/same", "x[0].repeat(1, 1)", rows, [](In x) {
        return repeat(x[0], {1, 1});
    });
    movement(cases, "repeat/none", "x[0].repeat(2, 0)", rows, [](In x) {
        return repeat(x[0], {2, 0});
    });
    movement(cases, "repeat/scalar", "x[0].repeat(3)", {{floats({})}, {floats({2})}},
             [](In x) { return repeat(x[0], 3); });
    movement(cases, "tile", "x[0].tile(2)", rows, [](In x) { return tile(x[0], 2); });
    movement(cases, "tile/more", "x[0].tile(2, 3, 2)", {{floats({2})}, {floats({})}}, [](In x) {
        return tile(x[0], {2, 3, 2});
    });
    movement(cases, "repeat_interleave", "x[0].repeat_interleave(3, 1)", rows,
             [](In x) { return repeat_interleave(x[0], 3, 1); });
    movement(cases, "repeat_interleave/flat", "x[0].repeat_interleave(2)",
             {{floats({2, 3})}, {floats({})}, {floats({0})}},
             [](In x) { return repeat_interleave(x[0], 2); });
    movement(cases, "repeat_interleave/once", "x[0].repeat_interleave(1, 0)", rows,
             [](In x) { return repeat_interleave(x[0], 1, 0); });
    movement(cases, "repeat_interleave/counts", "x[0].repeat_interleave(x[1], -1)",
             {{floats({2, 3}), ints({3}, 0, 4)},
              {floats({0, 3}), ints({3}, 0, 4, i32)},
              {floats({2, 0}), ints({0}, 0, 4)},
              {floats({2, 3}), ints({1}, 2, 3)},
              {floats({3, 35}), ints({35}, 0, 3)}},
             [](In x) { return repeat_interleave(x[0], x[1], -1); });
    cases.back().reads_values = true;
    movement(cases, "repeat_interleave/flat_counts", "x[0].repeat_interleave(x[1])",
             {{floats({2, 3}), ints({6}, 0, 4)}, {floats({}), ints({}, 3, 4)}},
             [](In x) { return repeat_interleave(x[0], x[1]); });
    cases.back().reads_values = true;
}

void add_stack_cases(Cases& cases) {
    const std::vector<Row> same = {{floats({2, 3}), floats({2, 3})},
                                   {floats({3}), floats({3})},
                                   {floats({}), floats({})},
                                   {floats({2, 0}), floats({2, 0})},
                                   {floats({2, 3, 1, 2}), floats({2, 3, 1, 2})},
                                   {floats({67}), floats({67})}};
    movement(cases, "hstack", "torch.hstack(x)", same, [](In x) { return hstack(x); });
    movement(cases, "vstack", "torch.vstack(x)", same, [](In x) { return vstack(x); });
    movement(cases, "dstack", "torch.dstack(x)", same, [](In x) { return dstack(x); });
    movement(cases, "column_stack", "torch.column_stack(x)", same,
             [](In x) { return column_stack(x); });
    movement(cases, "hstack/sizes", "torch.hstack(x)",
             {{floats({2, 1}), floats({2, 3})}, {floats({2}), floats({}), floats({3})}},
             [](In x) { return hstack(x); });
    movement(cases, "column_stack/mixed", "torch.column_stack(x)",
             {{floats({3}), floats({3, 2})}, {floats({}), floats({1, 2})}},
             [](In x) { return column_stack(x); });
}

void add_split_cases(Cases& cases) {
    const std::vector<Row> rows = {
        {floats({4, 6})}, {floats({4, 2})}, {floats({4, 0})}, {floats({2, 66, 2})}};
    no_copy(cases, "unbind", "x[0].unbind()",
            {{floats({3, 2})}, {floats({2})}, {floats({2, 0})}, {floats({1, 67})}},
            [](In x) { return unbind(x[0]); });
    no_copy(cases, "unbind/last", "x[0].unbind(-1)", {{floats({3, 2})}, {floats({0, 2})}},
            [](In x) { return unbind(x[0], -1); });
    movement(cases, "unbind/one_used", "x[0].unbind(1)[1]", {{floats({2, 3})}},
             [](In x) { return unbind(x[0], 1)[1]; });
    no_copy(cases, "tensor_split", "x[0].tensor_split(4, 1)", rows,
            [](In x) { return tensor_split(x[0], 4, 1); });
    no_copy(cases, "tensor_split/indices", "x[0].tensor_split((1, 3, -1), 1)", rows, [](In x) {
        return tensor_split(x[0], {1, 3, -1}, 1);
    });
    no_copy(cases, "tensor_split/overlap", "x[0].tensor_split((3, 1, 9))", rows, [](In x) {
        return tensor_split(x[0], {3, 1, 9});
    });
    no_copy(cases, "hsplit", "x[0].hsplit(2)", rows, [](In x) { return hsplit(x[0], 2); });
    no_copy(cases, "hsplit/vector", "x[0].hsplit(3)", {{floats({6})}, {floats({0})}},
            [](In x) { return hsplit(x[0], 3); });
    no_copy(cases, "hsplit/indices", "x[0].hsplit((1, 2))", rows, [](In x) {
        return hsplit(x[0], {1, 2});
    });
    no_copy(cases, "vsplit", "x[0].vsplit(2)", rows, [](In x) { return vsplit(x[0], 2); });
    no_copy(cases, "vsplit/indices", "x[0].vsplit((2, 3))", rows, [](In x) {
        return vsplit(x[0], {2, 3});
    });
    const std::vector<Row> cubes = {
        {floats({1, 2, 4})}, {floats({2, 3, 2, 3})}, {floats({0, 1, 2})}, {floats({1, 2, 66})}};
    no_copy(cases, "dsplit", "x[0].dsplit(2)", cubes, [](In x) { return dsplit(x[0], 2); });
    no_copy(cases, "dsplit/indices", "x[0].dsplit((0, 1))", cubes, [](In x) {
        return dsplit(x[0], {0, 1});
    });
}

void add_other_shape_cases(Cases& cases) {
    no_copy(cases, "unflatten", "x[0].unflatten(1, (2, -1))",
            {{floats({3, 6})}, {floats({0, 2, 3})}, {floats({2, 66})}}, [](In x) {
                return unflatten(x[0], 1, {2, -1});
            });
    no_copy(cases, "unflatten/last", "x[0].unflatten(-1, (1, 3, 2))", {{floats({3, 6})}}, [](In x) {
        return unflatten(x[0], -1, {1, 3, 2});
    });
    const std::vector<Row> pairs = {{floats({2, 6}), frozen(floats({3, 4}))},
                                    {floats({0, 3}), frozen(floats({2, 0}))},
                                    {floats({3, 67}), frozen(floats({67, 3}))}};
    no_copy(cases, "view_as", "x[0].view_as(x[1])", pairs,
            [](In x) { return view_as(x[0], x[1]); });
    cases.back().strided = false;  // other layouts cannot be viewed this way
    movement(cases, "reshape_as", "x[0].reshape_as(x[1])", pairs,
             [](In x) { return reshape_as(x[0], x[1]); });
    no_copy(cases, "expand_as", "x[0].expand_as(x[1])",
            {{floats({2, 1}), frozen(floats({4, 2, 3}))},
             {floats({1, 3}), frozen(floats({0, 3}))},
             {floats({1, 67}), frozen(floats({3, 67}))}},
            [](In x) { return expand_as(x[0], x[1]); });
    no_copy(cases, "broadcast_to", "x[0].broadcast_to((2, 3, 4))",
            {{floats({3, 1})}, {floats({})}, {floats({2, 3, 4})}}, [](In x) {
                return broadcast_to(x[0], {2, 3, 4});
            });
    no_copy(cases, "broadcast_to/sizes", "x[0].broadcast_to((3, -1))",
            {{floats({67})}, {floats({1, 0})}}, [](In x) {
                return broadcast_to(x[0], {3, -1});
            });
    movement(cases, "broadcast_tensors", "torch.broadcast_tensors(*x)",
             {{floats({2, 1}), floats({3})},
              {floats({}), floats({1, 2}), floats({3, 1})},
              {floats({0, 2}), floats({1})},
              {floats({3, 67}), floats({1})}},
             [](In x) { return broadcast_tensors(x); });
    const std::vector<Row> any = {
        {floats({2, 3})}, {floats({})}, {floats({4})}, {floats({2, 0, 3})}, {floats({67})}};
    movement(cases, "ravel", "x[0].ravel()", any, [](In x) { return ravel(x[0]); });
    no_copy(cases, "atleast_1d", "torch.atleast_1d(x[0])", any,
            [](In x) { return atleast_1d(x[0]); });
    no_copy(cases, "atleast_2d", "torch.atleast_2d(x[0])", any,
            [](In x) { return atleast_2d(x[0]); });
    no_copy(cases, "atleast_3d", "torch.atleast_3d(x[0])", any,
            [](In x) { return atleast_3d(x[0]); });
}

}  // namespace

void add_shaping_cases(Cases& cases) {
    add_diagonal_cases(cases);
    add_window_cases(cases);
    add_dim_order_cases(cases);
    add_element_order_cases(cases);
    add_repetition_cases(cases);
    add_stack_cases(cases);
    add_split_cases(cases);
    add_other_shape_cases(cases);
    set_autocast(cases, Autocast::f32, {"trace"});
    set_autocast(cases, Autocast::widest,
                 {"block_diag", "hstack", "vstack", "dstack", "column_stack"});
    add_bad_shaping_calls(cases);
}

}  // namespace axle::tests
