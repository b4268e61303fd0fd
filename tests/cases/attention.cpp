#include "core/ops.h"
#include "tests/cases/cases.h"

namespace axle::tests {

namespace {

Row heads(std::int64_t batch, std::int64_t heads, std::int64_t groups, std::int64_t queries,
          std::int64_t keys, std::int64_t width) {
    return {floats({batch, heads, queries, width}), floats({batch, groups, keys, width}),
            floats({batch, groups, keys, width})};
}

// Returns the number of operations of the products with k and v: 4 * batch * heads * queries * keys
// * head size.
double attention_flops(In x) {
    return 4.0 * static_cast<double>(x[0].numel()) * static_cast<double>(x[1].size(2));
}

Row with(Row row, Input last) {
    row.push_back(std::move(last));
    return row;
}

void attend(Cases& cases, const char* name, const char* torch, std::vector<Row> rows, Row large,
            std::function<Outputs(In)> call) {
    cases.push_back({.name = name,
                     .torch = torch,
                     .call = std::move(call),
                     .rows = std::move(rows),
                     .large = std::move(large),
                     .layout_bits = false,
                     .tolerance = {.f32 = 1e-5, .f16 = 1e-2, .bf16 = 6e-2},
                     .flops = attention_flops});
}

void add_bad_attention_calls(Cases& cases) {
    const auto attend = [](const Shape& q, const Shape& k, const Shape& v,
                           const AttentionOptions& options = {}) {
        scaled_dot_product_attention(floats_of(q), floats_of(k), floats_of(v), options);
    };
    const char* op = "scaled_dot_product_attention";
    const Shape fits = {2, 4, 3, 8};
    refuses<ShapeError>(cases, op, {"[4, 3, 8]"}, [=] { attend({4, 3, 8}, {4, 3, 8}, {4, 3, 8}); });
    refuses<ShapeError>(cases, op, {"[2, 4, 3, 8]", "[2, 3, 3, 8]"}, [=] {
        attend(fits, {2, 3, 3, 8}, {2, 3, 3, 8});
    });
    refuses<ShapeError>(cases, op, {"[2, 4, 3, 8]", "[1, 4, 3, 8]"}, [=] {
        attend(fits, {1, 4, 3, 8}, {1, 4, 3, 8});
    });
    refuses<ShapeError>(cases, op, {"[2, 4, 3, 8]", "[2, 4, 3, 6]"}, [=] {
        attend(fits, {2, 4, 3, 6}, {2, 4, 3, 6});
    });
    refuses<ShapeError>(cases, op, {"[2, 4, 5, 8]", "[2, 4, 3, 8]"}, [=] {
        attend(fits, {2, 4, 5, 8}, fits);
    });
    refuses<ShapeError>(cases, op, {"[5, 3]"}, [=] {
        attend(fits, fits, fits, {.mask = bools_of({5, 3})});
    });
    refuses<DTypeError>(cases, op, {"int64"}, [=] {
        attend(fits, fits, fits, {.mask = ints_of({3, 3})});
    });
    refuses<ValueError>(cases, op, {"1.5"}, [=] { attend(fits, fits, fits, {.dropout_p = 1.5}); });
    refuses<ShapeError>(cases, "rotary_embedding", {"[2, 3]"}, [] {
        rotary_embedding(floats_of({2, 3}));
    });
    refuses<ShapeError>(cases, "rotary_embedding", {"[4]"},
                        [] { rotary_embedding(floats_of({4})); });
}

}  // namespace

void add_attention_cases(Cases& cases) {
    attend(cases, "scaled_dot_product_attention", "attention(*x)",
           {heads(2, 2, 2, 5, 7, 4), heads(1, 4, 2, 3, 3, 8), heads(1, 3, 1, 2, 5, 3),
            heads(0, 2, 2, 3, 3, 4), heads(1, 1, 1, 1, 1, 1), heads(1, 1, 1, 3, 67, 5)},
           heads(2, 3, 3, 150, 140, 32),
           [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2]); });
    attend(cases, "scaled_dot_product_attention/causal", "attention(*x, causal=True)",
           {heads(2, 2, 1, 5, 5, 4), heads(1, 1, 1, 3, 7, 4), heads(1, 1, 1, 7, 3, 4),
            heads(1, 1, 1, 35, 35, 2)},
           heads(2, 4, 2, 150, 150, 32),
           [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true}); });
    attend(cases, "scaled_dot_product_attention/scale", "attention(*x, scale=0.25)",
           {heads(1, 2, 2, 3, 4, 4)}, {},
           [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.scale = 0.25}); });
    attend(cases, "scaled_dot_product_attention/mask", "attention(*x)",
           {with(heads(2, 2, 2, 3, 4, 4), mask({2, 2, 3, 4})),
            with(heads(2, 2, 1, 3, 4, 4), mask({2, 1, 1, 4})),
            with(heads(1, 2, 2, 3, 4, 4), mask({3, 4})),
            with(heads(1, 2, 2, 3, 4, 4), ints({3, 4}, 0, 1, boolean))},
           {}, [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3]}); });
    attend(cases, "scaled_dot_product_attention/bias", "attention(*x)",
           {with(heads(2, 2, 2, 3, 4, 4), frozen(floats({2, 2, 3, 4}))),
            with(heads(2, 2, 2, 3, 4, 4), frozen(floats({3, 4}))),
            with(heads(2, 2, 1, 3, 4, 4), frozen(floats({2, 1, 4})))},
           {}, [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3]}); });
    attend(cases, "scaled_dot_product_attention/learned_bias", "attention(*x)",
           {with(heads(2, 2, 2, 3, 4, 4), floats({2, 2, 3, 4})),
            with(heads(2, 2, 1, 3, 4, 4), floats({2, 1, 4})),
            with(heads(1, 1, 1, 3, 0, 4), floats({3, 0}))},
           {}, [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = x[3]}); });
    attend(cases, "scaled_dot_product_attention/value_size", "attention(*x, causal=True)",
           {{floats({2, 4, 3, 4}), floats({2, 2, 5, 4}), floats({2, 2, 5, 7})},
            {floats({1, 1, 4, 6}), floats({1, 1, 4, 6}), floats({1, 1, 4, 2})}},
           {},
           [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = true}); });
    attend(cases, "scaled_dot_product_attention/dropout", "",
           {heads(2, 2, 2, 5, 7, 4), heads(1, 2, 1, 35, 35, 2)}, heads(2, 2, 2, 100, 100, 16),
           [](In x) {
               return scaled_dot_product_attention(x[0], x[1], x[2],
                                                   {.dropout_p = 0.25, .causal = true});
           });

    const std::vector<Row> rows = {{floats({5, 4})},
                                   {floats({2, 3, 7, 6})},
                                   {floats({1, 2})},
                                   {floats({2, 0, 4})},
                                   {floats({3, 66})}};
    cases.push_back({.name = "rotary_embedding",
                     .torch = "rotary_embedding(x[0])",
                     .call = [](In x) { return rotary_embedding(x[0]); },
                     .rows = rows,
                     .large = {floats({4, 130, 130})},
                     // In f32, the angle of a late position has a rounding error.
                     .tolerance = {.f32 = 4e-5}});
    cases.push_back({.name = "rotary_embedding/offset",
                     .torch = "rotary_embedding(x[0], 500.0, 9)",
                     .call = [](In x) { return rotary_embedding(x[0], 500, 9); },
                     .rows = rows,
                     .tolerance = {.f32 = 4e-5}});
    set_autocast(cases, Autocast::low, {"scaled_dot_product_attention"});
    add_bad_attention_calls(cases);
}

}  // namespace axle::tests
