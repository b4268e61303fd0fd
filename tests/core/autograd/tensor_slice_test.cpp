#include "core/autograd/tensor_slice.h"

#include <memory>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "tests/close.h"

namespace axle::tests {
namespace {

// A slice without communication.
struct LocalSlice : autograd::TensorSlice {
    using TensorSlice::TensorSlice;
    Tensor gather(const Tensor& slice) const override { return slice; }
    bool is_first_copy() const override { return true; }
    const void* processes() const override { return this; }
    Tensor gather_numbers(const Tensor& number) const override { return number.unsqueeze(0); }
};

TEST(SliceLayout, CutsEachSegmentAppendsZerosAndJoinsSlices) {
    const Tensor x = arange(10).reshape({5, 2});
    const autograd::SliceLayout last{{5, 2}, 0, 1, 6, 3, 2};
    expect_same_bits(last.cut(x), tensor({8, 9, 0, 0}, {2, 2}));
    EXPECT_EQ(last.slice_shape(), Shape({2, 2}));
    std::vector<Tensor> slices;
    for (std::int64_t part = 0; part < 3; ++part)
        slices.push_back(autograd::SliceLayout{{5, 2}, 0, 1, 6, 3, part}.cut(x));
    expect_same_bits(last.join(slices), x);
    const Tensor fused = arange(12).reshape({2, 6});
    const autograd::SliceLayout second{{2, 6}, 1, 3, 6, 2, 1};
    expect_same_bits(second.cut(fused), tensor({1, 3, 5, 7, 9, 11}, {2, 3}));
}

TEST(SetSlice, ReplacesTheElementsOfALeafAndRejectsSlicesNonLeavesAndOtherShapes) {
    const Tensor leaf = arange(6, {.dtype = f32, .requires_grad = true});
    const auto slice = std::make_shared<LocalSlice>(autograd::SliceLayout{{6}, 0, 1, 6, 2, 1});
    autograd::set_slice(leaf, slice);
    expect_same_bits(leaf.detach(), tensor({3.0, 4.0, 5.0}));
    EXPECT_TRUE(leaf.requires_grad());
    EXPECT_EQ(autograd::whole_shape(leaf), Shape{6});
    EXPECT_EQ(autograd::slice_of(leaf), slice);
    expect_error<UsageError>({"set_slice: the tensor of shape [3] is a slice already"},
                             [&] { autograd::set_slice(leaf, slice); });
    const Tensor other = ones({5}, {.requires_grad = true});
    expect_error<ShapeError>({"set_slice: shapes differ: tensor [5], whole tensor [6]"},
                             [&] { autograd::set_slice(other, slice); });
    expect_error<UsageError>({"set_slice: ", "must be a leaf"},
                             [&] { autograd::set_slice(other * 2, slice); });
}

}  // namespace
}  // namespace axle::tests
