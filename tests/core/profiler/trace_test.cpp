#include "core/profiler/trace.h"

#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/close.h"
#include "tests/core/profiler/events.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using profiler::RecordFunction;
using profiler::Row;
using profiler::Trace;

// --- the table

TEST(KeyAverages, SumsCallsSelfTimeAndTotalTime) {
    Trace trace;
    trace.events = {span("leaf", 10, 30, 20), span("leaf", 40, 50, 10), span("root", 0, 100, 70)};
    const std::vector<Row> rows = profiler::key_averages(trace);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(row(rows, "leaf").calls, 2);
    EXPECT_EQ(row(rows, "leaf").self, 30);
    EXPECT_EQ(row(rows, "leaf").total, 30);
    EXPECT_EQ(row(rows, "root").self, 70);
    EXPECT_EQ(row(rows, "root").total, 100);
    EXPECT_EQ(row(rows, "root").bytes, 100);
    EXPECT_EQ(row(rows, "root").self_bytes, 70);
    EXPECT_DOUBLE_EQ(row(rows, "leaf").share, 0.3);
}

TEST(KeyAverages, CountsTimeOfRecursiveScopesOnce) {
    Trace trace;
    trace.events = {span("f", 20, 30, 10), span("g", 10, 40, 20), span("f", 0, 100, 70),
                    span("f", 5, 25, 20, 1), span("f", 100, 110, 10)};
    const Row f = row(profiler::key_averages(trace), "f");
    EXPECT_EQ(f.calls, 4);
    EXPECT_EQ(f.total, 100 + 20 + 10);
    EXPECT_EQ(f.self, 10 + 70 + 20 + 10);
}

TEST(KeyAverages, GroupsByShapesOnRequest) {
    Trace trace;
    trace.events = {span("f", 0, 10, 10), span("f", 20, 30, 10), span("f", 40, 50, 10)};
    trace.events[0].operands = {{2, 3}};
    trace.events[1].operands = {{4, 3}};
    trace.events[2].operands = {{2, 3}};
    EXPECT_EQ(profiler::key_averages(trace).size(), 1u);
    const std::vector<Row> rows = profiler::key_averages(trace, true);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].calls, 2);
    EXPECT_THAT(profiler::table(rows), testing::HasSubstr("[4, 3]"));
}

TEST(SortRows, SortsByTimesCountsMemoryOrNameAndRejectsUnknownKeys) {
    std::vector<Row> rows = {{.name = "b", .calls = 9, .self = 1, .total = 30, .bytes = 5},
                             {.name = "a", .calls = 1, .self = 2, .total = 20, .bytes = 9},
                             {.name = "c", .calls = 5, .self = 3, .total = 40, .bytes = 7}};
    const auto order = [&](const std::string& key) {
        profiler::sort_rows(rows, key);
        return rows[0].name + rows[1].name + rows[2].name;
    };
    EXPECT_EQ(order("self_cpu_time_total"), "cab");
    EXPECT_EQ(order("cpu_time_total"), "cba");
    EXPECT_EQ(order("cpu_time"), "acb");
    EXPECT_EQ(order("count"), "bca");
    EXPECT_EQ(order("cpu_memory_usage"), "acb");
    EXPECT_EQ(order("name"), "abc");
    expect_error<ValueError>({"profiler: unknown sort key: 'speed'; expected"},
                             [&] { order("speed"); });
}

TEST(ProfilerTable, FormatsAlignedColumns) {
    const std::vector<Row> rows = {
        {.name = "matmul", .calls = 4, .self = 3'000'000, .total = 3'000'000, .bytes = 2048},
        {.name = "linear", .calls = 4, .self = 1'000'000, .total = 4'000'000},
        {.name = "hidden", .calls = 1}};
    EXPECT_EQ(profiler::table(rows, {.sort_by = "cpu_time_total", .row_limit = 2}),
              "------  --------  ------  -------  -------  -------  ---------  -----  --------  "
              "--------\n"
              "Name    Category  Self %     Self  Total %    Total   Time avg  Calls  Self mem  "
              "     Mem\n"
              "------  --------  ------  -------  -------  -------  ---------  -----  --------  "
              "--------\n"
              "linear  op        25.00%  1.000ms  100.00%  4.000ms    1.000ms      4       0 B  "
              "     0 B\n"
              "matmul  op        75.00%  3.000ms   75.00%  3.000ms  750.000us      4       0 B  "
              "2.00 KiB\n"
              "------  --------  ------  -------  -------  -------  ---------  -----  --------  "
              "--------\n"
              "Self time total: 4.000ms\n");
    EXPECT_THAT(profiler::table({}), testing::HasSubstr("Self time total: 0.000us"));
}

// --- the file

nlohmann::json exported(const Trace& trace, int process = 0) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    profiler::export_chrome_trace(trace, folder / "trace.json", process);
    return nlohmann::json::parse(read_file(folder / "trace.json"));
}

TEST(ExportChromeTrace, WritesNestedEventsThreadsAndMemoryCounters) {
    profiler::start({.record_shapes = true, .profile_memory = true});
    {
        const RecordFunction outer("outer \"quoted\" \n\xff");
        add(randn({4, 4}), 1).sum();
    }
    std::thread([] { const RecordFunction scope("elsewhere"); }).join();
    const nlohmann::json file = exported(profiler::stop(), 3);
    std::map<std::string, nlohmann::json> complete;
    std::set<std::string> counters, threads;
    for (const auto& e : file.at("traceEvents")) {
        EXPECT_EQ(e.at("pid"), 3);
        if (e.at("ph") == "X") complete[e.at("name")] = e;
        if (e.at("ph") == "C") {
            counters.insert(e.at("name"));
            EXPECT_GE(e.at("args").at("bytes").get<std::int64_t>(), 0);
        }
        if (e.at("ph") == "M" && e.at("name") == "thread_name")
            threads.insert(e.at("args").at("name"));
    }
    EXPECT_THAT(counters, testing::ElementsAre("allocated bytes", "reserved bytes"));
    EXPECT_EQ(threads.size(), 2u);
    const auto& outer = complete.at("outer \"quoted\" \n\ufffd");
    const auto& op = complete.at("add");
    EXPECT_EQ(op.at("cat"), "op");
    EXPECT_EQ(op.at("args").at("input shapes"), "[4, 4]");
    EXPECT_EQ(op.at("tid"), outer.at("tid"));
    EXPECT_NE(complete.at("elsewhere").at("tid"), outer.at("tid"));
    const auto end = [](const nlohmann::json& e) {
        return e.at("ts").get<double>() + e.at("dur").get<double>();
    };
    EXPECT_GE(op.at("ts").get<double>(), outer.at("ts").get<double>());
    EXPECT_LE(end(op), end(outer));
    EXPECT_GT(op.at("dur").get<double>(), 0);
}

TEST(ExportChromeTrace, WritesMicrosecondsSinceStart) {
    Trace trace;
    trace.start = 1'000'000;
    trace.events = {span("f", 1'002'500, 1'004'007, 1'000)};
    const auto file = exported(trace);
    const auto& e = file.at("traceEvents").back();
    EXPECT_EQ(e.at("name"), "f");
    EXPECT_DOUBLE_EQ(e.at("ts").get<double>(), 2.5);
    EXPECT_DOUBLE_EQ(e.at("dur").get<double>(), 1.507);
    EXPECT_DOUBLE_EQ(e.at("args").at("self us").get<double>(), 1.0);
}

TEST(ExportChromeTrace, WritesLongAndEmptyTraces) {
    Trace trace;
    for (int i = 0; i < 3000; ++i) trace.events.push_back(span("f", i, i + 1, 1));
    EXPECT_EQ(exported(trace).at("traceEvents").size(), 3001u);
    EXPECT_EQ(exported(Trace()).at("traceEvents").size(), 1u);
}

TEST(ExportChromeTrace, ThrowsFileErrorForUnwritablePath) {
    expect_error<FileError>({"/no/such/folder/trace.json: "}, [] {
        profiler::export_chrome_trace({}, "/no/such/folder/trace.json");
    });
}

}  // namespace
}  // namespace axle::tests
