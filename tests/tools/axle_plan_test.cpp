// Tests the costs that `axle plan` predicts for models and meshes, and the plans that it prints.
#include <algorithm>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/temporary_folder.h"
#include "tests/tools/trainer_program.h"
#include "tools/axle/estimate/plan.h"

namespace axle::launcher {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kGB = 1'000'000'000;

std::string config_in(const tests::TemporaryFolder& folder) {
    const std::string path = folder.path() + "/config.json";
    write_file_atomically(path,
                          R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12})");
    return path;
}

TEST(ModelCosts, CountParametersFlopsAndActivationBytesOfGpt2AndRejectUnknownModelTypes) {
    const tests::TemporaryFolder folder;
    const ModelCosts costs = model_costs(config_in(folder), 1024);
    ASSERT_EQ(costs.pieces.size(), 14U);
    EXPECT_EQ(costs.parameters, 124'439'808);
    EXPECT_EQ(costs.width, 768);
    EXPECT_EQ(costs.pieces[0].parameters, (50257 + 1024) * 768);
    EXPECT_EQ(costs.pieces[0].flops, 0);
    EXPECT_EQ(costs.pieces[1].parameters, 7'087'872);
    EXPECT_EQ(costs.pieces[1].flops, 2 * 7'087'872 + 4 * 768 * 1024);
    EXPECT_EQ(costs.pieces[13].parameters, 50257 * 768 + 2 * 768);  // the tied head, and a norm
    EXPECT_EQ(costs.pieces[13].activation_bytes, 2 * 50257 * 4);
    const std::string other = folder.path() + "/t5.json";
    write_file_atomically(other, R"({"model_type": "t5"})");
    EXPECT_THROW(model_costs(other, 1024), FileError);
}

// Returns a model of four equal pieces with 1000 parameters each. The forward pass of a row takes
// one second per piece with options.flops = 10.
ModelCosts four_pieces() {
    return {
        .pieces = std::vector<ModelCosts::Piece>(4, {1000, 10, 5}), .parameters = 4000, .width = 2};
}

TEST(Plans, PredictMemoryBytesSentAndTimeOfReplicasAndPipelines) {
    const PlanOptions options{
        .num_processes = 4, .memory = kGB, .batch = 8, .time = 1, .flops = 10, .link = 1e12};
    const std::vector<Plan> found = plans(four_pieces(), options);
    const auto plan_of = [&](int stages, const std::string& method) {
        const auto plan = std::ranges::find_if(
            found, [&](const Plan& p) { return p.stages == stages && p.method == method; });
        EXPECT_NE(plan, found.end());
        return *plan;
    };
    const Plan whole = plan_of(1, "NO_SHARD");
    EXPECT_EQ(whole.replicas, 4);
    EXPECT_EQ(whole.micro_batches, 2);
    EXPECT_EQ(whole.memory, 16 * 4000 + 4 * 5);
    EXPECT_EQ(whole.bytes, 2 * 4 * 4000 * 3 / 4);
    EXPECT_NEAR(whole.seconds, 2 * 4 * 3, 1e-6);
    const Plan pipeline = plan_of(4, "1f1b");
    EXPECT_EQ(pipeline.replicas, 1);
    EXPECT_EQ(pipeline.micro_batches, 8);
    EXPECT_EQ(pipeline.memory, 16 * 1000 + 4 * 5);  // memory of the first stage
    EXPECT_EQ(pipeline.bytes, 2 * 8 * 2 * 4);
    EXPECT_NEAR(pipeline.seconds, 8 * 3 + 3 * 3, 1e-6);
    EXPECT_NEAR(pipeline.idle_share, 9.0 / 33, 1e-6);
    EXPECT_NEAR(plan_of(4, "zero_bubble").seconds, 8 * 3 + 3, 1e-6);
    EXPECT_LT(plan_of(1, "FULL_SHARD").memory, whole.memory);
    EXPECT_TRUE(std::ranges::is_sorted(found, {}, &Plan::seconds));
}

TEST(Plans, LeaveOutMeshesThatNeedTooMuchMemoryOrTooManyRows) {
    PlanOptions options{
        .num_processes = 4, .memory = 20'000, .batch = 8, .time = 1, .flops = 10, .link = 1e12};
    for (const Plan& plan : plans(four_pieces(), options)) EXPECT_EQ(plan.stages, 4);
    EXPECT_FALSE(plans(four_pieces(), options).empty());
    options.memory = 10;
    EXPECT_TRUE(plans(four_pieces(), options).empty());
    options.memory = kGB;
    options.batch = 1;  // a mesh with several replicas needs more rows
    for (const Plan& plan : plans(four_pieces(), options)) EXPECT_EQ(plan.replicas, 1);
}

class AxlePlan : public tests::TrainerTest {
  protected:
    AxlePlan() : TrainerTest("axle") {}
};

// Covers 26.plan.
TEST_F(AxlePlan, PrintsPlansAndFailsWithoutAPlanOrWithInvalidOptions) {
    const tests::TemporaryFolder folder;
    const std::string config = config_in(folder);
    const tests::Ended ended = run({"plan", "--config", config, "--num_processes", "4", "--memory",
                                    "3GB", "--batch_size", "8", "--seq_length", "128"});
    EXPECT_EQ(ended.code, 0) << ended.text();
    std::string text;
    for (const std::string& line : ended.out) text += line + "\n";
    EXPECT_THAT(text, HasSubstr("zero_bubble"));
    EXPECT_THAT(text, HasSubstr("FULL_SHARD"));
    EXPECT_EQ(run({"plan", "--config", config, "--memory", "1MB"}).code, 1);
    EXPECT_EQ(run({"plan"}).code, 2);
    const tests::Ended wrong = run({"plan", "--config", config, "--link", "fast"});
    EXPECT_EQ(wrong.code, 1);
    EXPECT_THAT(wrong.text(), HasSubstr("fast"));
}

}  // namespace
}  // namespace axle::launcher
