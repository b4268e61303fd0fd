#include "nn/layers/parametrize/parametrize.h"

#include "core/autograd/autograd.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/layers/conv.h"
#include "nn/layers/linear.h"
#include "nn/layers/parametrize/orthogonal.h"
#include "tests/nn/recorded_case.h"

namespace axle {
namespace {

using testing::ElementsAre;
using tests::expect_close;
using tests::expect_error;
using tests::RecordedCase;

template <class Layer>
void check_layer(const std::string& name, Layer layer, bool training = true) {
    SCOPED_TRACE(name);
    const RecordedCase recorded(name, "layers.safetensors");
    recorded.load(layer);
    layer.train(training);
    recorded.check(layer, {{"y", layer(recorded.in("a"))}});
    for (const auto& [key, tensor] : layer.state_dict()) {
        SCOPED_TRACE(key);
        expect_close(tensor, recorded.tensors.at("after." + key), 1e-12);
    }
}

TEST(WeightNorm, MatchesPyTorch) {
    check_layer("weight_norm", nn::WeightNorm<nn::Linear>(nn::Linear(3, 2)));
    check_layer("weight_norm_all", nn::WeightNorm<nn::Linear>(nn::Linear(3, 2), -1));
    check_layer("weight_norm_conv", nn::WeightNorm<nn::Conv2d>(nn::Conv2d(2, 3, 2), 1));
}

TEST(SpectralNorm, MatchesPyTorch) {
    check_layer("spectral_norm", nn::SpectralNorm<nn::Linear>(nn::Linear(3, 2)));
    check_layer("spectral_norm_conv",
                nn::SpectralNorm<nn::ConvTranspose2d>(nn::ConvTranspose2d(2, 3, 2),
                                                      {.n_power_iterations = 2, .dim = 1}));
    check_layer("spectral_norm_evaluated", nn::SpectralNorm<nn::Linear>(nn::Linear(3, 2)), false);
}

TEST(WeightNorm, IsClonedWithItsOwnMemory) {
    const Tensor x = randn({4, 3});
    nn::WeightNorm<nn::Linear> layer(nn::Linear(3, 2));
    const Tensor expected = layer(x).detach();
    nn::WeightNorm<nn::Linear> copy = layer.clone();
    expect_close(copy(x).detach(), expected);
    copy.g.detach().zero_();
    expect_close(layer(x).detach(), expected);
}

TEST(WeightNorm, KeepsTheInitialOutputAndNamesItsParametersAsPyTorch) {
    nn::Linear plain(3, 2);
    const Tensor x = randn({4, 3});
    const Tensor expected = plain(x).detach();
    nn::WeightNorm<nn::Linear> layer(std::move(plain));
    expect_close(layer(x).detach(), expected);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layer.named_parameters()) names.push_back(name);
    EXPECT_THAT(names, ElementsAre("bias", "parametrizations.weight.original0",
                                   "parametrizations.weight.original1"));
}

TEST(WeightNorm, KeepsNoHistoryInItsLayer) {
    nn::WeightNorm<nn::Linear> layer(nn::Linear(3, 2));
    const std::int64_t before = autograd::live_nodes();
    layer(randn({4, 3}));
    EXPECT_EQ(autograd::live_nodes(), before);
}

TEST(SpectralNorm, ScalesTheLargestSingularValueToOne) {
    manual_seed(8);
    nn::SpectralNorm<nn::Linear> layer(nn::Linear(6, 5), {.n_power_iterations = 50});
    layer(randn({4, 6}));
    const Tensor w = layer.weight().detach();
    Tensor x = randn({5});
    for (int i = 0; i < 200; ++i) {
        x = matmul(w, matmul(w.t(), x));
        x = x / sqrt(sum(square(x)));
    }
    EXPECT_NEAR(sqrt(sum(square(matmul(w.t(), x)))).item(), 1, 1e-4);
}

TEST(Orthogonal, MatchesPyTorch) {
    using nn::OrthogonalMap;
    const std::pair<const char*, OrthogonalMap> maps[] = {
        {"matrix_exp", OrthogonalMap::matrix_exp},
        {"cayley", OrthogonalMap::cayley},
        {"householder", OrthogonalMap::householder}};
    for (const auto& [map, value] : maps)
        for (const bool trivial : {true, false}) {
            const nn::OrthogonalOptions options = {value, trivial};
            const auto check = [&, map = map](const char* shape, nn::Linear layer) {
                check_layer(str("orthogonal_", shape, "_", map, "_", trivial ? 1 : 0),
                            nn::Orthogonal<nn::Linear>(std::move(layer), options));
            };
            check("square", nn::Linear(4, 4));
            check("tall", nn::Linear(2, 4));
            check("wide", nn::Linear(5, 3));
        }
}

TEST(Orthogonal, StartsWithTheReflectionsThatPyTorchComputes) {
    const RecordedCase recorded("orthogonal_start", "layers.safetensors");
    nn::Linear plain(3, 4);
    plain.to(f64);
    plain.weight.set_data(recorded.tensors.at("weight"));
    const nn::Orthogonal<nn::Linear> layer(
        std::move(plain),
        {.orthogonal_map = nn::OrthogonalMap::householder, .use_trivialization = false});
    expect_close(layer.original.detach(), recorded.tensors.at("original"), 1e-12);
    expect_close(layer.weight().detach(), recorded.tensors.at("out"), 1e-12);
}

TEST(Orthogonal, HasOrthonormalRowsOrColumnsKeepsOrthogonalWeightsAndRejectsVectors) {
    manual_seed(3);
    for (const auto& [out, in] : {std::pair(3, 5), std::pair(5, 3), std::pair(4, 4)}) {
        const nn::Orthogonal<nn::Linear> layer(nn::Linear(in, out));
        const Tensor w = layer.weight().detach();
        EXPECT_EQ(w.shape(), Shape({out, in}));
        const Tensor product = out < in ? matmul(w, w.t()) : matmul(w.t(), w);
        expect_close(product, eye(std::min(in, out)), 1e-5);
        nn::Linear orthogonal(in, out);
        orthogonal.weight.set_data(w);
        expect_close(nn::Orthogonal<nn::Linear>(std::move(orthogonal)).weight().detach(), w, 1e-5);
    }
    expect_error<ShapeError>({"Orthogonal: ", "[3]"},
                             [] { nn::parametrize::OrthogonalWeight().start(ones({3}), {}); });
}

TEST(Orthogonal, StaysOrthogonalInTrainingAndIsCloned) {
    manual_seed(4);
    nn::Orthogonal<nn::Linear> layer(nn::Linear(4, 6));
    const Tensor x = randn({5, 4});
    sum(square(sub(layer(x), 1))).backward();
    layer.original.detach().sub_(mul(layer.original.grad(), 0.1));
    const Tensor w = layer.weight().detach();
    expect_close(matmul(w.t(), w), eye(4), 1e-5);
    nn::Orthogonal<nn::Linear> copy = layer.clone();
    expect_close(copy.weight().detach(), w);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : layer.state_dict()) names.push_back(name);
    EXPECT_THAT(names, testing::UnorderedElementsAre("bias", "parametrizations.weight.original",
                                                     "parametrizations.weight.0.base"));
}

TEST(Parametrizations, RejectInvalidDimensionsAndNumbersOfIterations) {
    expect_error<IndexError>({"WeightNorm: the weight [2, 3] has no dimension 2"},
                             [] { nn::WeightNorm<nn::Linear>(nn::Linear(3, 2), 2); });
    expect_error<IndexError>({"SpectralNorm: dim must not be negative: -1"},
                             [] { nn::SpectralNorm<nn::Linear>(nn::Linear(3, 2), {.dim = -1}); });
    expect_error<ValueError>({"SpectralNorm: n_power_iterations"}, [] {
        nn::SpectralNorm<nn::Linear>(nn::Linear(3, 2), {.n_power_iterations = 0});
    });
}

}  // namespace
}  // namespace axle
