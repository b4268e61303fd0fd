// Tests models whose weights get their memory and values on first use.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/random.h"
#include "gtest/gtest.h"
#include "nn/init.h"
#include "nn/layers/attention.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/models/resnet.h"
#include "nn/precision/quantized_linear.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using nn::init::DeferredWeights;
using nn::init::is_deferred;
using tests::expect_error;
using tests::expect_same_bits;

nn::Gpt small_gpt() {
    return nn::Gpt({.vocab_size = 13, .block_size = 6, .n_layer = 2, .n_head = 2, .n_embd = 8});
}

// Constructs a model as usual and with deferred weights, and expects the same values and the same
// random numbers afterwards. Also expects that write_initial_values() leaves a weight deferred,
// and that access to the weight's elements does not.
template <class F>
void expect_same_construction(F&& make) {
    manual_seed(5);
    const auto expected = make();
    const GeneratorState after = generator_state();
    manual_seed(5);
    const auto actual = [&] {
        const DeferredWeights scope;
        return make();
    }();
    EXPECT_EQ(generator_state(), after);
    const nn::StateDict values = actual.named_parameters(), wanted = expected.named_parameters();
    ASSERT_EQ(values.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        SCOPED_TRACE(wanted[i].first);
        EXPECT_TRUE(is_deferred(values[i].second));
        Tensor copied = Tensor::empty(wanted[i].second.shape());
        nn::init::write_initial_values(values[i].second, copied);
        expect_same_bits(copied, wanted[i].second.detach());
        EXPECT_TRUE(is_deferred(values[i].second));
        expect_same_bits(values[i].second.detach(), wanted[i].second.detach());
        EXPECT_FALSE(is_deferred(values[i].second));
    }
}

TEST(DeferredWeights, HaveTheValuesOfWeightsThatAreNotDeferred) {
    expect_same_construction(small_gpt);
    expect_same_construction([] {  // a row of the embedding is zero
        return nn::Bert({.vocab_size = 11,
                         .hidden_size = 8,
                         .num_hidden_layers = 1,
                         .num_attention_heads = 2,
                         .intermediate_size = 16,
                         .max_position_embeddings = 6});
    });
    expect_same_construction([] { return nn::Embedding(7, 3, 2); });
    expect_same_construction([] { return nn::MultiheadAttention(8, 2); });
    expect_same_construction([] { return nn::BatchNorm2d(3); });
    expect_same_construction([] { return nn::Conv2d(3, 4, 3); });
}

TEST(DeferredWeights, UseNoMemoryBeforeTheFirstUse) {
    const std::int64_t before = host_memory::stats().current;
    const nn::Linear layer = [] {
        const DeferredWeights scope;
        const nn::Linear huge(1 << 20, 1 << 20);  // would need 4 TiB
        return nn::Linear(512, 512);
    }();
    EXPECT_LT(host_memory::stats().current - before, 4096);
    static_cast<void>(sum(layer.weight));
    EXPECT_GE(host_memory::stats().current - before, 4 * 512 * 512);
    EXPECT_FALSE(is_deferred(nn::Linear(2, 2).weight));
}

// In-place ops and initializers of slices, for example in the constructor of a user's module, use
// the elements.
TEST(DeferredWeights, HaveTheSameValuesAfterInPlaceOpsAndInitializersOfSlices) {
    const auto make = [] {
        nn::Linear layer(3, 2);
        const NoGrad no_grad;
        layer.weight.mul_(2);
        layer.bias.copy_(tensor({1.0f, 2.0f}));
        Tensor row = layer.weight.select(0, 1);
        nn::init::normal_(row);
        Tensor column = layer.weight.select(1, 2);
        nn::init::uniform_(column, 1, 2);
        return layer;
    };
    manual_seed(5);
    const nn::Linear expected = make();
    manual_seed(5);
    const nn::Linear actual = [&] {
        const DeferredWeights scope;
        return make();
    }();
    expect_same_bits(actual.weight.detach(), expected.weight.detach());
    expect_same_bits(actual.bias.detach(), expected.bias.detach());
}

TEST(DeferredWeights, HaveTheGradientsOfWeightsThatAreNotDeferred) {
    const Tensor ids = tensor(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}).reshape({1, 6});
    const auto train = [&](bool deferred) {
        manual_seed(5);
        std::optional<DeferredWeights> scope;
        if (deferred) scope.emplace();
        nn::Gpt model = small_gpt();
        scope.reset();
        model.loss(ids, ids).backward();
        return model.transformer.wte.weight.grad().clone();
    };
    expect_same_bits(train(true), train(false));
}

TEST(DeferredWeights, RejectInvalidArgumentsOfInitializers) {
    const DeferredWeights scope;
    Tensor weight = nn::init::parameter({2, 2});
    expect_error<ValueError>({"uniform_: the range must be finite"},
                             [&] { nn::init::uniform_(weight, 1, 0); });
    expect_error<ValueError>({"normal_: std must be at least 0: -1"},
                             [&] { nn::init::normal_(weight, 0, -1); });
}

nn::Llama small_llama() {
    return nn::Llama({.vocab_size = 16,
                      .hidden_size = 256,
                      .intermediate_size = 512,
                      .num_hidden_layers = 6,
                      .num_attention_heads = 4});
}

TEST(DeferredWeights, ReadPretrainedWeightsWhenTheyAreUsed) {
    const tests::TemporaryFolder folder;
    small_llama().save_pretrained(folder / "llama");
    auto expected = nn::Llama::from_pretrained(folder / "llama");
    const std::int64_t before = host_memory::stats().current;
    const auto load = [&] {
        const DeferredWeights scope;
        return nn::Llama::from_pretrained(folder / "llama");
    };
    nn::Llama model = load();
    EXPECT_LT(host_memory::stats().current - before, 1 << 20);
    const Tensor ids = tensor({1, 2, 3}, {.dtype = i64}).reshape({1, 3});
    expect_same_bits(model(ids).detach(), expected(ids).detach());
    EXPECT_GT(host_memory::stats().current - before, 6 * 2 << 20);
}

// The weights need 15 MiB, and at most 512 KiB each.
TEST(DeferredWeights, LimitTheMemoryForQuantizingAPretrainedModel) {
    const tests::TemporaryFolder folder;
    small_llama().save_pretrained(folder / "llama");
    host_memory::reset_peak();
    const std::int64_t before = host_memory::stats().peak;
    std::optional<nn::Llama> model;
    {
        const DeferredWeights scope;
        model.emplace(nn::Llama::from_pretrained(folder / "llama"));
    }
    nn::quantize_linears(*model);
    EXPECT_LT(host_memory::stats().peak - before, 5 << 20);
    auto expected = nn::Llama::from_pretrained(folder / "llama");
    nn::quantize_linears(expected);
    const Tensor ids = tensor({1, 2, 3}, {.dtype = i64}).reshape({1, 3});
    expect_same_bits((*model)(ids).detach(), expected(ids).detach());
}

}  // namespace
}  // namespace axle
