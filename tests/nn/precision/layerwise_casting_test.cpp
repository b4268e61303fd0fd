// Tests weights that are stored in one dtype and used in computations in another dtype.
#include "nn/precision/layerwise_casting.h"

#include <stdexcept>
#include <string>

#include "core/autograd/autograd.h"
#include "nn/layers/conv.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/precision/float8.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

struct Probe : nn::Model<Probe> {
    nn::Embedding table{5, 4};
    nn::Linear first{4, 4};
    nn::LayerNorm norm{4};
    nn::Linear last{4, 2};
    DType between = f64;

    Tensor forward(const Tensor& ids) {
        const Tensor x = first(table(ids));
        between = first.weight.dtype();
        return last(norm(x));
    }
    void visit(nn::Visitor& v) override {
        v("table", table), v("first", first), v("norm", norm), v("last", last);
    }
};

Tensor some_ids() { return tensor(std::vector<std::int64_t>{0, 3, 4}, {3}); }

// Covers 8.layerwise.
TEST(LayerwiseCasting, StoresAndComputesInDifferentDTypes) {
    Probe model;
    for (const Tensor& p : model.parameters()) {
        const NoGrad no_grad;
        p.set_data(p.detach().to(bf16).to(f32));  // rounds the weights to bf16 in advance
    }
    const Tensor exact = model(some_ids());
    nn::attach_layerwise_casting_hooks(model, bf16, f32);
    for (const Tensor& w : {model.table.weight, model.first.weight, model.first.bias,
                            model.last.weight, model.last.bias})
        EXPECT_EQ(w.dtype(), bf16);
    EXPECT_EQ(model.norm.weight.dtype(), f32);
    const Tensor y = model(some_ids());
    EXPECT_EQ(y.dtype(), f32);
    EXPECT_EQ(model.between, bf16);  // the layer's call restores the storage dtype
    expect_same_bits(y.detach(), exact.detach());
}

// Covers 8.layerwise.
TEST(LayerwiseCasting, PropagatesGradientsToInputsAndWeights) {
    Probe model;
    nn::attach_layerwise_casting_hooks(model, bf16, f32);
    sum(model(some_ids())).backward();
    for (const Tensor& p : model.parameters()) EXPECT_TRUE(p.grad().defined());
    for (const double g : model.last.bias.grad().to_vector()) EXPECT_EQ(g, 3);
    EXPECT_EQ(model.first.weight.dtype(), bf16);
}

TEST(LayerwiseCasting, KeepsTheValuesThatPoliciesWriteToTheirBuffers) {
    nn::Linear layer(16, 16);
    ASSERT_TRUE(nn::use_float8(layer, {.scaling = nn::Float8Scaling::delayed}));
    nn::attach_layerwise_casting_hooks(layer, bf16, f32);
    layer(full({16, 16}, 100.0));
    EXPECT_EQ(max(layer.named_buffers()[0].second.to(f32)).item(), 100);
}

// Covers 8.layerwise.
TEST(LayerwiseCasting, SkipsMatchingModulesAndTheirChildren) {
    struct Outer : nn::Model<Outer> {
        Probe probe;
        nn::Conv2d conv{1, 1, 1};
        nn::Linear head{2, 2};
        void visit(nn::Visitor& v) override { v("probe", probe), v("conv", conv), v("head", head); }
    };
    Outer model;
    nn::attach_layerwise_casting_hooks(model, f16, f32,
                                       {.skip_modules_pattern = {"^probe$", "he.d"}});
    EXPECT_EQ(model.probe.first.weight.dtype(), f32);
    EXPECT_EQ(model.head.weight.dtype(), f32);
    EXPECT_EQ(model.conv.weight.dtype(), f16);

    Outer other;
    nn::attach_layerwise_casting_hooks(
        other, bf16, f32, {.skip_modules = [](const nn::Module& module) {
            return dynamic_cast<const nn::Embedding*>(&module) != nullptr;
        }});
    EXPECT_EQ(other.probe.table.weight.dtype(), f32);
    EXPECT_EQ(other.probe.first.weight.dtype(), bf16);
    EXPECT_EQ(other.head.weight.dtype(), bf16);
}

// Covers 8.layerwise.
TEST(LayerwiseCasting, RestoresTheStorageDTypeAfterAnException) {
    nn::Linear layer(4, 2);
    nn::attach_layerwise_casting_hooks(layer, bf16, f32);
    EXPECT_THROW(layer(ones({3, 5})), ShapeError);
    EXPECT_EQ(layer.weight.dtype(), bf16);
    EXPECT_EQ(layer(ones({3, 4})).dtype(), f32);
}

// Covers 8.layerwise.
TEST(LayerwiseCasting, IsPreservedByClone) {
    nn::Linear layer(4, 2);
    nn::attach_layerwise_casting_hooks(layer, bf16, f32);
    nn::Linear copy = layer.clone();
    EXPECT_EQ(copy.weight.dtype(), bf16);
    expect_same_bits(copy(ones({3, 4})).detach(), layer(ones({3, 4})).detach());
}

// Covers 8.layerwise.
TEST(LayerwiseCasting, RejectsInvalidArgumentsAndChangesNothing) {
    nn::Linear layer(4, 2);
    expect_error<DTypeError>({"attach_layerwise_casting_hooks: storage and compute must be "
                              "floating dtypes: int64 and float32"},
                             [&] { nn::attach_layerwise_casting_hooks(layer, i64, f32); });
    expect_error<ValueError>(
        {"attach_layerwise_casting_hooks: a pattern must be a regular expression: '['"}, [&] {
            nn::attach_layerwise_casting_hooks(layer, bf16, f32, {.skip_modules_pattern = {"["}});
        });
    EXPECT_EQ(layer.weight.dtype(), f32);
    EXPECT_FALSE(layer.layer_cast());
}

}  // namespace
}  // namespace axle
