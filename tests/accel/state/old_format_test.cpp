// Tests that checkpoints of format 1 can be loaded. An older version of
// docs/examples/checkpoints.cpp wrote the checkpoint that the tests load.
#include <string>

#include "accel/accelerator.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "tests/accel/training.h"

namespace axle {
namespace {

const std::string kFolder = AXLE_TESTS_DIR "/accel/state/format_1";

struct Progress : accel::Checkpointable {
    std::int64_t updates = 0;
    Tree state_dict() const override { return {{"updates", updates}}; }
    void load_state_dict(const Tree& state) override { updates = state["updates"].integer(); }
};

TEST(OldCheckpoint, CanBeLoadedIfItHasFormat1) {
    const std::string path = kFolder + "/step_10";
    nn::Linear linear(4, 1);
    optim::AdamW adamw(linear.parameters(), {.lr = 1});
    data::DataLoader batches(tests::samples(32), {.batch_size = 4, .shuffle = true, .seed = 9});
    accel::Accelerator accelerator({.cpu = true});
    accelerator.prepare(linear, adamw, batches);
    Progress progress;
    accelerator.register_for_checkpointing(progress);
    accelerator.load_state(path);
    EXPECT_EQ(progress.updates, 10);
    EXPECT_EQ(batches.epoch(), 1);
    EXPECT_EQ(batches.position(), 2);
    EXPECT_EQ(adamw.param_groups()[0].lr, 0.01);
    const auto saved = load_safetensors(path + "/model.safetensors").tensors;
    EXPECT_EQ(linear.weight.to_vector(), saved.at("weight").to_vector());
    EXPECT_EQ(linear.bias.to_vector(), saved.at("bias").to_vector());
}

TEST(OldCheckpoint, IsListedWithAnEmptyRunId) {
    const auto list = accel::list_checkpoints(kFolder);
    ASSERT_EQ(list.entries.size(), 1u);
    EXPECT_EQ(list.entries[0].iteration, 0);
    EXPECT_EQ(list.entries[0].run, "");
}

}  // namespace
}  // namespace axle
