#include "data/images/auto_augment.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/ops.h"
#include "data/images/augmentation.h"
#include "data/loading/loader.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/images/augmentation.h"

namespace axle::data {
namespace {

using tests::augmentation_tensor;
using tests::changed;
using tests::expect_error;
using tests::expect_same_bits;
using tests::sample_randoms;

using Bytes = std::vector<double>;

// PyTorch's tables differ in the last bits between machines; with AVX2, one has 15.999999 instead
// of 16.
TEST(AutoAugment, HasTheMagnitudesOfTorchvision) {
    const auto tables = tests::augmentation("magnitudes");
    ASSERT_EQ(std::ssize(tables), 2 * 3 * kAugmentationOps);
    for (const auto& table : tables) {
        SCOPED_TRACE(table.dump());
        const auto op = static_cast<AugmentationOp>(table["op"]);
        const auto space =
            table["space"] == "wide" ? AugmentationSpace::wide : AugmentationSpace::narrow;
        const std::int64_t bins = table["bins"];
        const std::vector<double> values = table["values"];
        EXPECT_EQ(is_signed(op), table["signed"].get<bool>());
        for (std::int64_t i = 0; i < bins; ++i) {
            const double own =
                magnitude_of(op, space, i, bins, {table["size"][0], table["size"][1]});
            const double expected = values[static_cast<std::size_t>(i)];
            EXPECT_NEAR(own, expected, 2e-7 * expected + 4e-8) << i;
        }
    }
}

// Returns an image that every operation changes.
Tensor pale_image() {
    return changed(augmentation_tensor("large"), [](auto& x) { adjust_contrast(x, 0.5); });
}

// Returns all results of an operation with the magnitude at each index, or at one index.
std::set<Bytes> results_of(const Tensor& image, AugmentationOp op, AugmentationSpace space,
                           std::vector<std::int64_t> indices) {
    std::set<Bytes> results;
    for (const std::int64_t i : indices) {
        const double m = magnitude_of(op, space, i, 31, {image.size(1), image.size(2)});
        for (const double sign : {1.0, -1.0})
            if (sign == 1 || is_signed(op))
                results.insert(changed(image, [&](const ByteImage& x) {
                                   augment(x, op, sign * m);
                               }).to_vector());
    }
    return results;
}

TEST(TrivialAugmentWide, AppliesOneOperationWithOneOfItsMagnitudes) {
    const Tensor image = pale_image();
    std::vector<std::int64_t> all(31);
    for (std::size_t i = 0; i < 31; ++i) all[i] = static_cast<std::int64_t>(i);
    std::vector<std::set<Bytes>> possible;
    for (std::int64_t op = 0; op < kAugmentationOps; ++op)
        possible.push_back(
            results_of(image, static_cast<AugmentationOp>(op), AugmentationSpace::wide, all));
    auto random = sample_randoms(3000);
    const TrivialAugmentWide augment_wide;
    std::vector<int> counts(static_cast<std::size_t>(kAugmentationOps));
    std::set<Bytes> rotations;
    int unchanged = 0;
    for (SampleRandom& draw : random) {
        const Bytes result = augment_wide(image.unsqueeze(0), {&draw, 1}).to_vector();
        const bool same = result == image.to_vector();
        bool found = same;
        unchanged += same;
        for (std::size_t op = 0; op < counts.size() && !same; ++op)
            if (possible[op].contains(result)) {
                found = true, ++counts[op];
                if (op == static_cast<std::size_t>(AugmentationOp::rotate))
                    rotations.insert(result);
            }
        ASSERT_TRUE(found);
    }
    // Each operation has a probability of 1 / 14, without the magnitudes that change nothing.
    for (std::size_t op = 1; op < counts.size(); ++op)
        EXPECT_TRUE(counts[op] > 110 && counts[op] < 280) << op << ": " << counts[op];
    EXPECT_TRUE(unchanged > 3000 / 14 && unchanged < 2 * 3000 / 14) << unchanged;
    EXPECT_GT(rotations.size(), 55u) << "of 60 angles";
}

TEST(RandAugment, AppliesOperationsOfOneMagnitude) {
    const Tensor image = pale_image();
    std::map<Bytes, int> counts;
    for (std::int64_t op = 0; op < kAugmentationOps; ++op)
        for (const Bytes& result :
             results_of(image, static_cast<AugmentationOp>(op), AugmentationSpace::narrow, {20}))
            counts[result] = 0;
    ASSERT_EQ(counts.size(), 14u + 9) << "nine operations have a sign";
    auto random = sample_randoms(1500);
    const RandAugment once({.num_ops = 1, .magnitude = 20});
    for (SampleRandom& draw : random) {
        const Bytes result = once(image.unsqueeze(0), {&draw, 1}).to_vector();
        ASSERT_TRUE(counts.contains(result));
        ++counts[result];
    }
    for (const auto& [result, count] : counts)
        EXPECT_TRUE((count > 25 && count < 85) || (count > 70 && count < 150)) << count;
    EXPECT_GT(counts[image.to_vector()], 70);

    // Two operations equal two calls with one operation.
    auto two = sample_randoms(20), one = sample_randoms(20);
    const Tensor batch = cat(std::vector<Tensor>(20, image.unsqueeze(0)));
    const Tensor twice = RandAugment({.num_ops = 2, .magnitude = 20})(batch, two);
    expect_same_bits(twice, once(once(batch, one), one));
    expect_same_bits(RandAugment({.num_ops = 0})(batch, two), batch);
}

TEST(AutoAugment, KeepsShapesAndAcceptsGrayImagesAndFrames) {
    for (const Transform& transform : {Transform(TrivialAugmentWide(5)), Transform(RandAugment())})
        for (const Shape& shape : {Shape{30, 1, 7, 9}, Shape{30, 3, 9, 7}, Shape{30, 6, 5},
                                   Shape{30, 2, 3, 6, 6}, Shape{30, 3, 1, 1}, Shape{30, 3, 0, 4}}) {
            auto random = sample_randoms(30);
            EXPECT_EQ(transform(full(shape, 9, {.dtype = u8}), random).shape(), shape);
        }
}

TEST(AutoAugment, RejectsInvalidArguments) {
    expect_error<ValueError>({"TrivialAugmentWide: num_magnitude_bins must be in [2, 1048576]: 1"},
                             [] { TrivialAugmentWide(1); });
    expect_error<ValueError>({"RandAugment: num_ops must be in [0, 1000]: -1"},
                             [] { RandAugment({.num_ops = -1}); });
    expect_error<ValueError>(
        {"RandAugment: magnitude must be in [0, num_magnitude_bins): it is 31"},
        [] { RandAugment({.magnitude = 31}); });
    auto random = sample_randoms(1);
    for (const auto& [name, transform] :
         {std::pair("TrivialAugmentWide", Transform(TrivialAugmentWide())),
          std::pair("RandAugment", Transform(RandAugment()))}) {
        expect_error<DTypeError>({name, ": images must be uint8: they are float32"}, [&] {
            transform(ones({1, 3, 4, 4}), random);
        });
        expect_error<ShapeError>({name, "1 or 3 channels", "[1, 2, 4, 4]"}, [&] {
            transform(ones({1, 2, 4, 4}, {u8}), random);
        });
        expect_error<ShapeError>({name, "sides of at most 4194303", "[1, 1, 1, 4194304]"}, [&] {
            transform(zeros({1, 1, 1, kLongestWarpedSide + 1}, {u8}), random);
        });
        expect_error<UsageError>({name, "needs one SampleRandom per image: 2 images, 1 given"},
                                 [&] {
                                     transform(ones({2, 3, 4, 4}, {u8}), random);
                                 });
    }
}

// The batches of a loader depend on seed and epoch, not on the workers or on a resumed position.
TEST(AutoAugment, GivesTheSameBatchesForAllNumbersOfWorkers) {
    const Tensor images = cat(std::vector<Tensor>(24, augmentation_tensor("rgb").unsqueeze(0)));
    const TransformedDataset dataset(TensorDataset({{"image", images}}),
                                     Compose({TrivialAugmentWide(), RandAugment()}), {.seed = 8});
    const auto batches = [&](int workers, std::int64_t skipped) {
        DataLoader loader(dataset,
                          {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 2});
        loader.skip_first_batches(skipped);
        std::vector<Bytes> all(static_cast<std::size_t>(skipped));
        for (int epoch = 0; epoch < 2; ++epoch)
            for (auto& batch : loader) all.push_back(batch["image"].tensor().to_vector());
        return all;
    };
    const auto expected = batches(0, 0);
    ASSERT_EQ(expected.size(), 12u);
    EXPECT_NE(expected[0], expected[6]) << "both epochs have the same images";
    EXPECT_EQ(batches(3, 0), expected);
    const auto resumed = batches(2, 2);
    EXPECT_EQ(std::vector(resumed.begin() + 2, resumed.end()),
              std::vector(expected.begin() + 2, expected.end()));
}

}  // namespace
}  // namespace axle::data
