// Tests the tensors that state_dict() returns, and loading them into the model that they come from.
#include <string>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/module.h"

namespace axle {
namespace {

struct TiedLayers : nn::Model<TiedLayers> {
    TiedLayers() { out.weight = in.weight; }
    Tensor forward(const Tensor& x) { return out(in(x)-mean); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out), v.buffer("mean", mean); }

    nn::Linear in{3, 3}, out{3, 3, {.bias = false}};
    Tensor mean = zeros({3});
};

const Tensor& tensor_of(const nn::StateDict& state, const std::string& name) {
    for (const auto& [own, tensor] : state)
        if (own == name) return tensor;
    throw IndexError(name);
}

TEST(StateDict, HasDetachedTensorsThatShareMemory) {
    TiedLayers model;
    const nn::StateDict state = model.state_dict();
    ASSERT_EQ(state.size(), 4U);
    for (const auto& [name, tensor] : state) EXPECT_FALSE(tensor.requires_grad()) << name;
    Tensor weight = tensor_of(state, "in.weight");
    EXPECT_TRUE(weight.is_same(tensor_of(state, "out.weight")));
    weight.fill_(3);
    EXPECT_EQ(model.in.weight.to_vector(), std::vector<double>(9, 3.0));
    EXPECT_TRUE(model.in.weight.requires_grad());
    for (const auto& [name, tensor] : model.saved_state())
        EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST(StateDict, HasTheTensorsThemselvesWithKeepVars) {
    TiedLayers model;
    const nn::StateDict state = model.state_dict({.keep_vars = true});
    EXPECT_TRUE(tensor_of(state, "in.weight").is_same(model.in.weight));
    EXPECT_TRUE(tensor_of(state, "out.weight").is_same(model.in.weight));
    EXPECT_TRUE(tensor_of(state, "mean").is_same(model.mean));
}

TEST(LoadStateDict, LoadsTheModelsOwnStateDictAfterAnInPlaceChange) {
    TiedLayers model;
    const nn::StateDict state = model.state_dict();
    Tensor bias = tensor_of(state, "in.bias");
    bias.fill_(2);
    model.load_state_dict(state);
    EXPECT_EQ(model.in.bias.to_vector(), std::vector<double>(3, 2.0));
    EXPECT_TRUE(model.in.weight.is_same(model.out.weight));
}

}  // namespace
}  // namespace axle
