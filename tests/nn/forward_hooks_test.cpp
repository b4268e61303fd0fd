// Tests the hooks of a prepared model. They run around its outermost forward call.
#include <stdexcept>

#include "core/autograd/autocast.h"
#include "nn/layers/linear.h"
#include "nn/models/gpt.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_same_bits;

struct Probe : nn::Model<Probe> {
    Probe() : inner(4, 4), outer(4, 2) {}
    Tensor forward(const Tensor& x) {
        const Tensor y = inner(x);
        inner_dtype = y.dtype();
        between = autocast_dtype();
        if (fails) throw std::runtime_error("on purpose");
        return outer(y);
    }
    void visit(nn::Visitor& v) override { v("inner", inner), v("outer", outer); }

    nn::Linear inner, outer;
    bool fails = false;
    std::optional<DType> between;
    DType inner_dtype = f32;
};

std::shared_ptr<nn::ForwardHooks> bf16_hooks() {
    auto hooks = std::make_shared<nn::ForwardHooks>();
    hooks->autocast = bf16;
    return hooks;
}

TEST(Model, RunsWithoutAutocastIfItHasNoHooks) {
    Probe model;
    EXPECT_EQ(model(ones({3, 4})).dtype(), f32);
    EXPECT_FALSE(model.between.has_value());
}

TEST(ForwardHooks, RunTheOutermostCallUnderAutocastAndReturnF32) {
    Probe model;
    const Tensor expected = model(ones({3, 4}));
    model.set_hooks(bf16_hooks());
    const Tensor y = model(ones({3, 4}));
    EXPECT_EQ(y.dtype(), f32);
    EXPECT_EQ(model.inner_dtype, bf16);
    EXPECT_FALSE(autocast_dtype().has_value());
    expect_close(y, expected, 0.05);
    sum(y).backward();
    EXPECT_EQ(model.inner.weight.grad().dtype(), f32);
}

// Covers 30.14.
TEST(ForwardHooks, KeepBf16OutputsWhenOutputsToF32IsFalse) {
    Probe model;
    const auto hooks = bf16_hooks();
    hooks->outputs_to_f32 = false;
    model.set_hooks(hooks);
    EXPECT_EQ(model(ones({3, 4})).dtype(), bf16);
}

// Covers 14.mixed_precision_policy.
TEST(ForwardHooks, ConvertFloatingOutputsToTheOutputDtype) {
    Probe model;
    const Tensor exact = model(ones({3, 4}));
    const auto hooks = bf16_hooks();
    model.set_hooks(hooks);
    const Tensor in_bf16 = model(ones({3, 4})).detach().to(bf16);
    hooks->output_dtype = f16;
    tests::expect_same_bits(model(ones({3, 4})).detach(), in_bf16.to(f16));
    hooks->autocast.reset();  // without autocast, outputs are f32; they are converted, too
    const Tensor y = model(ones({3, 4}));
    tests::expect_same_bits(y.detach(), exact.detach().to(f16));
    sum(y).backward();
    EXPECT_EQ(model.inner.weight.grad().dtype(), f32);
}

TEST(ForwardHooks, KeepAutocastOfTheParentInAPreparedChild) {
    Probe model;
    model.set_hooks(bf16_hooks());
    model.inner.set_hooks(bf16_hooks());
    EXPECT_EQ(model(ones({3, 4})).dtype(), f32);
    EXPECT_EQ(model.between, bf16);
    EXPECT_EQ(model.inner_dtype, bf16);
    // This call of the inner model is the outermost call.
    EXPECT_EQ(model.inner(ones({3, 4})).dtype(), f32);
}

TEST(ForwardHooks, CallBeforeForwardOncePerOutermostCall) {
    Probe model;
    int calls = 0;
    const auto hooks = bf16_hooks();
    hooks->before_forward = [&](nn::Module& module) {
        EXPECT_FALSE(autocast_dtype().has_value());
        calls += &module == &model;
    };
    model.set_hooks(hooks);
    model.inner.set_hooks(hooks);
    model(ones({3, 4}));
    model(ones({3, 4}));
    EXPECT_EQ(calls, 2);
}

TEST(ForwardHooks, RestoreAutocastAfterAnException) {
    Probe model;
    model.set_hooks(bf16_hooks());
    model.fails = true;
    EXPECT_THROW(model(ones({3, 4})), std::runtime_error);
    EXPECT_FALSE(autocast_dtype().has_value());
    model.fails = false;
    EXPECT_EQ(model(ones({3, 4})).dtype(), f32);
    EXPECT_EQ(model.between, bf16);
}

TEST(ForwardHooks, StayActiveAfterBeforeForwardThrows) {
    Probe model;
    bool throws = true;
    const auto hooks = bf16_hooks();
    hooks->before_forward = [&](nn::Module&) {
        if (throws) throw std::runtime_error("on purpose");
    };
    model.set_hooks(hooks);
    EXPECT_THROW(model(ones({3, 4})), std::runtime_error);
    throws = false;
    EXPECT_EQ(model(ones({3, 4})).dtype(), f32);
    EXPECT_EQ(model.between, bf16);
}

TEST(ForwardHooks, RestoreTheSurroundingAutocast) {
    Probe model;
    model.set_hooks(bf16_hooks());
    const AutocastGuard f16_outside(f16);
    model(ones({3, 4}));
    EXPECT_EQ(model.between, bf16);
    EXPECT_EQ(autocast_dtype(), f16);
}

struct Several : nn::Model<Several> {
    Several() : layer(2, 2) {}
    std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& x) {
        const Tensor y = layer(x);
        return {y, {y, tensor(std::vector<std::int64_t>{1}, {1}), Tensor()}};
    }
    std::tuple<Tensor, int> counted(const Tensor& x) {
        return enter([&] { return std::tuple(layer(x), 7); });
    }
    void visit(nn::Visitor& v) override { v("layer", layer); }
    nn::Linear layer;
};

TEST(ForwardHooks, ConvertFloatingTensorsOfPairsVectorsAndTuples) {
    Several model;
    model.set_hooks(bf16_hooks());
    const auto [one, many] = model(ones({1, 2}));
    EXPECT_EQ(one.dtype(), f32);
    EXPECT_EQ(many[0].dtype(), f32);
    EXPECT_EQ(many[1].dtype(), i64);
    EXPECT_FALSE(many[2].defined());
    const auto [y, number] = model.counted(ones({1, 2}));
    EXPECT_EQ(y.dtype(), f32);
    EXPECT_EQ(number, 7);
}

struct Outputs {
    Tensor logits;
    std::optional<Tensor> loss = {};
    std::map<std::string, std::vector<Tensor>> hidden = {};
    template <class F>
    void visit(F&& f) {
        f("logits", logits), f("loss", loss), f("hidden", hidden);
    }
};

struct ReturnsAStruct : nn::Model<ReturnsAStruct> {
    ReturnsAStruct() : layer(2, 2) {}
    Outputs forward(const Tensor& x) {
        const Tensor y = layer(x);
        return {.logits = y, .loss = y.sum(), .hidden = {{"layer", {y, y}}}};
    }
    Tree tree(const Tensor& x) {
        return enter([&] { return Tree{{"y", layer(x)}, {"n", 3}}; });
    }
    std::array<Tensor, 2> twice(const Tensor& x) {
        return enter([&] { return std::array<Tensor, 2>{layer(x), layer(x)}; });
    }
    void visit(nn::Visitor& v) override { v("layer", layer); }
    nn::Linear layer;
};

TEST(ForwardHooks, ConvertTensorsOfStructuredTypes) {
    ReturnsAStruct model;
    EXPECT_EQ(model(ones({1, 2})).hidden.at("layer").size(), 2u);
    model.set_hooks(bf16_hooks());
    const Outputs outputs = model(ones({1, 2}));
    EXPECT_EQ(outputs.logits.dtype(), f32);
    EXPECT_EQ(outputs.loss.value().dtype(), f32);
    EXPECT_EQ(outputs.hidden.at("layer")[1].dtype(), f32);
    EXPECT_TRUE(outputs.logits.requires_grad());
    const Tree tree = model.tree(ones({1, 2}));
    EXPECT_EQ(tree["y"].tensor().dtype(), f32);
    EXPECT_EQ(tree["n"].integer(), 3);
    EXPECT_EQ(model.twice(ones({1, 2}))[1].dtype(), f32);
}

TEST(ForwardHooks, ApplyToTheLossOfGpt) {
    nn::Gpt model({.vocab_size = 7, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 4});
    const Tensor ids = tensor(std::vector<std::int64_t>{1, 2, 3, 4}, {1, 4});
    Tensor expected;
    {
        const AutocastGuard half(bf16);
        expected = model.loss(ids, ids);
    }
    model.set_hooks(bf16_hooks());
    expect_same_bits(model.loss(ids, ids), to(expected, f32));
}

TEST(ForwardHooks, AreNotCloned) {
    Probe model;
    model.set_hooks(bf16_hooks());
    EXPECT_EQ(model.clone().hooks(), nullptr);
}

}  // namespace
}  // namespace axle
