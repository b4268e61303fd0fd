// Tests metrics on one process: accepted updates, counting, and errors.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "accel/metrics.h"
#include "core/ops.h"
#include "tests/close.h"

namespace axle {
namespace {

using accel::Accuracy;
using accel::Average;
using accel::ConfusionMatrix;
using accel::F1;
using accel::Mean;
using accel::Perplexity;
using tests::expect_error;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

accel::AcceleratorOptions on_cpu() { return {.cpu = true}; }

TEST(Mean, AcceptsNumbersAndTensorsWithOptionalWeights) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    mean.update(2);
    mean.update(5, 3);
    EXPECT_EQ(mean.compute(), 17.0 / 4);
    mean.update(tensor({1.0, 2, 3, 4}, {2, 2}), tensor({1.0, 10}, {2}));
    EXPECT_EQ(mean.compute(), 90.0 / 26);
    mean.update(tensor({1.0, 2, 3, 4}, {2, 2}), tensor({1.0, 0, 0, 1}, {2, 2}));
    EXPECT_EQ(mean.compute(), 95.0 / 28);
    mean.update(full({}, 3.0), 2);
    mean.update(full({1}, 4.0));
    EXPECT_EQ(mean.compute(), 105.0 / 31);
}

TEST(Mean, IgnoresValuesOfWeightZero) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    mean.update(kNan, 0);
    expect_error<UsageError>({"Mean: nothing was counted", "weight above 0"},
                             [&] { mean.compute(); });
    mean.update(tensor({kNan, 2, INFINITY}, {3}), tensor({0.0, 1, 1}, {3}), 2);
    mean.update(zeros({0}));
    EXPECT_EQ(mean.compute(), 2);
    mean.update(kNan, 1);
    EXPECT_TRUE(std::isnan(mean.compute()));
}

TEST(Mean, SumsInF64) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    mean.update(full({}, 0x1p24), 1);
    for (int i = 0; i < 8; ++i) mean.update(ones({1}));
    EXPECT_EQ(mean.compute(), ((1 << 24) + 8) / 9.0);
    mean.reset();
    mean.update(full({4096}, 0.1, {bf16}));
    EXPECT_EQ(mean.compute(), full({1}, 0.1, {bf16}).item());
}

TEST(Perplexity, EqualsTheNumberOfClassesForUniformPredictions) {
    Accelerator accelerator(on_cpu());
    for (const DType t : {f64, f32, f16, bf16}) {
        Perplexity perplexity(accelerator);
        perplexity.update(full({2, 3, 50}, 0.5, {t}), full({2, 3}, 7, {i64}));
        EXPECT_NEAR(perplexity.compute(), 50, 1e-4) << t;
    }
}

TEST(Perplexity, CountsEachValidTokenOfARow) {
    Accelerator accelerator(on_cpu());
    const Tensor logits = tensor({0, 0, 0, 9, 9, 0, 0, 0}, {2, 2, 2}, {f64});
    const Tensor labels = tensor(std::vector<std::int64_t>{0, -1, 1, 1}, {2, 2});
    Perplexity perplexity(accelerator, -1);
    perplexity.update(logits, labels, 1);
    EXPECT_NEAR(perplexity.compute(), 2, 1e-12);
    perplexity.update(logits, labels);
    const double wrong = std::log1p(std::exp(9.0));
    EXPECT_NEAR(std::log(perplexity.compute()), (3 * std::log(2) + wrong) / 4, 1e-12);
}

TEST(Accuracy, PrefersTheLowerClassForEqualScores) {
    Accelerator accelerator(on_cpu());
    Accuracy one(accelerator), two(accelerator, {.top_k = 2});
    const Tensor scores = zeros({3, 3}), labels = arange(3);
    one.update(scores, labels);
    two.update(scores, labels);
    EXPECT_EQ(one.compute(), 1.0 / 3);
    EXPECT_EQ(two.compute(), 2.0 / 3);
}

TEST(Accuracy, IgnoresLabelsEqualToIgnoreIndex) {
    Accelerator accelerator(on_cpu());
    Accuracy accuracy(accelerator, {.ignore_index = 0});
    const auto ids = [](std::vector<std::int64_t> values) { return tensor(values, {2, 2}); };
    accuracy.update(ids({0, 1, 2, 0}), ids({0, 1, 1, 0}), 2);
    EXPECT_EQ(accuracy.compute(), 0.5);
    accuracy.update(ids({1, 1, 2, 2}), ids({1, 1, 2, 2}), 0);
    EXPECT_EQ(accuracy.compute(), 0.5);
}

TEST(ConfusionMatrix, AcceptsBooleansAndNarrowIntegers) {
    Accelerator accelerator(on_cpu());
    ConfusionMatrix confusion(accelerator, 2);
    const Tensor labels = ne(tensor({0, 1, 1}, {3}), 0);
    confusion.update(tensor({1, 1, 0}, {3}, {u8}), labels);
    confusion.update(to(labels, i32), labels);
    EXPECT_EQ(confusion.compute().to_vector(), (std::vector<double>{1, 1, 1, 3}));
}

TEST(Metric, IgnoresEmptyBatches) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    Perplexity perplexity(accelerator);
    Accuracy one(accelerator), two(accelerator, {.top_k = 2});
    ConfusionMatrix confusion(accelerator, 3);
    const auto update = [&](const Tensor& scores, const Tensor& labels) {
        mean.update(scores);
        perplexity.update(scores, labels);
        one.update(scores, labels);
        two.update(scores, labels);
        confusion.update(scores, labels);
        confusion.update(labels, labels);
    };
    update(zeros({0, 3}), zeros({0}, {i64}));
    update(zeros({0, 5, 3}), zeros({0, 5}, {i64}));
    update(zeros({2, 0, 3}), zeros({2, 0}, {i64}));
    EXPECT_EQ(confusion.compute().to_vector(), std::vector<double>(9, 0));
    EXPECT_EQ(confusion.compute(accel::Normalize::by_all).to_vector(), std::vector<double>(9, 0));
    update(ones({1, 3}), zeros({1}, {i64}));
    EXPECT_EQ(mean.compute(), 1);
    EXPECT_EQ(one.compute(), 1);
}

TEST(Metric, ThrowsWhenNothingWasCounted) {
    Accelerator accelerator(on_cpu());
    const auto throws = [](const char* name, auto&& compute) {
        expect_error<UsageError>({str(name, ": nothing was counted").c_str(), "update()"}, compute);
    };
    const Tensor scores = ones({2, 3}), ignored = full({2}, -100, {i64});
    Mean mean(accelerator);
    Perplexity perplexity(accelerator);
    Accuracy accuracy(accelerator);
    for (int round = 0; round < 2; ++round) {
        throws("Mean", [&] { mean.compute(); });
        throws("Perplexity", [&] { perplexity.compute(); });
        throws("Accuracy", [&] { accuracy.compute(); });
        for (const double zero_division : {0.0, 1.0, kNan})
            for (const Average average : {Average::micro, Average::macro, Average::weighted}) {
                F1 f1(accelerator, 3, {.average = average, .zero_division = zero_division});
                f1.update(scores, ignored);
                throws("F1", [&] { f1.compute(); });
                throws("F1", [&] { f1.per_class(); });
            }
        // compute() throws again, because these updates have only zero weights or ignored labels.
        mean.update(ones({2}), zeros({2}));
        perplexity.update(scores, ignored);
        accuracy.update(scores, ignored);
    }
    mean.update(3);
    EXPECT_EQ(mean.compute(), 3);
    mean.reset();
    throws("Mean", [&] { mean.compute(); });
}

TEST(Metric, KeepsNoAutogradGraph) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    const Tensor loss = ones({2}).set_requires_grad();
    mean.update(loss * 2);
    mean.update((loss * 3).sum(), 2);
    EXPECT_FALSE(mean.state_dict()["sums"].tensor().requires_grad());
    EXPECT_EQ(mean.compute(), 4);
}

// --- errors

TEST(Metric, RejectsInvalidUpdatesAndOptions) {
    Accelerator accelerator(on_cpu());
    Mean mean(accelerator);
    const Tensor rows = ones({3});
    expect_error<ShapeError>({"Mean: ", "[2]", "[3]"}, [&] { mean.update(rows, ones({2})); });
    expect_error<ShapeError>({"Mean: ", "one element", "[3]"}, [&] { mean.update(rows, 2.0); });
    expect_error<ValueError>({"Mean: ", "weight", "-1"}, [&] { mean.update(1, -1); });
    expect_error<ValueError>({"Mean: the number of valid rows", "[0, 3]: 4"},
                             [&] { mean.update(rows, {}, 4); });
    expect_error<ShapeError>({"Mean: ", "[3]: mask [2]"},
                             [&] { mean.update(rows, {}, ne(ones({2}), 0)); });
    expect_error<DTypeError>({"Mean: ", "bool", "float32"}, [&] { mean.update(rows, {}, rows); });
    expect_error<ShapeError>({"Mean: ", "rows"}, [&] { mean.update(full({}, 1.0), {}, 1); });

    Accuracy accuracy(accelerator);
    const Tensor labels = arange(3);
    expect_error<ShapeError>({"Accuracy: ", "[2, 4]", "[3]"}, [&] {
        accuracy.update(ones({2, 4}), labels);
    });
    expect_error<DTypeError>({"Accuracy: ", "float32"}, [&] { accuracy.update(rows, labels); });
    expect_error<DTypeError>({"Accuracy: labels", "float32"}, [&] {
        accuracy.update(ones({3, 4}), rows);
    });
    expect_error<DTypeError>({"Accuracy: scores", "int64"}, [&] {
        accuracy.update(zeros({3, 4}, {i64}), labels);
    });
    expect_error<ValueError>({"Accuracy: top_k", "0"},
                             [&] { Accuracy(accelerator, {.top_k = 0}); });
    Accuracy top(accelerator, {.top_k = 5});
    expect_error<ValueError>(
        {"Accuracy: top_k must be at most", "top_k 5, predictions are scores [3, 4]"}, [&] {
            top.update(ones({3, 4}), labels);
        });
    expect_error<ValueError>(
        {"Accuracy: top_k must be at most", "top_k 5, predictions are classes"},
        [&] { top.update(labels, labels); });

    Perplexity perplexity(accelerator);
    expect_error<ShapeError>({"Perplexity: ", "logits"},
                             [&] { perplexity.update(labels, labels); });
    F1 f1(accelerator, 3);
    expect_error<ShapeError>({"F1: ", "3 classes", "[3, 4]"}, [&] {
        f1.update(ones({3, 4}), labels);
    });
    expect_error<ValueError>({"F1: ", "class"}, [&] { F1(accelerator, 0); });
    expect_error<ValueError>({"F1: average binary needs num_classes 2", "num_classes 3"},
                             [&] { F1(accelerator, 3, {.average = Average::binary}); });
    expect_error<ValueError>({"F1: zero_division", "0.5"},
                             [&] { F1(accelerator, 3, {.zero_division = 0.5}); });
}

TEST(Metric, RejectsClassesOutOfRange) {
    Accelerator accelerator(on_cpu());
    ConfusionMatrix confusion(accelerator, 3);
    Accuracy accuracy(accelerator);
    const auto ids = [](std::vector<std::int64_t> values) { return tensor(values, {2}); };
    const Tensor scores = ones({2, 3});
    expect_error<IndexError>({"Accuracy: a label", "must be in [0, 3): 3"}, [&] {
        accuracy.update(scores, ids({0, 3}));
    });
    expect_error<IndexError>({"ConfusionMatrix: a label", ": -1"}, [&] {
        confusion.update(scores, ids({-1, 0}));
    });
    expect_error<IndexError>({"ConfusionMatrix: a prediction", ": 5"}, [&] {
        confusion.update(ids({0, 5}), ids({1, 1}));
    });
    Perplexity perplexity(accelerator);
    expect_error<IndexError>({"", ": 4"}, [&] { perplexity.update(scores, ids({4, 0})); });
    // Ignored rows can have any class.
    confusion.update(ids({0, 5}), ids({1, 7}), 1);
    confusion.update(ids({9, 0}), ids({-100, 0}));
    EXPECT_EQ(confusion.compute().sum().item(), 2);
}

TEST(Metric, RejectsStateDictsWithDifferentOptionsOrShapes) {
    Accelerator accelerator(on_cpu());
    F1 three(accelerator, 3), four(accelerator, 4);
    expect_error<ValueError>({"F1: ", "num_classes=3", "num_classes=4"},
                             [&] { four.load_state_dict(three.state_dict()); });
    expect_error<ValueError>({"F1: ", "[9]", "[2]"}, [&] {
        three.load_state_dict(
            Tree{{"metric", three.state_dict()["metric"]}, {"sums", zeros({2}, {i64})}});
    });
}

}  // namespace
}  // namespace axle
