// Tests functions that run only on chosen processes or wait for other processes, and how processes
// print, log, are bound to CPU cores and leave the group. Also tests the defaults of process and
// loader options.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "accel/accelerator.h"
#include "accel/utils/logger.h"
#include "accel/utils/progress.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/launch/launch.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "tests/accel/loading/loaders.h"
#include "tests/accel/process/blocked_ranks.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Job;

// Sets the environment variables that a launcher sets for a rank, for a job on one machine or on
// several machines.
void start_as(const dist::Environment& environment, bool alone_on_its_machine) {
    const auto set = [](const char* name, const std::string& value) {
        setenv(name, value.c_str(), 1);
    };
    const std::string rank = std::to_string(environment.rank);
    set("RANK", rank);
    set("WORLD_SIZE", std::to_string(environment.world_size));
    set("LOCAL_RANK", alone_on_its_machine ? "0" : rank);
    set("LOCAL_WORLD_SIZE", alone_on_its_machine ? "1" : std::to_string(environment.world_size));
    set("NODE_RANK", alone_on_its_machine ? rank : "0");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(environment.master_port));
    set("AXLE_JOB_TOKEN", environment.token);
}

// Returns the text that f() writes to std::cout.
template <class F>
std::string written_by(F&& f) {
    std::ostringstream out;
    std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
    f();
    std::cout.rdbuf(before);
    return out.str();
}

// Covers 2.is_last_process, 2.is_local_main_process, 2.is_main_process, 2.local_process_index,
// 2.process_index, 2.use_distributed, 12.is_main_process, 31.cpu, 12.is_local_main_process.
TEST(ProcessControl, SelectsOneProcessPerJobOrMachine) {
    for (const bool machines : {false, true}) {
        Job job(3, [&](const dist::Environment& environment) -> std::string {
            start_as(environment, machines);
            const Accelerator accelerator({.cpu = true});
            std::string is = str(accelerator.process_index(), " of ", accelerator.num_processes(),
                                 ", ", accelerator.local_process_index());
            if (accelerator.is_main_process()) is += " main";
            if (accelerator.is_local_main_process()) is += " local";
            if (accelerator.is_last_process()) is += " last";
            return is + (accelerator.use_distributed() ? "" : " alone");
        });
        const auto ended = job.wait(30s);
        EXPECT_EQ(ended[0].text, "0 of 3, 0 main local");
        EXPECT_EQ(ended[1].text, machines ? "1 of 3, 0 local" : "1 of 3, 1");
        EXPECT_EQ(ended[2].text, machines ? "2 of 3, 0 local last" : "2 of 3, 2 last");
    }
}

// Covers 3.print, 12.print, 31.print.
TEST(Print, WritesOncePerMachine) {
    for (const bool machines : {false, true}) {
        Job job(2, [&](const dist::Environment& environment) {
            start_as(environment, machines);
            const Accelerator accelerator({.cpu = true});
            return written_by([&] { accelerator.print("loss ", 0.5, ' ', ones({2})); });
        });
        const auto ended = job.wait(30s);
        const std::string line = str("loss ", 0.5, ' ', ones({2}), '\n');
        EXPECT_EQ(ended[0].text, line);
        EXPECT_EQ(ended[1].text, machines ? line : "");
    }
}

// Covers 12.tqdm.
TEST(ProgressBar, IsShownOnlyOnTheLocalMainProcessByDefault) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        const Accelerator accelerator({.cpu = true});
        std::ostringstream one, all, none;
        accel::ProgressBar(1, {.out = &one}).update(1);
        accel::ProgressBar(1, {.out = &all, .main_process_only = false}).update(1);
        accel::ProgressBar(1, {.out = &none, .disable = true}).update(1);
        return str(one.str().empty() ? "-" : "one", all.str().empty() ? " -" : " all",
                   none.str().empty() ? " -" : " none");
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "one all -");
    EXPECT_EQ(ended[1].text, "- all -");
}

// Covers 3.on_main_process, 12.on_*, 3.on_local_main_process, 3.on_last_process, 3.on_process,
// 3.on_local_process.
TEST(ProcessControl, CallsFunctionsOnlyOnTheChosenProcess) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        const Accelerator accelerator({.cpu = true});
        std::string called;
        accelerator.on_main_process([&] { called += "main "; });
        accelerator.on_local_main_process([&] { called += "local "; });
        accelerator.on_last_process([&] { called += "last "; });
        accelerator.on_process(1, [&] { called += "one "; });
        accelerator.on_local_process(0, [&] { called += "zero "; });
        accelerator.on_process(7, [&] { called += "nobody "; });
        const std::optional<int> result = accelerator.on_process(1, [] { return 3; });
        return called + (result ? std::to_string(*result) : "nothing");
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "main local zero nothing");
    EXPECT_EQ(ended[1].text, "last one 3");
}

// A channel from one rank to another. Create it before the job.
class Signal {
  public:
    Signal() { EXPECT_EQ(pipe(ends_), 0); }
    ~Signal() { close(ends_[0]), close(ends_[1]); }
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    void send() const { EXPECT_EQ(write(ends_[1], "", 1), 1); }
    // Blocks until another rank has called send().
    void wait() const {
        char byte;
        EXPECT_EQ(read(ends_[0], &byte, 1), 1);
    }

  private:
    int ends_[2] = {-1, -1};
};

// Covers 3.local_main_process_first, 12.*_process_first.
TEST(LocalMainProcessFirst, BlocksOtherProcessesOfTheMachine) {
    const tests::BlockedRanks blocked;
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/made";
    Job job(3, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        const Accelerator accelerator({.cpu = true});
        blocked.enter(environment.rank);
        const auto first = accelerator.local_main_process_first();
        if (accelerator.is_local_main_process()) {
            for (const int rank : {1, 2})
                if (!blocked.wait_for(rank)) return "not blocked";
            std::ofstream(path) << "made";
        }
        return std::ifstream(path).good() ? "there" : "missing";
    });
    for (const auto& rank : job.wait(30s)) EXPECT_EQ(rank.text, "there");
}

// Each rank is alone on its machine, and rank 0 waits for rank 1 inside the scope.
// Covers 3.local_main_process_first, 12.*_process_first.
TEST(LocalMainProcessFirst, DoesNotBlockProcessesOfOtherMachines) {
    const Signal entered;
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, true);
        const Accelerator accelerator({.cpu = true});
        const auto first = accelerator.local_main_process_first();
        if (accelerator.is_main_process()) {
            entered.wait();
        } else {
            entered.send();
        }
        return "both";
    });
    for (const auto& rank : job.wait(30s)) EXPECT_EQ(rank.text, "both");
}

// Rank 1 does not call the second barrier before the timeout of rank 0.
// Covers 1.kwargs_handlers, 9.InitProcessGroupKwargs, 30.9.
TEST(InitProcessGroupKwargs, SetTheTimeoutOfCollectives) {
    const Signal gave_up;
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        const Accelerator accelerator(
            {.cpu = true, .kwargs_handlers = {accel::InitProcessGroupKwargs{.timeout = 300ms}}});
        accelerator.wait_for_everyone();
        if (!accelerator.is_main_process()) {
            gave_up.wait();
            return "late";
        }
        std::string error;
        try {
            accelerator.wait_for_everyone();
        } catch (const CommError& e) {
            error = e.what();
        }
        gave_up.send();
        return error;
    });
    const auto ended = job.wait(20s);
    EXPECT_THAT(ended[0].text, testing::HasSubstr("rank 1"));
    EXPECT_EQ(ended[1].text, "late");
}

// Each rank writes when all later ranks are blocked. If the messages were not ordered, later ranks
// would not block.
// Covers 22.MultiProcessAdapter.log.
TEST(Logger, WritesInOrderOfRanksOnRequest) {
    const tests::BlockedRanks blocked;
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/log";
    Job job(3, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        const Accelerator accelerator({.cpu = true});
        set_log_sink([&](LogLevel, std::string_view text) {
            for (int later = environment.rank + 1; later < 3; ++later)
                EXPECT_TRUE(blocked.wait_for(later));
            std::ofstream(path, std::ios::app) << text << '|' << std::flush;
        });
        const accel::Logger logger = accel::get_logger("train", LogLevel::info);
        blocked.enter(environment.rank);
        for (const char* text : {"a", "b"}) logger.info(text, {.in_order = true});
        set_log_sink({});
        return "";
    });
    job.wait(30s);
    std::stringstream lines;
    lines << std::ifstream(path).rdbuf();
    EXPECT_EQ(lines.str(),
              "[RANK 0] train: a|[RANK 1] train: a|[RANK 2] train: a|"
              "[RANK 0] train: b|[RANK 1] train: b|[RANK 2] train: b|");
}

// Returns the CPUs on which this thread may run.
std::vector<int> own_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    return cpus;
}

// Covers 6.set, 27.ACCELERATE_CPU_AFFINITY.
TEST(CpuAffinity, BindsEachProcessOnceIfAccelerateCpuAffinityIsSet) {
    for (const bool binds : {false, true}) {
        Job job(2, [&](const dist::Environment& environment) -> std::string {
            start_as(environment, false);
            setenv("ACCELERATE_CPU_AFFINITY", binds ? "1" : "0", 1);
            const Accelerator accelerator({.cpu = true});
            const std::vector<int> cpus = own_cpus();
            // A process that is already bound to CPUs is not bound again to a part of these CPUs.
            if (binds) dist::bind_to_cores({.local_world_size = 2}, environment.local_rank);
            return own_cpus() == cpus ? testing::PrintToString(cpus) : "bound twice";
        });
        const auto ended = job.wait(30s);
        for (int rank = 0; rank < 2; ++rank)
            EXPECT_EQ(ended[static_cast<std::size_t>(rank)].text,
                      testing::PrintToString(binds ? dist::cpus_of({.local_world_size = 2}, rank)
                                                   : own_cpus()));
    }
}

// Covers 3.save, 3.wait_for_everyone, 12.deferred, 13.wait_for_everyone, 13.save.
TEST(WaitForEveryone, ReturnsAfterTheMainProcessHasSavedItsFile) {
    const tests::BlockedRanks blocked;
    const tests::TemporaryFolder folder;
    const std::string path = folder.path() + "/values.json";
    Job job(3, [&](const dist::Environment& environment) {
        start_as(environment, false);
        const Accelerator accelerator({.cpu = true});
        blocked.enter(environment.rank);
        if (accelerator.is_main_process()) {
            for (const int rank : {1, 2}) EXPECT_TRUE(blocked.wait_for(rank));
        }
        accelerator.save(Tree{{"rank", accelerator.process_index()}}, path);
        accelerator.wait_for_everyone();
        return std::to_string(accel::load(path)["rank"].integer());
    });
    for (const auto& rank : job.wait(30s)) EXPECT_EQ(rank.text, "0");
}

// Covers 3.end_training, 6.destroy_process_group, 12.end_training.
TEST(EndTraining, LeavesTheProcessGroupUnlessForkLaunchedIsSet) {
    for (const bool launched : {false, true}) {
        Job job(2, [&](const dist::Environment& environment) -> std::string {
            start_as(environment, false);
            if (launched) setenv("FORK_LAUNCHED", "1", 1);
            Accelerator accelerator({.cpu = true});
            accelerator.wait_for_everyone();
            accelerator.end_training();
            accelerator.end_training();
            std::string is = str(accelerator.process_index(), accelerator.is_main_process());
            try {
                accelerator.wait_for_everyone();
                return is + " together";
            } catch (const UsageError& e) {
                return is + " " + e.what();
            }
        });
        const auto ended = job.wait(30s);
        const auto words = testing::HasSubstr(launched ? " together" : "end_training");
        EXPECT_THAT(ended[0].text, testing::AllOf(testing::StartsWith("01 "), words));
        EXPECT_THAT(ended[1].text, testing::AllOf(testing::StartsWith("10 "), words));
    }
    Accelerator alone({.cpu = true});
    alone.end_training();
    EXPECT_NO_THROW(alone.wait_for_everyone());
}

// Covers 9.DDP.
TEST(PreparedModel, IsNotSynchronizedWithoutTrainableParameters) {
    Job job(2, [&](const dist::Environment& environment) -> std::string {
        start_as(environment, false);
        Accelerator accelerator({.cpu = true});
        nn::Linear frozen(1, 1), trained(1, 1);
        for (nn::Linear* model : {&frozen, &trained}) {
            const NoGrad no_grad;
            model->weight.fill_(environment.rank + 1);
        }
        frozen.requires_grad_(false);
        accelerator.prepare(frozen, trained);
        return str(frozen.weight.item(), ' ', trained.weight.item());
    });
    const auto ended = job.wait(30s);
    EXPECT_EQ(ended[0].text, "1 1");
    EXPECT_EQ(ended[1].text, "2 1");
}

// Covers 4.put_on_device, 4.device.
TEST(PreparedLoader, MovesOnlyTensorsToTheDevice) {
    const auto dataset = data::from_function(4, [](std::int64_t i) {
        Tree pair = Tree::list();
        pair.push_back(full({2}, i, {f32}));
        pair.push_back(Tree("text"));
        return Tree{{"x", full({3}, i, {f32})}, {"pair", pair}};
    });
    for (const bool places : {false, true}) {
        data::DataLoader loader(dataset, {.batch_size = 2});
        accel::prepare_data_loader(loader, dist::ProcessGroup::alone(),
                                   {.device = Device::meta(), .put_on_device = places});
        for (auto& batch : loader) {
            const Device device = places ? Device::meta() : Device::cpu();
            EXPECT_EQ(batch["x"].tensor().device(), device);
            EXPECT_EQ(batch["pair"][0].tensor().device(), device);
            EXPECT_EQ(batch["pair"][1][1].string(), "text");
        }
    }
}

// Covers 4.DataLoaderConfiguration.
TEST(DataLoaderConfiguration, HasTheDocumentedDefaults) {
    const accel::DataLoaderConfiguration config;
    EXPECT_FALSE(config.split_batches);
    EXPECT_FALSE(config.dispatch_batches.has_value());
    EXPECT_TRUE(config.even_batches);
    EXPECT_FALSE(config.use_seedable_sampler);
    EXPECT_FALSE(config.data_seed.has_value());
    EXPECT_FALSE(config.non_blocking);
    EXPECT_FALSE(config.use_stateful_dataloader);
}

}  // namespace
}  // namespace axle
