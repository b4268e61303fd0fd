// Compares vision transformers with torchvision and Transformers (tests/golden/record_networks.py),
// and tests their sizes, outputs and errors.
#include "nn/models/vision/vit.h"

#include "nn/init.h"
#include "tests/nn/models/network.h"

namespace axle {
namespace {

using tests::expect_recorded_files;

nn::VisionTransformerConfig small_vision_transformer() {
    return {.image_size = 8,
            .patch_size = 4,
            .num_layers = 2,
            .num_heads = 2,
            .hidden_dim = 16,
            .mlp_dim = 24,
            .num_classes = 10,
            .representation_size = 12};
}

nn::ViTConfig small_vit() {
    return nn::ViTConfig::from_json(to_json(tests::recorded_network("vit")["config"]));
}

TEST(VisionTransformer, TrainsLikeTorchvision) {
    tests::expect_recorded_classifier("vision_transformer", 8, tests::adamw(3e-3), [] {
        return nn::VisionTransformer(small_vision_transformer());
    });
}

// The numbers are from torchvision's documentation.
TEST(VisionTransformer, HasThePublishedNumberOfParameters) {
    const nn::init::EmptyWeights without_memory;
    EXPECT_EQ(nn::VisionTransformer(nn::vit_b_16()).num_parameters(), 86567656);
    EXPECT_EQ(nn::VisionTransformer(nn::vit_l_32()).num_parameters(), 306535400);
}

TEST(VisionTransformer, ReportsInvalidConfigurationsAndImages) {
    nn::VisionTransformerConfig config = small_vision_transformer();
    nn::VisionTransformer model(config);
    tests::expect_error<ShapeError>(
        {"VisionTransformer: images must be [batch, 3, 8, 8]", "[2, 3, 8, 4]"}, [&] {
            model(zeros({2, 3, 8, 4}));
        });
    config.patch_size = 3;
    tests::expect_error<ValueError>(
        {"VisionTransformer: image_size 8 is not a multiple of patch_size 3"},
        [&] { nn::VisionTransformer{config}; });
    config.patch_size = 0;
    tests::expect_error<ValueError>({"VisionTransformer: patch_size must be positive"},
                                    [&] { nn::VisionTransformer{config}; });
}

TEST(ViT, TrainsLikeTransformers) {
    for (const DType dtype : {f64, f32}) {
        nn::ViTForImageClassification model(small_vit());
        tests::expect_recorded_training(
            "vit", model, dtype, tests::adamw(3e-3),
            [&](std::int64_t batch) { return model(tests::images(8, batch, dtype)); },
            [](const Tensor& y, std::int64_t batch) {
                return cross_entropy(y, tests::integers({4}, str("labels", batch), 10));
            });
    }
}

TEST(ViT, ReadsAndWritesFilesOfTransformers) {
    expect_recorded_files<nn::ViTForImageClassification>("vit");
}

TEST(ViT, ReturnsLogitsAndLossForABatchAndRejectsUnknownKeys) {
    nn::ViTForImageClassification model(small_vit());
    const Tensor images = tests::images(8, 0, f32), labels = tensor({1, 2, 3, 9});
    const nn::ModelOutput output =
        model.outputs(Tree{{"pixel_values", images}, {"labels", labels}});
    tests::expect_same_bits(output.logits.detach(), model(images).detach());
    tests::expect_same_bits(output.loss.detach(), model.loss(images, labels).detach());
    EXPECT_FALSE(model.outputs(images).loss.defined());
    tests::expect_error<ValueError>({"vit", "other"}, [&] {
        model.outputs(Tree{{"pixel_values", images}, {"other", labels}});
    });
}

TEST(ViT, RejectsAClassifierOfAnotherSizeAndCreatesAMissingClassifier) {
    const nn::ViTForImageClassification model(small_vit());
    const tests::TemporaryFolder folder;
    model.save_pretrained(folder.path());
    tests::expect_error<FileError>({folder.path().c_str(), "classifier.weight"}, [&] {
        nn::ViTForImageClassification::from_pretrained(folder.path(), 3);
    });
    Safetensors file = load_safetensors(folder / "model.safetensors");
    file.tensors.erase("classifier.weight"), file.tensors.erase("classifier.bias");
    file.tensors["vit.pooler.dense.weight"] = zeros({2});  // is not used
    save_safetensors(folder / "model.safetensors", file.tensors, file.metadata);
    const auto loaded = nn::ViTForImageClassification::from_pretrained(folder.path(), 3);
    EXPECT_EQ(loaded.classifier.weight.shape(), Shape({3, 16}));
    EXPECT_EQ(loaded.config.labels[2], "LABEL_2");
    tests::expect_same_bits(loaded.vit.layernorm.weight.detach(),
                            model.vit.layernorm.weight.detach());
}

}  // namespace
}  // namespace axle
