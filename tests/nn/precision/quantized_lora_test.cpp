// Tests LoRA adapters over quantized Linear layers (QLoRA).
#include <filesystem>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/files/pretrained.h"
#include "nn/precision/quantized_linear.h"
#include "tests/close.h"
#include "tests/log_capture.h"
#include "tests/nn/precision/quantized_net.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::add_adapter;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::lora_of;
using tests::names_of;
using tests::plain_net;
using tests::seeded_net;
using tests::some_input;
using tests::TemporaryFolder;
using Net = tests::QuantizedNet;

TEST(QuantizedLora, HasTheGradientsOfLoraOverTheDequantizedWeights) {
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4}) {
        Net net = seeded_net();
        nn::quantize_linears(net, {.format = format, .exclude_modules = {"head"}});
        Net plain = plain_net(net);
        add_adapter(net);
        add_adapter(plain);
        Tensor x = some_input().requires_grad_(), plain_x = some_input().requires_grad_();
        const Tensor y = net(x), expected = plain(plain_x);
        expect_same_bits(y.detach(), expected.detach());
        sum(y * y).backward();
        sum(expected * expected).backward();
        expect_close(x.grad(), plain_x.grad(), 1e-6);
        for (auto [layer, other] :
             {std::pair{&net.query, &plain.query}, std::pair{&net.value, &plain.value}}) {
            expect_close(lora_of(*layer).lora_A.grad(), lora_of(*other).lora_A.grad(), 1e-6);
            expect_close(lora_of(*layer).lora_B.grad(), lora_of(*other).lora_B.grad(), 1e-6);
        }
        EXPECT_EQ(nn::trainable_parameters(net).size(), 4u);
    }
}

TEST(QuantizedLora, QuantizesTheInputsOfTheBaseModelOnly) {
    const nn::QuantizationConfig config{
        .format = WeightFormat::int8, .llm_int8_threshold = 0, .target_modules = {"query"}};
    Net net = seeded_net();
    nn::quantize_linears(net, config);
    const Tensor x = some_input(), base = net.query(x).detach();
    Net weight_only = seeded_net();
    nn::quantize_linears(weight_only, {.format = WeightFormat::int8, .target_modules = {"query"}});
    const Tensor other_base = weight_only.query(x).detach();
    EXPECT_GT((base - other_base).abs().max().item(), 1e-3);
    add_adapter(net);
    add_adapter(weight_only);
    expect_close((net.query(x) - base).detach(), (weight_only.query(x) - other_base).detach(),
                 1e-5);
}

TEST(QuantizedLora, ComputesWithTheBaseModelWhileDisabledAndAfterUnloading) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    const Tensor y = net(some_input()).detach();
    add_adapter(net);
    const Tensor adapted = net(some_input()).detach();
    EXPECT_NE(sum(adapted).item(), sum(y).item());
    nn::set_adapter_enabled(net, false);
    expect_same_bits(net(some_input()).detach(), y);
    nn::unload_adapter(net);
    EXPECT_NE(nn::quantized_policy(net.query), nullptr);
    expect_same_bits(net(some_input()).detach(), y);
}

TEST(QuantizedLora, IsMergedIntoTheDequantizedWeightsWithAWarning) {
    Net net = seeded_net();
    nn::quantize_linears(net, {.exclude_modules = {"head"}});
    Net plain = plain_net(net);
    add_adapter(net);
    const Tensor y = net(some_input()).detach();
    const Tensor expected = plain.value.weight + lora_of(net.value).update().t();
    expect_error<UsageError>({"merge_adapter", "attn.query", "quantized", "merge_and_unload"},
                             [&] { nn::merge_adapter(net); });
    tests::LogCapture log;
    nn::merge_and_unload(net);
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("the weights of 2 quantized layers")));
    EXPECT_EQ(net.value.policy, nullptr);
    expect_same_bits(net.value.weight, expected.detach());
    expect_close(net(some_input()).detach(), y, 1e-5);
    const TemporaryFolder folder;
    nn::save_pretrained(net, "Net", Tree::map(), folder / "net");
    EXPECT_TRUE(std::filesystem::exists(folder / "net/model.safetensors"));
}

TEST(QuantizedLora, WritesAdapterFilesWithoutTheBaseWeights) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    add_adapter(net);
    const TemporaryFolder folder;
    nn::save_adapter(net, folder / "adapter");
    EXPECT_THAT(names_of(load_safetensors(folder / "adapter/adapter_model.safetensors").tensors),
                testing::UnorderedElementsAre("base_model.model.attn.query.lora_A.weight",
                                              "base_model.model.attn.query.lora_B.weight",
                                              "base_model.model.attn.value.lora_A.weight",
                                              "base_model.model.attn.value.lora_B.weight"));
    Net loaded = seeded_net();
    nn::quantize_linears(loaded);
    nn::load_adapter(loaded, folder / "adapter");
    expect_same_bits(loaded(some_input()).detach(), net(some_input()).detach());
}

TEST(QuantizedLora, LeavesTheQuantizedLayersIfAnAdapterFileDoesNotFit) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    add_adapter(net);
    const TemporaryFolder folder;
    nn::save_adapter(net, folder / "adapter");
    save_safetensors(folder / "adapter/adapter_model.safetensors",
                     {{"base_model.model.attn.query.lora_A.weight", zeros({4, 48})}});
    Net other = seeded_net();
    nn::quantize_linears(other);
    EXPECT_THROW(nn::load_adapter(other, folder / "adapter"), FileError);
    EXPECT_NE(nn::quantized_policy(other.query), nullptr);
}

TEST(QuantizedLora, RefusesToTrainQuantizedModulesCompletely) {
    Net net = seeded_net();
    nn::quantize_linears(net);
    expect_error<ValueError>(
        {"add_lora: modules_to_save: the layer head is quantized", "exclude_modules"},
        [&] { nn::add_lora(net, {.target_modules = {"query"}, .modules_to_save = {"head"}}); });
    EXPECT_NE(nn::quantized_policy(net.query), nullptr);
}

}  // namespace
}  // namespace axle
