// Compares LeNet and ResNet with PyTorch and torchvision (see tests/golden/record_vision.py), and
// tests their errors and clones.
#include <algorithm>
#include <cmath>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "nn/init.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/nn/golden.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using tests::golden_path;

constexpr std::int64_t kBatch = 8;

const nlohmann::json& recorded_value(const std::string& name) {
    static const nlohmann::json all = nlohmann::json::parse(read_file(golden_path("vision.json")));
    return all.at(name);
}

// Returns the same numbers as uniform() in record_vision.py.
Tensor uniform(const Shape& shape, std::uint64_t number) {
    Tensor t = Tensor::empty(shape, {.dtype = f64});
    double* const values = t.data<double>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
        std::uint64_t h =
            static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9;
        h ^= h >> 31;
        h *= 0x94D049BB133111EB;
        h ^= h >> 29;
        values[i] = static_cast<double>(h >> 40) / (1 << 24) - 0.5;
    }
    return t;
}

void fill(nn::Module& model) {
    const NoGrad no_grad;
    std::uint64_t number = 0;
    for (auto& [name, p] : model.named_parameters()) {
        if (p.dim() >= 2) {
            const double fan_in = static_cast<double>(p.numel() / p.size(0));
            p.copy_(uniform(p.shape(), number) * (2 * std::sqrt(6 / fan_in)));
        } else if (name.ends_with("bias")) {
            p.fill_(0);
        }
        ++number;
    }
}

template <class Model>
void expect_recorded_losses(Model model, const std::string& name, const Shape& image, double lr,
                            DType dtype, double tolerance) {
    model.to(dtype);
    fill(model);
    optim::SGD sgd(model.parameters(), {.lr = lr, .momentum = 0.9, .weight_decay = 5e-4});
    const auto losses =
        recorded_value(name).at(dtype == f64 ? "f64" : "f32").get<std::vector<double>>();
    // With a sanitizer, one step is enough to execute every line. In f32, rounding can change the
    // sign of an activation close to zero, which changes all later losses. This does not happen in
    // the first 10 steps.
    const std::size_t all =
        dtype == f64 ? losses.size() - 1 : std::min<std::size_t>(10, losses.size());
    const std::size_t steps = tests::kSanitized ? 1 : all;
    Tensor images, labels;
    const auto loss = [&] { return cross_entropy(model(images), labels); };
    for (std::size_t step = 0; step < steps; ++step) {
        images = (uniform({kBatch, image[0], image[1], image[2]}, 1000 + step % 2) * 4).to(dtype);
        labels = (uniform({kBatch}, 2000 + step % 2) * 10 + 5).to(i64);
        const Tensor now = loss();
        ASSERT_NEAR(now.item(), losses[step], tolerance) << "step " << step;
        now.backward();
        sgd.step();
        sgd.zero_grad();
    }
    if (dtype != f64 || steps != all) return;
    model.eval();
    const NoGrad no_grad;
    EXPECT_NEAR(loss().item(), losses.back(), tolerance * losses.back());
}

template <class Model>
void expect_recorded_state(const Model& model, const std::string& name) {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> own, theirs;
    for (const auto& [key, tensor] : model.state_dict())
        own.emplace_back(key,
                         std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()));
    for (const auto& entry : recorded_value(name).at("state"))
        theirs.emplace_back(entry.at(0), entry.at(1).get<std::vector<std::int64_t>>());
    EXPECT_THAT(own, testing::UnorderedElementsAreArray(theirs));
}

nn::ResNet resnet18_small() {
    nn::ResNetConfig config = nn::resnet18();
    config.num_classes = 10;
    config.small_images = true;
    return nn::ResNet(config);
}

nn::ResNet resnet50_of_ten() {
    nn::ResNetConfig config = nn::resnet50();
    config.num_classes = 10;
    return nn::ResNet(config);
}

TEST(LeNet, TrainsLikePyTorch) {
    expect_recorded_state(nn::LeNet(), "lenet");
    expect_recorded_losses(nn::LeNet(), "lenet", {1, 28, 28}, 0.01, f64, 1e-8);
    expect_recorded_losses(nn::LeNet(), "lenet", {1, 28, 28}, 0.01, f32, 1e-5);
}

TEST(LeNet, RejectsImagesOfUnsupportedShape) {
    nn::LeNet model;
    try {
        model(zeros({2, 3, 28, 28}));
        FAIL();
    } catch (const ShapeError& error) {
        EXPECT_STREQ(error.what(), "LeNet: images must be [N, 1, 28, 28]: they are [2, 3, 28, 28]");
    }
}

TEST(ResNet, MatchesNamesAndShapesOfTorchvision) {
    expect_recorded_state(resnet18_small(), "resnet18_small");
    expect_recorded_state(resnet50_of_ten(), "resnet50");
}

// The numbers are from torchvision's documentation.
TEST(ResNet, HasThePublishedNumberOfParameters) {
    EXPECT_EQ(nn::ResNet(nn::resnet18()).num_parameters(), 11689512);
    EXPECT_EQ(nn::ResNet(nn::resnet34()).num_parameters(), 21797672);
    EXPECT_EQ(nn::ResNet(nn::resnet50()).num_parameters(), 25557032);
    const nn::init::EmptyWeights without_memory;
    EXPECT_EQ(nn::ResNet(nn::resnet101()).num_parameters(), 44549160);
    EXPECT_EQ(nn::ResNet(nn::resnet152()).num_parameters(), 60192808);
}

TEST(ResNet18, TrainsLikeTorchvisionInF64) {
    expect_recorded_losses(resnet18_small(), "resnet18_small", {3, 32, 32}, 3e-5, f64, 1e-8);
}

TEST(ResNet18, TrainsLikeTorchvisionInF32) {
    expect_recorded_losses(resnet18_small(), "resnet18_small", {3, 32, 32}, 3e-5, f32, 1e-4);
}

TEST(ResNet50, TrainsLikeTorchvision) {
    expect_recorded_losses(resnet50_of_ten(), "resnet50", {3, 64, 64}, 1e-4, f64, 1e-8);
}

TEST(ResNet, ClonesOptionalLayersOfABlock) {
    nn::ResNetBlock block(4, 3, 2, true);
    block.eval();
    nn::ResNetBlock copy = block.clone();
    const Tensor x = uniform({2, 4, 5, 5}, 1).to(f32);
    const Tensor before = block(x).detach();
    tests::expect_same_bits(copy(x).detach(), before);
    const nn::StateDict state = block.state_dict();
    EXPECT_EQ(copy.state_dict().size(), state.size());
    const NoGrad no_grad;
    for (Tensor tensor : block.parameters()) tensor.fill_(0);
    tests::expect_same_bits(copy(x), before);
}

TEST(ResNet, RejectsAStageWithoutBlocks) {
    nn::ResNetConfig config;
    config.layers = {2, 0, 2, 2};
    try {
        const nn::ResNet model(config);
        FAIL();
    } catch (const ValueError& error) {
        EXPECT_STREQ(error.what(), "ResNet: every stage needs at least one block: layers[1] is 0");
    }
}

}  // namespace
}  // namespace axle
