#include "nn/layers/recurrent/packed_sequence.h"

#include "gmock/gmock.h"
#include "nn/layers/recurrent/recurrent.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::expect_same_bits;

TEST(PackedSequence, OrdersElementsByTimeAndUnpacksThem) {
    const std::vector<Tensor> sequences = {tensor({1, 2}), tensor({3, 4, 5}), tensor({6})};
    const nn::PackedSequence packed = nn::pack_sequence(sequences, false);
    expect_same_bits(packed.data, tensor({3, 1, 6, 4, 2, 5}));
    EXPECT_THAT(packed.batch_sizes, ElementsAre(3, 2, 1));
    EXPECT_EQ(packed.batch(), 3);
    expect_same_bits(packed.sorted_indices, tensor({1, 0, 2}));
    expect_same_bits(packed.unsorted_indices, tensor({1, 0, 2}));
    const std::vector<Tensor> again = nn::unpack_sequence(packed);
    ASSERT_EQ(again.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) expect_same_bits(again[i], sequences[i]);
}

TEST(PackedSequence, IsPaddedToATotalLength) {
    const Tensor padded = tensor({1, 2, 0, 3, 0, 0}, {2, 3});
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(padded, tensor({2, 1}), {.batch_first = true});
    EXPECT_FALSE(packed.sorted_indices.defined());
    expect_same_bits(packed.data, tensor({1, 3, 2}));
    const auto [y, lengths] =
        nn::pad_packed_sequence(packed, {.padding_value = -1, .total_length = 3});
    expect_same_bits(y, tensor({1, 3, 2, -1, -1, -1}, {3, 2}));
    expect_same_bits(lengths, tensor({2, 1}));
}

TEST(PackedSequence, PassesGradientsToElementsOnly) {
    Tensor x = ones({2, 3, 1}, {.requires_grad = true});
    const nn::PackedSequence packed =
        nn::pack_padded_sequence(x, {1, 3}, {.batch_first = true, .enforce_sorted = false});
    const Tensor y = nn::pad_packed_sequence(packed, {.padding_value = 7}).first;
    sum(y).backward();
    expect_same_bits(x.grad(), tensor({1.0, 0, 0, 1, 1, 1}, {2, 3, 1}));
}

TEST(PackedSequence, ConvertsAndMovesItsTensors) {
    const nn::PackedSequence packed = nn::pack_sequence({ones({1}), ones({2})}, false);
    EXPECT_EQ(packed.to(f64).data.dtype(), f64);
    EXPECT_EQ(packed.to(f64).sorted_indices.dtype(), i64);
    const nn::PackedSequence moved = packed.to(Device::meta());
    EXPECT_TRUE(moved.data.device().is_meta());
    EXPECT_TRUE(moved.unsorted_indices.device().is_meta());
    EXPECT_EQ(moved.batch_sizes, packed.batch_sizes);
}

TEST(PackedSequence, RejectsUnsortedIndicesThatAreNotAPermutation) {
    nn::PackedSequence packed =
        nn::pack_padded_sequence(zeros({4, 2, 3}), {2, 4}, {.enforce_sorted = false});
    for (const Tensor& indices : {tensor({1}), tensor({0, 7}), tensor({1, 1}), tensor({-1, 0})}) {
        packed.unsorted_indices = indices;
        expect_error<ValueError>({"pad_packed_sequence: unsorted_indices must contain each number"},
                                 [&] { nn::pad_packed_sequence(packed); });
    }
    packed.unsorted_indices = tensor({1, 0});
    EXPECT_EQ(nn::pad_packed_sequence(packed).second.to_vector(), (std::vector<double>{2, 4}));
}

TEST(PackedSequence, RejectsInvalidLengthsAndBatchSizes) {
    const Tensor x = zeros({4, 2, 3});
    expect_error<ValueError>({"pack_padded_sequence: expected one length for each of 2", "1"},
                             [&] { nn::pack_padded_sequence(x, {4}); });
    expect_error<ValueError>({"pack_padded_sequence: lengths must be positive", "0"}, [&] {
        nn::pack_padded_sequence(x, {4, 0});
    });
    expect_error<DTypeError>({"pack_padded_sequence", "float32"}, [&] {
        nn::pack_padded_sequence(x, tensor({3.5, 2.0}, {2}, {f32}));
    });
    expect_error<UsageError>({"pack_padded_sequence", "undefined"},
                             [&] { nn::pack_padded_sequence(Tensor(), {3}); });
    expect_error<ValueError>({"pack_padded_sequence: lengths must not exceed", "4", "5"}, [&] {
        nn::pack_padded_sequence(x, {5, 4});
    });
    expect_error<ValueError>({"pack_padded_sequence: the lengths must be sorted"}, [&] {
        nn::pack_padded_sequence(x, {3, 4});
    });
    expect_error<ShapeError>({"pack_padded_sequence: input", "[4]"},
                             [&] { nn::pack_padded_sequence(zeros({4}), {4}); });
    expect_error<ValueError>({"pack_sequence: needs at least one sequence"},
                             [&] { nn::pack_sequence({}); });
    nn::PackedSequence packed = nn::pack_padded_sequence(x, {4, 2});
    expect_error<ValueError>({"pad_packed_sequence: total_length", "4", "3"},
                             [&] { nn::pad_packed_sequence(packed, {.total_length = 3}); });
    packed.batch_sizes.push_back(1);
    nn::GRU layer(3, 4);
    expect_error<ValueError>({"GRU: the sum of batch_sizes is 7", "[6, 3]"},
                             [&] { layer(packed); });
    packed.batch_sizes = {1, 2, 3};
    expect_error<ValueError>({"pad_packed_sequence: batch_sizes"},
                             [&] { nn::pad_packed_sequence(packed); });
}

}  // namespace
}  // namespace axle
