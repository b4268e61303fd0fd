// Tests the timing, kernels, options, result files and errors of `axle bench`.
#include "kernels/cpu/targets.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "nlohmann/json.hpp"
#include "tests/environment_variable.h"
#include "tests/tools/trainer_program.h"
#include "tools/axle/bench/kernel.h"
#include "tools/axle/bench/library.h"
#include "tools/axle/bench/row.h"
#include "tools/axle/bench/timing.h"

namespace axle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kOwn[] = AXLE_BIN_DIR "/example_own_kernel.so";
constexpr char kOther[] = AXLE_BIN_DIR "/other_kernel_library.so";

std::string tiny_shape(const bench::Kernel& kernel) {
    const auto sizes = std::ranges::count(kernel.shape, 'x') + 1;
    if (sizes == 8) return "2x3x6x5x4x3x2x1";  // a convolution
    if (sizes == 6) return "2x3x6x5x2x2";      // a pooling
    return std::string("5x6x4x8").substr(0, static_cast<std::size_t>(2 * sizes - 1));
}

// Returns the word after each '<' of an HTML page, without attributes: "p", "/p", "br/".
std::vector<std::string> tags_of(const std::string& html) {
    std::vector<std::string> tags;
    for (std::size_t at = 0; (at = html.find('<', at)) != std::string::npos;) {
        const std::size_t end = html.find('>', at);
        const std::string tag = html.substr(at + 1, end - at - 1);
        tags.push_back(tag.substr(0, tag.find_first_of(" \n")) +
                       (tag.ends_with('/') && tag.find(' ') != std::string::npos ? "/" : ""));
        at = end;
    }
    return tags;
}

// Expects that each element of a page is closed.
void expect_well_formed(const std::string& html) {
    std::vector<std::string> open;
    for (const std::string& tag : tags_of(html)) {
        if (tag == "!doctype" || tag == "meta" || tag.ends_with('/')) continue;
        if (!tag.starts_with('/')) {
            open.push_back(tag);
            continue;
        }
        ASSERT_FALSE(open.empty()) << tag;
        ASSERT_EQ("/" + open.back(), tag);
        open.pop_back();
    }
    EXPECT_EQ(open, std::vector<std::string>());
}

std::string text_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

TEST(BenchTiming, HasTheMedianAndTheInterquartileRangeRelativeToIt) {
    const bench::Timing timing = bench::timing_of({5, 1, 2, 4, 3}, 10);
    EXPECT_EQ(timing.seconds, 3);
    EXPECT_NEAR(timing.spread, (4.0 - 2.0) / 3, 1e-12);
    EXPECT_EQ(timing.samples, 5);
    EXPECT_EQ(timing.calls, 10);
    EXPECT_EQ(bench::timing_of({1, 2}, 1).seconds, 1.5);
}

TEST(BenchTiming, CountsItsCallsAndFlushesBeforeEachSample) {
    int calls = 0, flushes = 0;
    const bench::Timing hot = bench::time_hot(1e-3, [&] { ++calls; });
    EXPECT_GE(hot.samples, bench::kMinSamples);
    EXPECT_EQ(calls, 2 + hot.samples * hot.calls);
    calls = 0;
    const bench::Timing flushed = bench::time_flushed(
        0, [&] { ++flushes; }, [&] { ++calls; });
    EXPECT_EQ(flushed.samples, bench::kMinSamples);
    EXPECT_EQ(flushes, bench::kMinSamples);
    EXPECT_EQ(calls, bench::kMinSamples + 1);
}

TEST(BenchKernels, WriteAllOutputs) {
    kernels::Cpu cpu;
    for (const bench::Kernel& kernel : bench::kernels_of_bench())
        for (const DType dtype : kernel.dtypes)
            for (const std::string& layout : kernel.layouts) {
                SCOPED_TRACE(kernel.name + " " + bench::short_name(dtype) + " " + layout);
                const bench::Sizes shape = bench::parse_shape(kernel, tiny_shape(kernel));
                bench::Problem problem = bench::prepare(kernel, {shape, dtype, layout});
                EXPECT_GT(problem.bytes, 0);
                if (kernel.name != "adamw") bench::clear_outputs(problem);
                problem.call(cpu);
                for (const Tensor& output : problem.outputs)
                    EXPECT_TRUE(std::isfinite(abs(output.to(f64)).max().item()));
            }
}

TEST(BenchKernels, HaveNamesAndShapesThatAreDocumented) {
    const std::string page = read_file(AXLE_TESTS_DIR "/../docs/kernels.md");
    std::set<std::string> names;
    for (const bench::Kernel& kernel : bench::kernels_of_bench()) {
        EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
        EXPECT_THAT(page, HasSubstr("`" + kernel.name + ":" + kernel.shape + "`"));
        for (const bench::Sizes& shape : kernel.shapes)
            EXPECT_EQ(bench::parse_shape(kernel, bench::shape_text(shape)), shape);
    }
}

TEST(BenchDifference, IsRelativeToTheLargestElementAndWrongIfItIsNan) {
    bench::Problem problem;
    problem.outputs = {tensor({1.0, -8.0})};
    EXPECT_EQ(bench::difference(problem, {tensor({3.0, -8.0})}), 0.25);
    bench::clear_outputs(problem);
    EXPECT_TRUE(std::isnan(bench::difference(problem, {tensor({3.0, -8.0})})));
    bench::Row row;
    row.difference = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(row.is_wrong());
}

TEST(BenchRoofline, ShowsOnlyRowsWithOperationsAndTheRoofsOfTheirDTypes) {
    bench::Results results{.target = "avx2", .machine = Tree{{"cpu", "a <CPU>"}}};
    results.peaks[1] = {.f32 = 100, .f64 = 50, .bf16 = 200, .memory = 20, .cache = 80};
    bench::Row row{.kernel = "softmax",
                   .call = {.shape = {4, 8}, .layout = "N"},
                   .operations = 160,
                   .bytes = 256,
                   .peak = 80,
                   .timing = {.seconds = 1e-6}};
    results.rows = {row};
    row.kernel = "copy", row.operations = 0, row.call.dtype = f64;
    results.rows.push_back(row);
    const std::string svg = bench::to_svg(results, 1);
    expect_well_formed(svg);
    EXPECT_THAT(svg, HasSubstr("a &lt;CPU&gt;, avx2, 1 thread<"));
    for (const char* text : {"memory 20 GB/s", "L2 80 GB/s", "f32 100 GFLOP/s", ">softmax 4x8<"})
        EXPECT_THAT(svg, HasSubstr(text));
    for (const char* text : {"f64 50", "bf16 200", "copy"})
        EXPECT_THAT(svg, testing::Not(HasSubstr(text)));
}

class AxleBench : public tests::TrainerTest {
  protected:
    AxleBench() : TrainerTest("axle") {}

    // Runs axle bench for a short time and returns its JSON file. Uses one thread unless the
    // arguments contain --threads.
    json measure(const tests::Arguments& arguments) {
        tests::Arguments all = {"bench", "--min-time", "1e-5", "--json", file("r")};
        all.insert(all.end(), arguments.begin(), arguments.end());
        if (std::ranges::count(arguments, "--threads") == 0)
            all.insert(all.end(), {"--threads", "1"});
        ended_ = run(all);
        EXPECT_EQ(ended_.code, 0) << ended_.text();
        return ended_.code == 0 ? json::parse(read_file(file("r"))) : json();
    }
    std::string file(const std::string& name) const { return folder_ / name; }
    void expect_usage_error(const tests::Arguments& arguments, const std::string& message) {
        tests::Arguments all = {"bench", "--threads", "1", "--min-time", "1e-5"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const tests::Ended ended = run(all);
        EXPECT_EQ(ended.code, 2) << message;
        EXPECT_THAT(ended.text(), HasSubstr(message));
    }

    tests::Ended ended_;
};

// Covers 26.bench.
TEST_F(AxleBench, ListsKernelsAndLibraries) {
    const tests::Ended ended = run({"bench", "--list"});
    EXPECT_EQ(ended.code, 0) << ended.text();
    const std::string text = text_of(ended.out);
    for (const bench::Kernel& kernel : bench::kernels_of_bench())
        EXPECT_THAT(ended.out, testing::Contains(kernel.name + ":" + kernel.shape));
    for (const std::string& library : bench::kLibraryNames)
        EXPECT_THAT(text, HasSubstr("\n    " + library + ": "));
}

TEST_F(AxleBench, WritesRowsOfEachKernelToJsonAndThePage) {
    tests::Arguments arguments = {"--compare",       "none",  "--html",
                                  file("page.html"), "--svg", file("roofline.svg")};
    for (const bench::Kernel& kernel : bench::kernels_of_bench())
        arguments.push_back(kernel.name + ":" + tiny_shape(kernel));
    const json results = measure(arguments);
    EXPECT_EQ(results["format"], 1);
    EXPECT_EQ(results["target"], kernels::cpu_target_name());
    ASSERT_EQ(results["peaks"].size(), 1U);
    for (const char* peak : {"f32_gflops", "f64_gflops", "memory_gb_per_s", "l2_gb_per_s"})
        EXPECT_GT(results["peaks"][0][peak], 0) << peak;
    const std::string page = read_file(file("page.html"));
    const auto& kernels = bench::kernels_of_bench();
    ASSERT_EQ(results["rows"].size(), 2 * kernels.size());
    for (std::size_t i = 0; i < results["rows"].size(); ++i) {
        const json& row = results["rows"][i];
        EXPECT_EQ(row["kernel"], kernels[i / 2].name);
        EXPECT_EQ(row["implementation"], "axle");
        EXPECT_EQ(row["cache"], i % 2 == 0 ? "hot" : "flushed");
        EXPECT_EQ(row["threads"], 1);
        EXPECT_GE(row["samples"], bench::kMinSamples);
        for (const char* positive : {"seconds", "gb_per_s", "share_of_peak"})
            EXPECT_GT(row[positive], 0) << row;
        EXPECT_EQ(row["speed_of_axle"], 1);
        EXPECT_THAT(page, HasSubstr("<tr><td>" + kernels[i / 2].name + "</td>"));
    }
    expect_well_formed(page);
    expect_well_formed(read_file(file("roofline.svg")));
    const std::vector<std::string> tags = tags_of(page);
    EXPECT_EQ(std::ranges::count(tags, "tr"), 1 + std::ssize(results["rows"]));
    EXPECT_EQ(std::ranges::count(tags, "script"), 0);
    EXPECT_EQ(std::ranges::count(tags, "svg"), 1);
}

TEST_F(AxleBench, MeasuresEachDTypeAndNumberOfThreadsAndReportsOperationsAndBytes) {
    const json rows =
        measure({"matmul:6x5x4", "--dtype", "bf16", "--dtype", "f64", "--layout", "TN", "--threads",
                 "1", "--threads", "2", "--cache", "hot", "--compare", "none"})["rows"];
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0]["threads"], 1);
    EXPECT_EQ(rows[1]["threads"], 2);
    EXPECT_EQ(rows[0]["dtype"], "bf16");
    EXPECT_EQ(rows[2]["dtype"], "f64");
    EXPECT_EQ(rows[2]["layout"], "TN");
    EXPECT_EQ(rows[2]["shape"], json({6, 5, 4}));
    EXPECT_EQ(rows[2]["operations"], 2 * 6 * 5 * 4);
    EXPECT_EQ(rows[2]["bytes"], 8 * (6 * 4 + 4 * 5 + 6 * 5));
}

TEST_F(AxleBench, MeasuresTheSameCaseWithAKernelOfAnotherLibrary) {
    const json rows = measure(
        {"matmul:33x20x41", "--library", kOwn, "--compare", "none", "--threads", "3"})["rows"];
    ASSERT_EQ(rows.size(), 4U);
    for (std::size_t i = 0; i < rows.size(); i += 2) {
        EXPECT_EQ(rows[i]["implementation"], "axle");
        EXPECT_EQ(rows[i + 1]["implementation"], "own");
        EXPECT_EQ(rows[i + 1]["shape"], rows[i]["shape"]);
        EXPECT_EQ(rows[i + 1]["wrong"], false);
        EXPECT_LT(rows[i + 1]["difference"], 1e-5);
        EXPECT_GT(rows[i + 1]["speed_of_axle"], 0);
    }
}

TEST_F(AxleBench, MarksWrongOutputsAndShowsCodesOfUnsupportedCalls) {
    const tests::EnvironmentVariable kernels("AXLE_TEST_KERNELS", "idle");
    const json rows = measure({"softmax:4x8", "--library", kOther, "--compare", "none", "--cache",
                               "hot", "--html", file("page.html")})["rows"];
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[1]["implementation"], "idle");
    EXPECT_EQ(rows[1]["wrong"], true);
    EXPECT_TRUE(rows[1]["difference"].is_null());
    EXPECT_EQ(rows[2]["implementation"], "unsupported");
    EXPECT_EQ(rows[2]["error"], "not supported: the kernel returned 7");
    EXPECT_FALSE(rows[2].contains("seconds"));
    EXPECT_THAT(text_of(ended_.out), HasSubstr("WRONG"));
    const std::string page = read_file(file("page.html"));
    EXPECT_THAT(page, HasSubstr(", wrong</td>"));
    EXPECT_THAT(page, HasSubstr("<td colspan=\"6\">not supported: the kernel returned 7</td>"));
    expect_well_formed(page);
}

TEST_F(AxleBench, ComparesWithEigenIfItWasBuilt) {
    const std::string text = text_of(run({"bench", "--list"}).out);
    if (text.find("eigen: /") == std::string::npos) GTEST_SKIP() << "built without Eigen";
    const json rows = measure({"matmul:33x20x41", "add:7x9", "relu:7x9", "softmax:7x9", "--cache",
                               "hot", "--compare", "eigen"})["rows"];
    ASSERT_EQ(rows.size(), 8U);
    for (std::size_t i = 1; i < rows.size(); i += 2) {
        EXPECT_EQ(rows[i]["implementation"], "eigen");
        EXPECT_EQ(rows[i]["kernel"], rows[i - 1]["kernel"]);
        EXPECT_EQ(rows[i]["wrong"], false) << rows[i];
    }
}

TEST_F(AxleBench, WritesTheFinishedRowsAfterAnInterrupt) {
    const pid_t child = start({"bench", "softmax:64x64", "add:64x64", "relu:64x64", "copy:64x64",
                               "sum:64x64", "--threads", "1", "--min-time", "0.2", "--cache", "hot",
                               "--json", file("r"), "--compare", "none"});
    const auto has_a_row = [&] {
        return std::ranges::any_of(tests::lines_of(stdout_of(child)), [](const std::string& line) {
            return line.starts_with("softmax ");
        });
    };
    while (!has_a_row() && waitpid(child, nullptr, WNOHANG) == 0) {
    }
    kill(child, SIGINT);
    const tests::Ended ended = finish(child);
    EXPECT_EQ(ended.code, 128 + SIGINT) << ended.text();
    const json results = json::parse(read_file(file("r")));
    EXPECT_GE(results["rows"].size(), 1U);
    EXPECT_LT(results["rows"].size(), 5U);
}

TEST_F(AxleBench, RejectsInvalidKernelsShapesDTypesLayoutsAndOptions) {
    expect_usage_error({"matmull"}, "bench: there is no kernel 'matmull'; did you mean matmul?");
    expect_usage_error({"nothing"}, "bench: there is no kernel 'nothing'; see axle bench --list");
    expect_usage_error({"matmul:3x4"}, "matmul: expected the 3 sizes MxNxK: the shape is '3x4'");
    for (const char* shape : {"3x4x0", "3x4x-1", "3x4x", "3x4xk", "3x4x9999999999999"})
        expect_usage_error({std::string("matmul:") + shape},
                           "matmul: K must be an integer from 1 to 1099511627776: the shape is '");
    expect_usage_error({"matmul", "--dtype", "i8"},
                       "bench: the dtype must be f64, f32, f16 or bf16: 'i8'");
    expect_usage_error({"convert", "--dtype", "f32"},
                       "convert: the dtype must be one of bf16, f16, f64");
    expect_usage_error({"matmul", "--layout", "NX"},
                       "matmul: the layout must be one of NN, NT, TN, TT");
    expect_usage_error({"matmul", "--cache", "cold"}, "--cache");
    expect_usage_error({"matmul", "--threads", "0"}, "--threads");
    expect_usage_error({"matmul", "--compare", "mkl"}, "--compare");
}

TEST_F(AxleBench, RejectsShapesThatContradictThemselvesOrExceedMemory) {
    expect_usage_error({"conv2d:1x1x2x2x1x5x1x0"},
                       "conv2d: the kernel K is larger than the padded image: the shape is "
                       "'1x1x2x2x1x5x1x0'");
    expect_usage_error({"max_pool2d:1x1x2x2x3x1"},
                       "max_pool2d: the window K is larger than the image: the shape is ");
    expect_usage_error({"rotary:1x1x2x3"}, "rotary: D is odd: the shape is '1x1x2x3'");
    expect_refused({"bench", "softmax:1000000000000x1000", "--threads", "1"},
                   {"softmax: the operands do not fit into memory: the shape is "
                    "'1000000000000x1000'"});
}

TEST_F(AxleBench, AcceptsOnlyTargetsOfTheBuild) {
    expect_usage_error(
        {"--target", "sse9"},
        "bench: the target must be one of baseline, avx2, avx512, avx512_bf16, avx512_amx: "
        "'sse9'");
    if (const char* const only = kernels::only_target_name()) {
        if (std::string(only) == "baseline") return;
        expect_usage_error({"--target", "baseline"},
                           str("bench: this build has kernels for the target ", only,
                               " only (AXLE_NATIVE=ON): 'baseline'"));
    } else {
        const json results = measure({"softmax:4x8", "--target", "baseline", "--compare", "none"});
        EXPECT_EQ(results["target"], "baseline");
    }
}

TEST_F(AxleBench, RejectsLibrariesThatItCannotUse) {
    expect_refused({"bench", "softmax:4x8", "--library", "/nowhere/mine.so"},
                   {"bench: the library does not exist: '/nowhere/mine.so'"});
    write_file_atomically(file("text.so"), "text");
    expect_refused({"bench", "softmax:4x8", "--library", file("text.so")},
                   {"bench: the library cannot be opened: ", "text.so"});
    expect_usage_error({"softmax:4x8", "--library", kOwn},
                       str("bench: no kernel of the library is measured: '", kOwn, "' has matmul"));
    const auto expect_bad = [&](const char* chosen, const std::string& message) {
        const tests::EnvironmentVariable kernels("AXLE_TEST_KERNELS", chosen);
        expect_usage_error({"softmax:4x8", "--library", kOther}, message);
    };
    expect_bad("newer", str("bench: expected version 1 of the interface: '", kOther,
                            "' has version 2; compile it with this version of Axle"));
    expect_bad(
        "", str("bench: expected version 1 of the interface: '", kOther, "' has another version"));
    expect_bad("unknown", "bench: there is no kernel 'sofmax'; did you mean softmax?");
    expect_bad("random", str("bench: the library '", kOther,
                             "' contains a kernel for dropout, which can only be measured in Axle; "
                             "remove it from the library"));
    expect_bad("nameless", "bench: kernel, name and run of a kernel must not be null: kernel 0");
}

TEST_F(AxleBench, RejectsOutputFilesThatCannotBeWritten) {
    expect_refused({"bench", "softmax:4x8", "--json", "/nowhere/r.json"},
                   {"bench: the folder is not writable: '/nowhere'"});
    expect_refused({"bench", "softmax:4x8", "--html", folder_.path()},
                   {"bench: the file is a folder: "});
}

}  // namespace
}  // namespace axle
