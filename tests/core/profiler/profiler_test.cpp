#include "core/profiler/profiler.h"

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "data/loading/loader.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/op_case.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using profiler::Category;
using profiler::Event;
using profiler::RecordFunction;
using profiler::Row;
using profiler::Trace;

// A recording that a failed test leaves behind must not fail the next one.
class Profiler : public testing::Test {
  protected:
    ~Profiler() override {
        if (profiler::enabled()) profiler::stop();
    }
};

void busy(std::int64_t microseconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (std::chrono::steady_clock::now() < until) {
    }
}

// The only event of a name.
const Event& event(const Trace& trace, const std::string& name) {
    const Event* found = nullptr;
    for (const Event& e : trace.events) {
        if (e.name != name) continue;
        if (found != nullptr) throw std::runtime_error("twice in the trace: " + name);
        found = &e;
    }
    if (found == nullptr) throw std::runtime_error("not in the trace: " + name);
    return *found;
}

const Row& row(const std::vector<Row>& rows, const std::string& name) {
    for (const Row& r : rows)
        if (r.name == name) return r;
    throw std::runtime_error("not in the table: " + name);
}

Event span(const std::string& name, std::int64_t start, std::int64_t end, std::int64_t self,
           int thread = 0) {
    return {.name = name,
            .category = Category::user,
            .thread = thread,
            .start = start,
            .end = end,
            .self = self,
            .bytes = end - start,
            .self_bytes = self};
}

// --- recording

TEST_F(Profiler, RecordsNothingWhileItIsOff) {
    { const RecordFunction before("before"); }
    relu(randn({8}));
    profiler::start();
    const Trace trace = profiler::stop();
    EXPECT_TRUE(trace.events.empty());
    EXPECT_TRUE(trace.samples.empty());
    { const RecordFunction after("after"); }
    profiler::start();
    EXPECT_TRUE(profiler::stop().events.empty());
}

TEST_F(Profiler, ScopesNestAndSelfTimeIsWhatIsNotInside) {
    profiler::start();
    {
        const RecordFunction outer("outer");
        busy(300);
        {
            const RecordFunction inner("inner");
            busy(500);
            { const RecordFunction leaf("leaf"); }
        }
        { const RecordFunction second("second"); }
    }
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), 4u);
    const Event &outer = event(trace, "outer"), &inner = event(trace, "inner"),
                &leaf = event(trace, "leaf"), &second = event(trace, "second");
    EXPECT_LE(outer.start, inner.start);
    EXPECT_LE(inner.end, second.start);
    EXPECT_LE(second.end, outer.end);
    EXPECT_GE(inner.total(), 500'000);
    EXPECT_EQ(leaf.self, leaf.total());
    EXPECT_EQ(inner.self, inner.total() - leaf.total());
    EXPECT_EQ(outer.self, outer.total() - inner.total() - second.total());
    EXPECT_GE(outer.self, 300'000);
    EXPECT_LE(trace.start, outer.start);
    EXPECT_GE(trace.end, outer.end);
}

TEST_F(Profiler, AnExceptionEndsTheScopesThatItLeaves) {
    profiler::start();
    try {
        const RecordFunction outer("outer");
        const RecordFunction inner("inner");
        throw std::runtime_error("on purpose");
    } catch (const std::runtime_error&) {
    }
    EXPECT_THROW(matmul(randn({2, 3}), randn({2, 3})), ShapeError);
    { const RecordFunction after("after"); }
    const Trace trace = profiler::stop();
    EXPECT_EQ(event(trace, "outer").self,
              event(trace, "outer").total() - event(trace, "inner").total());
    EXPECT_EQ(event(trace, "matmul").category, Category::op);
    EXPECT_EQ(event(trace, "after").self, event(trace, "after").total());
}

TEST_F(Profiler, ScopesMayEndInAnyOrder) {
    profiler::start();
    auto first = std::make_unique<RecordFunction>("first");
    auto second = std::make_unique<RecordFunction>("second");
    first.reset();
    { const RecordFunction third("third"); }
    second.reset();
    { const RecordFunction last("last"); }
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), 4u);
    EXPECT_EQ(event(trace, "second").self,
              event(trace, "second").total() - event(trace, "third").total());
}

TEST_F(Profiler, AScopeThatIsOpenWhenTheRecordingEndsOrBeginsIsLeftOut) {
    {
        const RecordFunction early("early");
        profiler::start();
        const RecordFunction late("late");
        { const RecordFunction inside("inside"); }
        const Trace trace = profiler::stop();
        ASSERT_EQ(trace.events.size(), 1u);
        EXPECT_EQ(trace.events[0].name, "inside");
        profiler::start();
    }
    EXPECT_TRUE(profiler::stop().events.empty());
}

// One that overlaps another, and scopes of its thread only in part.
TEST_F(Profiler, CommunicationTakesNothingFromScopes) {
    profiler::start();
    auto first = std::make_unique<profiler::Communication>("first");
    std::unique_ptr<profiler::Communication> second;
    {
        const RecordFunction scope("scope");
        busy(300);
        second = std::make_unique<profiler::Communication>("second");
        first.reset();
    }
    second.reset();
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), 3u);
    EXPECT_EQ(event(trace, "scope").self, event(trace, "scope").total());
    EXPECT_EQ(event(trace, "first").self, 0);
    EXPECT_EQ(event(trace, "first").category, Category::communication);
    EXPECT_LT(event(trace, "first").start, event(trace, "scope").start);
    EXPECT_GT(event(trace, "second").end, event(trace, "scope").end);
    EXPECT_EQ(row(profiler::key_averages(trace), "second").total, event(trace, "second").total());

    const TemporaryFolder folder;
    profiler::export_chrome_trace(trace, folder.path() + "/trace.json");
    std::map<std::string, std::set<int>> ids;  // of beginnings and ends, by name
    const auto file = nlohmann::json::parse(read_file(folder.path() + "/trace.json"));
    for (const auto& e : file["traceEvents"])
        if (e["ph"] == "b" || e["ph"] == "e")
            ids[e["name"].get<std::string>() + e["ph"].get<std::string>()].insert(
                e["id"].get<int>());
    ASSERT_EQ(ids.size(), 4u);
    EXPECT_EQ(ids["firstb"], ids["firste"]);
    EXPECT_EQ(ids["secondb"], ids["seconde"]);
    EXPECT_NE(ids["firstb"], ids["secondb"]);
}

TEST_F(Profiler, OneRecordingAtATime) {
    expect_error<UsageError>({"profiler: stop: no recording runs"}, [] { profiler::stop(); });
    profiler::start();
    expect_error<UsageError>({"profiler: start: a recording runs already"},
                             [] { profiler::start(); });
    profiler::stop();
    Trace trace;
    expect_error<UsageError>({"profiler: collect: no recording runs"},
                             [&] { profiler::collect(trace); });
}

TEST_F(Profiler, CollectTakesWhatThereIsAndGoesOn) {
    Trace trace;
    profiler::start();
    { const RecordFunction scope("first"); }
    profiler::collect(trace);
    EXPECT_EQ(trace.events.size(), 1u);
    { const RecordFunction scope("second"); }
    profiler::stop(trace);
    ASSERT_EQ(trace.events.size(), 2u);
    EXPECT_LE(event(trace, "first").end, event(trace, "second").start);
}

TEST_F(Profiler, KeepsMoreScopesThanAChunkHolds) {
    constexpr int kScopes = 5000;
    profiler::start();
    for (int i = 0; i < kScopes; ++i) const RecordFunction scope(i % 2 == 0 ? "even" : "odd");
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), static_cast<std::size_t>(kScopes));
    for (int i = 0; i < kScopes; ++i)
        ASSERT_EQ(trace.events[static_cast<std::size_t>(i)].name, i % 2 == 0 ? "even" : "odd");
}

TEST_F(Profiler, EachThreadHasItsOwnScopesAndName) {
    profiler::start();
    { const RecordFunction scope("here"); }
    const RecordFunction around("around");
    std::thread other([] {
        profiler::name_this_thread("helper");
        const RecordFunction outer("there");
        const RecordFunction inner("inside");
    });
    other.join();
    const Trace trace = profiler::stop();
    const Event &here = event(trace, "here"), &there = event(trace, "there");
    EXPECT_NE(here.thread, there.thread);
    EXPECT_EQ(there.self, there.total() - event(trace, "inside").total());
    EXPECT_EQ(trace.threads.at(there.thread), "helper");
    EXPECT_EQ(trace.threads.size(), 2u);
}

TEST_F(Profiler, ThreadsRecordWhileAnotherCollects) {
    constexpr int kThreads = 3, kScopes = 4000;
    Trace trace;
    profiler::start({.profile_memory = true});
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([] {
            for (int i = 0; i < kScopes; ++i) const RecordFunction scope("work");
        });
    for (int i = 0; i < 20; ++i) profiler::collect(trace);
    for (std::thread& thread : threads) thread.join();
    profiler::stop(trace);
    EXPECT_EQ(trace.events.size(), static_cast<std::size_t>(kThreads * kScopes));
    EXPECT_EQ(trace.threads.size(), static_cast<std::size_t>(kThreads));
}

TEST_F(Profiler, BytesAreThoseThatTheScopeAllocates) {
    profiler::start();
    {
        const RecordFunction outer("outer");
        const Tensor a = empty({1024});  // 4 KiB are a size class
        {
            const RecordFunction inner("inner");
            const Tensor b = empty({2048});
        }
    }
    const Trace trace = profiler::stop();
    EXPECT_EQ(event(trace, "inner").bytes, 8192);
    EXPECT_EQ(event(trace, "inner").self_bytes, 8192);
    EXPECT_EQ(event(trace, "outer").bytes, 8192 + 4096);
    EXPECT_EQ(event(trace, "outer").self_bytes, 4096);
}

TEST_F(Profiler, MemorySamplesFollowTheAllocator) {
    profiler::start({.profile_memory = true});
    { const Tensor a = empty({1024}); }
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.samples.size(), 3u);
    EXPECT_EQ(trace.samples[1].current, trace.samples[0].current + 4096);
    EXPECT_EQ(trace.samples[2].current, trace.samples[0].current);
    EXPECT_GE(trace.samples[1].reserved, trace.samples[1].current);
    EXPECT_LE(trace.samples[0].time, trace.samples[1].time);
}

// --- what opens scopes

// empty allocates and no more, what is made of other ops goes by their names, and the last two do
// nothing where there is nothing to do.
const std::set<std::string> kNotByTheirNames = {
    "empty",     "empty_like", "zeros", "ones",   "full",       "zeros_like", "ones_like",
    "full_like", "rand",       "randn", "tensor", "checkpoint", "to",         "contiguous"};

TEST_F(Profiler, EveryOpIsSeenByItsName) {
    for (const OpCase& c : op_cases()) {
        if (c.rows.empty() || kNotByTheirNames.contains(c.op())) continue;
        const std::vector<Tensor> inputs = make_inputs(c, c.rows[0], f32);
        profiler::start();
        c.call(inputs);
        const Trace trace = profiler::stop();
        std::string seen;
        for (const Event& e : trace.events) seen += e.name + " ";
        EXPECT_THAT(" " + seen, testing::HasSubstr(" " + c.op() + " "))
            << c.name << ": its first line should be const profiler::OpScope scope(\"" << c.op()
            << "\");";
    }
}

TEST_F(Profiler, OpsThatGiveBackTheirOperandAreNotSeen) {
    const Tensor x = randn({2, 3}), turned = transpose(x, 0, 1);
    profiler::start();
    x.to(f32).contiguous().expand({2, 3});
    EXPECT_TRUE(profiler::stop().events.empty());
    profiler::start();
    turned.contiguous().to(f64);
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), 2u);
    EXPECT_EQ(trace.events[0].name, "contiguous");
    EXPECT_EQ(trace.events[1].name, "to");
}

TEST_F(Profiler, ATrainingStepShowsItsParts) {
    Tensor w = randn({4, 8}).set_requires_grad();
    optim::SGD sgd({w}, {.lr = 0.1});
    const Tensor x = randn({2, 8});
    profiler::start();
    softmax(linear(x, w)).sum().backward();
    sgd.step();
    const Trace trace = profiler::stop();
    EXPECT_EQ(event(trace, "softmax").category, Category::op);
    EXPECT_EQ(event(trace, "softmax backward").category, Category::backward);
    EXPECT_EQ(event(trace, "SGD.step").category, Category::optimizer);
    const Event &backward = event(trace, "linear backward"), &matmul = event(trace, "matmul");
    EXPECT_LE(backward.start, matmul.start);
    EXPECT_GE(backward.end, matmul.end);
    EXPECT_LT(backward.self, backward.total());
}

struct Numbers : data::Dataset {
    std::int64_t size() const override { return 6; }
    Tree get(std::int64_t index) const override {
        return Tree{{"x", full({2}, static_cast<double>(index))}};
    }
};

TEST_F(Profiler, BatchesAreMadeOnTheWorkersThreadAndAwaitedOnTheLoops) {
    const Numbers numbers;
    for (const int workers : {0, 1}) {
        data::DataLoader loader(numbers, {.batch_size = 2, .num_workers = workers});
        profiler::start();
        for (auto& batch : loader) ASSERT_EQ(batch["x"].tensor().size(0), 2);
        const Trace trace = profiler::stop();
        const std::vector<Row> rows = profiler::key_averages(trace);
        EXPECT_EQ(row(rows, "DataLoader.batch").calls, 3);
        EXPECT_EQ(row(rows, "DataLoader.next").calls, 3);
        std::set<int> makers, waiters;
        for (const Event& e : trace.events) {
            if (e.name == "DataLoader.batch") makers.insert(e.thread);
            if (e.name == "DataLoader.next") waiters.insert(e.thread);
        }
        EXPECT_EQ(makers == waiters, workers == 0);
        EXPECT_EQ(trace.threads.at(*makers.begin()) == "DataLoader worker", workers > 0);
    }
}

TEST_F(Profiler, OperandShapesAreRecordedOnDemand) {
    const Tensor a = randn({2, 3}), b = randn({3});
    for (const bool wanted : {false, true}) {
        profiler::start({.record_shapes = wanted});
        add(a, b);
        const Trace trace = profiler::stop();
        const std::vector<Shape> expected =
            wanted ? std::vector<Shape>{{2, 3}, {3}} : std::vector<Shape>();
        EXPECT_EQ(event(trace, "add").operands, expected);
    }
}

// --- the table

TEST(ProfilerTable, SumsUpCallsSelfAndTotal) {
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

TEST(ProfilerTable, AScopeInsideOneOfItsOwnNameCountsItsTimeOnce) {
    Trace trace;
    trace.events = {span("f", 20, 30, 10), span("g", 10, 40, 20), span("f", 0, 100, 70),
                    span("f", 5, 25, 20, 1), span("f", 100, 110, 10)};
    const Row f = row(profiler::key_averages(trace), "f");
    EXPECT_EQ(f.calls, 4);
    EXPECT_EQ(f.total, 100 + 20 + 10);
    EXPECT_EQ(f.self, 10 + 70 + 20 + 10);
}

TEST(ProfilerTable, GroupsByShapesIfAsked) {
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

TEST(ProfilerTable, SortsByThePyTorchKeys) {
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
    expect_error<ValueError>({"profiler: no such key to sort by: 'speed'; there are"},
                             [&] { order("speed"); });
}

TEST(ProfilerTable, ReadsAsATable) {
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
    const TemporaryFolder folder(Kept::in_memory);
    profiler::export_chrome_trace(trace, folder / "trace.json", process);
    return nlohmann::json::parse(read_file(folder / "trace.json"));
}

TEST_F(Profiler, ExportsAChromeTraceWhoseEventsNest) {
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

TEST(ProfilerFile, TimesAreMicrosecondsSinceTheStart) {
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

TEST(ProfilerFile, ALongTraceIsWholeAndAnEmptyOneIsValid) {
    Trace trace;
    for (int i = 0; i < 3000; ++i) trace.events.push_back(span("f", i, i + 1, 1));
    EXPECT_EQ(exported(trace).at("traceEvents").size(), 3001u);
    EXPECT_EQ(exported(Trace()).at("traceEvents").size(), 1u);
}

TEST(ProfilerFile, AnUnwritablePathIsAFileError) {
    expect_error<FileError>({"/no/such/folder/trace.json: "}, [] {
        profiler::export_chrome_trace({}, "/no/such/folder/trace.json");
    });
}

}  // namespace
}  // namespace axle::tests
