#include "nn/module.h"

#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/container.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear.h"
#include "optim/sgd.h"
#include "tests/close.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;

// A model with a buffer, and with a head that shares its weight with the embedding.
struct Tied : nn::Model<Tied> {
    Tied() : table(5, 3), hidden(nn::Linear(3, 3), relu, nn::Dropout(0.5)), head(3, 5) {
        head.weight = table.weight;
        mean = full({3}, 0.5);
    }
    Tensor forward(const Tensor& x) { return head(hidden(table(x) - mean)); }
    void visit(nn::Visitor& v) override {
        v("table", table), v("hidden", hidden), v("head", head);
        v.buffer("mean", mean);
    }

    nn::Embedding table;
    nn::Sequential hidden;
    nn::Linear head;
    Tensor mean;
};

std::vector<std::string> names(const nn::StateDict& state) {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : state) result.push_back(name);
    return result;
}

const Tensor& named(const nn::StateDict& state, const std::string& name) {
    for (const auto& [own, tensor] : state)
        if (own == name) return tensor;
    throw IndexError(name);
}

nn::StateDict without(nn::StateDict state, const std::string& name) {
    std::erase_if(state, [&](const auto& entry) { return entry.first == name; });
    return state;
}

nn::StateDict copy_of(const Tied& model) {
    nn::StateDict state = model.state_dict();
    for (auto& [name, tensor] : state) tensor = clone(tensor.detach());
    return state;
}

Tensor ids() { return tensor(std::vector<std::int64_t>{0, 4, 2}, {3}); }

TEST(Module, HasDottedNamesAndCountsATiedParameterOnce) {
    const Tied model;
    EXPECT_THAT(names(model.named_parameters()),
                ElementsAre("table.weight", "hidden.0.weight", "hidden.0.bias", "head.bias"));
    EXPECT_EQ(model.parameters().size(), 4U);
    EXPECT_EQ(model.num_parameters(), 15 + 9 + 3 + 5);
    EXPECT_THAT(names(model.named_buffers()), ElementsAre("mean"));
    EXPECT_THAT(names(model.state_dict()),
                ElementsAre("table.weight", "hidden.0.weight", "hidden.0.bias", "head.weight",
                            "head.bias", "mean"));
    EXPECT_THAT(names(model.saved_state()), ElementsAre("table.weight", "hidden.0.weight",
                                                        "hidden.0.bias", "head.bias", "mean"));
}

TEST(Module, ListsParentsFirstInNamedModules) {
    Tied model;
    std::vector<std::string> found;
    for (const auto& [name, module] : model.named_modules()) found.push_back(name);
    EXPECT_THAT(found, ElementsAre("", "table", "hidden", "hidden.0", "hidden.2", "head"));
}

TEST(Module, SavesAndConvertsButDoesNotTrainBuffers) {
    Tied model;
    EXPECT_THAT(names(model.saved_state()), testing::Contains("mean"));
    model.requires_grad_();
    EXPECT_FALSE(model.mean.requires_grad());
    model.to(f64);
    EXPECT_EQ(model.mean.dtype(), f64);
}

TEST(LoadStateDict, RestoresValuesInPlace) {
    Tied from, to;
    const Tensor weight = to.table.weight;
    from.mean.fill_(7);
    const nn::LoadReport report = to.load_state_dict(copy_of(from));
    EXPECT_THAT(report.missing, IsEmpty());
    EXPECT_THAT(report.unexpected, IsEmpty());
    EXPECT_TRUE(to.table.weight.is_same(weight));
    for (const auto& [name, tensor] : from.state_dict())
        expect_same_bits(named(to.state_dict(), name), tensor);
}

TEST(LoadStateDict, ConvertsToTheDTypeOfTheModel) {
    Tied from, to;
    from.to(f64);
    to.load_state_dict(from.state_dict());
    EXPECT_EQ(to.head.bias.dtype(), f32);
    expect_close(to.head.bias, from.head.bias, 1e-7);
}

TEST(LoadStateDict, ReportsNameMismatchesAndChangesNothingIfStrict) {
    Tied from, to;
    nn::StateDict state = without(copy_of(from), "head.bias");
    state.emplace_back("tail.bias", zeros({5}));
    const nn::StateDict before = copy_of(to);
    expect_error<ValueError>({"load_state_dict: ", "missing: head.bias;", "unexpected: tail.bias"},
                             [&] { to.load_state_dict(state); });
    for (const auto& [name, tensor] : before)
        expect_same_bits(named(to.state_dict(), name), tensor);
}

TEST(LoadStateDict, LoadsMatchingNamesAndReportsMismatchesIfNotStrict) {
    Tied from, to;
    nn::StateDict state = without(copy_of(from), "head.bias");
    state.emplace_back("tail.bias", zeros({5}));
    const Tensor bias = clone(to.head.bias.detach());
    const nn::LoadReport report = to.load_state_dict(state, {.strict = false});
    EXPECT_THAT(report.missing, ElementsAre("head.bias"));
    EXPECT_THAT(report.unexpected, ElementsAre("tail.bias"));
    expect_same_bits(to.table.weight, from.table.weight);
    expect_same_bits(to.head.bias.detach(), bias);
}

TEST(LoadStateDict, ThrowsAndChangesNothingForAWrongShape) {
    Tied from, to;
    nn::StateDict state = without(copy_of(from), "head.bias");
    state.emplace_back("head.bias", zeros({6}));
    const nn::StateDict before = copy_of(to);
    expect_error<ShapeError>({"load_state_dict: ", "head.bias", "[5]", "[6]"},
                             [&] { to.load_state_dict(state, {.strict = false}); });
    for (const auto& [name, tensor] : before)
        expect_same_bits(named(to.state_dict(), name), tensor);
}

TEST(LoadStateDict, ThrowsAndChangesNothingForStorageDTypes) {
    for (const DType dtype : {DType::i8, DType::f8_e4m3}) {
        Tied from, to, on_meta;
        on_meta.to(Device::meta());
        nn::StateDict state = without(copy_of(from), "head.bias");
        state.emplace_back("head.bias", empty({5}, {.dtype = dtype}));
        const nn::StateDict before = copy_of(to);
        for (Tied* model : {&to, &on_meta})
            expect_error<DTypeError>(
                {"load_state_dict: head.bias is float32 in the module", "converted"},
                [&] { model->load_state_dict(state); });
        for (const auto& [name, tensor] : before)
            expect_same_bits(named(to.state_dict(), name), tensor);
        for (const auto& [name, tensor] : on_meta.state_dict())
            EXPECT_TRUE(tensor.device().is_meta()) << name;
    }
}

TEST(LoadStateDict, AcceptsOneNameOfATiedParameter) {
    for (const char* absent : {"table.weight", "head.weight"}) {
        Tied from, to;
        to.load_state_dict(without(copy_of(from), absent));
        expect_same_bits(to.head.weight, from.head.weight);
        EXPECT_TRUE(to.head.weight.is_same(to.table.weight));
    }
}

TEST(LoadStateDict, MovesAModelFromTheMetaDeviceToTheCpu) {
    Tied from, to;
    to.to(Device::meta());
    const Tensor bias = to.head.bias;
    to.load_state_dict(copy_of(from));
    EXPECT_TRUE(bias.device().is_cpu());
    EXPECT_TRUE(bias.requires_grad());
    EXPECT_TRUE(to.head.weight.is_same(to.table.weight));
    from.eval(), to.eval();
    expect_same_bits(to(ids()), from(ids()));
}

TEST(EmptyWeights, UseNoMemoryOrRandomNumbersUntilLoaded) {
    Tied from;
    const GeneratorState before = generator_state();
    Tied to = [] {
        const nn::init::EmptyWeights guard;
        const nn::Linear huge(1 << 30, 1 << 30);
        return Tied();
    }();
    EXPECT_EQ(generator_state(), before);
    EXPECT_TRUE(to.head.bias.device().is_meta());
    to.load_state_dict(from.state_dict());
    expect_same_bits(to.head.bias.detach(), from.head.bias.detach());
    EXPECT_TRUE(nn::Linear(2, 2).weight.device().is_cpu());
}

TEST(ModuleTo, KeepsTensorIdentityForOptimizers) {
    Tied model;
    model.eval();
    optim::SGD sgd(model.parameters(), {.lr = 0.5});
    model.to(f64);
    EXPECT_EQ(model(ids()).dtype(), f64);
    EXPECT_TRUE(model.head.weight.is_same(model.table.weight));
    const Tensor before = clone(model.head.bias.detach());
    sum(model(ids())).backward();
    sgd.step();
    expect_close(model.head.bias.detach(), before - 0.5 * full({5}, 3, {.dtype = f64}), 1e-12);
}

TEST(ModuleTo, ConvertsGradients) {
    nn::Linear layer(2, 2);
    sum(layer(ones({1, 2}))).backward();
    layer.to(f64);
    EXPECT_EQ(layer.bias.grad().dtype(), f64);
    sum(layer(ones({1, 2}, {.dtype = f64}))).backward();
    expect_close(layer.bias.grad(), full({2}, 2.0));
}

TEST(ModuleTo, KeepsShapesAndTiesOnTheMetaDevice) {
    Tied model;
    const Tensor weight = model.table.weight;
    model.to(Device::meta());
    EXPECT_TRUE(weight.device().is_meta());
    EXPECT_TRUE(model.head.weight.is_same(weight));
    EXPECT_EQ(model.num_parameters(), 32);
}

TEST(ModuleTo, RejectsIntegerDTypes) {
    Tied model;
    expect_error<DTypeError>({"Module::to: ", "int64"}, [&] { model.to(i64); });
}

TEST(Module, SetsTrainingModeOfAllChildren) {
    Tied model;
    model.eval();
    for (const auto& [name, module] : model.named_modules()) EXPECT_FALSE(module->is_training());
    model.train();
    for (const auto& [name, module] : model.named_modules()) EXPECT_TRUE(module->is_training());
}

TEST(Module, AppliesRequiresGradAndZeroGradToAllParameters) {
    Tied model;
    sum(model(ids())).backward();
    for (const Tensor& parameter : model.parameters()) EXPECT_TRUE(parameter.grad().defined());
    model.zero_grad();
    for (const Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
    model.requires_grad_(false);
    for (const Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.requires_grad());
    EXPECT_FALSE(model(ids()).requires_grad());
}

TEST(ModuleClone, CopiesValuesAndTiesButNotGradients) {
    Tied model;
    model.hidden.eval();
    model.head.bias.set_requires_grad(false);
    sum(model(ids())).backward();
    Tied copy = model.clone();
    const nn::StateDict own_state = copy.state_dict({.keep_vars = true});
    for (const auto& [name, tensor] : model.state_dict({.keep_vars = true})) {
        const Tensor own = named(own_state, name);
        expect_same_bits(own.detach(), tensor.detach());
        EXPECT_FALSE(own.is_same(tensor)) << name;
        EXPECT_NE(own.raw_data(), tensor.raw_data()) << name;
        EXPECT_FALSE(own.grad().defined()) << name;
        EXPECT_EQ(own.requires_grad(), tensor.requires_grad()) << name;
    }
    EXPECT_TRUE(copy.head.weight.is_same(copy.table.weight));
    EXPECT_TRUE(model.head.weight.is_same(model.table.weight));
    EXPECT_TRUE(copy.is_training());
    EXPECT_FALSE(copy.hidden.is_training());
    expect_same_bits(copy(ids()).detach(), model(ids()).detach());
}

// A model with one tensor handle under two names, and another handle for the same tensor.
struct Thrice : nn::Model<Thrice> {
    Thrice() : a(nn::init::parameter({2})), b(a) { nn::init::ones_(a); }
    void visit(nn::Visitor& v) override { v("a", a), v("again", a), v("b", b); }
    Tensor a, b;
};

TEST(ModuleClone, KeepsTiedParametersTied) {
    const Thrice model;
    const Thrice copy = model.clone();
    EXPECT_TRUE(copy.a.is_same(copy.b));
    EXPECT_FALSE(copy.a.is_same(model.a));
    EXPECT_EQ(copy.parameters().size(), 1U);
}

TEST(Module, ThrowsWhenCopiedAndSuggestsClone) {
    const Tied model;
    expect_error<UsageError>({"module: ", "auto&", "clone()"}, [&] { const Tied copy(model); });
    const Tied copy = model.clone();
    expect_error<UsageError>({"module: ", "clone()"}, [&] { const Tied other(copy); });
}

TEST(Module, KeepsTiedWeightsWhenMoved) {
    Tied model;
    const Tensor weight = model.table.weight;
    const Tied moved = std::move(model);
    EXPECT_TRUE(moved.head.weight.is_same(weight));
}

// A module with a computed buffer, which is saved only if `persistent` is true.
struct Windowed : nn::Model<Windowed> {
    explicit Windowed(bool persistent_) : persistent(persistent_) {
        weight = nn::init::parameter({3});
        nn::init::ones_(weight);
        window = full({3}, 0.5);
    }
    Tensor forward(const Tensor& x) { return weight * window * x; }
    void visit(nn::Visitor& v) override {
        v("weight", weight);
        v.buffer("window", window, {.persistent = persistent});
    }

    bool persistent;
    Tensor weight, window;
};

TEST(NonPersistentBuffer, IsNeitherSavedNorLoaded) {
    Windowed saved(true), computed(false);
    EXPECT_THAT(names(saved.state_dict()), ElementsAre("weight", "window"));
    EXPECT_THAT(names(computed.state_dict()), ElementsAre("weight"));
    EXPECT_THAT(names(computed.saved_state()), ElementsAre("weight"));
    saved.weight.detach().fill_(3);
    const nn::StateDict state = {{"weight", saved.weight}};
    const nn::LoadReport report = computed.load_state_dict(state);
    EXPECT_THAT(report.missing, IsEmpty());
    expect_same_bits(computed.weight.detach(), full({3}, 3.0));
    expect_same_bits(computed.window, full({3}, 0.5));
    // A loaded state must not contain a buffer that is not persistent.
    expect_error<ValueError>({"load_state_dict: ", "unexpected: window"},
                             [&] { computed.load_state_dict(saved.state_dict()); });
}

TEST(NonPersistentBuffer, IsMovedConvertedClonedAndListed) {
    Windowed model(false);
    EXPECT_THAT(names(model.named_buffers()), ElementsAre("window"));
    model.to(f64);
    EXPECT_EQ(model.window.dtype(), f64);
    Windowed copy = model.clone();
    copy.window.fill_(9);
    expect_same_bits(model.window, full({3}, 0.5, {f64}));
    model.to(Device::meta());
    EXPECT_TRUE(model.window.device().is_meta());
}

TEST(ModuleApply, CallsChildrenBeforeParents) {
    Tied model;
    std::vector<nn::Module*> order;
    model.apply([&](nn::Module& module) { order.push_back(&module); });
    EXPECT_THAT(order, ElementsAre(&model.table, &model.hidden[0], &model.hidden[2], &model.hidden,
                                   &model.head, &model));
}

TEST(ModuleApply, InitializesLayersOfOneType) {
    Tied model;
    model.apply([](nn::Module& module) {
        if (auto* layer = dynamic_cast<nn::Linear*>(&module)) nn::init::constant_(layer->bias, 7);
    });
    expect_same_bits(model.head.bias.detach(), full({5}, 7.0));
    expect_same_bits(model.hidden.get<nn::Linear>(0).bias.detach(), full({3}, 7.0));
}

// A module whose visit() names one child twice.
struct Twice : nn::Model<Twice> {
    Tensor forward(const Tensor& x) { return layer(layer(x)); }
    void visit(nn::Visitor& v) override { v("first", layer), v("again", layer); }
    nn::Linear layer{2, 2};
};

TEST(NamedChildren, ListsDirectChildrenOnce) {
    Tied model;
    std::vector<std::string> found;
    for (const auto& [name, child] : model.named_children()) found.push_back(name);
    EXPECT_THAT(found, ElementsAre("table", "hidden", "head"));
    EXPECT_THAT(model.children(), ElementsAre(&model.table, &model.hidden, &model.head));
    Twice twice;
    EXPECT_THAT(twice.children(), ElementsAre(&twice.layer));
}

}  // namespace
}  // namespace axle
