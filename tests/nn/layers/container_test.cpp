#include "nn/layers/container.h"

#include "core/ops.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/layers/activation.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::expect_same_bits;

std::vector<std::string> names(const nn::StateDict& state) {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : state) result.push_back(name);
    return result;
}

TEST(Sequential, CallsModulesAndFunctionsInOrder) {
    nn::Sequential net(
        nn::Linear(3, 4), relu, [](const Tensor& x) { return 2 * x; }, nn::Linear(4, 2));
    EXPECT_EQ(net.size(), 4U);
    EXPECT_THAT(names(net.state_dict()), ElementsAre("0.weight", "0.bias", "3.weight", "3.bias"));
    const std::vector<Tensor> p = net.parameters();
    const Tensor x = randn({5, 3});
    expect_same_bits(net(x), linear(2 * relu(linear(x, p[0], p[1])), p[2], p[3]));
}

TEST(Sequential, ClonesEveryStageAndRejectsCopies) {
    nn::Sequential net(nn::Linear(3, 4), relu, nn::Sequential(nn::Linear(4, 2)));
    nn::Sequential copy = net.clone();
    const Tensor x = randn({5, 3});
    const Tensor before = net(x).detach();
    expect_same_bits(copy(x).detach(), before);
    for (const Tensor& parameter : copy.parameters()) parameter.detach().zero_();
    expect_same_bits(net(x).detach(), before);
    expect_error<UsageError>({"module: "}, [&] { const nn::Sequential refused(net); });
}

TEST(ModuleList, GivesModulesTheirIndicesAsNamesAndClonesThem) {
    nn::ModuleList<nn::Linear> list;
    std::vector<Tensor> weights;
    for (int i = 1; i <= 9; ++i) {
        list.push_back(nn::Linear(i, 2, {.bias = false}));
        weights.push_back(list[static_cast<std::size_t>(i - 1)].weight);
    }
    EXPECT_EQ(list.size(), 9U);
    const nn::StateDict state = list.state_dict({.keep_vars = true});
    for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(state[i].first, std::to_string(i) + ".weight");
        EXPECT_TRUE(state[i].second.is_same(weights[i]));
    }
    for (nn::Linear& layer : list.clone()) EXPECT_EQ(layer.weight.size(0), 2);
}

TEST(Sequential, ReturnsModulesByIndexAndRejectsWrongIndicesAndTypes) {
    nn::Sequential net{nn::Linear(3, 4), relu, nn::LayerNorm(4)};
    EXPECT_TRUE(net.get<nn::Linear>(0).weight.is_same(net.parameters()[0]));
    EXPECT_EQ(&net[-1], &net.get<nn::LayerNorm>(2));
    net.get<nn::Linear>(0).requires_grad_(false);
    EXPECT_FALSE(net.parameters()[0].requires_grad());
    expect_error<IndexError>({"Sequential: ", "index 3", "3 elements"}, [&] { net[3]; });
    expect_error<IndexError>({"Sequential: ", "stage 1", "function"}, [&] { net[1]; });
    expect_error<ValueError>({"Sequential: get: module 2", "nn::LayerNorm", "nn::Linear"},
                             [&] { net.get<nn::Linear>(2); });
}

TEST(Sequential, UsesNamesGivenInPairsAndRejectsInvalidNames) {
    nn::Sequential net{std::pair{"hidden", nn::Linear(3, 4)}, relu,
                       std::pair{std::string("out"), nn::Linear(4, 2)}};
    net.push_back("norm", nn::LayerNorm(2));
    EXPECT_THAT(names(net.state_dict()), ElementsAre("hidden.weight", "hidden.bias", "out.weight",
                                                     "out.bias", "norm.weight", "norm.bias"));
    EXPECT_EQ(&net["out"], &net[2]);
    EXPECT_EQ(net.get<nn::LayerNorm>("norm").weight.numel(), 2);
    nn::Sequential copy = net.clone();
    EXPECT_EQ(names(copy.state_dict()), names(net.state_dict()));
    const Tensor x = randn({5, 3});
    expect_same_bits(copy(x).detach(), net(x).detach());
    expect_error<IndexError>({"Sequential: ", "tail", "hidden, 1, out, norm"},
                             [&] { net["tail"]; });
    expect_error<IndexError>({"Sequential: ", "stage 1", "function"}, [&] { net["1"]; });
    for (const char* name : {"", "a.b", "out"})
        expect_error<ValueError>({"Sequential: "}, [&] { net.push_back(name, nn::Dropout(0.5)); });
    EXPECT_EQ(net.size(), 4U);
}

TEST(ModuleList, HoldsModulesOfDifferentTypesAndRejectsWrongIndicesAndTypes) {
    nn::ModuleList<> list;
    nn::Linear& first = list.push_back(nn::Linear(3, 4));
    list.push_back(nn::LayerNorm(4));
    EXPECT_EQ(&list[0], &first);
    EXPECT_EQ(&list[-1], &list.get<nn::LayerNorm>(1));
    EXPECT_THAT(names(list.state_dict()), ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
    std::vector<nn::Module*> visited;
    for (nn::Module& module : list) visited.push_back(&module);
    EXPECT_THAT(visited, ElementsAre(&list[0], &list[1]));
    expect_error<IndexError>({"ModuleList: ", "index 2"}, [&] { list[2]; });
    expect_error<ValueError>({"ModuleList: ", "module 0", "nn::Linear", "nn::Dropout"},
                             [&] { list.get<nn::Dropout>(0); });
}

// A model whose layers are in containers of different types.
struct Mixed : nn::Model<Mixed> {
    Mixed() {
        stages.push_back(nn::Linear(3, 4));
        stages.push_back(nn::Dropout(0.5));
        heads.insert("b", nn::Linear(4, 2));
        heads.insert("a", nn::Sequential{nn::Linear(4, 5), relu});
    }
    Tensor forward(const Tensor& x) {
        const Tensor y = stages.get<nn::Dropout>(1)(stages.get<nn::Linear>(0)(x));
        return heads.get<nn::Linear>("b")(y);
    }
    void visit(nn::Visitor& v) override { v("stages", stages), v("heads", heads); }

    nn::ModuleList<> stages;
    nn::ModuleDict heads;
};

TEST(ModuleDict, KeepsTheOrderOfInsertionAndFindsAndErasesModules) {
    Mixed model;
    EXPECT_THAT(names(model.state_dict()),
                ElementsAre("stages.0.weight", "stages.0.bias", "heads.b.weight", "heads.b.bias",
                            "heads.a.0.weight", "heads.a.0.bias"));
    EXPECT_THAT(model.heads.keys(), ElementsAre("b", "a"));
    EXPECT_TRUE(model.heads.contains("a"));
    EXPECT_FALSE(model.heads.contains("c"));
    EXPECT_EQ(&model.heads["a"], &model.heads.get<nn::Sequential>("a"));
    model.heads.erase("b");
    EXPECT_THAT(model.heads.keys(), ElementsAre("a"));
    EXPECT_THAT(names(model.heads.state_dict()), ElementsAre("a.0.weight", "a.0.bias"));
}

TEST(ModuleDict, IsConstructedFromPairs) {
    nn::ModuleDict dict{std::pair{"x", nn::Linear(1, 2)}, std::pair{"y", nn::LayerNorm(2)}};
    EXPECT_EQ(dict.size(), 2U);
    EXPECT_EQ(dict.get<nn::LayerNorm>("y").weight.numel(), 2);
}

TEST(ModuleDict, RejectsUnknownAndInvalidNamesAndWrongTypes) {
    nn::ModuleDict dict{std::pair{"x", nn::Linear(1, 2)}, std::pair{"y", nn::LayerNorm(2)}};
    expect_error<IndexError>({"ModuleDict: ", "z", "x, y"}, [&] { dict["z"]; });
    expect_error<IndexError>({"ModuleDict: ", "z", "x, y"}, [&] { dict.erase("z"); });
    expect_error<ValueError>({"ModuleDict: get: module x", "nn::Linear", "nn::Dropout"},
                             [&] { dict.get<nn::Dropout>("x"); });
    expect_error<ValueError>({"ModuleDict: ", "already", "y"},
                             [&] { dict.insert("y", nn::Dropout(0.1)); });
    expect_error<ValueError>({"ModuleDict: ", "dot", "a.b"},
                             [&] { dict.insert("a.b", nn::Dropout(0.1)); });
}

TEST(Containers, AreClonedMovedAndConvertedButNotCopied) {
    Mixed model;
    model.eval();
    EXPECT_FALSE(model.stages[1].is_training());
    EXPECT_FALSE(model.heads["a"].is_training());
    Mixed copy = model.clone();
    const Tensor x = randn({5, 3});
    const Tensor before = model(x).detach();
    expect_same_bits(copy(x).detach(), before);
    for (const Tensor& parameter : copy.parameters()) parameter.detach().zero_();
    expect_same_bits(model(x).detach(), before);
    const nn::Module* const head = &model.heads["b"];
    Mixed moved = std::move(model);
    EXPECT_EQ(&moved.heads["b"], head);
    moved.to(f64);
    for (const Tensor& parameter : moved.parameters()) EXPECT_EQ(parameter.dtype(), f64);
    expect_error<UsageError>({"module: "}, [&] { const Mixed refused(moved); });
}

TEST(ModuleListOfOneType, AcceptsNegativeIndicesAndRejectsIndicesOutOfRange) {
    nn::ModuleList<nn::Linear> layers;
    layers.push_back(nn::Linear(1, 2));
    layers.push_back(nn::Linear(2, 3));
    EXPECT_EQ(&layers[-1], &layers[1]);
    expect_error<IndexError>({"ModuleList: ", "2"}, [&] { layers[2]; });
}

// A model whose parameters are in containers.
struct Scales : nn::Model<Scales> {
    Scales() {
        list.push_back(ones({2}, {.requires_grad = true}));
        list.push_back(zeros({3}));
        dict.insert("b", ones({1}, {.requires_grad = true}));
        dict.insert("a", ones({4}));
    }
    Tensor forward(const Tensor& x) { return x * list[0] * dict["b"]; }
    void visit(nn::Visitor& v) override { v("list", list), v("dict", dict); }

    nn::ParameterList list;
    nn::ParameterDict dict;
};

TEST(ParameterContainers, SaveDifferentiateCloneAndEraseTheirParameters) {
    Scales model;
    EXPECT_THAT(names(model.state_dict()), ElementsAre("list.0", "list.1", "dict.b", "dict.a"));
    EXPECT_THAT(model.dict.keys(), ElementsAre("b", "a"));
    EXPECT_TRUE(model.list[-1].is_same(model.list[1]));
    EXPECT_FALSE(model.list[1].requires_grad());
    Scales copy = model.clone();
    copy.list[0].detach().fill_(5);
    EXPECT_EQ(model.list[0][0].item(), 1);
    sum(model(ones({2}))).backward();
    expect_same_bits(model.dict["b"].grad(), tensor({2.0}));
    model.dict.erase("b");
    EXPECT_FALSE(model.dict.contains("b"));
    EXPECT_EQ(nn::ParameterList({ones({1}), ones({2})}).size(), 2U);
}

TEST(ParameterContainers, RejectInvalidNamesAndIndicesAndTensorsThatAreNotLeaves) {
    Scales model;
    expect_error<IndexError>({"ParameterList: index 2"}, [&] { model.list[2]; });
    expect_error<IndexError>({"ParameterDict: no parameter c", "b, a"}, [&] { model.dict["c"]; });
    expect_error<ValueError>({"ParameterDict: ", "already"},
                             [&] { model.dict.insert("b", ones({1})); });
    expect_error<UsageError>({"ParameterList: ", "leaf"},
                             [&] { model.list.push_back(model.list[0] * 2); });
    expect_error<UsageError>({"ParameterDict: ", "undefined"},
                             [&] { model.dict.insert("d", Tensor()); });
}

TEST(PixelShuffle, IsInvertedByPixelUnshuffle) {
    const Tensor x = arange(48).reshape({2, 8, 1, 3}), y = nn::PixelShuffle(2)(x);
    expect_same_bits(y, pixel_shuffle(x, 2));
    expect_same_bits(nn::PixelUnshuffle(2)(y), x);
}

TEST(Unflatten, DividesADimensionAndRejectsInvalidSizesAndDimensions) {
    const Tensor x = arange(24).view({2, 12});
    EXPECT_EQ(nn::Unflatten(1, {3, 4})(x).shape(), Shape({2, 3, 4}));
    EXPECT_EQ(nn::Unflatten(-1, {2, -1, 3})(x).shape(), Shape({2, 2, 2, 3}));
    expect_same_bits(nn::Flatten()(nn::Unflatten(1, {3, 4})(x)), x);
    expect_error<ShapeError>({"Unflatten: dimension 1", "[5, -1]", "[2, 12]"}, [&] {
        nn::Unflatten(1, {5, -1})(x);
    });
    expect_error<IndexError>({"Unflatten: "}, [&] { nn::Unflatten(2, {3, 4})(x); });
}

// A model that owns its layer through a pointer. Its implicit copy constructor copies the pointer,
// not the layer.
struct Pointing : nn::Model<Pointing> {
    std::shared_ptr<nn::Linear> layer = std::make_shared<nn::Linear>(2, 2);
    Tensor forward(const Tensor& x) { return (*layer)(x); }
    void visit(nn::Visitor& v) override { v("layer", *layer); }
};

TEST(ModuleClone, RejectsChildModulesThatTheCloneWouldShare) {
    Pointing model;
    const Tensor weight = model.layer->weight;
    expect_error<UsageError>({"clone: ", "'layer'", "axle::nn::Linear"}, [&] { model.clone(); });
    EXPECT_TRUE(model.layer->weight.is_same(weight));
}

}  // namespace
}  // namespace axle
