#include "dist/sharding/wrap_policy.h"

#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "nn/models/llama.h"
#include "tests/close.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::Gpt64;

std::vector<std::string> names_of(const std::vector<dist::ShardUnit>& units) {
    std::vector<std::string> names;
    for (const dist::ShardUnit& unit : units) {
        EXPECT_EQ(unit.modules.size(), 1U);
        names.push_back(unit.modules.front());
    }
    return names;
}

// Covers 14.transformer_cls_names_to_wrap.
TEST(WrapPolicy, FindsModulesByType) {
    nn::Gpt model = Gpt64().make();
    const auto blocks = ElementsAre("transformer.h.0", "transformer.h.1", "transformer.h.2");
    EXPECT_THAT(names_of(dist::units_by_type(model, {"GptBlock"})), blocks);
    EXPECT_THAT(names_of(dist::units_by_type(model, {"GPT2Block"})), blocks);
    EXPECT_THAT(names_of(dist::units_by_type(model, {"axle::nn::GptBlock"})), blocks);
    EXPECT_THAT(names_of(dist::units_by_type(model, {"GPT2Block", "Embedding"})),
                ElementsAre("transformer.wte", "transformer.wpe", "transformer.h.0",
                            "transformer.h.1", "transformer.h.2"));
}

TEST(WrapPolicy, SuggestsTheNearestTypeForAMissingType) {
    nn::Gpt model = Gpt64().make();
    expect_error<ValueError>({"transformer_cls_names_to_wrap: the model has no module of type "
                              "'GptBlok'; the nearest type is GptBlock"},
                             [&] { dist::units_by_type(model, {"GptBlok"}); });
    EXPECT_THROW(dist::units_by_type(model, {"Block"}), ValueError);
}

// Covers 14.min_num_params.
TEST(WrapPolicy, FindsModulesBySizeAndRejectsAMinimumOfZero) {
    nn::Gpt model = Gpt64().make();
    // A block has 16 + 216 + 72 + 16 + 288 + 264 = 872 parameters, its MLP has 552, wte has 104,
    // and wpe has 48.
    ASSERT_EQ(model.transformer.h[0].num_parameters(), 872);
    EXPECT_THAT(names_of(dist::units_by_size(model, 800)),
                ElementsAre("transformer.h.0", "transformer.h.1", "transformer.h.2"));
    // With a minimum of 500, the MLP is a unit, and the rest of the block has only 320 parameters.
    EXPECT_THAT(names_of(dist::units_by_size(model, 500)),
                ElementsAre("transformer.h.0.mlp", "transformer.h.1.mlp", "transformer.h.2.mlp",
                            "transformer"));
    EXPECT_THAT(dist::units_by_size(model, 100000), testing::IsEmpty());
    expect_error<ValueError>({"units_by_size: min_num_params must be at least 1: 0"},
                             [&] { dist::units_by_size(model, 0); });
}

TEST(WrapPolicy, FindsModulesByPredicate) {
    nn::Gpt model = Gpt64{.layers = 1}.make();
    EXPECT_THAT(names_of(dist::units_where(model,
                                           [](const nn::Module& module) {
                                               return dynamic_cast<const nn::Linear*>(&module) !=
                                                      nullptr;
                                           })),
                ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj",
                            "transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_proj"));
}

// Covers 14.ignored_modules.
TEST(WrapPolicy, MatchesWholeNamesAndRejectsInvalidRegularExpressions) {
    nn::Gpt model = Gpt64().make();
    EXPECT_THAT(dist::modules_matching(model, R"(transformer\.h\.[01]\.ln_\d)"),
                ElementsAre("transformer.h.0.ln_1", "transformer.h.0.ln_2", "transformer.h.1.ln_1",
                            "transformer.h.1.ln_2"));
    EXPECT_THAT(dist::modules_matching(model, "ln_1"), testing::IsEmpty());
    expect_error<ValueError>({"ignored_modules: the regular expression '(' is invalid"},
                             [&] { dist::modules_matching(model, "("); });
}

}  // namespace
}  // namespace axle
