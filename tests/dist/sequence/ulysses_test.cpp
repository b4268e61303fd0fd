#include "dist/sequence/ulysses.h"

#include <cmath>
#include <limits>

#include "core/profiler/profiler.h"
#include "tests/dist/sequence/sequences.h"

namespace axle {
namespace {

using dist::Ulysses;
using tests::expect_close;
using tests::expect_error;
using tests::expect_whole_attention;
using tests::Group;
using tests::kSequenceLength;
using tests::kSequences;
using tests::on_ranks;

template <class Model>
void expect_same_training(DType dtype, double tolerance) {
    tests::expect_same_training<Model>(dtype, tolerance, tests::ulysses_parts);
}

// Covers 17.SP.
TEST(Ulysses, TrainsGptLikeOneProcess) {
    expect_same_training<nn::Gpt>(f64, 1e-9);
    expect_same_training<nn::Gpt>(f32, 1e-4);
}

// Covers 17.SP.
TEST(Ulysses, TrainsLlamaLikeOneProcess) {
    expect_same_training<nn::Llama>(f64, 1e-9);
    expect_same_training<nn::Llama>(f32, 1e-4);
}

// Covers 17.SP.
TEST(Ulysses, TrainsBertLikeOneProcess) {
    expect_same_training<nn::BertForMaskedLM>(f64, 1e-9);
    expect_same_training<nn::BertForMaskedLM>(f32, 1e-4);
}

// Covers 17.SP.
TEST(Ulysses, ComputesAttentionToTheWholeSequence) {
    for (const int size : {1, 2, 3, 4, 6, 8})
        on_ranks(size, [](const Group& group) {
            Ulysses policy(group);
            const std::int64_t heads = tests::heads_for(group->size());
            for (const bool causal : {false, true})
                for (const std::int64_t groups : {heads, heads / 2, std::int64_t{1}}) {
                    expect_whole_attention(policy, heads, groups, {.causal = causal}, f64, 1e-12);
                    expect_whole_attention(policy, heads, groups, {.causal = causal}, f32, 1e-5);
                }
        });
}

TEST(Ulysses, AppliesPaddingMasks) {
    auto whole = tests::model_of<nn::BertForMaskedLM>(f64);
    const auto [ids, labels] = tests::sequences_of(0);
    Tensor mask = ones(ids.shape(), {.dtype = i64});
    mask.narrow(1, 11, 5).fill_(0);
    const double expected = whole.loss(ids, labels, mask).item();
    auto models = tests::clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        const ForwardContextGuard context(std::make_shared<Ulysses>(group));
        const auto own = [&](const Tensor& x) { return x.narrow(1, group->rank() * 8, 8); };
        const Tensor loss = models[tests::at(group)].loss(own(ids), own(labels), own(mask));
        EXPECT_NEAR(tests::mean_over(group, loss), expected, 1e-12);
    });
}

// Covers 17.SP.
TEST(Ulysses, RejectsHeadsThatCannotBeDividedAndMasksOfAnotherShape) {
    on_ranks(2, [](const Group& group) {
        Ulysses policy(group);
        const auto attend = [&](std::int64_t heads, std::int64_t groups, const Tensor& mask = {}) {
            const Tensor k = ones({1, groups, 4, 8});
            policy.attend(ones({1, heads, 4, 8}), k, k, {.mask = mask});
        };
        expect_error<ValueError>({"sequence parallel attention: the number of heads must be a "
                                  "multiple of sp_size: 3 heads, sp_size 2"},
                                 [&] { attend(3, 3); });
        expect_error<ValueError>({"sequence parallel attention: the number of key-value heads must "
                                  "be a multiple or a divisor of sp_size: 3 heads, sp_size 2"},
                                 [&] { attend(6, 3); });
        expect_error<ShapeError>({"sequence parallel attention: a mask must be [batch, 1, 1, 4]"},
                                 [&] {
                                     attend(2, 2, ones({4, 4}, {.dtype = boolean}));
                                 });
    });
}

// Covers 17.SP.
TEST(Ulysses, ExchangesQueriesKeysValuesAndOutputsOncePerPass) {
    constexpr std::int64_t kLayers = 2;
    constexpr int kRanks = 2;
    auto models = tests::clones_of(tests::model_of<nn::Llama>(f64), kRanks);
    profiler::start({.record_shapes = true});
    on_ranks(kRanks, [&](const Group& group) {
        const ForwardContextGuard context(std::make_shared<Ulysses>(group));
        const auto [ids, labels] = tests::sequences_of(0);
        const auto own = [&](const Tensor& x) { return x.narrow(1, group->rank() * 8, 8); };
        models[tests::at(group)].loss(own(ids), own(labels)).backward();
    });
    std::int64_t calls = 0, elements = 0;
    for (const profiler::Event& event : profiler::stop().events)
        if (event.name == "all_to_all_along" && event.category == profiler::Category::op) {
            ++calls;
            elements += numel(event.operands.front());
        }
    // Forward and backward exchange q, k, v and the result. Llama has 4 heads and 2 key-value heads
    // of 4 elements.
    EXPECT_EQ(calls, kRanks * kLayers * 8);
    EXPECT_EQ(elements,
              kRanks * kLayers * 2 * (4 + 2 + 2 + 4) * kSequences * (kSequenceLength / kRanks) * 4);
}

// Labels at the ends of documents are ignored, so that the parts have different numbers of tokens.
TEST(Ulysses, AveragesLossesOverTheTokensOfPackedDocumentsLikeOneProcess) {
    auto whole = tests::model_of<nn::Llama>(f64);
    auto [ids, labels] = tests::sequences_of(0);
    for (const std::int64_t end : {2, 3, 5, 12}) labels.select(1, end).fill_(-100);
    const Tensor expected = whole.loss(ids, labels);
    auto models = tests::clones_of(whole, 2);
    expected.backward();
    on_ranks(2, [&, &ids = ids, &labels = labels](const Group& group) {
        nn::Llama& model = models[tests::at(group)];
        const ForwardContextGuard context(std::make_shared<Ulysses>(group));
        const dist::DataParallel replicas(model, group);
        const auto own = [&](const Tensor& x) { return x.narrow(1, group->rank() * 8, 8); };
        const Tensor tokens = ne(own(labels), -100).sum();
        const Tensor loss = model.loss(own(ids), own(labels));
        EXPECT_GT(std::abs(tests::mean_over(group, loss) - expected.item()), 1e-6);
        const Tensor mean = dist::mean_over_tokens(loss, tokens, group);
        EXPECT_NEAR(mean.item(), expected.item(), 1e-12);
        mean.backward();
        for (std::size_t i = 0; i < model.parameters().size(); ++i)
            expect_close(model.parameters()[i].grad(), whole.parameters()[i].grad(), 1e-9);
    });
}

// --- batches

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesBatches, DivideTheBatchOfEachRank) {
    on_ranks(2, [](const Group& group) {
        const int r = group->rank();
        // The ranks have batches of different sizes and lengths.
        const std::int64_t rows = 1 + r, length = 4 + 2 * r;
        const Tensor ids = arange(rows * length).reshape({rows, length}) + 100 * r;
        const Tree batch = {
            {"input_ids", ids}, {"labels", ids}, {"row", arange(rows)}, {"name", str("rank ", r)}};
        const std::vector<Tree> parts = dist::ulysses_batches(batch, *group);
        ASSERT_EQ(parts.size(), 2u);
        for (int owner = 0; owner < 2; ++owner) {
            const Tree& part = parts[static_cast<std::size_t>(owner)];
            const std::int64_t whole = 4 + 2 * owner, half = whole / 2, height = 1 + owner;
            const Tensor all = arange(height * whole).reshape({height, whole}) + 100 * owner;
            expect_close(part["input_ids"].tensor(), all.narrow(1, r * half, half));
            expect_close(part["labels"].tensor(), all.narrow(1, r * half, half));
            const Tensor next =
                cat({all.narrow(1, 1, whole - 1), full({height, 1}, -100, {i64})}, 1);
            expect_close(part["shift_labels"].tensor(), next.narrow(1, r * half, half));
            expect_close(part["position_ids"].tensor().select(0, 0),
                         arange(r * half, (r + 1) * half));
            EXPECT_EQ(part["row"].tensor().shape(), Shape({height}));
            EXPECT_EQ(part["name"].string(), str("rank ", owner));
        }
    });
}

// Two documents are packed into a row: their positions begin at 0, and the first token of each is
// not a label. The label of the last token of rank 0 is the first token of rank 1, so labels must
// be shifted before rows are divided.
TEST(UlyssesBatches, KeepThePositionsAndLabelsOfPackedDocuments) {
    on_ranks(2, [](const Group& group) {
        const auto row = [](std::vector<std::int64_t> numbers) {
            return tensor(numbers).reshape({1, 8});
        };
        const Tree batch = {{"input_ids", row({10, 11, 12, 13, 14, 20, 21, 22})},
                            {"labels", row({-100, 11, 12, 13, 14, -100, 21, 22})},
                            {"position_ids", row({0, 1, 2, 3, 4, 0, 1, 2})}};
        const std::int64_t begin = 4 * group->rank();
        for (const Tree& part : dist::ulysses_batches(batch, *group)) {
            expect_close(part["position_ids"].tensor(),
                         batch["position_ids"].tensor().narrow(1, begin, 4));
            expect_close(part["shift_labels"].tensor(),
                         row({11, 12, 13, 14, -100, 21, 22, -100}).narrow(1, begin, 4));
        }
    });
}

// Covers 3.deepspeed_ulysses_dl_adapter.
TEST(UlyssesBatches, RejectInvalidBatchesOnAllRanks) {
    on_ranks(2, [](const Group& group) {
        const auto refused = [&](const Tree& invalid, std::initializer_list<const char*> text) {
            const Tree valid = {{"input_ids", arange(4).reshape({1, 4})}};
            std::string thrown;
            try {
                dist::ulysses_batches(group->rank() == 1 ? invalid : valid, *group);
            } catch (const ValueError& error) {
                thrown = error.what();
            }
            for (const char* part : text) EXPECT_NE(thrown.find(part), std::string::npos) << thrown;
        };
        refused({{"ids", arange(4)}}, {"deepspeed_ulysses_dl_adapter: ", "input_ids"});
        refused({{"input_ids", arange(3).reshape({1, 3})}},
                {"the length of sequences must be a multiple of sp_size: length 3, sp_size 2"});
        refused({{"input_ids", arange(4).reshape({1, 4})}, {"labels", ones({1, 6})}},
                {"'labels' must have the length of 'input_ids', 4: 'labels' is [1, 6]"});
    });
}

// --- losses

// Covers 17.SP.
TEST(MeanOverTokens, AveragesTheLossesOfRanksInProportionToTheirTokens) {
    // All tokens of the first part and of the last part are ignored.
    auto whole = tests::model_of<nn::Gpt>(f64);
    const auto [ids, labels] = tests::sequences_of(0);
    labels.narrow(1, 0, 4).fill_(-100);
    labels.narrow(1, 12, 4).fill_(-100);
    const Tensor expected = whole.loss(ids, labels);
    expected.backward();
    const std::vector<Tensor> gradients = tests::gradients_of(whole);
    auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), 4);
    on_ranks(4, [&](const Group& group) {
        nn::Gpt& model = models[tests::at(group)];
        const dist::DataParallel replicas(model, group);
        const ForwardContextGuard context(std::make_shared<Ulysses>(group));
        const auto own = [&](const Tensor& x) { return x.narrow(1, group->rank() * 4, 4); };
        const Tensor count = ne(own(labels), -100).to(f64).sum();
        // The loss is computed from the sum, because the mean over no tokens is NaN.
        const Tensor each = cross_entropy(model(own(ids)).reshape({-1, tests::kSequenceVocabulary}),
                                          own(labels).reshape({-1}), {.reduction = Reduction::sum});
        const Tensor loss =
            dist::mean_over_tokens(each / maximum(count, ones({}, {f64})), count, group);
        EXPECT_NEAR(loss.item(), expected.item(), 1e-12);
        loss.backward();
        tests::expect_gradients(model, gradients, 1e-12);
    });
}

TEST(MeanOverTokens, IgnoresLossesOfRanksWithoutTokensAndNeedsSingleElements) {
    on_ranks(2, [](const Group& group) {
        const bool has_tokens = group->rank() == 1;
        const Tensor loss =
            tensor(has_tokens ? 3.0 : std::numeric_limits<double>::quiet_NaN(), {f64})
                .set_requires_grad();
        const Tensor mean =
            dist::mean_over_tokens(loss, tensor(has_tokens ? 5.0 : 0.0, {f64}), group);
        EXPECT_EQ(mean.item(), 3);
        mean.backward();
        EXPECT_EQ(loss.grad().item(), has_tokens ? 2 : 0);  // the average over the ranks is 1
        expect_error<ShapeError>({"mean_over_tokens: loss and tokens must have one element"},
                                 [&] { dist::mean_over_tokens(ones({2}), ones({}), group); });
    });
}

}  // namespace
}  // namespace axle
