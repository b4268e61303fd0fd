// Compares metrics on 1 to 4 processes with scikit-learn, also if batches are filled up with
// duplicates.
#include "accel/metrics.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "data/loading/loader.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers
using accel::Accuracy;
using accel::Average;
using accel::ClassScores;
using accel::ConfusionMatrix;
using accel::F1;
using accel::Mean;
using accel::Normalize;
using accel::Perplexity;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns options for one process on the CPU, or for a rank of `group`.
accel::AcceleratorOptions on_cpu(std::shared_ptr<dist::ProcessGroup> group = nullptr) {
    return {.cpu = true, .process_group = std::move(group)};
}

double number(const json& value) { return value.is_null() ? kNan : value.get<double>(); }

// Expects that two numbers differ by at most `tolerance`. NaN equals NaN.
void expect_near(double actual, double expected, double tolerance = 1e-12) {
    if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(actual)) << actual;
    else
        EXPECT_NEAR(actual, expected, tolerance);
}
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) expect_near(actual[i], expected[i]);
}

std::vector<double> flat(const json& rows) {
    std::vector<double> all;
    for (const json& row : rows)
        for (const json& value : row) all.push_back(number(value));
    return all;
}

struct Samples {
    Tensor scores, labels;  // [rows, classes], [rows]
};

Samples samples_of(const json& c) {
    const auto labels = c["labels"].get<std::vector<std::int64_t>>();
    const auto rows = static_cast<std::int64_t>(labels.size());
    return {tensor(flat(c["scores"]), {rows, c["classes"].get<std::int64_t>()}, {f64}),
            tensor(labels, {rows})};
}

// Calls f(scores, labels, valid) with this rank's part of the samples, in batches with a random
// number of samples that count, including 0. Batches can also contain samples that do not count,
// at the end or, if `valid` is a mask, anywhere.
template <class F>
void feed(const Samples& all, const dist::ProcessGroup& group, unsigned seed, F&& f) {
    std::mt19937 random(seed);  // all ranks use the same batch sizes
    const std::int64_t rows = all.labels.size(0);
    std::int64_t done = 0;
    for (int number = 0; done < rows; ++number) {
        const std::int64_t counted = std::min<std::int64_t>(rows - done, random() % 5);
        const std::int64_t repeated = random() % 4 + (counted == 0 ? 1 : 0);
        const bool masked = random() % 2 == 0;
        std::vector<std::int64_t> order;
        std::vector<double> counts;
        for (std::int64_t i = 0; i < counted + repeated; ++i) {
            order.push_back(i < counted ? done + i : random() % rows);
            counts.push_back(i < counted ? 1 : 0);
        }
        if (masked) {
            std::rotate(order.begin(), order.begin() + counted / 2, order.end());
            std::rotate(counts.begin(), counts.begin() + counted / 2, counts.end());
        }
        done += counted;
        if (number % group.size() != group.rank()) continue;
        const Shape shape{counted + repeated};
        const Tensor which = tensor(order, shape);
        f(index_select(all.scores, 0, which), index_select(all.labels, 0, which),
          masked ? accel::ValidRows(ne(tensor(counts, shape), 0)) : accel::ValidRows(counted));
    }
}

// --- comparison with scikit-learn

accel::F1Options options_of(const json& row) {
    const std::string average = row["average"].is_null() ? "" : row["average"];
    accel::F1Options options{.zero_division = number(row["zero_division"])};
    if (average.starts_with("binary"))
        options.average = Average::binary, options.positive = average.back() - '0';
    if (average == "micro") options.average = Average::micro;
    if (average == "weighted") options.average = Average::weighted;
    return options;
}

void expect_recorded_scores(const std::shared_ptr<dist::ProcessGroup>& group, const json& c) {
    Accelerator accelerator(on_cpu(group));
    F1 counting(accelerator, c["classes"]);
    feed(samples_of(c), *group, 5,
         [&](const Tensor& scores, const Tensor& labels, const accel::ValidRows& valid) {
             counting.update(scores.argmax(-1), labels, valid);
         });
    const Tree state = counting.state_dict();
    for (const json& row : c["precision_recall_f1"]) {
        F1 f1(accelerator, c["classes"], options_of(row));
        f1.load_state_dict(state);
        std::vector<double> values;
        for (const ClassScores& scores :
             row["average"].is_null() ? f1.per_class() : std::vector{f1.scores()})
            values.insert(values.end(), {scores.precision, scores.recall, scores.f1});
        SCOPED_TRACE(row.dump());
        expect_near(values, flat(row["values"]));
    }
    EXPECT_EQ(counting.compute(), counting.scores().f1);
}

void expect_recorded(const std::shared_ptr<dist::ProcessGroup>& group, const json& c,
                     unsigned seed) {
    Accelerator accelerator(on_cpu(group));
    const Samples samples = samples_of(c);
    ConfusionMatrix confusion(accelerator, c["classes"]);
    Perplexity perplexity(accelerator);
    feed(samples, *group, seed,
         [&](const Tensor& scores, const Tensor& labels, const accel::ValidRows& valid) {
             confusion.update(scores, labels, valid);
             perplexity.update(scores, labels, valid);
         });
    expect_near(std::log(perplexity.compute()), c["log_loss"]);
    const Tensor counts = confusion.compute();
    EXPECT_EQ(counts.dtype(), i64);
    expect_near(counts.to_vector(), flat(c["confusion"]["none"]));
    expect_near(confusion.compute(Normalize::by_label).to_vector(), flat(c["confusion"]["true"]));
    expect_near(confusion.compute(Normalize::by_prediction).to_vector(),
                flat(c["confusion"]["pred"]));
    expect_near(confusion.compute(Normalize::by_all).to_vector(), flat(c["confusion"]["all"]));
    for (const auto& [k, expected] : c["accuracy"].items()) {
        Accuracy accuracy(accelerator, {.top_k = std::stoi(k)});
        feed(samples, *group, seed,
             [&](const Tensor& scores, const Tensor& labels, const accel::ValidRows& valid) {
                 accuracy.update(scores, labels, valid);
             });
        EXPECT_EQ(accuracy.compute(), expected.get<double>()) << "top " << k;
    }
}

class Metrics : public testing::TestWithParam<int> {};

TEST_P(Metrics, MatchScikitLearn) {
    const json record = golden_json("metrics.json");
    ASSERT_GE(record["cases"].size(), 8u);
    on_ranks(GetParam(), [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        for (const json& c : record["cases"]) {
            SCOPED_TRACE(c["labels"].dump());
            for (const unsigned seed : {1u, 2u}) expect_recorded(group, c, seed);
            expect_recorded_scores(group, c);
        }
    });
}

// --- independence of the division of samples

TEST_P(Metrics, DoNotDependOnHowRowsAreDividedBetweenProcesses) {
    std::mt19937 random(11);
    std::vector<double> values;
    std::vector<std::int64_t> classes;
    for (int i = 0; i < 60 * 3 * 4; ++i)
        values.push_back(std::sin(i * 1.7) * std::pow(10.0, static_cast<int>(random() % 7) - 3));
    for (int i = 0; i < 60 * 3; ++i) classes.push_back(random() % 9 == 0 ? -100 : random() % 4);
    const Samples samples = {tensor(values, {60, 3, 4}, {f64}), tensor(classes, {60, 3})};
    const auto results = [&](const std::shared_ptr<dist::ProcessGroup>& group, bool cut) {
        Accelerator accelerator(on_cpu(group));
        Mean mean(accelerator), weighted(accelerator);
        Perplexity perplexity(accelerator);
        Accuracy accuracy(accelerator, {.top_k = 2});
        const auto update = [&](const Tensor& scores, const Tensor& labels,
                                const accel::ValidRows& valid) {
            mean.update(scores, {}, valid);
            weighted.update(scores, labels.to(f64).sum({1}).abs(), valid);
            perplexity.update(scores, labels, valid);
            accuracy.update(scores, labels, valid);
        };
        if (cut)
            feed(samples, *group, 7, update);
        else
            update(samples.scores, samples.labels, {});
        return std::vector{mean.compute(), weighted.compute(), std::log(perplexity.compute()),
                           accuracy.compute()};
    };
    const std::vector<double> whole = results(dist::ProcessGroup::alone(), false);
    on_ranks(GetParam(), [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        const std::vector<double> parts = results(group, true);
        ASSERT_EQ(parts.size(), whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i)
            EXPECT_NEAR(parts[i], whole[i], 1e-12 * (1 + std::abs(whole[i]))) << i;
        EXPECT_EQ(parts.back(), whole.back());
        const std::vector<Tree> all = group->all_gather_object(Tree::list(
            {parts[0], parts[1], parts[2], parts[3]}));  // all ranks must have the same bits
        for (const Tree& other : all)
            for (std::size_t i = 0; i < parts.size(); ++i)
                EXPECT_EQ(other[i].number(), parts[i]) << i;
    });
}

// even_batches fills batches with duplicates, which metrics must not count.
// Covers 30.4.
TEST_P(Metrics, IgnoreRowsThatAPreparedLoaderRepeats) {
    on_ranks(GetParam(), [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        for (const std::int64_t rows : {1, 4, 10, 13}) {
            for (const bool split : {false, true}) {
                SCOPED_TRACE(str(rows, " rows", split ? ", split" : ""));
                accel::AcceleratorOptions options = on_cpu(group);
                options.split_batches = split;
                Accelerator accelerator(options);
                const data::TensorDataset dataset(Tree{{"x", arange(rows, {i64})}});
                data::DataLoader loader(dataset, {.batch_size = split ? 12 : 3});
                Mean mean(accelerator);
                ConfusionMatrix seen(accelerator, rows);
                for (auto& batch : accelerator.prepare(loader)) {
                    const Tensor& x = batch["x"];
                    mean.update(x);
                    seen.update(x, x);
                }
                EXPECT_EQ(mean.compute(), static_cast<double>(rows - 1) / 2);
                expect_same_bits(seen.compute(), one_hot(arange(rows), rows));
            }
        }
    });
}

TEST_P(Metrics, ContinueFromAStateDictOfTwoProcessesUntilReset) {
    Tree state;
    on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        Accelerator accelerator(on_cpu(group));
        Mean mean(accelerator);
        mean.update(group->rank() == 0 ? 1 : 4, group->rank() == 0 ? 2 : 1);
        const Tree whole = mean.state_dict();
        if (group->rank() == 0) state = whole;
    });
    on_ranks(GetParam(), [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        Accelerator accelerator(on_cpu(group));
        Mean mean(accelerator);
        mean.update(1000 + group->rank());
        mean.load_state_dict(state);
        EXPECT_EQ(mean.compute(), 2);
        mean.update(7, 3);
        const double n = group->size();
        EXPECT_DOUBLE_EQ(mean.compute(), (6 + 21 * n) / (3 + 3 * n));
        mean.reset();
        expect_error<UsageError>({"Mean: nothing was counted"}, [&] { mean.compute(); });
    });
}

INSTANTIATE_TEST_SUITE_P(Processes, Metrics, testing::Values(1, 2, 3, 4));

TEST(Metric, ThrowsOnAllRanksWhenNumbersOfClassesDiffer) {
    const auto errors = outcomes(3, [](const std::shared_ptr<dist::ProcessGroup>& group) {
        Accelerator accelerator(on_cpu(group));
        ConfusionMatrix confusion(accelerator, group->rank() == 2 ? 4 : 3);
        confusion.update(arange(3), arange(3));
        confusion.compute();
    });
    for (const std::exception_ptr& error : errors)
        expect_error<ValueError>(
            {"ConfusionMatrix: ", "num_classes=3", "on process 0", "num_classes=4", "on process 2"},
            [&] { std::rethrow_exception(error); });
}

}  // namespace
}  // namespace axle
