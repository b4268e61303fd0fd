// Tests which steps a profile records, compared with torch.profiler, and the trace files that it
// writes.
#include "accel/utils/profile.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#include "gmock/gmock.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using accel::ProfileKwargs;
using accel::ProfilerAction;
using accel::ProfileSchedule;
using accel::ProfileSession;
using tests::expect_error;
using tests::TemporaryFolder;

ProfileSchedule schedule_from(const nlohmann::json& s) {
    return {.wait = s["wait"],
            .warmup = s["warmup"],
            .active = s["active"],
            .repeat = s["repeat"],
            .skip_first = s.value("skip_first", 0)};
}

std::string name_of(ProfilerAction action) {
    switch (action) {
        case ProfilerAction::none:
            return "NONE";
        case ProfilerAction::warmup:
            return "WARMUP";
        case ProfilerAction::record:
            return "RECORD";
        case ProfilerAction::record_and_save:
            return "RECORD_AND_SAVE";
    }
    return "?";
}

// Returns the names of the "s<i>" scopes in the trace, in order.
std::string steps_in(const profiler::Trace& trace) {
    std::string steps;
    for (const profiler::Event& e : trace.events)
        if (e.name[0] == 's') steps += e.name + " ";
    return steps;
}

void work(int step) { const profiler::RecordFunction scope("s" + std::to_string(step)); }

// Covers 19.schedule_option.
TEST(Profile, HasTheActionOfAccelerateAtEveryStep) {
    const auto file = tests::vectors("profiler_schedule.json");
    ASSERT_GE(file["cases"].size(), 3u);
    for (const auto& c : file["cases"]) {
        const ProfileSchedule schedule = schedule_from(c["schedule"]);
        int traces = 0, saves = 0;
        ProfileSession session(
            {.schedule_option = schedule, .on_trace_ready = [&](ProfileSession&) { ++traces; }});
        std::int64_t step = 0;
        for (const std::string action : c["actions"]) {
            EXPECT_EQ(name_of(accel::action_at(schedule, step)), action) << c["schedule"];
            EXPECT_EQ(name_of(session.current_action()), action) << c["schedule"];
            EXPECT_EQ(session.step_num(), step);
            if (action == "RECORD_AND_SAVE") ++saves;
            session.step();
            EXPECT_EQ(traces, saves);
            ++step;
        }
        session.stop();
        EXPECT_EQ(traces, saves);
    }
}

// Covers 19.schedule_option.
TEST(Profile, DelaysTheScheduleBySkipFirst) {
    const ProfileSchedule plain{.wait = 1, .warmup = 1, .active = 2, .repeat = 2};
    ProfileSchedule later = plain;
    later.skip_first = 5;
    for (std::int64_t step = 0; step < 5; ++step)
        EXPECT_EQ(accel::action_at(later, step), ProfilerAction::none);
    for (std::int64_t step = 0; step < 20; ++step)
        EXPECT_EQ(accel::action_at(later, step + 5), accel::action_at(plain, step));
}

// Covers 19.on_trace_ready.
TEST(Profile, PassesTheActiveStepsOfEachCycleToOnTraceReady) {
    std::vector<std::string> traces;
    ProfileSession session({.schedule_option = ProfileSchedule{.wait = 1, .warmup = 1, .active = 2},
                            .on_trace_ready = [&](ProfileSession& s) {
                                EXPECT_FALSE(profiler::enabled());
                                traces.push_back(steps_in(s.trace()));
                            }});
    for (int i = 0; i < 9; ++i) {
        work(i);
        session.step();
    }
    session.stop();
    EXPECT_THAT(traces, testing::ElementsAre("s2 s3 ", "s6 s7 "));
    EXPECT_EQ(steps_in(session.trace()), "s6 s7 ");
}

// Covers 19.on_trace_ready.
TEST(Profile, CallsOnTraceReadyIfStoppedDuringAnActiveStep) {
    std::vector<std::string> traces;
    const auto keep = [&](ProfileSession& s) { traces.push_back(steps_in(s.trace())); };
    for (const int steps : {0, 1, 2}) {  // stops in the wait, warmup or active step
        ProfileSession session(
            {.schedule_option = ProfileSchedule{1, 1, 2, 1, 0}, .on_trace_ready = keep});
        for (int i = 0; i < steps; ++i) session.step();
        work(steps);
    }
    EXPECT_THAT(traces, testing::ElementsAre("s2 "));
    EXPECT_FALSE(profiler::enabled());
}

TEST(Profile, RecordsOpsWithinTheirSteps) {
    ProfileSession session({.schedule_option = ProfileSchedule{.active = 2, .repeat = 1}});
    for (int i = 0; i < 3; ++i) {
        relu(zeros({3}));
        session.step();
    }
    session.stop();
    std::map<std::string, profiler::Event> events;
    for (const profiler::Event& e : session.trace().events) events[e.name] = e;
    ASSERT_TRUE(events.contains("ProfilerStep#1"));
    EXPECT_FALSE(events.contains("ProfilerStep#2"));
    EXPECT_LE(events["ProfilerStep#1"].start,
              events["relu"].start);  // the event of the last relu
    EXPECT_GE(events["ProfilerStep#1"].end, events["relu"].end);
    EXPECT_LT(events["ProfilerStep#1"].self, events["ProfilerStep#1"].total());
    std::map<std::string, std::int64_t> calls;
    for (const profiler::Row& row : session.key_averages()) calls[row.name] += row.calls;
    EXPECT_EQ(calls["ProfilerStep*"], 2);
    EXPECT_FALSE(calls.contains("ProfilerStep#1"));
}

TEST(Profile, RecordsUntilStopWithoutASchedule) {
    int traces = 0;
    ProfileSession session({.on_trace_ready = [&](ProfileSession&) { ++traces; }});
    work(0);
    EXPECT_EQ(steps_in(session.trace()), "s0 ");
    session.step();
    work(1);
    EXPECT_EQ(session.key_averages().size(), 2u);
    session.stop();
    work(2);
    session.stop();
    EXPECT_EQ(traces, 1);
    EXPECT_EQ(steps_in(session.trace()), "s0 s1 ");
    expect_error<UsageError>({"profile: step: the session has been stopped"},
                             [&] { session.step(); });
}

// Covers 19.output_trace_dir.
TEST(Profile, WritesItsTraceToAFileNamedAfterTheProcessIndex) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    int finished = 0;
    {
        ProfileSession session({.output_trace_dir = folder / "a/b"}, 2, [&] { ++finished; });
        work(0);
    }
    const auto file = nlohmann::json::parse(read_file(folder / "a/b/profile_2.json"));
    EXPECT_EQ(file["traceEvents"].back()["name"], "s0");
    EXPECT_EQ(file["traceEvents"].back()["pid"], 2);
    EXPECT_EQ(finished, 1);
    {
        ProfileSession session({}, 0, [&] { ++finished; });
    }
    EXPECT_EQ(finished, 1);  // no files are written, so ranks do not wait
}

TEST(Profile, ThrowsFileErrorIfAPathCannotBeWritten) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    write_file_atomically(folder / "file", "");
    expect_error<FileError>({(folder / "file").c_str()},
                            [&] { ProfileSession s({.output_trace_dir = folder / "file/x"}); });
    EXPECT_FALSE(profiler::enabled());
    create_directories(folder / "out/profile_0.json/occupied");
    expect_error<FileError>({(folder / "out/profile_0.json").c_str()},
                            [&] { ProfileSession s({.output_trace_dir = folder / "out"}); });
    EXPECT_FALSE(profiler::enabled());
}

TEST(Profile, PropagatesAnExceptionOfTheLoopIfTheTraceCannotBeWritten) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    create_directories(folder / "out/profile_0.json/occupied");
    const auto loop = [&] {
        ProfileSession session({.output_trace_dir = folder / "out"});
        throw std::runtime_error("out of data");
    };
    EXPECT_THROW(loop(), std::runtime_error);
    EXPECT_FALSE(profiler::enabled());
}

// Covers 19.ProfileKwargs.activities, 19.schedule_option.
TEST(Profile, RejectsInvalidOptionsAndASecondSession) {
    expect_error<ValueError>({"profile: unknown activity 'xpu'", "expected cpu or cuda"}, [] {
        ProfileSession s({.activities = {"cpu", "xpu"}});
    });
    expect_error<ValueError>({"profile: wait can't be negative: -1"}, [] {
        ProfileSession s({.schedule_option = ProfileSchedule{.wait = -1}});
    });
    expect_error<ValueError>(
        {"profile: active (the number of recorded steps) must be positive: 0"},
        [] { ProfileSession s({.schedule_option = ProfileSchedule{.active = 0}}); });
    const ProfileSession running;
    expect_error<UsageError>({"profile: another recording is already running"},
                             [] { ProfileSession second; });
}

// Covers 19.ProfileKwargs.activities.
TEST(Profile, RecordsHostEventsOnlyIfTheActivitiesIncludeTheCpu) {
    const auto trace_of = [](std::vector<std::string> activities) {
        int traces = 0;
        ProfileSession session({.activities = std::move(activities),
                                .on_trace_ready = [&](ProfileSession&) { ++traces; },
                                .profile_memory = true});
        {
            const profiler::Communication communication("all_reduce");
            const Tensor product = matmul(ones({2, 3}), ones({3, 4}));
        }
        session.stop();
        EXPECT_EQ(traces, 1);
        return session.trace();
    };
    using Names = std::vector<std::string>;
    for (const Names& with_cpu : {Names(), Names{"cpu"}, Names{"cuda", "cpu"}}) {
        const profiler::Trace trace = trace_of(with_cpu);
        EXPECT_GE(trace.events.size(), 2u);
        EXPECT_FALSE(trace.samples.empty());
    }
    const profiler::Trace without_cpu = trace_of(Names{"cuda"});
    EXPECT_TRUE(without_cpu.events.empty());
    EXPECT_TRUE(without_cpu.samples.empty());
}

// Covers 19.record_shapes, 19.key_averages, 19.profile_memory, 19.with_stack, 19.with_flops,
// 19.with_modules.
TEST(Profile, RecordsShapesAndMemoryAndWarnsOnceAboutUnsupportedOptions) {
    std::vector<std::string> messages;
    set_log_sink([&](LogLevel, std::string_view text) { messages.emplace_back(text); });
    for (int i = 0; i < 2; ++i) {
        ProfileSession session({.record_shapes = true,
                                .profile_memory = true,
                                .with_stack = true,
                                .with_flops = true,
                                .with_modules = true});
        const Tensor product = matmul(ones({2, 3}), ones({3, 4}));
        session.stop();
        const auto rows = session.key_averages(true);
        const auto row = std::find_if(rows.begin(), rows.end(),
                                      [](const profiler::Row& r) { return r.name == "matmul"; });
        ASSERT_NE(row, rows.end());
        EXPECT_EQ(row->operands, (std::vector<Shape>{{2, 3}, {3, 4}}));
        EXPECT_GT(row->bytes, 0);
        const std::string table =
            profiler::table(rows, {.sort_by = "self_cpu_time_total", .row_limit = 1});
        EXPECT_NE(table.find("Name"), std::string::npos) << table;
    }
    set_log_sink({});
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find("with_stack"), std::string::npos) << messages[0];
}

// Covers 3.profile, 19.key_averages, 19.profile, 19.export_chrome_trace.
TEST(Profile, RecordsATrainingLoopOfAnAccelerator) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Accelerator accelerator(
        {.profile_kwargs = ProfileKwargs{.output_trace_dir = folder / "by default"}});
    tests::SmallNet net;
    optim::SGD sgd(net.parameters(), {.lr = 0.01});
    data::DataLoader train(tests::samples(8), {.batch_size = 4});
    auto [model, optimizer, loader] = accelerator.prepare(net, sgd, train);
    auto session = accelerator.profile({.output_trace_dir = folder / "given"});
    for (auto& batch : loader) {
        accelerator.backward(tests::squared_error(model(batch["x"].tensor()), batch["y"].tensor()));
        optimizer.step();
        optimizer.zero_grad();
        session.step();
    }
    accelerator.save_state(folder / "state");
    session.stop();
    std::map<std::string, profiler::Row> rows;
    for (const profiler::Row& row : session.key_averages()) rows[row.name] = row;
    EXPECT_EQ(rows["linear"].calls, 4);
    EXPECT_EQ(rows["linear backward"].calls, 4);
    EXPECT_EQ(rows["SGD.step"].calls, 2);
    EXPECT_EQ(rows["DataLoader.next"].calls, 2);
    EXPECT_EQ(rows["save_state"].category, profiler::Category::io);
    EXPECT_TRUE(std::filesystem::exists(folder / "given/profile_0.json"));
    accelerator.profile().stop();
    EXPECT_TRUE(std::filesystem::exists(folder / "by default/profile_0.json"));
}

}  // namespace
}  // namespace axle
