#include "accel/loop/elastic.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/close.h"
#include "tests/environment_variable.h"

namespace axle {
namespace {

using accel::elastic_accumulation_steps;
using tests::EnvironmentVariable;
using tests::expect_error;

TEST(ElasticAccumulationSteps, EqualTheConfiguredStepsIfNoMachineIsLost) {
    EXPECT_EQ(elastic_accumulation_steps(3, 8, 4), 3);
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "4");
    EXPECT_EQ(elastic_accumulation_steps(3, 8, 4), 3);
}

TEST(ElasticAccumulationSteps, KeepTheNumberOfSamplesPerUpdateOnFewerProcesses) {
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "6");
    EXPECT_EQ(elastic_accumulation_steps(1, 8, 3), 2);
    EXPECT_EQ(elastic_accumulation_steps(2, 8, 4), 3);
    EXPECT_EQ(elastic_accumulation_steps(1, 8, 1), 6);
}

TEST(ElasticAccumulationSteps, AreReadFromTheEnvironmentIfSet) {
    const EnvironmentVariable steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4");
    EXPECT_EQ(elastic_accumulation_steps(3, 8, 2), 4);
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "3");
    EXPECT_EQ(elastic_accumulation_steps(3, 8, 2), 6);
}

TEST(ElasticAccumulationSteps, RejectAGlobalBatchThatCannotBeDivided) {
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "6");
    expect_error<ValueError>({"elastic_accumulation_steps: the global batch of 48 samples (6 "
                              "processes x batch size 8 x 1 "
                              "accumulation steps) cannot be divided among 4 processes: use a "
                              "multiple of 2 for gradient_accumulation_steps"},
                             [] { elastic_accumulation_steps(1, 8, 4); });
}

TEST(ElasticAccumulationSteps, RejectNumbersOutOfRange) {
    expect_error<ValueError>({"elastic_accumulation_steps: steps must be positive: 0"},
                             [] { elastic_accumulation_steps(0, 8, 1); });
    expect_error<ValueError>(
        {"elastic_accumulation_steps: steps must be from 1 to 2147483647: 4294967296"},
        [] { elastic_accumulation_steps(std::int64_t{1} << 32, 8, 1); });
    // As an int, this number would be 1.
    expect_error<ValueError>(
        {"elastic_accumulation_steps: steps must be from 1 to 2147483647: -4294967295"},
        [] { elastic_accumulation_steps(-(std::int64_t{1} << 32) + 1, 8, 1); });
    expect_error<ValueError>(
        {"elastic_accumulation_steps: the batch size and the number of processes", "batch size 0"},
        [] { elastic_accumulation_steps(1, 0, 1); });
    for (const char* const all : {"1", "65537"}) {
        const EnvironmentVariable variable("AXLE_FULL_WORLD_SIZE", all);
        expect_error<ValueError>(
            {"elastic_accumulation_steps: AXLE_FULL_WORLD_SIZE must be from 2 (the number of "
             "processes) to 65536",
             all},
            [] { elastic_accumulation_steps(1, 8, 2); });
    }
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "2");
    expect_error<ValueError>(
        {"elastic_accumulation_steps: gradient accumulation steps must be at most 2147483647: "
         "2147483647 steps x 2 processes / 1 processes = 4294967294"},
        [] { elastic_accumulation_steps(2147483647, 1, 1); });
}

}  // namespace
}  // namespace axle
