#include "data/masked_tokens.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using Values = std::vector<double>;

constexpr std::int64_t kLength = 1000, kWords = 500, kMask = 4;

// The tokens of sample i count from 10 + i. The first and the last token are special.
std::shared_ptr<const Dataset> texts(std::int64_t size = 8) {
    return std::make_shared<FunctionDataset>(size, [](std::int64_t i) {
        Tensor special = zeros({kLength}, {.dtype = i64});
        special.data<std::int64_t>()[0] = special.data<std::int64_t>()[kLength - 1] = 1;
        const Tensor ids = arange(i, i + kLength).to(i64);
        const Tensor words = remainder(ids, kWords - 10) + 10;
        return Tree{{"input_ids", words},
                    {"special_tokens_mask", special},
                    {"token_type_ids", zeros({kLength}, {.dtype = i64})}};
    });
}

MaskedTokensOptions options() { return {.mask_token_id = kMask, .vocab_size = kWords, .seed = 7}; }

TEST(MaskedTokensDataset, MasksReplacesAndKeepsTheSharesOfSelectedTokensThatTransformersUses) {
    const auto source = texts();
    const MaskedTokensDataset masked(source, options());
    double total = 0, selected = 0, masks = 0, same = 0, random = 0;
    for (std::int64_t i = 0; i < masked.size(); ++i) {
        const Tree sample = masked.get(i);
        const Values before = source->get(i)["input_ids"].tensor().to_vector();
        const Values ids = sample["input_ids"].tensor().to_vector();
        const Values labels = sample["labels"].tensor().to_vector();
        for (std::size_t t = 0; t < ids.size(); ++t) {
            ++total;
            if (labels[t] == -100) {
                ASSERT_EQ(ids[t], before[t]);
                continue;
            }
            ASSERT_EQ(labels[t], before[t]);
            ASSERT_TRUE(ids[t] >= 0 && ids[t] < kWords);
            ++selected;
            ++(ids[t] == kMask ? masks : ids[t] == before[t] ? same : random);
        }
    }
    // Four standard deviations around the expected shares.
    EXPECT_NEAR(selected / total, 0.15, 0.016);
    EXPECT_NEAR(masks / selected, 0.8, 0.047);
    EXPECT_NEAR(random / selected, 0.1, 0.035);
    EXPECT_NEAR(same / selected, 0.1, 0.035);
}

TEST(MaskedTokensDataset, NeverSelectsSpecialTokensAndReplacesTheirMaskByLabels) {
    MaskedTokensOptions all = options();
    all.mlm_probability = all.mask_replace_prob = 1, all.random_replace_prob = 0;
    const Tree sample = MaskedTokensDataset(texts(), all).get(0);
    const Values labels = sample["labels"].tensor().to_vector();
    EXPECT_EQ(labels.front(), -100);
    EXPECT_EQ(labels.back(), -100);
    const Values ids = sample["input_ids"].tensor().to_vector();
    for (std::size_t t = 1; t + 1 < ids.size(); ++t) {
        ASSERT_EQ(ids[t], kMask);
        ASSERT_NE(labels[t], -100);
    }
    EXPECT_EQ(ids.front(), 10);
    EXPECT_EQ(sample.find("special_tokens_mask"), nullptr);
    EXPECT_NE(sample.find("token_type_ids"), nullptr);
}

TEST(MaskedTokensDataset, SelectsOtherTokensInEachEpochUnlessItIsConstant) {
    const auto labels_in = [](const MaskedTokensOptions& o, std::int64_t epoch) {
        const MaskedTokensDataset masked(texts(), o);
        return masked.in_epoch(epoch)->get(3)["labels"].tensor().to_vector();
    };
    MaskedTokensOptions constant = options();
    constant.is_constant = true;
    EXPECT_EQ(labels_in(options(), 2), labels_in(options(), 2));
    EXPECT_NE(labels_in(options(), 1), labels_in(options(), 2));
    EXPECT_EQ(labels_in(constant, 1), labels_in(constant, 2));
    MaskedTokensOptions other = options();
    other.seed = 8;
    EXPECT_NE(labels_in(options(), 1), labels_in(other, 1));
}

TEST(MaskedTokensDataset, LeavesTheSamplesOfTheOtherDatasetUnchanged) {
    const Tree sample{{"input_ids", arange(10, 20).to(i64)}};
    const auto one = std::make_shared<FunctionDataset>(1, [&](std::int64_t) { return sample; });
    MaskedTokensOptions all = options();
    all.mlm_probability = all.mask_replace_prob = 1, all.random_replace_prob = 0;
    const Tree result = MaskedTokensDataset(one, all).get(0);
    EXPECT_EQ(result["input_ids"].tensor().to_vector(), Values(10, kMask));
    EXPECT_EQ(sample["input_ids"].tensor().to_vector(), arange(10, 20).to_vector());
}

TEST(MaskedTokensDataset, RejectsInvalidOptionsAndSamples) {
    const auto rejects = [](auto change) {
        MaskedTokensOptions o = options();
        change(o);
        EXPECT_THROW(MaskedTokensDataset(texts(), o), ValueError);
    };
    rejects([](auto& o) { o.mask_token_id = -1; });
    rejects([](auto& o) { o.mask_token_id = kWords; });
    rejects([](auto& o) { o.vocab_size = 0; });
    rejects([](auto& o) { o.mlm_probability = 1.5; });
    rejects([](auto& o) { o.random_replace_prob = 0.3; });
    EXPECT_THROW(MaskedTokensDataset(nullptr, options()), UsageError);

    const auto get = [](const Tree& sample) {
        const auto one = std::make_shared<FunctionDataset>(1, [&](std::int64_t) { return sample; });
        return MaskedTokensDataset(one, options()).get(0);
    };
    EXPECT_THROW(get(Tree{{"ids", arange(4).to(i64)}}), ValueError);
    EXPECT_THROW(get(Tree{{"input_ids", arange(4).to(f32)}}), DTypeError);
    EXPECT_THROW(get(Tree{{"input_ids", zeros({2, 2}, {.dtype = i64})}}), ShapeError);
    EXPECT_THROW(get(Tree{{"input_ids", arange(4).to(i64)},
                          {"special_tokens_mask", zeros({3}, {.dtype = i64})}}),
                 ShapeError);
}

}  // namespace
}  // namespace axle::data
