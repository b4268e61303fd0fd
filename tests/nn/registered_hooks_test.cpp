// Tests the hooks that programs add to modules.
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "nn/layers/activation.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "nn/layers/recurrent/recurrent.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using TensorList = std::vector<Tensor>;

TEST(ForwardHook, ReadsAndReplacesOutputs) {
    nn::Linear layer(3, 2);
    const Tensor x = randn({4, 3});
    const Tensor expected = layer(x).detach();
    std::vector<int> order;
    auto first = layer.register_forward_hook(
        [&](nn::Module& module, const TensorList& inputs, TensorList& outputs) {
            EXPECT_EQ(&module, &layer);
            EXPECT_TRUE(inputs.at(0).is_same(x));
            expect_same_bits(outputs.at(0).detach(), expected);
            outputs[0] = outputs[0] * 2;
            order.push_back(1);
        });
    auto second =
        layer.register_forward_hook([&](nn::Module&, const TensorList&, TensorList& outputs) {
            outputs[0] = outputs[0] + 1;
            order.push_back(2);
        });
    expect_close(layer(x).detach(), expected * 2 + 1);
    EXPECT_THAT(order, ElementsAre(1, 2));
    first.remove();
    EXPECT_TRUE(layer.has_registered_hooks());
    second.remove();
    EXPECT_FALSE(layer.has_registered_hooks());
    expect_same_bits(layer(x).detach(), expected);
}

TEST(ForwardPreHook, ReplacesInputs) {
    nn::Linear layer(3, 2);
    const Tensor x = randn({4, 3});
    const Tensor expected = layer(x * 3).detach();
    const auto handle = layer.register_forward_pre_hook(
        [](nn::Module&, TensorList& inputs) { inputs[0] = inputs[0] * 3; });
    const auto sees =
        layer.register_forward_hook([&](nn::Module&, const TensorList& inputs, TensorList&) {
            expect_same_bits(inputs[0], x * 3);
        });
    expect_close(layer(x).detach(), expected);
}

TEST(RegisteredHooks, FollowAMovedModuleButNotAClone) {
    int calls = 0;
    nn::Linear layer(3, 2);
    auto handle =
        layer.register_forward_hook([&](nn::Module&, const TensorList&, TensorList&) { ++calls; });
    nn::Linear copy = layer.clone();
    nn::Linear moved = std::move(layer);
    copy(ones({1, 3}));
    EXPECT_EQ(calls, 0);
    moved(ones({1, 3}));
    EXPECT_EQ(calls, 1);
    copy = std::move(moved);
    copy(ones({1, 3}));
    EXPECT_EQ(calls, 2);
    handle.remove();
    copy(ones({1, 3}));
    EXPECT_EQ(calls, 2);
    autograd::HookHandle survivor;
    {
        nn::Linear temporary(3, 2);
        survivor =
            temporary.register_forward_hook([](nn::Module&, const TensorList&, TensorList&) {});
    }
    survivor.remove();
}

TEST(RegisteredHooks, RunInChildModulesAndFusedLayers) {
    nn::Sequential net{nn::Linear(3, 4), relu, nn::Linear(4, 2)};
    const Tensor x = randn({5, 3});
    std::vector<std::string> seen;
    std::vector<autograd::HookHandle> handles;
    for (const auto& [name, module] : net.named_children())
        handles.push_back(module->register_forward_hook(
            [&seen, name = name](nn::Module&, const TensorList&, TensorList&) {
                seen.push_back(name);
            }));
    net(x);
    EXPECT_THAT(seen, ElementsAre("0", "2"));
    nn::feed_forward(net.get<nn::Linear>(0), net.get<nn::Linear>(2), x, Activation::relu);
    EXPECT_THAT(seen, ElementsAre("0", "2", "0", "2"));
}

TEST(CallHooks, RunInFusedLayers) {
    nn::Linear first(3, 4), second(4, 2);
    std::vector<std::string> seen;
    const auto add_hooks = [&seen](nn::Linear& layer, const std::string& name) {
        layer.set_call_hooks(std::make_shared<const nn::CallHooks>(nn::CallHooks{
            .before = [&seen, name](nn::Module&) { seen.push_back("before " + name); },
            .after = [&seen, name](nn::Module&) { seen.push_back("after " + name); }}));
    };
    add_hooks(second, "second");
    nn::feed_forward(first, second, randn({5, 3}), Activation::relu);
    EXPECT_THAT(seen, ElementsAre("before second", "after second"));
    add_hooks(first, "first");
    nn::feed_forward(first, second, randn({5, 3}), Activation::relu);
    EXPECT_THAT(seen, ElementsAre("before second", "after second", "before first", "after first",
                                  "before second", "after second"));
}

TEST(RegisteredHooks, ReceiveAllTensorsOfStructuredResults) {
    nn::LSTM layer(3, 4);
    std::vector<Shape> shapes;
    const auto handle = layer.register_forward_hook(
        [&](nn::Module&, const TensorList& inputs, TensorList& outputs) {
            EXPECT_EQ(inputs.size(), 1U);
            for (const Tensor& t : outputs) shapes.push_back(t.shape());
            outputs[2] = outputs[2] * 0;
        });
    const auto [y, state] = layer(ones({5, 2, 3}));
    EXPECT_THAT(shapes, ElementsAre(Shape{5, 2, 4}, Shape{1, 2, 4}, Shape{1, 2, 4}));
    expect_same_bits(state.c.detach(), zeros({1, 2, 4}));
    expect_same_bits(y[4].detach(), state.h[0].detach());
}

TEST(RegisteredHooks, RunOnceWithCheckpointing) {
    nn::Linear layer(3, 2);
    layer.set_checkpointing();
    int calls = 0;
    const auto handle =
        layer.register_forward_hook([&](nn::Module&, const TensorList&, TensorList& outputs) {
            ++calls;
            outputs[0] = outputs[0] * 2;
        });
    Tensor x = randn({4, 3}).set_requires_grad();
    sum(layer(x)).backward();
    EXPECT_EQ(calls, 1);
    expect_close(x.grad(), 2 * layer.weight.detach().sum({0}).expand({4, 3}));
}

TEST(RegisteredHooks, MustNotChangeTheNumberOfTensors) {
    nn::Linear layer(3, 2);
    {
        const auto handle = layer.register_forward_hook(
            [](nn::Module&, const TensorList&, TensorList& outputs) { outputs.clear(); });
        expect_error<UsageError>(
            {"register_forward_hook: the hook must not change the number of tensors", "1", "0"},
            [&] {
                layer(ones({1, 3}));
            });
    }
    const auto handle = layer.register_forward_pre_hook(
        [](nn::Module&, TensorList& inputs) { inputs.push_back(inputs[0]); });
    expect_error<UsageError>({"register_forward_pre_hook: the hook must not change", "1", "2"},
                             [&] {
                                 layer(ones({1, 3}));
                             });
}

TEST(FullBackwardHook, ReadsAndReplacesGradients) {
    nn::Linear layer(3, 2, {.bias = false});
    Tensor x = randn({4, 3}).set_requires_grad();
    const Tensor gradient = randn({4, 2});
    int calls = 0;
    const auto handle = layer.register_full_backward_hook(
        [&](nn::Module& module, TensorList& input_gradients, const TensorList& output_gradients) {
            EXPECT_EQ(&module, &layer);
            expect_same_bits(output_gradients.at(0), gradient);
            expect_close(input_gradients.at(0), matmul(gradient, layer.weight.detach()));
            input_gradients[0] = input_gradients[0] * 3;
            ++calls;
        });
    layer(x).backward(gradient);
    EXPECT_EQ(calls, 1);
    expect_close(x.grad(), 3 * matmul(gradient, layer.weight.detach()));
    expect_close(layer.weight.grad(), matmul(gradient.t(), x.detach()));
}

TEST(FullBackwardHook, RunsWithoutGradientsOfInputs) {
    nn::Linear layer(3, 2);
    int calls = 0;
    const auto handle = layer.register_full_backward_hook(
        [&](nn::Module&, TensorList& input_gradients, const TensorList& output_gradients) {
            EXPECT_EQ(input_gradients.size(), 1U);
            EXPECT_FALSE(input_gradients[0].defined());
            expect_same_bits(output_gradients.at(0), ones({4, 2}));
            ++calls;
        });
    sum(layer(ones({4, 3}))).backward();
    EXPECT_EQ(calls, 1);
    {
        const NoGrad no_grad;
        layer(ones({4, 3}));
    }
    EXPECT_EQ(calls, 1);
}

TEST(FullBackwardHook, ReceivesTheGradientsOfAllOutputs) {
    nn::LSTM layer(3, 4);
    Tensor x = randn({5, 2, 3}).set_requires_grad();
    TensorList seen;
    const auto handle = layer.register_full_backward_hook(
        [&](nn::Module&, TensorList&, const TensorList& gradients) { seen = gradients; });
    const auto [y, state] = layer(x);
    (sum(y) + sum(state.c * 2)).backward();
    ASSERT_EQ(seen.size(), 3U);
    expect_same_bits(seen[0], ones({5, 2, 4}));
    EXPECT_FALSE(seen[1].defined());
    expect_same_bits(seen[2], full({1, 2, 4}, 2.0));
}

}  // namespace
}  // namespace axle
