// Compares adapters with PEFT, which wrote tests/golden/peft (record_peft.py).
#include <string>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "nn/adapters/lora.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/nn/golden.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_same_bits;
using tests::TemporaryFolder;

// The recorded adapters and their models.
struct GptCase {
    using Model = nn::Gpt;
    static constexpr const char* name = "gpt2";
    static constexpr const char* base = "gpt2_tiny";
    static constexpr const char* merged_weight = "transformer.h.0.attn.c_attn.weight";
};
struct LlamaCase {
    using Model = nn::Llama;
    static constexpr const char* name = "llama";
    static constexpr const char* base = "llama_tiny";
    static constexpr const char* merged_weight = "model.layers.0.self_attn.q_proj.weight";
};
struct LlamaAllCase : LlamaCase {
    static constexpr const char* name = "llama_all";
};
struct BertCase {
    using Model = nn::BertForSequenceClassification;
    static constexpr const char* name = "bert";
    static constexpr const char* base = "bert_classifier";
    static constexpr const char* merged_weight = "bert.encoder.layer.0.attention.self.query.weight";
};

template <class Case>
Tensor recorded(const std::string& what) {
    return tests::golden(std::string(Case::name) + "." + what, "peft.safetensors");
}

template <class Case>
std::string adapter_folder() {
    return tests::golden_path(std::string("peft/") + Case::name);
}

template <class Case>
typename Case::Model base_model() {
    auto model = Case::Model::from_pretrained(tests::golden_path(Case::base));
    model.to(f64);
    return model;
}

template <class Case>
typename Case::Model adapted_model(bool is_trainable = false) {
    auto model = base_model<Case>();
    nn::load_adapter(model, adapter_folder<Case>(), {.is_trainable = is_trainable});
    return model;
}

template <class Case>
Tensor logits_of(typename Case::Model& model) {
    const NoGrad no_grad;
    return model(recorded<Case>("ids"));
}

template <class Case>
Tensor loss_of(typename Case::Model& model) {
    const Tensor ids = recorded<Case>("ids");
    if constexpr (std::is_same_v<typename Case::Model, nn::BertForSequenceClassification>)
        return model.loss(ids, recorded<Case>("labels"));
    else
        return model.loss(ids.slice(1, 0, -1), ids.slice(1, 1));
}

Tensor weight_named(const nn::Module& model, const std::string& name) {
    for (const auto& [own, tensor] : model.state_dict())
        if (own == name) return tensor;
    throw ValueError("no weight " + name);
}

template <class Case>
class PeftAdapter : public testing::Test {};
using Cases = testing::Types<GptCase, LlamaCase, LlamaAllCase, BertCase>;
TYPED_TEST_SUITE(PeftAdapter, Cases);

TYPED_TEST(PeftAdapter, GivesTheLogitsOfPeft) {
    auto model = adapted_model<TypeParam>();
    expect_close(logits_of<TypeParam>(model), recorded<TypeParam>("logits"), 1e-9);
}

// Adapters that change nothing but weights of Linear layers.
template <class Case>
class PeftUpdates : public testing::Test {};
using CasesOfUpdates = testing::Types<LlamaCase, LlamaAllCase>;
TYPED_TEST_SUITE(PeftUpdates, CasesOfUpdates);

TYPED_TEST(PeftUpdates, AreLeftOutWhileTheAdapterIsDisabled) {
    auto model = adapted_model<TypeParam>();
    nn::set_adapter_enabled(model, false);
    expect_close(logits_of<TypeParam>(model), recorded<TypeParam>("base_logits"), 1e-9);
    nn::set_adapter_enabled(model, true);
    expect_close(logits_of<TypeParam>(model), recorded<TypeParam>("logits"), 1e-9);
}

TYPED_TEST(PeftAdapter, TrainsWithTheLossesOfPeft) {
    auto model = adapted_model<TypeParam>(true);
    optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 1e-2, .weight_decay = 0.01});
    const std::vector<double> losses = recorded<TypeParam>("losses").to_vector();
    ASSERT_EQ(losses.size(), 10u);
    for (const double expected : losses) {
        const Tensor loss = loss_of<TypeParam>(model);
        ASSERT_NEAR(loss.item(), expected, 1e-8);
        loss.backward();
        adamw.step();
        adamw.zero_grad();
    }
    EXPECT_LT(losses.back(), 0.9 * losses.front());
}

TYPED_TEST(PeftAdapter, GivesTheMergedWeightsOfPeft) {
    auto model = adapted_model<TypeParam>();
    nn::merge_and_unload(model);
    expect_close(weight_named(model, TypeParam::merged_weight), recorded<TypeParam>("merged"),
                 1e-12);
    expect_close(logits_of<TypeParam>(model), recorded<TypeParam>("logits"), 1e-9);
}

TYPED_TEST(PeftAdapter, IsSavedWithTheTensorsOfPeft) {
    const TemporaryFolder folder;
    auto model = TypeParam::Model::from_pretrained(tests::golden_path(TypeParam::base));
    nn::load_adapter(model, adapter_folder<TypeParam>());
    nn::save_adapter(model, folder / "adapter");
    const SafetensorsFile ours(folder / "adapter/adapter_model.safetensors");
    const SafetensorsFile theirs(adapter_folder<TypeParam>() + "/adapter_model.safetensors");
    EXPECT_EQ(ours.metadata(), theirs.metadata());
    std::size_t compared = 0;
    for (const SafetensorsFile::Entry& entry : theirs.entries()) {
        // With bias = "all", PEFT also writes copies of the biases of a trained classifier.
        if (entry.name.find(".original_module.") != std::string::npos ||
            entry.name.find(".modules_to_save.") != std::string::npos)
            continue;
        expect_same_bits(ours.tensor(entry.name), theirs.tensor(entry.name));
        ++compared;
    }
    EXPECT_EQ(ours.entries().size(), compared);

    auto loaded = base_model<TypeParam>();
    nn::load_adapter(loaded, folder / "adapter");
    expect_close(logits_of<TypeParam>(loaded), recorded<TypeParam>("logits"), 1e-9);
}

}  // namespace
}  // namespace axle
