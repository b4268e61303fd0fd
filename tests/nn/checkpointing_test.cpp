#include "core/autograd/autograd.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "tests/close.h"

namespace axle {
namespace {

// A module that counts its forward calls. Its dropout uses the random generator.
struct Counted : nn::Model<Counted> {
    Tensor forward(const Tensor& x, double factor) {
        ++calls;
        return dropout(gelu(layer(x)), 0.3, true) * factor;
    }
    void visit(nn::Visitor& v) override { v("layer", layer); }

    nn::Linear layer{6, 6};
    int calls = 0;
};

// A module whose forward changes its argument.
struct Changing : nn::Model<Changing> {
    Tensor forward(const Tensor& x, int& calls) {
        ++calls;
        return layer(x);
    }
    void visit(nn::Visitor& v) override { v("layer", layer); }

    nn::Linear layer{6, 6};
};

TEST(ActivationCheckpointing, RunsForwardAgainInBackwardWithTheSameGradients) {
    manual_seed(4);
    Counted module;
    const Tensor x = randn({3, 6}, {.requires_grad = true});
    const GeneratorState random = generator_state();
    sum(module(x, 2.0)).backward();
    const Tensor dx = x.grad().clone(), dw = module.layer.weight.grad().clone();
    EXPECT_EQ(module.calls, 1);

    x.zero_grad(), module.zero_grad();
    set_generator_state(random);
    module.set_checkpointing();
    const Tensor y = module(x, 2.0);
    EXPECT_EQ(module.calls, 2);
    sum(y).backward();
    EXPECT_EQ(module.calls, 3);
    tests::expect_same_bits(x.grad(), dx);
    tests::expect_same_bits(module.layer.weight.grad(), dw);
}

TEST(ActivationCheckpointing, KeepsNoHiddenActivationsInMemory) {
    nn::Mlp mlp({64, 512, 512, 64});
    struct Block : nn::Model<Block> {
        explicit Block(nn::Mlp& mlp_) : mlp(&mlp_) {}
        Tensor forward(const Tensor& x) { return (*mlp)(x); }
        void visit(nn::Visitor& v) override { v("mlp", *mlp); }
        nn::Mlp* mlp;
    } block(mlp);
    const Tensor x = randn({256, 64});
    const auto bytes_kept = [&](bool checkpoints) {
        block.set_checkpointing(checkpoints);
        const std::int64_t before = host_memory::stats().current;
        const Tensor y = block(x);
        return host_memory::stats().current - before;
    };
    const std::int64_t activations = 256 * 512 * 4;
    EXPECT_GT(bytes_kept(false), 2 * activations);
    EXPECT_LT(bytes_kept(true), activations / 2);
}

TEST(ActivationCheckpointing, HasNoEffectWithoutGradientsOrInEvaluation) {
    Counted module;
    module.set_checkpointing();
    const Tensor x = randn({3, 6}, {.requires_grad = true});
    module.eval();
    sum(module(x, 1.0)).backward();
    EXPECT_EQ(module.calls, 1);
    module.train();
    const NoGrad no_grad;
    static_cast<void>(module(x, 1.0));
    EXPECT_EQ(module.calls, 2);
}

TEST(ActivationCheckpointing, DoesNotRepeatAForwardThatChangesItsArguments) {
    Changing module;
    module.set_checkpointing();
    int calls = 0;
    sum(module(randn({3, 6}), calls)).backward();
    EXPECT_EQ(calls, 1);
}

TEST(ActivationCheckpointing, IsKeptByCloneAndMove) {
    Counted module;
    module.set_checkpointing();
    EXPECT_TRUE(module.clone().is_checkpointing());
    const Counted moved = std::move(module);
    EXPECT_TRUE(moved.is_checkpointing());
}

}  // namespace
}  // namespace axle
