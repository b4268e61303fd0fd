// Tests `axle merge-weights` with checkpoints of PyTorch and DeepSpeed, and the folders that it
// rejects.
#include <filesystem>
#include <string>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/tools/axle_launch.h"

namespace axle::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AxleMergeWeights : public AxleLaunch {
  protected:
    static std::string recorded(const std::string& name) {
        return AXLE_TESTS_DIR "/golden/dcp/" + name;
    }
};

// Covers 14.merge-weights, 26.merge-weights.
TEST_F(AxleMergeWeights, WritesTheWeightsAndKeepsTheCheckpoint) {
    const std::string output = folder_ / "merged";
    const Ended ended = run({"merge-weights", recorded("model"), output});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre("Wrote the weights to " + output + "."));
    const auto expected = load_safetensors(recorded("model.safetensors")).tensors;
    const auto merged = load_safetensors(output + "/model.safetensors").tensors;
    EXPECT_EQ(merged.size(), expected.size());
    expect_same_bits(merged.at("linear.weight"), expected.at("model.linear.weight"));
    EXPECT_TRUE(fs::exists(recorded("model/.metadata")));
}

// Covers 26.merge-weights.
TEST_F(AxleMergeWeights, WritesTheWeightsOfACheckpointOfDeepSpeed) {
    const std::string deepspeed = AXLE_TESTS_DIR "/golden/deepspeed/stage3";
    const std::string output = folder_ / "merged";
    const Ended ended = run({"merge-weights", deepspeed, output});
    ASSERT_EQ(ended.code, 0) << ended.text();
    const auto expected = load_safetensors(deepspeed + ".safetensors").tensors;
    const auto merged = load_safetensors(output + "/model.safetensors").tensors;
    EXPECT_EQ(merged.size(), expected.size());
    expect_same_bits(merged.at("body.weight"), expected.at("body.weight"));
}

// Covers 26.merge-weights.
TEST_F(AxleMergeWeights, RemovesTheCheckpointOnRequest) {
    const std::string copy = folder_ / "copy", output = folder_ / "merged";
    fs::copy(recorded("model"), copy);
    ASSERT_EQ(run({"merge-weights", copy, output, "--remove_checkpoint_dir"}).code, 0);
    EXPECT_FALSE(fs::exists(copy));
    EXPECT_TRUE(fs::exists(output + "/model.safetensors"));
}

// Covers 26.merge-weights.
TEST_F(AxleMergeWeights, RejectsMissingArgumentsPickleOutputAndFoldersWithoutACheckpoint) {
    const auto refused = [&](int code, Arguments arguments, const std::string& words) {
        arguments.insert(arguments.begin(), "merge-weights");
        const Ended ended = run(arguments);
        EXPECT_EQ(ended.code, code);
        EXPECT_THAT(ended.text(), HasSubstr(words));
    };
    const std::string output = folder_ / "merged";
    refused(2, {}, "checkpoint_directory");
    refused(2, {recorded("model")}, "output_path");
    refused(2, {recorded("model"), output, "--unsafe_serialization"},
            "Axle reads pickles, but does not write them");
    refused(1, {folder_ / "none", output}, "the folder does not exist");
    refused(1, {recorded("state"), output}, "; pass " + recorded("state/optimizer_0") + " or ");
    EXPECT_FALSE(fs::exists(output));
}

}  // namespace
}  // namespace axle::tests
