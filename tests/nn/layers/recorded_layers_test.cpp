// Compares small layers with results and gradients recorded from PyTorch by
// tests/golden/record_layers.py, and tests their errors.
#include <limits>

#include "gmock/gmock.h"
#include "nn/layers/channels/channel_norms.h"
#include "nn/layers/norm.h"
#include "nn/layers/pairwise.h"
#include "nn/layers/sparse/embedding_bag.h"
#include "tests/nn/recorded_case.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::RecordedCase;

// Calls a layer with the recorded argument a, and also b if it has two arguments. Compares the
// result, the gradients and the state after the call.
template <class Layer>
void check_layer(const std::string& name, Layer layer, bool training = true) {
    SCOPED_TRACE(name);
    const RecordedCase recorded(name, "layers.safetensors");
    recorded.load(layer);
    layer.train(training);
    Tensor y;
    if constexpr (requires { layer.forward(Tensor(), Tensor()); })
        y = layer(recorded.in("a"), recorded.in("b"));
    else
        y = layer(recorded.in("a"));
    recorded.check(layer, {{"y", y}});
    for (const auto& [key, tensor] : layer.state_dict()) {
        SCOPED_TRACE(key);
        expect_close(tensor, recorded.tensors.at("after." + key), 1e-12);
    }
}

TEST(BilinearLayer, MatchesPyTorchAndRejectsInvalidSizesAndShapes) {
    check_layer("bilinear", nn::Bilinear(2, 3, 4));
    check_layer("bilinear_no_bias", nn::Bilinear(2, 3, 4, {.bias = false}));
    const nn::Bilinear layer(4, 300, 5);
    EXPECT_LE(layer.weight.abs().max().item(), 0.5);
    EXPECT_NEAR(var(layer.weight.detach()).item(), 0.25 / 3, 0.005);
    expect_error<ShapeError>({"Bilinear: expected [..., 2] and [..., 3]", "[5, 2]", "[4, 3]"}, [] {
        nn::Bilinear(2, 3, 4)(zeros({5, 2}), zeros({4, 3}));
    });
    expect_error<ValueError>({"Bilinear: sizes must be positive"}, [] { nn::Bilinear(2, 0, 4); });
}

TEST(CosineSimilarity, MatchesPyTorchAndHasFiniteGradientsOfZeroVectors) {
    check_layer("cosine", nn::CosineSimilarity());
    check_layer("cosine_dim", nn::CosineSimilarity(-1, 0.5));
    Tensor zero = zeros({2, 3}, {.requires_grad = true});
    const Tensor y = nn::CosineSimilarity()(zero, ones({2, 3}));
    expect_close(y, zeros({2}));
    sum(y).backward();
    EXPECT_EQ(sum(isfinite(zero.grad())).item(), 6);
}

TEST(PairwiseDistance, MatchesPyTorchHasZeroGradientsOfEqualVectorsAndRejectsNegativeP) {
    check_layer("distance_0", nn::PairwiseDistance({.p = 0}));
    check_layer("distance_1", nn::PairwiseDistance({.p = 1, .keepdim = true}));
    check_layer("distance_2", nn::PairwiseDistance());
    check_layer("distance_3.5", nn::PairwiseDistance({.p = 3.5}));
    check_layer("distance_inf",
                nn::PairwiseDistance({.p = std::numeric_limits<double>::infinity()}));
    Tensor x = zeros({2, 3}, {.requires_grad = true});
    sum(nn::PairwiseDistance({.eps = 0})(x, zeros({2, 3}))).backward();
    expect_close(x.grad(), zeros({2, 3}));
    expect_error<ValueError>({"PairwiseDistance: p must be at least 0"},
                             [] { nn::PairwiseDistance({.p = -1}); });
}

TEST(LayerNormLayer, NormalizesOverSeveralDimensionsLikePyTorchAndRejectsInvalidSizes) {
    check_layer("layer_norm", nn::LayerNorm({3, 4}));
    check_layer("layer_norm_plain", nn::LayerNorm({3, 4}, {.eps = 1e-2, .affine = false}));
    EXPECT_EQ(nn::LayerNorm({3, 4}).weight.shape(), Shape({3, 4}));
    EXPECT_EQ(nn::LayerNorm(8).normalized_shape(), Shape({8}));
    expect_error<ShapeError>({"LayerNorm: the last dimensions of x must be [3, 4]", "[4, 3]"}, [] {
        nn::LayerNorm({3, 4})(zeros({4, 3}));
    });
    expect_error<ValueError>({"LayerNorm: sizes must be positive: [3, 0]"}, [] {
        nn::LayerNorm({3, 0});
    });
    expect_error<ValueError>({"LayerNorm: sizes must have at least one element: []"},
                             [] { nn::LayerNorm{Shape()}; });
}

TEST(LocalResponseNorm, MatchesPyTorchAndRejectsInvalidSizesAndShapes) {
    check_layer("response", nn::LocalResponseNorm(3));
    check_layer("response_even", nn::LocalResponseNorm(4, {.alpha = 0.3, .beta = 0.6, .k = 2}));
    expect_error<ShapeError>({"local_response_norm: x must have at least three", "[2, 3]"}, [] {
        nn::LocalResponseNorm(2)(zeros({2, 3}));
    });
    expect_error<ValueError>({"LocalResponseNorm: size"}, [] { nn::LocalResponseNorm(0); });
}

TEST(InstanceNormLayer, MatchesPyTorch) {
    check_layer("instance1d", nn::InstanceNorm1d(3));
    check_layer("instance2d", nn::InstanceNorm2d(3, {.affine = true}));
    check_layer("instance3d", nn::InstanceNorm3d(3, {.eps = 1e-2, .affine = true}));
    const nn::InstanceNormOptions tracked{
        .momentum = 0.3, .affine = true, .track_running_stats = true};
    check_layer("instance_tracked", nn::InstanceNorm2d(3, tracked));
    check_layer("instance_evaluated", nn::InstanceNorm2d(3, tracked), false);
    EXPECT_TRUE(nn::InstanceNorm1d(3).state_dict().empty());
}

TEST(InstanceNormLayer, RejectsWrongShapesAndSingleElements) {
    nn::InstanceNorm2d layer(3);
    expect_error<ShapeError>({"InstanceNorm2d: x must be [N, 3, ...]", "[2, 4, 5, 5]"}, [&] {
        layer(zeros({2, 4, 5, 5}));
    });
    expect_error<ShapeError>({"InstanceNorm2d: expected more than 1 element"}, [&] {
        layer(zeros({2, 3, 1, 1}));
    });
    layer.eval();
    EXPECT_EQ(layer(zeros({2, 3, 1, 1})).shape(), Shape({2, 3, 1, 1}));
    expect_error<ValueError>({"InstanceNorm3d: channels"}, [] { nn::InstanceNorm3d(0); });
}

TEST(EmbeddingBag, MatchesPyTorch) {
    for (const auto& [name, mode] : {std::pair("sum", nn::BagMode::sum),
                                     {"mean", nn::BagMode::mean},
                                     {"max", nn::BagMode::max}}) {
        const std::string prefix = std::string("bag_") + name;
        check_layer(prefix, nn::EmbeddingBag(7, 3, {.mode = mode}));
        check_layer(prefix + "_offsets", nn::EmbeddingBag(7, 3, {.mode = mode}));
        check_layer(prefix + "_padding", nn::EmbeddingBag(7, 3, {.mode = mode, .padding_idx = 4}));
        check_layer(prefix + "_padded_rows",
                    nn::EmbeddingBag(7, 3, {.mode = mode, .padding_idx = 4}));
    }
    check_layer("bag_last_offset", nn::EmbeddingBag(7, 3, {.include_last_offset = true}));
    for (const char* name : {"bag_weighted", "bag_weighted_rows"}) {
        SCOPED_TRACE(name);
        const RecordedCase recorded(name, "layers.safetensors");
        nn::EmbeddingBag layer(7, 3, {.mode = nn::BagMode::sum});
        recorded.load(layer);
        const Tensor weights = recorded.in("per_sample_weights");
        recorded.check(layer, {{"y", layer(recorded.in("a"), recorded.in("b"), weights)}});
    }
}

TEST(EmbeddingBag, AveragesManyRowsExactlyIn16BitDTypes) {
    for (const DType dtype : {bf16, f16}) {
        nn::EmbeddingBag layer(2, 1, {.padding_idx = 1});
        layer.to(dtype);
        layer.weight.detach().fill_(1);
        const Tensor ids = zeros({5000}, {.dtype = i64});
        const Tensor y = layer(ids, zeros({1}, {.dtype = i64}));
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_EQ(y.item(), 1);
        EXPECT_EQ(layer(ids.unsqueeze(0)).item(), 1);
    }
}

TEST(EmbeddingBag, AcceptsEmptyInputs) {
    for (const auto mode : {nn::BagMode::sum, nn::BagMode::mean, nn::BagMode::max}) {
        nn::EmbeddingBag layer(7, 3, {.mode = mode});
        const Tensor none = zeros({0}, {i64});
        expect_close(layer(none, zeros({2}, {i64})), zeros({2, 3}));
        EXPECT_EQ(layer(none, none).shape(), Shape({0, 3}));
        expect_close(layer(zeros({2, 0}, {i64})), zeros({2, 3}));
    }
}

TEST(EmbeddingBag, RejectsInvalidArguments) {
    nn::EmbeddingBag layer(7, 3);
    const Tensor ids = zeros({4}, {i64});
    expect_error<UsageError>({"EmbeddingBag: 1-d ids need offsets"}, [&] { layer(ids); });
    expect_error<UsageError>({"EmbeddingBag: offsets must not be given"}, [&] {
        layer(ids.view({2, 2}), zeros({1}, {i64}));
    });
    expect_error<UsageError>({"EmbeddingBag: per_sample_weights need the mode sum"},
                             [&] { layer(ids, zeros({1}, {i64}), ones({4})); });
    expect_error<ValueError>({"EmbeddingBag: offsets must begin with 0", "1"}, [&] {
        layer(ids, tensor({1, 2}));
    });
    expect_error<ValueError>({"EmbeddingBag: offsets must not decrease", "4"}, [&] {
        layer(ids, tensor({0, 5}));
    });
    expect_error<ShapeError>({"EmbeddingBag: ids must have one or two dimensions"}, [&] {
        layer(zeros({1, 1, 1}, {i64}));
    });
    expect_error<IndexError>({"EmbeddingBag: padding_idx", "7"},
                             [] { nn::EmbeddingBag(7, 3, {.padding_idx = 7}); });
}

}  // namespace
}  // namespace axle
