#include "dist/sequence/context_parallel.h"

#include <cmath>
#include <map>
#include <string>

#include "core/profiler/profiler.h"
#include "tests/dist/sequence/sequences.h"

namespace axle {
namespace {

using dist::ContextExchange;
using dist::ContextParallel;
using dist::ContextParallelScope;
using nn::PositionRange;
using tests::expect_close;
using tests::expect_error;
using tests::expect_whole_attention;
using tests::Group;
using tests::kSequenceLength;
using tests::kSequences;
using tests::on_ranks;

constexpr ContextExchange kExchanges[] = {ContextExchange::all_gather, ContextExchange::ring};

template <class Model>
void expect_same_training(DType dtype, double tolerance) {
    for (const ContextExchange exchange : kExchanges)
        tests::expect_same_training<Model>(dtype, tolerance, [&](const Group& group) {
            return tests::context_parts(group, exchange);
        });
}

// Covers 17.CP.
TEST(ContextParallel, TrainsGptLikeOneProcess) {
    expect_same_training<nn::Gpt>(f64, 1e-9);
    expect_same_training<nn::Gpt>(f32, 1e-4);
}

// Covers 17.CP.
TEST(ContextParallel, TrainsLlamaLikeOneProcess) {
    expect_same_training<nn::Llama>(f64, 1e-9);
    expect_same_training<nn::Llama>(f32, 1e-4);
}

// Covers 17.CP.
TEST(ContextParallel, TrainsBertLikeOneProcess) {
    expect_same_training<nn::BertForMaskedLM>(f64, 1e-9);
    expect_same_training<nn::BertForMaskedLM>(f32, 1e-4);
}

// Covers 17.CP, 17.cp_handler.
TEST(ContextParallel, ComputesAttentionToTheWholeSequence) {
    for (const int size : {1, 2, 3, 4, 6, 8})
        on_ranks(size, [](const Group& group) {
            for (const ContextExchange exchange : kExchanges)
                for (const bool causal : {false, true})
                    for (const std::int64_t groups : {4, 2, 1}) {
                        ContextParallel policy(group, exchange);
                        const AttentionOptions options{.causal = causal, .scale = 0.7};
                        expect_whole_attention(policy, 4, groups, options, f64, 1e-12);
                        expect_whole_attention(policy, 4, groups, options, f32, 1e-5);
                        expect_whole_attention(policy, 4, groups, options, bf16, 0.03);
                    }
        });
}

TEST(ContextParallel, DividesSequencesEvenlyFromHeadAndTailAndRejectsOtherLengths) {
    using Ranges = std::vector<PositionRange>;
    EXPECT_EQ(dist::head_tail_positions(16, 0, 4), (Ranges{{0, 2}, {14, 2}}));
    EXPECT_EQ(dist::head_tail_positions(16, 3, 4), (Ranges{{6, 2}, {8, 2}}));
    EXPECT_EQ(dist::head_tail_positions(4, 0, 1), (Ranges{{0, 2}, {2, 2}}));
    expect_error<ValueError>({"context parallel: the length of sequences must be a multiple of 8, "
                              "twice the number of processes: 12"},
                             [] { dist::head_tail_positions(12, 0, 4); });
    // Causal attention is equally expensive on all ranks.
    for (int rank = 0; rank < 4; ++rank) {
        std::int64_t keys = 0;
        for (const auto& [begin, count] : dist::head_tail_positions(64, rank, 4))
            for (std::int64_t i = begin; i < begin + count; ++i) keys += i + 1;
        EXPECT_EQ(keys, 64 * 65 / 2 / 4);
    }
}

// Labels are shifted before sequences are divided. If each part were shifted, the last token of a
// chunk would get the label of another position.
TEST(ContextParallel, NeedsLabelsThatAreShiftedBeforeSequencesAreDivided) {
    auto whole = tests::model_of<nn::Gpt>(f64);
    const auto [ids, labels] = tests::sequences_of(0);
    const double expected = whole.loss(ids, labels).item();
    auto models = tests::clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[tests::at(group)];
        const auto policy = std::make_shared<ContextParallel>(group);
        const auto [own_ids, own_labels] = tests::sequences_of(0);
        const ContextParallelScope scope(policy, {own_ids, own_labels}, {1, 1});
        EXPECT_NEAR(tests::mean_over(group, model.loss(own_ids, own_labels)), expected, 1e-12);
        const Tensor late =
            cat({own_ids.narrow(1, 1, kSequenceLength / 2 - 1), own_ids.narrow(1, 0, 1)}, 1);
        EXPECT_GT(std::abs(tests::mean_over(group, model.loss(own_ids, late)) - expected), 1e-3);
    });
}

// Covers 17.CP.
TEST(ContextParallel, ExchangesKeysValuesAndTheirGradientsInEachLayer) {
    constexpr std::int64_t kLayers = 2, kHeads = 4, kHeadSize = 4;
    for (const int size : {2, 4})
        for (const ContextExchange exchange : kExchanges) {
            auto models = tests::clones_of(tests::model_of<nn::Gpt>(f64), size);
            profiler::start({.record_shapes = true});
            on_ranks(size, [&](const Group& group) {
                nn::Gpt& model = models[tests::at(group)];
                const auto policy = std::make_shared<ContextParallel>(group, exchange);
                const auto [ids, labels] = tests::sequences_of(0);
                const ContextParallelScope scope(policy, {ids, labels}, {1, 1});
                model.loss(ids, labels).backward();
            });
            std::map<std::string, std::int64_t> calls, elements;
            for (const profiler::Event& event : profiler::stop().events)
                if (event.category == profiler::Category::op && !event.operands.empty()) {
                    ++calls[event.name];
                    elements[event.name] += numel(event.operands.front());
                }
            // The number of elements in the keys and values of a rank.
            const std::int64_t part =
                2 * kSequences * kHeads * (kSequenceLength / size) * kHeadSize;
            if (exchange == ContextExchange::all_gather) {
                EXPECT_EQ(calls["all_gather_along"], kLayers * size);
                EXPECT_EQ(elements["all_gather_along"], kLayers * size * part);
                EXPECT_EQ(calls["reduce_scatter_along"], kLayers * size);
                EXPECT_EQ(elements["reduce_scatter_along"], kLayers * size * part * size);
            } else {
                // Keys and values are sent in both passes, and their gradients are sent back to
                // their rank.
                const std::int64_t transfers = 2 * (size - 1) + size;
                EXPECT_EQ(calls["ring_transfer"], kLayers * size * transfers);
                EXPECT_EQ(elements["ring_transfer"], kLayers * size * transfers * part);
                EXPECT_EQ(calls["all_gather_along"], 0);
            }
        }
}

// --- ContextParallelScope, and rejected attention

// Covers 3.maybe_context_parallel, 17.CP.
TEST(ContextParallelScope, DividesAndRestoresBuffers) {
    on_ranks(2, [](const Group& group) {
        const auto policy = std::make_shared<ContextParallel>(group);
        const Tensor ids = arange(16).reshape({2, 8}), table = arange(8);
        const Tensor whole_ids = ids.clone(), whole_table = table.clone(), alias = ids;
        const Tensor kept = arange(8);
        {
            const ContextParallelScope scope(policy, {ids, table, kept}, {-1, 0, 0}, {kept});
            const std::vector<std::int64_t> own = group->rank() == 0
                                                      ? std::vector<std::int64_t>{0, 1, 6, 7}
                                                      : std::vector<std::int64_t>{2, 3, 4, 5};
            EXPECT_EQ(alias.shape(), Shape({2, 4}));
            expect_close(table, tensor(own));
            expect_close(ids.select(0, 1), tensor(own) + 8);
            EXPECT_NE(nn::sequence_policy(), nullptr);
            EXPECT_EQ(nn::whole_length(4), 8);
        }
        EXPECT_EQ(nn::sequence_policy(), nullptr);
        expect_close(alias, whole_ids);
        expect_close(table, whole_table);
        EXPECT_EQ(kept.shape(), Shape({4}));
    });
}

// Covers 3.maybe_context_parallel.
TEST(ContextParallelScope, RejectsInvalidBuffersAndNestedScopes) {
    on_ranks(2, [](const Group& group) {
        const auto policy = std::make_shared<ContextParallel>(group);
        const Tensor ids = arange(8), odd = arange(6), weight = ones({8}).set_requires_grad();
        const auto open = [&](const std::vector<Tensor>& buffers,
                              const std::vector<std::int64_t>& dims,
                              const std::vector<Tensor>& no_restore = {}) {
            const ContextParallelScope scope(policy, buffers, dims, no_restore);
        };
        expect_error<ValueError>(
            {"maybe_context_parallel: buffers and buffer_seq_dims must have the "
             "same length: buffers 1, buffer_seq_dims 2"},
            [&] {
                open({ids}, {0, 0});
            });
        expect_error<ValueError>({"maybe_context_parallel: the length of buffer 1 along dimension "
                                  "0 must be a multiple of "
                                  "4, twice the number of processes: 6"},
                                 [&] {
                                     open({ids, odd}, {0, 0});
                                 });
        EXPECT_EQ(ids.shape(), Shape({8}));
        expect_error<ValueError>(
            {"maybe_context_parallel: no_restore_buffers has a tensor that is not in buffers"},
            [&] { open({ids}, {0}, {odd}); });
        expect_error<UsageError>({"maybe_context_parallel: buffer 0 requires a gradient"},
                                 [&] { open({weight}, {0}); });
        EXPECT_THROW(open({ids}, {1}), IndexError);
        const ContextParallelScope scope(policy, {}, {});
        expect_error<UsageError>({"maybe_context_parallel: sequences are already divided"},
                                 [&] { open({ids}, {0}); });
    });
}

TEST(ContextParallel, RejectsUnsupportedAttentionAndUnknownStrategies) {
    on_ranks(2, [](const Group& group) {
        ContextParallel policy(group);
        const Tensor q = ones({1, 2, 4, 8}), k = ones({1, 2, 6, 8});
        const Tensor mask = ones({1, 1, 1, 4}, {.dtype = boolean});
        expect_error<UsageError>(
            {"context parallel attention: queries and keys must be the same tokens"},
            [&] { policy.attend(q, k, k, {}); });
        expect_error<UsageError>(
            {"context parallel attention: masks are supported in causal attention only"},
            [&] { policy.attend(q, q, q, {.mask = mask}); });
        expect_close(policy.attend(q, q, q, {.mask = mask, .causal = true}), q);
        EXPECT_THROW(policy.attend(q, q, q, {.dropout_p = 2}), ValueError);
        expect_error<ValueError>({"cp_comm_strategy: must be allgather or alltoall: 'ring'"},
                                 [] { dist::context_exchange_of("ring"); });
        EXPECT_EQ(dist::context_exchange_of("alltoall"), ContextExchange::ring);
    });
}

}  // namespace
}  // namespace axle
