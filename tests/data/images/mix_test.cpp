#include "data/images/mix.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/losses.h"
#include "core/ops.h"
#include "core/shaping.h"
#include "data/images/random_numbers.h"
#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/augmentation.h"

namespace axle::data {
namespace {

using tests::augmentation_tensor;
using tests::expect_error;
using tests::expect_same_bits;
using tests::sample_randoms;

using Values = std::vector<double>;

TEST(Mix, EqualsTorchvisionForTheSameNumbers) {
    const auto cases = tests::augmentation("mixed");
    ASSERT_EQ(cases.size(), 4u);
    const Tensor images = augmentation_tensor("mix.images");
    const Tensor labels = one_hot(augmentation_tensor("mix.labels"), 3).to(f32);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(cases[i].dump());
        const double lambda = cases[i]["lambda"];
        const MixedBatch mixed = mixup(images, labels, lambda);
        expect_same_bits(mixed.images, augmentation_tensor(str("mixup.", i, ".images")));
        expect_same_bits(mixed.labels, augmentation_tensor(str("mixup.", i, ".labels")));
        const MixedBatch cut =
            cutmix(images, labels, cut_box({7, 10}, lambda, cases[i]["y"], cases[i]["x"]));
        expect_same_bits(cut.images, augmentation_tensor(str("cutmix.", i, ".images")));
        expect_same_bits(cut.labels, augmentation_tensor(str("cutmix.", i, ".labels")));
    }
}

// The variance of Beta(a, a) is 1 / (8 a + 4).
TEST(Mix, DrawsLambdaFromTheBetaDistribution) {
    for (const double alpha : {0.001, 0.2, 0.8, 1.0, 3.0, 1e6}) {
        SampleRandom random(SampleRandom::epoch_key(1, 0), 0);
        double sum = 0, squares = 0, central = 0;
        const int n = 20000;
        for (int i = 0; i < n; ++i) {
            const double x = beta_sample(random, alpha);
            ASSERT_TRUE(x >= 0 && x <= 1) << x;
            sum += x, squares += (x - 0.5) * (x - 0.5), central += x > 0.25 && x < 0.75;
        }
        const double variance = 1 / (8 * alpha + 4);
        EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(variance / n)) << alpha;
        EXPECT_NEAR(squares / n, variance, 0.03 * variance) << alpha;
        if (alpha == 1) {
            EXPECT_NEAR(central / n, 0.5, 0.02);
        }
    }
}

TEST(Mix, RecoversLambdaFromImagesAndLabels) {
    Tensor images = zeros({2, 1, 8, 8});
    images[0].fill_(1);
    for (std::int64_t i = 0; i < 20; ++i) {
        SampleRandom random(3, i), same(3, i);
        const MixedBatch mixed = MixUp(5, 0.5)(images, tensor(Values{4, 1}).to(i64), random);
        const auto lambda = beta_sample(same, 0.5);
        EXPECT_NEAR(mixed.images[0].mean().item(), lambda, 1e-6);
        EXPECT_NEAR(mixed.images[1].mean().item(), 1 - lambda, 1e-6);
        EXPECT_NEAR(mixed.labels[0][4].item(), lambda, 1e-6);
        EXPECT_NEAR(mixed.labels[0][1].item(), 1 - lambda, 1e-6);
        SampleRandom other(3, i);
        const MixedBatch cut = CutMix(5, 0.5)(images, tensor(Values{4, 1}).to(i64), other);
        EXPECT_NEAR(cut.images[0].mean().item(), cut.labels[0][4].item(), 1e-6);
        EXPECT_NEAR(cut.images[1].mean().item(), cut.labels[0][1].item(), 1e-6);
        EXPECT_NEAR(cut.labels.sum().item(), 2, 1e-6);
    }
}

TEST(CutMix, CutsBoxesAtTheBorders) {
    for (const double lambda : {0.0, 0.1, 0.5, 0.99, 1.0})
        for (std::int64_t y = 0; y < 7; ++y)
            for (std::int64_t x = 0; x < 9; ++x) {
                const CutBox box = cut_box({7, 9}, lambda, y, x);
                EXPECT_TRUE(0 <= box.top && box.top <= y && y <= box.bottom && box.bottom <= 7);
                EXPECT_TRUE(0 <= box.left && box.left <= x && x <= box.right && box.right <= 9);
            }
    const CutBox inner = cut_box({20, 40}, 0.75, 10, 20);
    EXPECT_EQ(inner.bottom - inner.top, 10);
    EXPECT_EQ(inner.right - inner.left, 20);
}

TEST(Mix, KeepsABatchOfOneImageAndSoftLabels) {
    SampleRandom random(1, 0);
    const Tensor image = augmentation_tensor("mix.images").narrow(0, 0, 1);
    for (const BatchTransform& transform : {BatchTransform(MixUp(3)), BatchTransform(CutMix(3))}) {
        const MixedBatch one = transform(image, tensor(Values{2}).to(i64), random);
        EXPECT_LT((one.images - image).abs().max().item(), 1e-6);
        EXPECT_LT((one.labels - tensor(Values{0, 0, 1}).to(f32)).abs().max().item(), 1e-6);
    }
    const Tensor images = cat({image, image});
    const Tensor soft = tensor(Values{0.5, 0.5, 0, 0, 0.25, 0.75}).to(f32).view({2, 3});
    EXPECT_EQ(MixUp(3)(images, soft, random).labels.shape(), (Shape{2, 3}));
    EXPECT_EQ(CutMix(3)(images.to(u8), soft, random).images.dtype(), u8);
}

TEST(Mix, GivesTargetsOfCrossEntropy) {
    const Tensor logits = augmentation_tensor("mix.images").flatten(1).slice(1, 0, 3);
    const Tensor classes = augmentation_tensor("mix.labels");
    const double lambda = 0.3;
    const Tensor soft =
        mixup(augmentation_tensor("mix.images"), one_hot(classes, 3).to(f32), lambda).labels;
    const double expected = lambda * cross_entropy(logits, classes).item() +
                            (1 - lambda) * cross_entropy(logits, roll(classes, 1, 0)).item();
    EXPECT_NEAR(cross_entropy(logits, soft).item(), expected, 1e-5);
}

TEST(Mix, RejectsInvalidArguments) {
    expect_error<ValueError>({"MixUp: num_classes must be at least 1: 0"}, [] { MixUp(0); });
    for (const double alpha : {0.0, -1.0, std::nan(""), 1e7})
        expect_error<ValueError>({"CutMix: alpha must be in (0, 1e6]"}, [&] { CutMix(3, alpha); });
    SampleRandom random(1, 0);
    const Tensor images = ones({2, 1, 4, 4}), labels = tensor(Values{0, 2}).to(i64);
    const MixUp mix(3);
    const CutMix cut(3);
    expect_error<ValueError>({"MixUp: classes must be in [0, 3): one is 3"},
                             [&] { mix(images, labels + 1, random); });
    expect_error<ValueError>({"CutMix: classes must be in [0, 3): one is -1"},
                             [&] { cut(images, labels - 1, random); });
    expect_error<ShapeError>({"MixUp: labels must be classes [n] or probabilities [n, 3]", "[3]"},
                             [&] { mix(images, ones({3}, {i64}), random); });
    expect_error<ShapeError>({"CutMix: labels must be classes [n]", "[2, 4] in float32"}, [&] {
        cut(images, ones({2, 4}), random);
    });
    expect_error<DTypeError>({"MixUp: classes must be integers: they are float32"},
                             [&] { mix(images, ones({2}), random); });
    expect_error<DTypeError>({"mixup: images must be floating: they are uint8"},
                             [&] { mix(images.to(u8), labels, random); });
    expect_error<ShapeError>({"CutMix: images must be [n, c, height, width]", "[2, 4, 4]"},
                             [&] { cut(images.squeeze(1), labels, random); });
    expect_error<IndexError>({"cutmix: the box must be in images of size [4, 4]", "[0, 5)"}, [&] {
        cutmix(images, ones({2, 3}), {0, 0, 5, 4});
    });
    const TensorDataset dataset({{"image", images}, {"label", labels}});
    expect_error<UsageError>({"MixedDataset: needs at least one transform"},
                             [&] { MixedDataset(dataset, {}); });
    expect_error<UsageError>({"MixedDataset: transform 1 is empty"}, [&] {
        MixedDataset(dataset, {mix, nullptr});
    });
}

// A dataset of 24 images, whose pixels are their labels.
TensorDataset numbered() {
    const Tensor labels = arange(24);
    return TensorDataset(
        {{"image", labels.to(f32).view({24, 1, 1, 1}) + zeros({24, 1, 6, 6})}, {"label", labels}});
}

TEST(MixedDataset, MixesEachBatchTheSameWayForAllNumbersOfWorkers) {
    const MixedDataset dataset(numbered(), {MixUp(24), CutMix(24)}, {.seed = 4});
    const auto batches = [&](int workers, std::int64_t skipped) {
        DataLoader loader(dataset,
                          {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 2});
        loader.skip_first_batches(skipped);
        std::vector<Values> all(static_cast<std::size_t>(skipped));
        for (int epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : loader) {
                const Tensor& images = batch["image"];
                const Tensor& labels = batch["label"];
                EXPECT_EQ(labels.shape(), (Shape{4, 24}));
                // The mean pixel is the mean class.
                const Tensor classes = (labels * arange(24).to(f32)).sum({1});
                EXPECT_LT((images.mean({1, 2, 3}) - classes).abs().max().item(), 1e-4);
                all.push_back(images.to_vector());
            }
        return all;
    };
    const auto expected = batches(0, 0);
    ASSERT_EQ(expected.size(), 12u);
    EXPECT_EQ(batches(3, 0), expected);
    const auto resumed = batches(2, 5);
    EXPECT_EQ(std::vector(resumed.begin() + 5, resumed.end()),
              std::vector(expected.begin() + 5, expected.end()));
}

TEST(MixedDataset, UsesAllTransformsAndOtherNumbersInEachEpoch) {
    int calls[2] = {};
    const auto counted = [&](int i) {
        return [&calls, i](const Tensor& images, const Tensor& labels, SampleRandom& random) {
            ++calls[i];
            return MixedBatch{images + random.uniform(), labels};
        };
    };
    const MixedDataset dataset(numbered(), {counted(0), counted(1)});
    for (std::int64_t i = 0; i < 24; ++i) dataset.get(i);
    EXPECT_EQ(calls[0] + calls[1], 24);
    EXPECT_TRUE(calls[0] > 4 && calls[1] > 4) << calls[0];
    const auto value = [](const Dataset& set) { return set.get(3)["image"].tensor().to_vector(); };
    EXPECT_EQ(value(*dataset.in_epoch(0)), value(dataset));
    EXPECT_NE(value(*dataset.in_epoch(1)), value(dataset));
    const MixedDataset other(numbered(), {counted(0), counted(1)}, {.seed = 1});
    EXPECT_NE(value(other), value(dataset));
}

TEST(MixedDataset, ReadsTheEpochOfItsDatasetAndReportsMissingEntries) {
    const TransformedDataset flipped(numbered(),
                                     [](const Tensor& images, std::span<SampleRandom> random) {
                                         return images + random[0].uniform();
                                     });
    const MixedDataset dataset(flipped, {MixUp(24)});
    EXPECT_EQ(dataset.size(), 24);
    const auto mean = [](const Dataset& set) { return set.get(0)["image"].tensor().mean().item(); };
    EXPECT_NEAR(mean(*dataset.in_epoch(1)), mean(*flipped.in_epoch(1)), 1e-6);
    EXPECT_EQ(dataset.get(2)["label"].tensor().shape(), (Shape{24}));
    const MixedDataset wrong(numbered(), {MixUp(24)}, {.label = "target"});
    expect_error<IndexError>({""}, [&] { wrong.get(0); });
}

}  // namespace
}  // namespace axle::data
