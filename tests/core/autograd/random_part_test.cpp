// Tests that dropout and attention drop the same elements in a part of a tensor as in the whole
// tensor.
#include "core/autograd/random_part.h"

#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle::tests {
namespace {

// Returns a leaf with the part of x.
Tensor part_of(const Tensor& x, const RandomPart& part) {
    const std::int64_t size = x.size(part.dim) / part.parts;
    return x.detach().narrow(part.dim, part.part * size, size).clone().set_requires_grad();
}

TEST(RandomPart, DropsTheSameElementsAsTheWholeTensor) {
    // Some parts begin within a block of four random numbers.
    for (const Shape& shape : {Shape{3, 4, 8}, Shape{3, 6, 5}, Shape{4, 1, 3}})
        for (int dim = 0; dim < 3; ++dim)
            for (std::int64_t parts = 1; parts <= 3; ++parts) {
                if (shape[dim] % parts != 0) continue;
                SCOPED_TRACE(str(shape, ", dimension ", dim, ", ", parts, " parts"));
                Tensor x = ones(shape, {.dtype = f64, .requires_grad = true});
                manual_seed(11);
                const Tensor expected = dropout(x, 0.4);
                mul(expected, expected).sum().backward();
                const std::uint64_t offset = generator_state().offset;
                for (std::int64_t p = 0; p < parts; ++p) {
                    const RandomPart part{dim, p, parts};
                    const Tensor own = part_of(x, part);
                    manual_seed(11);
                    const RandomPartGuard guard(part);
                    const Tensor y = dropout(own, 0.4);
                    EXPECT_EQ(generator_state().offset, offset);
                    expect_same_bits(y.detach(), part_of(expected, part).detach());
                    mul(y, y).sum().backward();
                    expect_same_bits(own.grad(), part_of(x.grad(), part).detach());
                }
            }
}

TEST(RandomPart, DropsTheSameAttentionWeightsAsUndividedAttention) {
    manual_seed(1);
    const Shape shape = {2, 4, 5, 6};
    std::vector<Tensor> whole;
    for (int i = 0; i < 3; ++i)
        whole.push_back(randn(shape, {.dtype = f64, .requires_grad = true}));
    manual_seed(12);
    const Tensor expected =
        scaled_dot_product_attention(whole[0], whole[1], whole[2], {.dropout_p = 0.3});
    mul(expected, expected).sum().backward();
    const std::uint64_t offset = generator_state().offset;
    for (std::int64_t p = 0; p < 2; ++p) {
        const RandomPart part{1, p, 2};
        std::vector<Tensor> own;
        for (const Tensor& x : whole) own.push_back(part_of(x, part));
        manual_seed(12);
        const RandomPartGuard guard(part);
        const Tensor y = scaled_dot_product_attention(own[0], own[1], own[2], {.dropout_p = 0.3});
        EXPECT_EQ(generator_state().offset, offset);
        expect_close(y, part_of(expected, part), 1e-12);
        mul(y, y).sum().backward();
        for (std::size_t i = 0; i < 3; ++i)
            expect_close(own[i].grad(), part_of(whole[i].grad(), part), 1e-12);
    }
}

TEST(RandomPart, IsRestoredAtScopeEndAndMustDivideHeadsInAttention) {
    EXPECT_EQ(RandomPartGuard::current().parts, 1);
    {
        const RandomPartGuard outer({1, 0, 2});
        const RandomPartGuard whole(RandomPart{});  // has no effect
        EXPECT_EQ(RandomPartGuard::current().parts, 2);
        const Tensor q = ones({1, 1, 2, 2});
        const RandomPartGuard other({2, 0, 3});
        expect_error<UsageError>(
            {"scaled_dot_product_attention: ",
             "must divide the heads (dimension 1): it divides dimension 2"},
            [&] { scaled_dot_product_attention(q, q, q, {.dropout_p = 0.5}); });
    }
    EXPECT_EQ(RandomPartGuard::current().parts, 1);
}

}  // namespace
}  // namespace axle::tests
