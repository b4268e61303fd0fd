// Tests LoRA adapters: which layers and parameters are selected, the values of the product, and
// configurations that are refused.
#include "nn/adapters/lora.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/files/pretrained.h"
#include "nn/init.h"
#include "nn/layers/layers.h"
#include "tests/close.h"
#include "tests/log_capture.h"
#include "tests/nn/golden.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::TemporaryFolder;

struct Net : nn::Model<Net> {
    nn::Embedding table{5, 4};
    nn::Linear query{4, 6}, value{4, 6, {.transposed = true}}, head{6, 3};

    Tensor forward(const Tensor& x) { return head(relu(query(x) + value(x))); }
    void visit(nn::Visitor& v) override {
        v("table", table), v("attn.query", query), v("attn.value", value), v("head", head);
    }
};

Net seeded_net() {
    manual_seed(3);
    return Net();
}
Tensor some_input() {
    return tensor({0.5, -1.0, 2.0, 0.25, 1.5, 0.75, -0.5, 1.0}).reshape({2, 4}).to(f32);
}

std::vector<std::string> trainable_names(const nn::Module& model) {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : model.named_parameters())
        if (parameter.requires_grad()) names.push_back(name);
    return names;
}

nn::LoraLinear& lora_of(nn::Linear& layer) { return dynamic_cast<nn::LoraLinear&>(*layer.policy); }

// Sets lora_B, which is zero at first, so that the adapter changes results.
void fill_updates(Net& net) {
    for (nn::Linear* layer : {&net.query, &net.value})
        if (layer->policy != nullptr) nn::init::normal_(lora_of(*layer).lora_B);
}

TEST(Lora, ChangesNoResultBeforeTraining) {
    Net net = seeded_net();
    const Tensor before = net(some_input());
    EXPECT_EQ(nn::add_lora(net, {.target_modules = {"query", "value"}}), 2);
    expect_same_bits(net(some_input()).detach(), before.detach());
}

TEST(Lora, AddsTheScaledProductOfItsFactors) {
    Net net = seeded_net();
    nn::add_lora(net, {.r = 2, .lora_alpha = 6, .target_modules = {"value"}});
    fill_updates(net);
    const nn::LoraLinear& lora = lora_of(net.value);
    EXPECT_EQ(lora.lora_A.shape(), (Shape{2, 4}));
    EXPECT_EQ(lora.lora_B.shape(), (Shape{6, 2}));
    const Tensor x = some_input();
    const Tensor expected = linear(x, net.value.weight.t(), net.value.bias) +
                            matmul(matmul(x, lora.lora_A.t()), lora.lora_B.t()) * 3;
    expect_close(net.value(x, Activation::relu), relu(expected), 1e-6);
}

TEST(Lora, FreezesEverythingButTheFactors) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"attn.query"}});
    EXPECT_THAT(trainable_names(net),
                ElementsAre("attn.query.policy.lora_A.weight", "attn.query.policy.lora_B.weight"));
    EXPECT_EQ(nn::trainable_parameters(net).size(), 2u);
}

TEST(Lora, SelectsLayersByAPatternForTheWholeName) {
    Net net = seeded_net();
    EXPECT_EQ(nn::add_lora(net, {.target_pattern = "attn\\.q.*"}), 1);
    EXPECT_NE(net.query.policy, nullptr);
    expect_error<ValueError>({"add_lora", "select no layer", "3 Linear layers", "attn.query"}, [] {
        Net other;
        nn::add_lora(other, {.target_pattern = "query"});
    });
}

TEST(Lora, SelectsAllLinearLayersButExcludedAndSavedModules) {
    Net net = seeded_net();
    EXPECT_EQ(nn::add_lora(net, {.target_modules = {"all-linear"},
                                 .exclude_modules = {"value"},
                                 .modules_to_save = {"head"}}),
              1);
    EXPECT_THAT(trainable_names(net),
                ElementsAre("attn.query.policy.lora_A.weight", "attn.query.policy.lora_B.weight",
                            "head.weight", "head.bias"));
}

TEST(Lora, WarnsOfElementsThatSelectNoModuleAndOfPatternsThatMatchNoAdaptedLayer) {
    Net net = seeded_net();
    tests::LogCapture log;
    nn::add_lora(net, {.target_modules = {"query", "q_proj"},
                       .exclude_modules = {"head", "lm_head"},
                       .rank_pattern = {{"query", 4}, {"value", 2}},
                       .alpha_pattern = {{"k_.*", 2}}});
    EXPECT_THAT(
        log.lines(),
        ElementsAre("add_lora: target_modules: the model has no module 'q_proj'",
                    "add_lora: exclude_modules: the model has no module 'lm_head'",
                    "add_lora: rank_pattern: the model has no adapted layer that matches 'value'",
                    "add_lora: alpha_pattern: the model has no adapted layer that matches 'k_.*'"));
}

TEST(Lora, TrainsBiasesOfAllModulesOrOfAdaptedLayers) {
    Net all = seeded_net(), adapted = seeded_net();
    nn::add_lora(all, {.target_modules = {"query"}, .bias = nn::LoraConfig::Bias::all});
    EXPECT_THAT(trainable_names(all),
                ElementsAre("attn.query.bias", "attn.query.policy.lora_A.weight",
                            "attn.query.policy.lora_B.weight", "attn.value.bias", "head.bias"));
    nn::add_lora(adapted, {.target_modules = {"query"}, .bias = nn::LoraConfig::Bias::lora_only});
    EXPECT_THAT(trainable_names(adapted),
                ElementsAre("attn.query.bias", "attn.query.policy.lora_A.weight",
                            "attn.query.policy.lora_B.weight"));
}

TEST(Lora, UsesRanksAndAlphasOfPatterns) {
    Net net = seeded_net();
    nn::add_lora(net, {.r = 4,
                       .lora_alpha = 4,
                       .target_modules = {"query", "value"},
                       .rank_pattern = {{"query", 2}, {"attn.query", 3}},
                       .alpha_pattern = {{"attn\\.v.*", 12}}});
    EXPECT_EQ(lora_of(net.query).lora_A.size(0), 2);
    EXPECT_EQ(lora_of(net.query).scale, 2);
    EXPECT_EQ(lora_of(net.value).lora_A.size(0), 4);
    EXPECT_EQ(lora_of(net.value).scale, 3);
}

TEST(Lora, DropsInputsOfTheFactorsOnlyInTraining) {
    Net net = seeded_net();
    nn::add_lora(net, {.lora_dropout = 0.9, .target_modules = {"query"}});
    fill_updates(net);
    const Tensor x = ones({64, 4});
    const NoGrad no_grad;
    const Tensor y = net.query(x);
    const Tensor without = linear(x, net.query.weight, net.query.bias);
    // A row whose four inputs are all dropped has the result of the base model: 0.9^4 = 66 %.
    const double rows = sum(all(eq(y, without), 1).to(f32)).item();
    EXPECT_GT(rows, 20);
    EXPECT_LT(rows, 60);
    net.eval();
    expect_same_bits(net.query(x), net.query(x));
    EXPECT_EQ(sum(all(eq(net.query(x), without), 1).to(f32)).item(), 0);
}

TEST(Lora, KeepsFactorsInF32OverHalfPrecisionWeights) {
    Net net = seeded_net();
    net.to(bf16);
    nn::add_lora(net, {.target_modules = {"query"}});
    EXPECT_EQ(lora_of(net.query).lora_A.dtype(), f32);
    const Tensor y = net(some_input().to(bf16));
    EXPECT_EQ(y.dtype(), bf16);
    sum(y).backward();
    EXPECT_EQ(lora_of(net.query).lora_B.grad().dtype(), f32);
}

TEST(Lora, ComputesInTheAutocastDType) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    fill_updates(net);
    const Tensor exact = net.query(some_input());
    const AutocastGuard autocast(bf16);
    const Tensor y = net.query(some_input());
    EXPECT_EQ(y.dtype(), bf16);
    expect_close(y.to(f32), exact, 0.05);
}

TEST(Lora, IsMergedAndUnmergedOnce) {
    Net net = seeded_net();
    const Tensor base = clone(net.value.weight).detach();
    nn::add_lora(net, {.target_modules = {"query", "value"}});
    fill_updates(net);
    const Tensor y = net(some_input()).detach();
    nn::merge_adapter(net);
    nn::merge_adapter(net);
    expect_close(net.value.weight.detach(), base + lora_of(net.value).update().t(), 1e-6);
    expect_close(net(some_input()).detach(), y, 1e-5);
    expect_error<UsageError>({"set_adapter_enabled", "attn.query", "unmerge_adapter"},
                             [&] { nn::set_adapter_enabled(net, false); });
    nn::unmerge_adapter(net);
    nn::unmerge_adapter(net);
    expect_close(net.value.weight.detach(), base, 1e-6);
    expect_close(net(some_input()).detach(), y, 1e-5);
}

TEST(Lora, RestoresTheBaseModelWhenAMergedAdapterIsUnloaded) {
    Net net = seeded_net();
    const Tensor y = net(some_input()).detach();
    nn::add_lora(net, {.target_modules = {"query", "value"}});
    fill_updates(net);
    nn::merge_adapter(net);
    nn::unload_adapter(net);
    EXPECT_EQ(net.query.policy, nullptr);
    EXPECT_EQ(net.value.policy, nullptr);
    expect_close(net(some_input()).detach(), y, 1e-5);
}

TEST(Lora, IsClonedWithFactorsOfItsOwn) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    Net copy = net.clone();
    const Tensor before = copy(some_input()).detach();
    fill_updates(net);
    expect_same_bits(copy(some_input()).detach(), before);
    nn::init::normal_(lora_of(copy.query).lora_B);
    EXPECT_NE(sum(copy(some_input())).item(), sum(before).item());
}

TEST(Lora, RefusesASecondAdapterAndKeepsTheFirst) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    fill_updates(net);
    const Tensor y = net(some_input()).detach();
    expect_error<UsageError>({"add_lora: the layer attn.query already has an adapter"},
                             [&] { nn::add_lora(net, {.target_modules = {"value"}}); });
    EXPECT_EQ(net.value.policy, nullptr);
    EXPECT_EQ(nn::trainable_parameters(net).size(), 2u);
    expect_same_bits(net(some_input()).detach(), y);
}

TEST(Lora, RefusesLayersWithAnotherPolicyAndPreparedModels) {
    Net net = seeded_net();
    struct Plain : nn::LinearPolicy {
        Tensor multiply(nn::Linear& layer, const Tensor& x, Activation) override {
            return linear(x, layer.weight, layer.bias);
        }
        std::shared_ptr<nn::LinearPolicy> clone() const override {
            return std::make_shared<Plain>(*this);
        }
    };
    net.query.policy = std::make_shared<Plain>();
    expect_error<UsageError>({"add_lora", "attn.query", "policy", "Plain"}, [&] {
        nn::add_lora(net, {.target_modules = {"value", "query"}});
    });
    EXPECT_EQ(net.value.policy, nullptr);
    Net prepared = seeded_net();
    prepared.set_hooks(std::make_shared<nn::ForwardHooks>());
    expect_error<UsageError>({"add_lora", "before prepare()"},
                             [&] { nn::add_lora(prepared, {.target_modules = {"query"}}); });
}

TEST(Lora, RefusesToTrainACopyOfATiedWeight) {
    struct Tied : nn::Model<Tied> {
        nn::Embedding table{5, 4};
        nn::Linear query{4, 4}, head{4, 5};
        Tied() { head.weight = table.weight; }
        void visit(nn::Visitor& v) override {
            v("table", table), v("query", query), v("head", head);
        }
    };
    Tied model;
    expect_error<ValueError>(
        {"add_lora: modules_to_save", "tied", "head.weight", "table.weight"},
        [&] { nn::add_lora(model, {.target_modules = {"query"}, .modules_to_save = {"head"}}); });
    EXPECT_EQ(
        nn::add_lora(model, {.target_modules = {"query"}, .modules_to_save = {"head", "table"}}),
        1);
}

TEST(Lora, RefusesConfigurationsThatDoNotFit) {
    const auto refuses = [](std::initializer_list<const char*> parts,
                            const nn::LoraConfig& config) {
        Net net;
        expect_error<ValueError>(parts, [&] { nn::add_lora(net, config); });
        EXPECT_EQ(trainable_names(net).size(), 7u);
    };
    refuses({"LoraConfig: r must be positive", "0"}, {.r = 0, .target_modules = {"query"}});
    refuses({"LoraConfig: lora_alpha", "-1"}, {.lora_alpha = -1, .target_modules = {"query"}});
    refuses({"LoraConfig: lora_dropout", "[0, 1)", "1"},
            {.lora_dropout = 1, .target_modules = {"query"}});
    refuses({"LoraConfig: exactly one of target_modules and target_pattern"}, {});
    refuses({"LoraConfig: exactly one of target_modules and target_pattern"},
            {.target_modules = {"query"}, .target_pattern = "query"});
    refuses({"LoraConfig: target_pattern", "regular expression", "'('"}, {.target_pattern = "("});
    refuses({"add_lora: only Linear layers", "table", "Embedding"}, {.target_modules = {"table"}});
    refuses({"add_lora: modules_to_save", "'tail'"},
            {.target_modules = {"query"}, .modules_to_save = {"head", "tail"}});
    refuses({"LoraConfig: rank_pattern", "0"},
            {.target_modules = {"query"}, .rank_pattern = {{"query", 0}}});
}

TEST(Lora, MustBeMergedBeforeSavePretrained) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    const TemporaryFolder folder;
    expect_error<UsageError>({"save_pretrained", "attn.query", "merge_and_unload()"}, [&] {
        nn::save_pretrained(net, "Net", Tree::map(), folder / "model");
    });
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
    nn::merge_and_unload(net);
    nn::save_pretrained(net, "Net", Tree::map(), folder / "model");
    EXPECT_TRUE(std::filesystem::exists(folder / "model/model.safetensors"));
}

TEST(SaveAdapter, RejectsAnEmptyDirectory) {
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    expect_error<ValueError>({"save_adapter", "directory must not be empty"},
                             [&] { nn::save_adapter(net, ""); });
}

TEST(Lora, NeedsAnAdapterToMergeUnloadEnableOrSave) {
    Net net;
    const TemporaryFolder folder;
    expect_error<UsageError>({"merge_adapter", "add_lora()"}, [&] { nn::merge_adapter(net); });
    expect_error<UsageError>({"unload_adapter", "no adapter"}, [&] { nn::unload_adapter(net); });
    expect_error<UsageError>({"set_adapter_enabled", "no adapter"},
                             [&] { nn::set_adapter_enabled(net, true); });
    expect_error<UsageError>({"save_adapter", "no adapter"},
                             [&] { nn::save_adapter(net, folder / "adapter"); });
}

}  // namespace
}  // namespace axle
