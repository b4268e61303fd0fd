// The calls that the ops of core/shaping.h must reject.
#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

void add_bad_calls_of_views(Cases& cases) {
    refuses<ShapeError>(cases, "diagonal", {"[3]"}, [] { diagonal(floats_of({3})); });
    refuses<ValueError>(cases, "diagonal", {"[2, 3]"}, [] {
        diagonal(floats_of({2, 3}), 0, 1, -1);
    });
    refuses<IndexError>(cases, "diagonal", {"2"}, [] { diagonal(floats_of({2, 3}), 0, 0, 2); });
    refuses<ShapeError>(cases, "diag_embed", {"0-d"}, [] { diag_embed(floats_of({})); });
    refuses<ValueError>(cases, "diag_embed", {"[3]"}, [] { diag_embed(floats_of({3}), 0, 1, 1); });
    refuses<ShapeError>(cases, "diag", {"[2, 3, 4]"}, [] { diag(floats_of({2, 3, 4})); });
    refuses<UsageError>(cases, "diagflat", {}, [] { diagflat(Tensor()); });
    refuses<ShapeError>(cases, "trace", {"[3]"}, [] { trace(floats_of({3})); });
    refuses<ShapeError>(cases, "block_diag", {"[1, 2, 3]"}, [] {
        block_diag({floats_of({1, 2, 3})});
    });
    refuses<ValueError>(cases, "block_diag", {"empty"}, [] { block_diag({}); });
    refuses<ValueError>(cases, "unfold", {"0"}, [] { unfold(floats_of({4}), 0, 2, 0); });
    refuses<ValueError>(cases, "unfold", {"[4]", "5"}, [] { unfold(floats_of({4}), 0, 5, 1); });
    refuses<ValueError>(cases, "unfold", {"[0, 2]"}, [] { unfold(floats_of({1, 4, 4}), {0, 2}); });
    refuses<ValueError>(cases, "unfold", {"padding", "-1"}, [] {
        unfold(floats_of({1, 4, 4}), 2, {.padding = -1});
    });
    refuses<ShapeError>(cases, "unfold", {"[4, 4]", "[5, 5]"}, [] {
        unfold(floats_of({1, 4, 4}), 5);
    });
    refuses<ShapeError>(cases, "unfold", {"[4, 4]"}, [] { unfold(floats_of({4, 4}), 2); });
    refuses<ShapeError>(cases, "fold", {"[4, 5]", "[3, 4]"}, [] {
        fold(floats_of({4, 5}), {3, 4}, 2);
    });
    refuses<ShapeError>(cases, "fold", {"[5, 6]"}, [] { fold(floats_of({5, 6}), {3, 4}, 2); });
    refuses<ValueError>(cases, "fold", {"stride"}, [] {
        fold(floats_of({4, 6}), {3, 4}, 2, {.stride = 0});
    });
    refuses<ValueError>(cases, "movedim", {"[0, 0]"}, [] {
        movedim(floats_of({2, 3}), {0, 0}, {0, 1});
    });
    refuses<ShapeError>(cases, "movedim", {"[0]", "[0, 1]"}, [] {
        movedim(floats_of({2, 3}), 0, {0, 1});
    });
    refuses<IndexError>(cases, "swapaxes", {"2"}, [] { swapaxes(floats_of({2, 3}), 0, 2); });
    refuses<ShapeError>(cases, "t", {"[1, 2, 3]"}, [] { t(floats_of({1, 2, 3})); });
    refuses<ShapeError>(cases, "unflatten", {"[2, 5]", "[3, -1]"}, [] {
        unflatten(floats_of({2, 5}), 1, {3, -1});
    });
    refuses<ShapeError>(cases, "unflatten", {"[-1, -1]"}, [] {
        unflatten(floats_of({2, 4}), 1, {-1, -1});
    });
    refuses<ShapeError>(cases, "view_as", {"[2, 3]", "[4]"}, [] {
        view_as(floats_of({2, 3}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "view_as", {"[2, 3]", "[6]"}, [] {
        view_as(floats_of({3, 2}).t(), floats_of({6}));
    });
    refuses<ShapeError>(cases, "reshape_as", {"[2, 3]", "[4]"}, [] {
        reshape_as(floats_of({2, 3}), floats_of({4}));
    });
    refuses<ShapeError>(cases, "expand_as", {"[2]", "[3]"},
                        [] { expand_as(floats_of({2}), floats_of({3})); });
    refuses<UsageError>(cases, "reshape_as", {}, [] { reshape_as(floats_of({4}), Tensor()); });
    refuses<UsageError>(cases, "expand_as", {}, [] { expand_as(Tensor(), floats_of({4})); });
    refuses<ShapeError>(cases, "broadcast_to", {"[2]", "[3]"},
                        [] { broadcast_to(floats_of({2}), {3}); });
    refuses<ShapeError>(cases, "broadcast_tensors", {"[2]", "[3]"}, [] {
        broadcast_tensors({floats_of({2}), floats_of({3})});
    });
}

void add_bad_calls_of_copies(Cases& cases) {
    refuses<ShapeError>(cases, "roll", {"[1]", "[0, 1]"}, [] {
        roll(floats_of({2, 3}), 1, {0, 1});
    });
    refuses<IndexError>(cases, "roll", {"2"}, [] { roll(floats_of({2, 3}), 1, 2); });
    refuses<ValueError>(cases, "rot90", {"[0, -2]"}, [] { rot90(floats_of({2, 3}), 1, {0, -2}); });
    refuses<ShapeError>(cases, "rot90", {"[3]"}, [] { rot90(floats_of({3})); });
    refuses<ShapeError>(cases, "fliplr", {"[3]"}, [] { fliplr(floats_of({3})); });
    refuses<ShapeError>(cases, "flipud", {"[]"}, [] { flipud(floats_of({})); });
    refuses<ShapeError>(cases, "pixel_shuffle", {"[3, 2, 2]", "4"}, [] {
        pixel_shuffle(floats_of({3, 2, 2}), 2);
    });
    refuses<ValueError>(cases, "pixel_shuffle", {"0"}, [] {
        pixel_shuffle(floats_of({3, 2, 2}), 0);
    });
    refuses<ShapeError>(cases, "pixel_unshuffle", {"[1, 2, 3]"}, [] {
        pixel_unshuffle(floats_of({1, 2, 3}), 2);
    });
    refuses<ShapeError>(cases, "channel_shuffle", {"[1, 3, 2]"}, [] {
        channel_shuffle(floats_of({1, 3, 2}), 2);
    });
    refuses<ShapeError>(cases, "repeat", {"[2]", "[1, 2]"}, [] { repeat(floats_of({1, 2}), 2); });
    refuses<ValueError>(cases, "repeat", {"-1"}, [] { repeat(floats_of({2}), -1); });
    refuses<ValueError>(cases, "tile", {"-2"}, [] { tile(floats_of({2}), -2); });
    refuses<ValueError>(cases, "repeat_interleave", {"-1"},
                        [] { repeat_interleave(floats_of({2}), -1); });
    refuses<ValueError>(cases, "repeat_interleave", {"-1"}, [] {
        repeat_interleave(floats_of({2}), indices({1, -1}));
    });
    refuses<ShapeError>(cases, "repeat_interleave", {"[3]", "[2]"}, [] {
        repeat_interleave(floats_of({2}), indices({1, 2, 3}));
    });
    refuses<DTypeError>(cases, "repeat_interleave", {"float32"},
                        [] { repeat_interleave(floats_of({2}), floats_of({2})); });
    refuses<ValueError>(cases, "hstack", {"empty"}, [] { hstack({}); });
    refuses<ShapeError>(cases, "hstack", {"[1, 2]", "[2, 2]"}, [] {
        hstack({floats_of({1, 2}), floats_of({2, 2})});
    });
    refuses<ShapeError>(cases, "vstack", {"[1, 2]", "[1, 3]"}, [] {
        vstack({floats_of({2}), floats_of({3})});
    });
    refuses<ShapeError>(cases, "dstack", {"[1, 2, 1]", "[1, 3, 1]"}, [] {
        dstack({floats_of({2}), floats_of({3})});
    });
    refuses<ShapeError>(cases, "column_stack", {"[2, 1]", "[3, 1]"}, [] {
        column_stack({floats_of({2}), floats_of({3})});
    });
    refuses<ValueError>(cases, "dstack", {"empty"}, [] { dstack({}); });
    refuses<ValueError>(cases, "column_stack", {"empty"}, [] { column_stack({}); });
    refuses<ShapeError>(cases, "unbind", {"[]"}, [] { unbind(floats_of({})); });
    refuses<IndexError>(cases, "unbind", {"1"}, [] { unbind(floats_of({2}), 1); });
    refuses<ValueError>(cases, "tensor_split", {"0"}, [] { tensor_split(floats_of({4}), 0); });
    refuses<ShapeError>(cases, "hsplit", {"[2, 5]", "2"}, [] { hsplit(floats_of({2, 5}), 2); });
    refuses<ShapeError>(cases, "vsplit", {"[4]"}, [] { vsplit(floats_of({4}), 2); });
    refuses<ValueError>(cases, "dsplit", {"0"}, [] { dsplit(floats_of({1, 2, 4}), 0); });
}

}  // namespace

void add_bad_shaping_calls(Cases& cases) {
    add_bad_calls_of_views(cases);
    add_bad_calls_of_copies(cases);
}

}  // namespace axle::tests
