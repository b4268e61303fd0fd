// Compares feed_forward with the two calls of linear that it replaces, and counts the tensors that
// it saves.
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_same_bits;

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::gelu_tanh, Activation::silu};

struct Layers {
    Tensor x, weight1, bias1, weight2, bias2;

    Layers(const Shape& shape, std::int64_t hidden, std::int64_t out, DType dtype) {
        manual_seed(3);
        const TensorOptions options = {.dtype = dtype, .requires_grad = true};
        x = randn(shape, options), weight1 = randn({hidden, shape.back()}, options);
        bias1 = randn({hidden}, options), weight2 = randn({out, hidden}, options);
        bias2 = randn({out}, options);
    }
    Tensor fused(Activation activation) const {
        return feed_forward(x, weight1, bias1, weight2, bias2, activation);
    }
    Tensor composed(Activation activation) const {
        return linear(linear(x, weight1, bias1, activation), weight2, bias2);
    }
    std::vector<Tensor> gradients(const Tensor& y) const {
        manual_seed(4);
        const Tensor dy = randn(y.shape(), {.dtype = y.dtype()});
        return autograd::grad({y}, {x, weight1, bias1, weight2, bias2}, {dy});
    }
};

void expect_bits_of_two_linears(const Layers& layers, Activation activation) {
    const Tensor y = layers.fused(activation), expected = layers.composed(activation);
    expect_same_bits(y.detach(), expected.detach());
    const std::vector<Tensor> actual_grads = layers.gradients(y),
                              expected_grads = layers.gradients(expected);
    for (std::size_t i = 0; i < expected_grads.size(); ++i) {
        SCOPED_TRACE(str("gradient ", i));
        expect_same_bits(actual_grads[i], expected_grads[i]);
    }
}

TEST(FeedForward, EqualsTwoLinearsBitExactly) {
    for (const DType dtype : {f64, f32, f16, bf16})
        for (const Activation activation : kActivations) {
            SCOPED_TRACE(str(dtype, " activation ", static_cast<int>(activation)));
            expect_bits_of_two_linears({{2, 9, 17}, 67, 5, dtype}, activation);
            expect_bits_of_two_linears({{17}, 33, 5, dtype}, activation);
            // These sizes have more than one block along the inner dimension, and more columns than
            // are converted together.
            expect_bits_of_two_linears({{40, 3}, 700, 900, dtype}, activation);
        }
}

TEST(FeedForward, EqualsTwoLinearsUnderAutocast) {
    const AutocastGuard scope(bf16);
    for (const Activation activation : kActivations)
        expect_bits_of_two_linears({{2, 9, 17}, 67, 5, f32}, activation);
}

// Returns the tensors of the given shape that are saved for backward while `compute` runs.
std::vector<Tensor> saved_tensors(const Shape& shape, const std::function<void()>& compute) {
    std::vector<Tensor> all;
    const SavedTensorHooksGuard hooks({.pack =
                                           [&](const Tensor& t) {
                                               if (t.shape() == shape) all.push_back(t);
                                               return std::make_shared<Tensor>(t);
                                           },
                                       .unpack =
                                           [](const std::shared_ptr<void>& form) {
                                               return *static_cast<const Tensor*>(form.get());
                                           }});
    compute();
    return all;
}

TEST(Linear, SavesTheSlopeOfTheActivationOnACpu) {
    const Layers layers({6, 4}, 9, 5, f64);
    for (const auto& [activation, apply] :
         {std::pair(
              Activation::gelu, +[](const Tensor& x) { return gelu(x); }),
          std::pair(
              Activation::silu, +[](const Tensor& x) { return silu(x); })}) {
        const std::vector<Tensor> kept = saved_tensors(
            {6, 9}, [&] { linear(layers.x, layers.weight1, layers.bias1, activation); });
        ASSERT_EQ(kept.size(), 1u);
        const Tensor at =
            linear(layers.x, layers.weight1, layers.bias1).detach().set_requires_grad();
        const Tensor slope = autograd::grad({sum(apply(at))}, {at})[0];
        EXPECT_TRUE(allclose(kept[0], slope)) << static_cast<int>(activation);
    }
}

// Returns how many tensors of the hidden layer's shape are saved for backward.
std::size_t saved_hidden_tensors(const Layers& layers, Activation activation) {
    const Shape hidden = {layers.x.size(0), layers.weight1.size(0)};
    return saved_tensors(hidden, [&] { layers.fused(activation); }).size();
}

TEST(FeedForward, SavesOnlyNeededHiddenTensors) {
    const auto layers = [](bool first, bool second) {
        Layers result({6, 4}, 9, 5, f32);
        result.x.set_requires_grad(false);
        result.weight1.set_requires_grad(first), result.bias1.set_requires_grad(first);
        result.weight2.set_requires_grad(second);
        return result;
    };
    EXPECT_EQ(saved_hidden_tensors(layers(true, true), Activation::gelu), 2u);
    EXPECT_EQ(saved_hidden_tensors(layers(true, false), Activation::gelu), 1u);
    EXPECT_EQ(saved_hidden_tensors(layers(false, true), Activation::gelu), 1u);
    EXPECT_EQ(saved_hidden_tensors(layers(false, false), Activation::gelu), 0u);
    EXPECT_EQ(saved_hidden_tensors(layers(true, true), Activation::relu), 1u);
    EXPECT_EQ(saved_hidden_tensors(layers(true, false), Activation::relu), 1u);
    EXPECT_EQ(saved_hidden_tensors(layers(true, false), Activation::none), 0u);
}

}  // namespace
}  // namespace axle
