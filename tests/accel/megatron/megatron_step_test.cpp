// Tests what the steps of MegatronEngine exchange, log and leave unchanged.
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "accel/accelerator.h"
#include "accel/megatron/megatron_engine.h"
#include "core/files/file.h"
#include "dist/ops/collective_ops.h"
#include "dist/pipeline/pipeline.h"
#include "gtest/gtest.h"
#include "nn/models/pieces.h"
#include "optim/sgd.h"
#include "tests/dist/pipeline/pipeline_models.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using accel::MegatronEngine;
using accel::MegatronLMPlugin;
using tests::at;
using tests::clones_of;
using tests::Group;
using tests::on_ranks;
using tests::pipeline_batch;
using tests::pipeline_gpt;
using tests::TemporaryFolder;

TEST(MegatronEngine, RestoresTheModesOfModulesAfterAnEvaluation) {
    nn::Gpt model = pipeline_gpt();
    optim::SGD optimizer(model.parameters(), {.lr = 0.1});
    const data::TensorDataset dataset(pipeline_batch(0, 4));
    data::DataLoader loader(dataset, {.batch_size = 4});
    Accelerator accelerator({.cpu = true, .megatron_lm_plugin = MegatronLMPlugin{}});
    accelerator.prepare(model, optimizer, loader);
    MegatronEngine engine(accelerator, model);
    model.transformer.h[0].train(false);
    engine.evaluate(loader);
    EXPECT_TRUE(model.is_training());
    EXPECT_TRUE(model.transformer.h[1].is_training());
    EXPECT_FALSE(model.transformer.h[0].is_training());
}

// A custom loss needs all logits, so the ranks gather them.
TEST(MegatronEngine, ExchangesFewerBytesForTheDefaultLossThanForACustomLoss) {
    auto models = clones_of(pipeline_gpt(), 2);
    on_ranks(2, [&](const Group& group) {
        nn::Gpt& model = models[at(group)];
        optim::SGD optimizer(model.parameters(), {.lr = 0});
        Accelerator accelerator({.cpu = true,
                                 .megatron_lm_plugin = MegatronLMPlugin{.tp_degree = 2},
                                 .process_group = group});
        accelerator.prepare(model, optimizer);
        MegatronEngine engine(accelerator, model);
        const Tree batch = pipeline_batch(0);
        const auto bytes_of = [](auto&& step) {
            dist::reset_collective_counts();
            step();
            return dist::collective_counts().bytes;
        };
        const std::int64_t own = bytes_of([&] { engine.train_step(batch); });
        const std::int64_t usual = bytes_of([&] { accelerator.pipeline_step(model, batch); });
        const std::int64_t of_logits = bytes_of([&] {
            accelerator.pipeline_step(model, batch, [](const Tensor& logits, const Tree& part) {
                return nn::label_loss(logits, part);
            });
        });
        EXPECT_GT(of_logits, usual);
        EXPECT_LT(own, of_logits);
    });
}

// Returns the last value of a tag in the only event file of a folder.
float last_logged(const std::string& folder, const std::string& tag) {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        bytes += read_file(entry.path().string());
    // A value is the tag, the key 0x15 of the field simple_value, and an f32.
    const auto found = bytes.rfind(tag + '\x15');
    float value = 0;
    if (found != std::string::npos)
        std::memcpy(&value, bytes.data() + found + tag.size() + 1, sizeof value);
    return value;
}

TEST(MegatronEngine, LogsTheNormOfUnscaledGradientsInFp16) {
    const auto norm_of = [](const std::string& precision) {
        const TemporaryFolder folder;
        nn::Gpt model = pipeline_gpt(f32);
        optim::SGD optimizer(model.parameters(), {.lr = 0.1});
        Accelerator accelerator(
            {.mixed_precision = precision,
             .cpu = true,
             .megatron_lm_plugin = MegatronLMPlugin{.tensorboard_dir = folder.path(),
                                                    .set_all_logging_options = true}});
        accelerator.prepare(model, optimizer);
        MegatronEngine(accelerator, model).train_step(pipeline_batch(0));
        return last_logged(folder.path(), "grad-norm");
    };
    const float expected = norm_of("no");
    EXPECT_GT(expected, 0);
    EXPECT_NEAR(norm_of("fp16"), expected, 0.01 * expected);
}

}  // namespace
}  // namespace axle
