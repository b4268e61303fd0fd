// Runs op cases in JSON files: recorded examples, and the files in the folder that the variable
// AXLE_CASES names. Also tests the report of differences.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "gmock/gmock.h"
#include "tests/cases/json/file.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

namespace {

std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += "\n  " + text;
    return all;
}

JsonReport run_text(const std::string& cases) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/cases.json";
    std::ofstream(path) << "{\"cases\": [" << cases << "]}";
    return run_json_cases(path);
}

TEST(JsonCases, MatchAllRecordedExamples) {
    const std::string path = AXLE_TESTS_DIR "/golden/json_cases.json";
    const JsonReport report = run_json_cases(path);
    EXPECT_TRUE(report.failed.empty()) << joined(report.failed);
    EXPECT_TRUE(report.unknown.empty()) << testing::PrintToString(report.unknown);
    EXPECT_GT(report.passed, 600);
}

TEST(JsonCases, PassForTheFilesInTheFolderOfTheVariableAxleCases) {
    const char* folder = std::getenv("AXLE_CASES");
    if (folder == nullptr) GTEST_SKIP() << "AXLE_CASES is not set to a folder of JSON files";
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
    ASSERT_FALSE(paths.empty()) << folder << " has no JSON file";
    std::map<std::string, int> unknown;
    int passed = 0;
    for (const std::string& path : paths) {
        const JsonReport report = run_json_cases(path);
        passed += report.passed;
        EXPECT_TRUE(report.failed.empty()) << path << ":" << joined(report.failed);
        for (const auto& [name, count] : report.unknown) unknown[name] += count;
    }
    std::cout << passed << " cases passed.\n";
    for (const auto& [name, count] : unknown)
        std::cout << "not known: " << name << " (" << count << " cases)\n";
}

TEST(JsonCases, ReportWrongValueShapeDTypeAndGradient) {
    const std::string input = R"("inputs": [{"shape": [2], "data": [1, 4]}])";
    const auto expect_failure = [&](const std::string& rest, const char* text) {
        const JsonReport report = run_text(R"({"op": "sqrt", )" + input + ", " + rest + "}");
        ASSERT_EQ(report.failed.size(), 1u) << rest;
        EXPECT_THAT(report.failed[0], testing::HasSubstr(text));
    };
    expect_failure(R"("outputs": [{"shape": [2], "data": [1, 2.5]}])", "output 0");
    expect_failure(R"("outputs": [{"shape": [1, 2], "data": [1, 2]}])", "shape [2] instead of");
    expect_failure(R"("outputs": [{"shape": [2], "dtype": "float32", "data": [1, 2]}])", "dtype");
    expect_failure(R"("outputs": [])", "1 outputs instead of 0");
    expect_failure(R"("outputs": [{"shape": [2], "data": [1, 2]}],
                      "gradients": [{"shape": [2], "data": [0.5, 0.5]}])",
                   "gradient 0");
    expect_failure(R"("error": "a reason")", "no error was thrown");
}

TEST(JsonCases, CountUnknownOpsAndArguments) {
    const JsonReport report = run_text(
        R"({"op": "torch.fft", "inputs": [], "outputs": []},
           {"op": "F.relu", "inputs": [{"shape": [1], "data": [2]}],
            "arguments": {"inplace": true, "slope": 2, "bound": null}, "outputs": [{"shape": [1], "data": [2]}]})");
    EXPECT_EQ(report.passed, 0);
    EXPECT_TRUE(report.failed.empty()) << joined(report.failed);
    EXPECT_EQ(report.unknown, (std::map<std::string, int>{{"fft", 1}, {"relu(slope)", 1}}));
}

TEST(JsonCases, ReadStridesAndOffsets) {
    const JsonReport report = run_text(
        R"({"op": "neg", "inputs": [{"shape": [2, 2], "strides": [1, 3], "offset": 1,
                                     "data": ["nan", 1, 2, "nan", 3, 4]}],
            "outputs": [{"shape": [2, 2], "data": [-1, -3, -2, -4]}]},
           {"op": "neg", "inputs": [{"shape": [2], "strides": [3], "data": [1, 2, 3]}],
            "outputs": [{"shape": [2], "data": [-1, -3]}]})");
    EXPECT_EQ(report.passed, 1);
    ASSERT_EQ(report.failed.size(), 1u);
    EXPECT_THAT(report.failed[0], testing::HasSubstr("element 3 is needed, but data has 3"));
}

}  // namespace

}  // namespace axle::tests
