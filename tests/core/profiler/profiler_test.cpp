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
#include "tests/core/profiler/events.h"
#include "tests/op_case.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using profiler::Category;
using profiler::Event;
using profiler::RecordFunction;
using profiler::Row;
using profiler::Trace;

// A fixture that stops a recording if a failed test did not stop it, so that the next test can
// start a recording.
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

// --- recording

TEST_F(Profiler, RecordsNothingWhileOff) {
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

TEST_F(Profiler, ExcludesNestedScopesFromSelfTime) {
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

TEST_F(Profiler, EndsScopesOnException) {
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

TEST_F(Profiler, AllowsScopesToEndInAnyOrder) {
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

TEST_F(Profiler, IgnoresScopesThatAreOpenAtStartOrStop) {
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

// The two communications overlap each other, and each overlaps only a part of the scope.
TEST_F(Profiler, DoesNotSubtractOverlappingCommunicationFromScopesAndExportsItWithIds) {
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
    std::map<std::string, std::set<int>> ids;  // ids of begin and end records, by name
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

TEST_F(Profiler, AllowsOneRecordingAtATime) {
    expect_error<UsageError>({"profiler: stop: no recording is running"}, [] { profiler::stop(); });
    profiler::start();
    expect_error<UsageError>({"profiler: start: a recording is already running"},
                             [] { profiler::start(); });
    profiler::stop();
    Trace trace;
    expect_error<UsageError>({"profiler: collect: no recording is running"},
                             [&] { profiler::collect(trace); });
}

TEST_F(Profiler, ContinuesRecordingAfterCollect) {
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

TEST_F(Profiler, RecordsThousandsOfScopesInOrder) {
    constexpr int kScopes = 5000;
    profiler::start();
    for (int i = 0; i < kScopes; ++i) const RecordFunction scope(i % 2 == 0 ? "even" : "odd");
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), static_cast<std::size_t>(kScopes));
    for (int i = 0; i < kScopes; ++i)
        ASSERT_EQ(trace.events[static_cast<std::size_t>(i)].name, i % 2 == 0 ? "even" : "odd");
}

TEST_F(Profiler, RecordsThreadsSeparatelyWithTheirNames) {
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

TEST_F(Profiler, RecordsWhileAnotherThreadCollects) {
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

TEST_F(Profiler, CountsBytesAllocatedInScope) {
    profiler::start();
    {
        const RecordFunction outer("outer");
        const Tensor a = empty({1024});  // 4 KiB is a size class
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

TEST_F(Profiler, SamplesMemoryAtStartAllocationAndRelease) {
    profiler::start({.profile_memory = true});
    { const Tensor a = empty({1024}); }
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.samples.size(), 3u);
    EXPECT_EQ(trace.samples[1].current, trace.samples[0].current + 4096);
    EXPECT_EQ(trace.samples[2].current, trace.samples[0].current);
    EXPECT_GE(trace.samples[1].reserved, trace.samples[1].current);
    EXPECT_LE(trace.samples[0].time, trace.samples[1].time);
}

// --- scopes of the library

// The ops without their own scope. empty() and empty_like() only allocate memory. Composed ops are
// recorded under the names of their parts. The last two ops are not recorded if they return their
// operand.
const std::set<std::string> kOpsWithoutScope = {
    "empty",     "empty_like", "zeros", "ones",   "full",       "zeros_like", "ones_like",
    "full_like", "rand",       "randn", "tensor", "checkpoint", "to",         "contiguous"};

TEST_F(Profiler, RecordsOpsThatHaveAScopeUnderTheirNames) {
    for (const OpCase& c : op_cases()) {
        if (c.rows.empty() || kOpsWithoutScope.contains(c.op())) continue;
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

TEST_F(Profiler, DoesNotRecordOpsThatReturnTheirOperand) {
    const Tensor x = randn({2, 3}), transposed = transpose(x, 0, 1);
    profiler::start();
    x.to(f32).contiguous().expand({2, 3});
    EXPECT_TRUE(profiler::stop().events.empty());
    profiler::start();
    transposed.contiguous().to(f64);
    const Trace trace = profiler::stop();
    ASSERT_EQ(trace.events.size(), 2u);
    EXPECT_EQ(trace.events[0].name, "contiguous");
    EXPECT_EQ(trace.events[1].name, "to");
}

TEST_F(Profiler, RecordsForwardBackwardAndStep) {
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

TEST_F(Profiler, RecordsLoaderScopesOnTheirThreads) {
    const Numbers numbers;
    for (const int workers : {0, 1}) {
        data::DataLoader loader(numbers, {.batch_size = 2, .num_workers = workers});
        profiler::start();
        for (auto& batch : loader) ASSERT_EQ(batch["x"].tensor().size(0), 2);
        const Trace trace = profiler::stop();
        const std::vector<Row> rows = profiler::key_averages(trace);
        EXPECT_EQ(row(rows, "DataLoader.batch").calls, 3);
        EXPECT_EQ(row(rows, "DataLoader.next").calls, 3);
        std::set<int> producers, waiters;
        for (const Event& e : trace.events) {
            if (e.name == "DataLoader.batch") producers.insert(e.thread);
            if (e.name == "DataLoader.next") waiters.insert(e.thread);
        }
        EXPECT_EQ(producers == waiters, workers == 0);
        EXPECT_EQ(trace.threads.at(*producers.begin()) == "DataLoader worker", workers > 0);
    }
}

TEST_F(Profiler, RecordsOperandShapesOnRequest) {
    const Tensor a = randn({2, 3}), b = randn({3});
    for (const bool record : {false, true}) {
        profiler::start({.record_shapes = record});
        add(a, b);
        const Trace trace = profiler::stop();
        const std::vector<Shape> expected =
            record ? std::vector<Shape>{{2, 3}, {3}} : std::vector<Shape>();
        EXPECT_EQ(event(trace, "add").operands, expected);
    }
}

}  // namespace
}  // namespace axle::tests
