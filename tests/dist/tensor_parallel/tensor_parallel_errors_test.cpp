#include <string>

#include "gtest/gtest.h"
#include "tests/dist/tensor_parallel/divided_models.h"

namespace axle {
namespace {

using dist::tensor_parallelize;
using dist::TensorParallelPlan;
using tests::at;
using tests::clones_of;
using tests::expect_error;
using tests::Group;
using tests::on_ranks;
using tests::small_gpt;
using tests::small_llama;

// Expects a ValueError on every rank, and that the model is unchanged.
template <class M>
void expect_refused(const M& whole, int size, const TensorParallelPlan& plan,
                    std::initializer_list<const char*> text) {
    auto models = clones_of(whole, size);
    on_ranks(size, [&](const Group& group) {
        M model = std::move(models[at(group)]);
        expect_error<ValueError>(text, [&] { tensor_parallelize(model, group, {.plan = plan}); });
        tests::expect_same_state(model.state_dict(), whole.state_dict(), 0);
        EXPECT_FALSE(dist::has_slices(model));
    });
}

TEST(TensorParallelize, ReportsHeadsAndFeaturesThatCannotBeDivided) {
    expect_refused(small_gpt(), 3, {},
                   {"tensor_parallelize: ", "the 4 attention heads of ",
                    "transformer.h.0.attn.c_attn", "3 ranks"});
    expect_refused(small_llama(false, f64, 4), 3, {},
                   {"tensor_parallelize: ", "4 attention heads"});
    expect_refused(small_gpt(), 3, {{"transformer.h.*.mlp.c_fc", "colwise"}},
                   {"tensor_parallelize: ", "64 output features", "3 ranks"});
    expect_refused(small_gpt(), 3, {{"transformer.h.*.mlp.c_proj", "rowwise"}},
                   {"tensor_parallelize: ", "64 input features", "3 ranks"});
}

TEST(TensorParallelize, ReportsKeyValueHeadsThatCannotBeCopied) {
    manual_seed(1);
    nn::Llama model({.vocab_size = 11,
                     .hidden_size = 24,
                     .intermediate_size = 8,
                     .num_hidden_layers = 1,
                     .num_attention_heads = 12,
                     .num_key_value_heads = 3});
    expect_refused(model, 4, {},
                   {"tensor_parallelize: ", "3 key-value heads", "model.layers.0.self_attn.k_proj",
                    "4 ranks"});
}

TEST(TensorParallelize, RejectsInvalidPlans) {
    const nn::Gpt gpt = small_gpt();
    expect_refused(gpt, 2, {{"transformer.wte", "diagonal"}},
                   {"tensor_parallelize: unknown style 'diagonal' of 'transformer.wte'",
                    "colwise, rowwise, colwise_rep"});
    expect_refused(gpt, 2, {{"model.layers.*.mlp", "colwise"}},
                   {"tensor_parallelize: the plan's rule 'model.layers.*.mlp' selects no module"});
    expect_refused(gpt, 2, {{"transformer.ln_f", "colwise"}},
                   {"tensor_parallelize: the style colwise needs a Linear: 'transformer.ln_f'"});
    expect_refused(gpt, 2, {{"regex:(", "colwise"}},
                   {"tensor_parallelize: the plan has an invalid regular expression"});
    expect_refused(gpt, 2, {{"transformer.h.*.attn.c_attn", "colwise"}},
                   {"tensor_parallelize: ", "set segments to 3"});
    // The head uses the same weight as the embedding.
    expect_refused(gpt, 2, {{"transformer.wte", "embedding_rowwise"}},
                   {"tensor_parallelize: the weight of 'lm_head' is tied to a divided weight"});
    expect_refused(nn::Linear(4, 4), 2, {}, {"tensor_parallelize: the model has no plan"});
}

// Without these rules, norms would get parts of sequences, but their gradients would not be summed.
TEST(TensorParallelize, ReportsMissingRulesThatSequenceParallelNeeds) {
    const auto expect_missing = [](const char* removed, std::initializer_list<const char*> text) {
        nn::Gpt whole = small_gpt();
        auto models = clones_of(whole, 2);
        TensorParallelPlan plan = dist::tensor_parallel_plan(whole);
        std::erase_if(plan, [&](const auto& rule) {
            return rule.style == "sequence_parallel" && rule.modules == removed;
        });
        on_ranks(2, [&](const Group& group) {
            nn::Gpt& model = models[at(group)];
            expect_error<ValueError>(text, [&] {
                tensor_parallelize(model, group, {.plan = plan, .sequence_parallel = true});
            });
            EXPECT_FALSE(dist::has_slices(model));
        });
    };
    expect_missing("transformer",
                   {"tensor_parallelize: ", "sequence_parallel needs a rule", "stack of blocks"});
    expect_missing("transformer.h.*.ln_2",
                   {"tensor_parallelize: the plan has no rule sequence_parallel for the norm "
                    "'transformer.h.0.ln_2'"});
    expect_missing("transformer.ln_f", {"tensor_parallelize: ", "'transformer.ln_f'"});
}

TEST(TensorParallelize, RejectsModulesThatCannotWorkOnPartsOfSequences) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        TensorParallelPlan plan = dist::tensor_parallel_plan(model);
        plan.push_back({"transformer.wpe", "sequence_parallel"});
        expect_error<ValueError>(
            {"tensor_parallelize: the style sequence_parallel needs a LayerNorm",
             "transformer.wpe"},
            [&] { tensor_parallelize(model, group, {.plan = plan, .sequence_parallel = true}); });
        // Without sequence_parallel, rules of this style have no effect.
        tensor_parallelize(model, group, {.plan = plan});
        EXPECT_TRUE(dist::has_slices(model));
    });
}

TEST(TensorParallelize, RejectsPlansThatDifferBetweenRanks) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        TensorParallelPlan plan = {{"transformer.h.*.mlp.c_fc", "colwise_rep"}};
        if (group->rank() == 1) plan[0].modules = "transformer.h.0.mlp.c_fc";
        expect_error<ValueError>(
            {"tensor_parallelize: all ranks must have the same plan and model: ranks 0 and 1 "
             "differ"},
            [&] { tensor_parallelize(models[at(group)], group, {.plan = plan}); });
        EXPECT_FALSE(dist::has_slices(models[at(group)]));
    });
}

TEST(TensorParallelize, ThrowsTheErrorOfOneRankOnEveryRank) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        const TensorParallelPlan plan = {
            {"transformer.h.*.mlp.c_fc", group->rank() == 1 ? "sideways" : "colwise_rep"}};
        expect_error<ValueError>({"tensor_parallelize: ", "unknown style 'sideways'"}, [&] {
            tensor_parallelize(models[at(group)], group, {.plan = plan});
        });
    });
}

struct Twice : nn::LinearPolicy {
    Tensor multiply(nn::Linear& layer, const Tensor& x, Activation) override {
        return linear(x, layer.weight, layer.bias) * 2;
    }
    std::shared_ptr<nn::LinearPolicy> clone() const override {
        return std::make_shared<Twice>(*this);
    }
};

TEST(TensorParallelize, RejectsModelsWithPoliciesGradientsOrSlices) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        auto& layer = model.transformer.h[0].mlp.c_fc;
        layer.policy = std::make_shared<Twice>();
        expect_error<UsageError>(
            {"tensor_parallelize: 'transformer.h.0.mlp.c_fc' already has a policy"},
            [&] { tensor_parallelize(model, group); });
        layer.policy = nullptr;
        model.transformer.wte.weight.set_grad(zeros_like(model.transformer.wte.weight));
        expect_error<UsageError>({"tensor_parallelize: transformer.wte.weight has a gradient"},
                                 [&] { tensor_parallelize(model, group); });
        model.zero_grad();
        tensor_parallelize(model, group);
        expect_error<UsageError>({"tensor_parallelize: ", "already"},
                                 [&] { tensor_parallelize(model, group); });
    });
}

// The errors have the same text as the errors of a model that is not divided.
TEST(TensorParallel, ReportsIdsAndTargetsThatAreNotInTheVocabulary) {
    auto models = clones_of(small_gpt(), 4);
    const auto error_of = [](nn::Gpt& model, const Tensor& ids, const Tensor& labels) {
        try {
            model.loss(ids, labels);
        } catch (const IndexError& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    const Tensor valid = zeros({1, 4}, {.dtype = i64});
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        nn::Gpt undivided = std::move(models[at(group) + 2]);
        tensor_parallelize(model, group);
        for (const std::int64_t bad : {13, -1}) {
            const Tensor wrong = full({1, 4}, bad, {.dtype = i64});
            EXPECT_EQ(error_of(model, wrong, valid), error_of(undivided, wrong, valid));
            EXPECT_EQ(error_of(model, valid, wrong), error_of(undivided, valid, wrong));
        }
        expect_error<IndexError>({"embedding: index out of range: 13 at [0, 0]"}, [&] {
            model.loss(full({1, 4}, 13, {.dtype = i64}), valid);
        });
        expect_error<IndexError>({"linear_cross_entropy: target out of range: 13 in row 0"}, [&] {
            model.loss(valid, full({1, 4}, 13, {.dtype = i64}));
        });
    });
}

TEST(TensorParallel, ReportsASequenceThatCannotBeDivided) {
    auto models = clones_of(small_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt model = std::move(models[at(group)]);
        tensor_parallelize(model, group, {.sequence_parallel = true});
        const Tensor ids = zeros({2, 5}, {.dtype = i64});
        expect_error<ShapeError>(
            {"split_along: the size of dimension 1 is not a multiple of the 2 ranks"},
            [&] { model.loss(ids, ids); });
    });
}

}  // namespace
}  // namespace axle
