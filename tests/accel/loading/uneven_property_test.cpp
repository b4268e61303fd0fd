// Tests loops with a random number of batches on each process. Training in join_uneven_inputs must
// match training on one process. gather_for_metrics must return each sample of a dataset once.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/sgd.h"
#include "tests/accel/loading/loaders.h"
#include "tests/close.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using tests::Group;
using tests::Rows;

constexpr int kRanks = 4;

// Returns options with a time limit of 30 s. A rank that waits longer for the other ranks throws
// CommError.
dist::ProcessGroupOptions time_limit() { return tests::short_options(30'000); }

void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
    for (std::size_t rank = 0; rank < errors.size(); ++rank)
        EXPECT_EQ(tests::text_of(errors[rank]), "") << "on rank " << rank;
}

// --- join_uneven_inputs

struct Lengths {
    std::vector<int> batches;  // one element per rank
    int accumulation = 1;

    std::string text() const {
        return str("batches ", testing::PrintToString(batches), ", ", accumulation,
                   " micro-batches per update");
    }
};

// Returns `count` random elements. Draws a number k from 1 to 6 for each element. The ranks have
// random numbers of batches from 0 to k, or random choices from 0, 1, k and k + 1.
std::vector<Lengths> random_lengths(int count) {
    std::mt19937 random(14);
    const auto below = [&](int end) {
        return static_cast<int>(random() % static_cast<unsigned>(end));
    };
    std::vector<Lengths> all(static_cast<std::size_t>(count));
    for (Lengths& one : all) {
        const int k = 1 + below(6);
        const int edges[] = {0, 1, k, k + 1};
        const bool at_edges = below(2) == 0;
        for (int rank = 0; rank < kRanks; ++rank)
            one.batches.push_back(at_edges ? edges[below(4)] : below(k + 1));
        one.accumulation = 1 + below(4) / 3;
    }
    return all;
}

Tensor loss_of(nn::Mlp& model, int rank, int i) {
    return model(tensor({0.1 * rank + 1, 0.3 * i - 1, 0.2, rank * i - 0.5, 0.7}, {1, 5}, {f64}))
        .pow(2)
        .sum();
}

// Returns the model that one process trains with the batches of all ranks. An update has the
// gradients of the ranks with complete windows, divided by the number of all ranks.
nn::Mlp trained_alone(const Lengths& lengths) {
    nn::Mlp model = tests::small_mlp();
    optim::SGD sgd(model.parameters(), {.lr = 0.05});
    const int n = lengths.accumulation;
    const int longest = *std::max_element(lengths.batches.begin(), lengths.batches.end());
    for (int end = n; end <= longest; end += n) {
        sgd.zero_grad();
        for (int rank = 0; rank < kRanks; ++rank)
            for (int i = end - n; i < end; ++i)
                if (lengths.batches[static_cast<std::size_t>(rank)] >= end)
                    (loss_of(model, rank, i) / (n * kRanks)).backward();
        sgd.step();
    }
    return model;
}

void train_joined(const Group& group, const Lengths& lengths, nn::Mlp& model) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = lengths.accumulation, .cpu = true, .process_group = group});
    optim::SGD sgd(model.parameters(), {.lr = 0.05});
    accelerator.prepare(model, sgd);
    const auto joined = accelerator.join_uneven_inputs({&model});
    for (int i = 0; i < lengths.batches[static_cast<std::size_t>(group->rank())]; ++i) {
        auto scope = accelerator.accumulate(model);
        accelerator.backward(loss_of(model, group->rank(), i));
        sgd.step();
        sgd.zero_grad();
    }
}

TEST(JoinUnevenInputs, TrainsOnRandomNumbersOfBatchesLikeOneProcess) {
    const std::vector<Lengths> all = random_lengths(200);
    std::vector<nn::Mlp> expected;
    expected.reserve(all.size());
    for (const Lengths& lengths : all) expected.push_back(trained_alone(lengths));
    const auto initial = tests::clones_of(tests::small_mlp(), kRanks);
    expect_no_errors(tests::outcomes(
        kRanks,
        [&](const Group& group) {
            for (std::size_t i = 0; i < all.size(); ++i) {
                SCOPED_TRACE(all[i].text());
                nn::Mlp model = initial[static_cast<std::size_t>(group->rank())].clone();
                train_joined(group, all[i], model);
                for (std::size_t p = 0; p < model.parameters().size(); ++p)
                    tests::expect_close(model.parameters()[p].detach(),
                                        expected[i].parameters()[p].detach(), 1e-12);
            }
        },
        time_limit()));
}

// --- gather_for_metrics

class GatherForMetricsOnRanks : public testing::TestWithParam<int> {};

TEST_P(GatherForMetricsOnRanks, ReturnsEachSampleOnceForRandomSizes) {
    expect_no_errors(tests::outcomes(
        GetParam(),
        [](const Group& group) {
            std::mt19937 random(static_cast<unsigned>(group->size()));
            const auto below = [&](int end) {
                return static_cast<std::int64_t>(random() % static_cast<unsigned>(end));
            };
            for (int i = 0; i < 50; ++i) {
                const std::int64_t n = below(34), batch_size = 1 + below(5);
                const bool iterable = below(3) == 0, dispatches = below(2) == 0;
                const bool sized = below(2) == 0, splits = below(3) == 0;
                SCOPED_TRACE(str(n, " samples by ", batch_size, iterable ? ", iterable" : "",
                                 sized ? "" : ", unsized", dispatches ? ", dispatched" : "",
                                 splits ? ", split" : ""));
                Accelerator accelerator(tests::of_group(
                    group, {.split_batches = splits, .dispatch_batches = dispatches}));
                const auto loader = tests::loader_of_numbers(
                    n, iterable, {.batch_size = batch_size * (splits ? group->size() : 1)}, sized);
                accelerator.prepare(*loader);
                for (int pass = 0; pass < 2; ++pass) {
                    Rows rows, squares;
                    for (auto& batch : *loader) {
                        const Tree results = accelerator.gather_for_metrics(
                            Tree{{"rows", batch.tensor()}, {"squares", batch.tensor().pow(2)}});
                        for (const std::int64_t row : tests::rows_of(results["rows"]))
                            rows.push_back(row);
                        for (const std::int64_t square : tests::rows_of(results["squares"]))
                            squares.push_back(square);
                    }
                    EXPECT_EQ(rows, tests::range(0, n));
                    for (std::int64_t& row : rows) row *= row;
                    EXPECT_EQ(squares, rows);
                }
            }
        },
        time_limit()));
}

INSTANTIATE_TEST_SUITE_P(Processes, GatherForMetricsOnRanks, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace axle
