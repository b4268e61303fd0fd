#include "core/attention/attention_part.h"

#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;

struct Operands {
    Tensor q, k, v, dy;
};

Operands operands(DType dtype, std::int64_t queries, std::int64_t keys) {
    manual_seed(3);
    const auto random = [&](std::int64_t heads, std::int64_t time) {
        return randn({2, heads, time, 8}, {.dtype = f64}).to(dtype);
    };
    return {random(4, queries), random(2, keys), random(2, keys), random(4, queries)};
}

// Combines the attention of the last 30 queries to two parts of the keys by their log-sum-exp. The
// result must equal the attention to all keys, and the gradients of q must add up to the whole
// gradient.
TEST(AttentionParts, AddUpToTheWholeAttention) {
    for (const bool causal : {false, true}) {
        const Operands x = operands(f64, 70, 70);
        const auto leaf = [](const Tensor& t) { return t.detach().clone().set_requires_grad(); };
        const Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);
        const Tensor y = scaled_dot_product_attention(q, k, v, {.causal = causal});
        (y * x.dy).sum().backward();

        const NoGrad no_grad;
        kernels::AttentionParams params =
            attention_params({.causal = causal}, 2, 8, {.heads = 4, .queries = 70, .keys = 70});
        params.causal_offset = 40;  // the first query is query 40 of the sequence
        const Tensor late_q = x.q.narrow(2, 40, 30), late_dy = x.dy.narrow(2, 40, 30);
        const auto keys = [](const Tensor& t, int part) { return t.narrow(2, part * 35, 35); };
        std::vector<AttentionPart> parts;
        std::vector<kernels::AttentionParams> each;
        for (int part = 0; part < 2; ++part) {
            each.push_back(params);
            each.back().causal_offset -= part * 35;
            parts.push_back(attention_part(late_q, keys(x.k, part), keys(x.v, part), each.back()));
        }
        const Tensor lse = log(exp(parts[0].lse) + exp(parts[1].lse));
        const Tensor out = parts[0].out * exp(parts[0].lse - lse).unsqueeze(-1) +
                           parts[1].out * exp(parts[1].lse - lse).unsqueeze(-1);
        expect_close(out, y.detach().narrow(2, 40, 30), 1e-12);

        Tensor dq = zeros_like(late_q);
        for (int part = 0; part < 2; ++part) {
            const AttentionGradients d =
                attention_part_backward(late_dy, late_q, keys(x.k, part), keys(x.v, part),
                                        {out, lse}, each[static_cast<std::size_t>(part)]);
            dq.add_(d.q);
            EXPECT_EQ(d.k.shape(), Shape({2, 2, 35, 8}));
        }
        expect_close(dq, q.grad().narrow(2, 40, 30), 1e-12);
    }
}

// Attention to a part of the heads, queries and keys must drop the same weights as the whole
// attention. If the length of the sequences is odd, some rows of weights begin within a block of
// random numbers.
TEST(AttentionParts, DropTheSameWeightsAsTheWholeAttention) {
    for (const DType dtype : {f32, f64})
        for (const std::int64_t time : {24, 37}) {
            const Operands x = operands(dtype, time, time);
            const AttentionOptions options{.dropout_p = 0.4, .causal = true};
            manual_seed(5);
            const Tensor whole = scaled_dot_product_attention(x.q, x.k, x.v, options);
            manual_seed(5);
            kernels::AttentionParams params =
                attention_params(options, 2, 8, {.heads = 4, .queries = time, .keys = time});
            params.causal_offset = params.grid.first_query = 11;
            params.grid.first_head = 2;
            const Tensor part = attention_to_part(x.q.narrow(1, 2, 2).narrow(2, 11, 10),
                                                  x.k.narrow(1, 1, 1).narrow(2, 0, 21),
                                                  x.v.narrow(1, 1, 1).narrow(2, 0, 21), params);
            expect_close(part, whole.narrow(1, 2, 2).narrow(2, 11, 10),
                         dtype == f64 ? 1e-12 : 1e-5);
        }
}

}  // namespace
}  // namespace axle
