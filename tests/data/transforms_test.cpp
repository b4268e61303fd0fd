#include "data/transforms.h"

#include <cfenv>
#include <cmath>
#include <map>

#include "core/ops.h"
#include "data/files/npy.h"
#include "data/loading/collate.h"
#include "data/loading/loader.h"
#include "tests/close.h"
#include "tests/data/files/damage.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using Values = std::vector<double>;

Tensor golden(const std::string& name) { return load_npy(tests::golden_image(name + ".npy")); }

std::vector<SampleRandom> draws(std::int64_t n, std::uint64_t seed = 1, std::int64_t epoch = 0) {
    std::vector<SampleRandom> random;
    for (std::int64_t i = 0; i < n; ++i)
        random.emplace_back(SampleRandom::epoch_key(seed, epoch), i);
    return random;
}

Tensor apply(const Transform& transform, const Tensor& images, std::uint64_t seed = 1) {
    auto random = draws(images.size(0), seed);
    return transform(images, random);
}

// Returns n u8 images of shape [c, h, w] with as many different pixel values as possible.
Tensor pixels(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    return arange(n * c * h * w).reshape({n, c, h, w}).to(u8);
}

TEST(Transforms, MatchTorchvision) {
    const Tensor images = golden("images");
    expect_same_bits(ToFloat()(images), golden("to_float"));
    const Normalize normalize({0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616});
    expect_same_bits(normalize(golden("to_float")), golden("normalize"));
    expect_same_bits(apply(RandomHorizontalFlip(1), images), golden("flip"));
    for (const Size2 size : {Size2(3, 3), Size2(4, 5), Size2(2, 3), Size2(5, 6), Size2(7, 9),
                             Size2(8, 3), Size2(1, 8)})
        expect_same_bits(CenterCrop(size)(images),
                         golden(str("center_crop_", size.h, "_", size.w)));
}

TEST(CenterCrop, RoundsHalfOffsetsToEvenInEveryFloatingPointRoundingMode) {
    const Tensor row = arange(8).to(f32).view({1, 1, 1, 8});
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        const Tensor seven = CenterCrop({1, 7})(row), five = CenterCrop({1, 5})(row);
        std::fesetround(FE_TONEAREST);
        EXPECT_EQ(seven.to_vector()[0], 0) << mode;  // 0.5 is rounded to 0
        EXPECT_EQ(five.to_vector()[0], 2) << mode;   // 1.5 is rounded to 2
    }
}

TEST(Transforms, AcceptStridedImagesNumericDTypesAndOtherNumbersOfDimensions) {
    const Tensor images = golden("images");
    const Tensor strided = images.permute({3, 1, 0, 2}).contiguous().permute({2, 1, 3, 0});
    ASSERT_FALSE(strided.is_contiguous());
    expect_same_bits(ToFloat()(strided), golden("to_float"));
    expect_same_bits(CenterCrop(3)(strided), golden("center_crop_3_3"));
    for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8}) {
        expect_same_bits(apply(RandomHorizontalFlip(1), images.to(dtype)),
                         golden("flip").to(dtype));
        expect_same_bits(CenterCrop({7, 9})(images.to(dtype)), golden("center_crop_7_9").to(dtype));
    }
    EXPECT_EQ(ToFloat()(ones({1, 2, 2}, {f16})).dtype(), f32);
    EXPECT_EQ(ToFloat()(ones({1, 2, 2}, {f64})).to_vector(), (Values{1, 1, 1, 1}));
    // Crops change only the last two dimensions. Images can have no dimension of channels, or
    // several frames.
    EXPECT_EQ(CenterCrop(2)(pixels(3, 1, 4, 4).squeeze(1)).shape(), (Shape{3, 2, 2}));
    EXPECT_EQ(apply(RandomCrop(2), ones({3, 5, 2, 4, 4})).shape(), (Shape{3, 5, 2, 2, 2}));
    EXPECT_EQ(Normalize({0.5}, {0.25})(ones({1, 3, 1, 1})).to_vector(), (Values{2, 2, 2}));
    EXPECT_EQ(apply(RandomCrop(2), ones({0, 3, 4, 4})).shape(), (Shape{0, 3, 2, 2}));
    EXPECT_EQ(apply(RandomHorizontalFlip(), ones({0, 3, 4, 4})).shape(), (Shape{0, 3, 4, 4}));
}

TEST(RandomCrop, DrawsEveryWindowEquallyOften) {
    const Tensor image = pixels(1, 2, 4, 5);
    constexpr std::int64_t kImages = 9000;
    const Tensor crops = apply(RandomCrop({3, 6}, {.padding = {1, 2}, .fill = 200}),
                               image.expand({kImages, 2, 4, 5}).contiguous());
    ASSERT_EQ(crops.shape(), (Shape{kImages, 2, 3, 6}));
    // The padded image has 6 x 9 pixels and 4 x 4 possible windows.
    Tensor padded = full({2, 6, 9}, 200, {u8});
    padded.narrow(1, 1, 4).narrow(2, 2, 5).copy_(image[0]);
    std::map<Values, int> hits;
    for (std::int64_t top = 0; top < 4; ++top)
        for (std::int64_t left = 0; left < 4; ++left)
            hits[padded.narrow(1, top, 3).narrow(2, left, 6).to_vector()] = 0;
    ASSERT_EQ(hits.size(), 16u);
    for (std::int64_t i = 0; i < kImages; ++i) ++hits[crops[i].to_vector()];
    ASSERT_EQ(hits.size(), 16u);
    for (const auto& [window, n] : hits) EXPECT_NEAR(n, kImages / 16.0, 100);
    // The padding may be larger than the image.
    EXPECT_EQ(apply(RandomCrop(1, {.padding = 9}), ones({500, 1, 1, 1})).shape(),
              (Shape{500, 1, 1, 1}));
}

TEST(RandomHorizontalFlip, FlipsImagesOfEveryWidth) {
    for (std::int64_t width = 1; width <= 25; ++width) {
        const Tensor images = pixels(2, 3, 2, width);
        expect_same_bits(apply(RandomHorizontalFlip(1), images), flip(images, {-1}));
    }
}

TEST(RandomHorizontalFlip, FlipsWithGivenProbability) {
    const Tensor images = pixels(1, 1, 1, 2).expand({10000, 1, 1, 2}).contiguous();
    const auto flipped = [&](double p) {
        return apply(RandomHorizontalFlip(p), images).select(-1, 0).sum().item();
    };
    EXPECT_EQ(flipped(0), 0);
    EXPECT_EQ(flipped(1), 10000);
    EXPECT_NEAR(flipped(0.5), 5000, 200);
    EXPECT_NEAR(flipped(0.1), 1000, 150);
}

TEST(Compose, AppliesTransformsAndLambdasInOrder) {
    const Compose both({ToFloat(), [](const Tensor& x, std::span<SampleRandom>) { return x * 2; },
                        Normalize({1}, {0.5})});
    EXPECT_EQ(apply(both, full({1, 1, 1, 1}, 255, {u8})).item(), 2);
    const Tensor images = pixels(1, 1, 2, 2);
    EXPECT_TRUE(apply(Compose({}), images).is_same(images));
}

TEST(Compose, MatchesSeparateTransformsBitForBit) {
    const Transform crop = RandomCrop({22, 21}, {.padding = {2, 3}, .fill = 77}),
                    flip = RandomHorizontalFlip(), to_float = ToFloat(),
                    normalize = Normalize({0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}),
                    one_for_all = Normalize({0.3}, {0.7});
    const std::vector<std::vector<Transform>> rows = {
        {to_float},
        {to_float, normalize},
        {flip, to_float, one_for_all},
        {crop, to_float},
        {crop, flip, to_float, normalize},
        {flip, crop, flip, to_float, normalize, flip, crop},
        {crop, flip},
    };
    const Tensor images = pixels(9, 3, 28, 19);
    for (const Tensor& x : {images, images.to(f32), images.transpose(2, 3),
                            pixels(5, 6, 29, 33).reshape({5, 2, 3, 29, 33}), pixels(0, 3, 32, 32)})
        for (const auto& row : rows) {
            auto together = draws(x.size(0)), in_turn = draws(x.size(0));
            Tensor expected = x;
            for (const Transform& step : row) expected = step(expected, in_turn);
            expect_same_bits(Compose(row)(x, together), expected);
            for (std::size_t i = 0; i < together.size(); ++i)
                EXPECT_EQ(together[i].next(), in_turn[i].next());
        }
}

TEST(ComposeApplyRows, MatchesTransformsOfGatheredRows) {
    const Tensor images = pixels(5, 3, 6, 7);
    const std::vector<std::int64_t> rows = {4, 0, 4, 2};
    const Transform twice = [](const Tensor& x, std::span<SampleRandom>) { return x * 2; };
    const Compose composed[] = {
        Compose({RandomCrop(4, {.padding = 2}), RandomHorizontalFlip(), ToFloat(),
                 Normalize({0.1, 0.2, 0.3}, {0.5, 0.6, 0.7}), twice}),
        Compose({ToFloat()}), Compose({CenterCrop(3), ToFloat()}), Compose({})};
    for (const Compose& transform : composed)
        for (const Tensor& x : {images, images.transpose(2, 3), images.to(f32)}) {
            auto together = draws(4), apart = draws(4);
            const Tensor from = index_select(x, 0, tensor({4, 0, 4, 2}, {4}));
            expect_same_bits(transform.apply_rows(x, rows, together), transform(from, apart));
        }
}

TEST(Compose, ReportsErrorsOfItsTransforms) {
    expect_error<ShapeError>({"RandomCrop: the crop size [9, 9] does not fit"}, [] {
        apply(Compose({RandomCrop(9), ToFloat()}), pixels(2, 3, 8, 9));
    });
    expect_error<ShapeError>(
        {"Normalize: mean must have 1 element or one for each channel: it has 2"}, [] {
            apply(Compose({ToFloat(), Normalize({0, 0}, {1, 1})}), pixels(2, 3, 4, 4));
        });
    expect_error<UsageError>({"RandomHorizontalFlip: needs one SampleRandom per image"}, [] {
        Compose({RandomHorizontalFlip(), ToFloat()})(pixels(2, 3, 4, 4), {});
    });
    expect_error<UsageError>({"ToFloat: the images are undefined"},
                             [] { Compose({ToFloat()})({}, {}); });
}

TEST(Transforms, DoNotModifyInputs) {
    const Tensor images = golden("images");
    const Tensor before = images.clone();
    apply(Compose({RandomCrop({5, 6}, {.padding = 2}), RandomHorizontalFlip(), CenterCrop(3),
                   ToFloat(), Normalize({0.5}, {0.5})}),
          images);
    const Tensor floats = images.to(f32);
    apply(Compose({ToFloat(), Normalize({0.5}, {0.5})}), floats);
    expect_same_bits(images, before);
    expect_same_bits(floats, before.to(f32));
}

TEST(Transforms, RejectInvalidArguments) {
    const Tensor images = pixels(2, 3, 4, 4);
    expect_error<DTypeError>({"Normalize: ", "uint8", "apply ToFloat first"},
                             [&] { Normalize({0.5}, {0.5})(images); });
    expect_error<ShapeError>({"Normalize: mean must have 1 element or one for each channel: it has "
                              "2 elements, images are [2, 3, 4, 4]"},
                             [&] {
                                 Normalize({0, 0}, {1, 1})(ToFloat()(images));
                             });
    expect_error<ValueError>({"Normalize: ", "the same length: mean has 2 elements, std has 1"},
                             [] {
                                 Normalize({0, 0}, {1});
                             });
    for (const double std : {0.0, -1.0, 1e-60, std::nan("")})
        EXPECT_THROW(Normalize({0}, {std}), ValueError) << std;
    expect_error<DTypeError>({"ToFloat: ", "int64"}, [&] { ToFloat()(images.to(i64)); });
    expect_error<ShapeError>(
        {"RandomCrop: the crop size [7, 6] does not fit into the padded size [6, 6]"}, [&] {
            apply(RandomCrop({7, 6}, {.padding = 1}), images);
        });
    expect_error<ValueError>({"RandomCrop: sizes must be positive: [0, 3]"}, [] {
        RandomCrop({0, 3});
    });
    expect_error<ValueError>({"RandomCrop: the padding"}, [] {
        RandomCrop(3, {.padding = {0, -1}});
    });
    expect_error<UsageError>(
        {"RandomHorizontalFlip: needs one SampleRandom per image: 2 images, 0 given"},
        [&] { RandomHorizontalFlip()(images, {}); });
    EXPECT_THROW(RandomHorizontalFlip(1.5), ValueError);
    EXPECT_THROW(CenterCrop(-1), ValueError);
    EXPECT_THROW(CenterCrop(2)(ones({4, 4})), ShapeError);
    EXPECT_THROW(Compose({nullptr}), UsageError);
}

// Returns n images that differ, with their numbers as labels.
TensorDataset digits(std::int64_t n) {
    return TensorDataset(Tree{{"image", pixels(n, 1, 6, 6)}, {"label", arange(n)}});
}

TransformedDataset augmented(std::int64_t n, std::uint64_t seed = 3) {
    return {digits(n),
            Compose({RandomCrop(6, {.padding = 2}), RandomHorizontalFlip(), ToFloat()}),
            {.seed = seed}};
}

using Images = std::map<std::int64_t, Values>;  // the pixels of each image, by label

Images one_by_one(const Tree& batch) {
    Images images;
    for (std::int64_t i = 0; i < batch["label"].tensor().numel(); ++i)
        images[batch["label"].tensor()[i].item_int()] = batch["image"].tensor()[i].to_vector();
    return images;
}

Images pass(DataLoader& loader) {
    Images images;
    for (auto& batch : loader) images.merge(one_by_one(batch));
    return images;
}

TEST(TransformedDataset, ReturnsSamplesThatDependOnlyOnSeedEpochAndIndex) {
    DataLoader in_order(augmented(20), {.batch_size = 20});
    const Images first = pass(in_order), second = pass(in_order);
    ASSERT_EQ(first.size(), 20u);
    EXPECT_NE(first, second);
    for (const int workers : {0, 1, 4})
        for (const std::int64_t batch_size : {1, 3, 20})
            for (const bool samples : {false, true}) {
                DataLoader loader(augmented(20),
                                  {.batch_size = batch_size,
                                   .shuffle = true,
                                   .num_workers = workers,
                                   .collate_fn = samples ? Collate(collate) : Collate()});
                EXPECT_EQ(pass(loader), first);
                EXPECT_EQ(pass(loader), second);
                loader.set_epoch(0);
                EXPECT_EQ(pass(loader), first);
            }
    DataLoader other(augmented(20, 4), {.batch_size = 20});
    const Images other_seed = pass(other);
    EXPECT_NE(other_seed, first);
    EXPECT_NE(other_seed, second);
    EXPECT_EQ(augmented(20).get(7)["image"].tensor().to_vector(), first.at(7));
    EXPECT_EQ(augmented(20).in_epoch(1)->get(7)["image"].tensor().to_vector(), second.at(7));
    EXPECT_EQ(augmented(20).size(), 20);
}

TEST(TransformedDataset, ResumesExactlyWithinEpoch) {
    for (const int workers : {0, 3}) {
        const LoaderOptions options{.batch_size = 3, .shuffle = true, .num_workers = workers};
        DataLoader whole(augmented(13), options);
        std::vector<Images> all;
        std::vector<Tree> states = {whole.state_dict()};
        for (int epoch = 0; epoch < 3; ++epoch)
            for (auto& batch : whole) {
                all.push_back(one_by_one(batch));
                states.push_back(whole.state_dict());
            }
        ASSERT_EQ(all.size(), 15u);
        for (std::size_t done = 0; done < states.size(); ++done) {
            DataLoader resumed(augmented(13), options);
            resumed.load_state_dict(states[done]);
            std::vector<Images> rest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(done));
            while (resumed.epoch() < 3)
                for (auto& batch : resumed) rest.push_back(one_by_one(batch));
            EXPECT_EQ(rest, all) << "after " << done;
        }
    }
}

TEST(TransformedDataset, GivesSameSamplesAfterIncompletePass) {
    DataLoader loader(augmented(10), {.batch_size = 2, .num_workers = 2});
    DataLoader fresh(augmented(10), {.batch_size = 2});
    for ([[maybe_unused]] auto& batch : loader) break;
    EXPECT_EQ(pass(loader), pass(fresh));
}

TEST(TransformedDataset, PassesEpochToInnerDataset) {
    const TransformedDataset twice(augmented(8), Normalize({0}, {0.5}));
    DataLoader below(augmented(8), {.batch_size = 8}), above(twice, {.batch_size = 8});
    for (int epoch = 0; epoch < 2; ++epoch) {
        Images doubled = pass(below);
        for (auto& [label, image] : doubled)
            for (double& x : image) x *= 2;
        EXPECT_EQ(pass(above), doubled);
    }
}

TEST(TransformedDataset, TransformsGivenKeyAndRejectsMissingKeysInvalidTransformsAndNullDatasets) {
    const Tree tensors{{"x", pixels(2, 1, 4, 4)}, {"y", pixels(2, 1, 4, 4)}};
    const TensorDataset pairs(tensors);
    const TransformedDataset small(pairs, CenterCrop(2), {.key = "y"});
    const Tree sample = small.get(0);
    EXPECT_EQ(sample["x"].tensor().shape(), (Shape{1, 4, 4}));
    EXPECT_EQ(sample["y"].tensor().to_vector(), (Values{5, 6, 9, 10}));
    const TransformedDataset missing(pairs, CenterCrop(2));
    EXPECT_THROW(missing.get(0), IndexError);
    const TransformedDataset fewer(
        pairs, [](const Tensor& x, std::span<SampleRandom>) { return x[0]; }, {.key = "x"});
    const std::vector<std::int64_t> both = {0, 1};
    expect_error<ShapeError>(
        {"TransformedDataset: ", "received [2, 1, 4, 4] and returned [1, 4, 4]"},
        [&] { fewer.get_batch(both); });
    EXPECT_THROW(TransformedDataset(pairs, nullptr), UsageError);
    EXPECT_THROW(TransformedDataset(std::shared_ptr<const Dataset>(), CenterCrop(2)), UsageError);
}

TEST(TransformedDataset, GivesBatchesEqualToCollatedSamplesAndReportsInvalidIndicesAndMissingKeys) {
    const Tree rows{{"label", arange(6).to(i64)}, {"image", pixels(6, 3, 5, 5)}};
    const TransformedDataset dataset(TensorDataset(rows),
                                     Compose({RandomCrop(4), RandomHorizontalFlip(), ToFloat()}));
    const std::vector<std::int64_t> indices = {5, 1, 1, 3};
    const Tree batch = dataset.get_batch(indices), samples = collate(get_samples(dataset, indices));
    ASSERT_EQ(batch.entries().front().key, "label");
    expect_same_bits(batch["image"].tensor(), samples["image"].tensor());
    expect_same_bits(batch["label"].tensor(), samples["label"].tensor());
    expect_error<IndexError>({"TensorDataset: index 6 is out of range for 6 samples"}, [&] {
        const std::vector<std::int64_t> beyond = {0, 6};
        dataset.get_batch(beyond);
    });
    const TransformedDataset nameless(TensorDataset(rows), Compose({ToFloat()}), {.key = "pixels"});
    expect_error<Error>({"Tree: no key 'pixels'", "label"}, [&] { nameless.get_batch(indices); });
}

TEST(TransformedDataset, TransformsImagesOfDifferentSizesOnlyWithCollateFn) {
    const auto ragged = [](std::int64_t i) {
        return Tree{{"image", ones({1, 4 + i, 6 - i})}, {"label", i}};
    };
    const TransformedDataset dataset(from_function(3, ragged), CenterCrop(4));
    DataLoader loader(dataset, {.batch_size = 3, .collate_fn = collate});
    for (auto& batch : loader) EXPECT_EQ(batch["image"].tensor().shape(), (Shape{3, 1, 4, 4}));
    DataLoader at_once(dataset, {.batch_size = 3});
    EXPECT_THROW(at_once.begin(), ShapeError);
}

}  // namespace
}  // namespace axle::data
