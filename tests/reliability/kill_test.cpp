// Kills processes of jobs that save and resume, at random moments.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gtest/gtest.h"
#include "tests/accel/training.h"
#include "tests/figures.h"
#include "tests/reporting_job.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using std::chrono::microseconds;

accel::ProjectConfiguration project_in(const std::string& folder) {
    return {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = 2};
}

// Kills either all processes or one random process. In the second case, the other processes must
// end by themselves.
void kill_some(ReportingJob& job, std::mt19937& random) {
    const auto victim = static_cast<int>(random() % (2U * static_cast<unsigned>(job.size())));
    for (int rank = 0; rank < job.size(); ++rank)
        if (victim >= job.size() || victim == rank) job.signal(rank, SIGKILL);
    EXPECT_TRUE(job.wait(std::chrono::seconds(20)))
        << "a rank did not end after the death of " << victim;
}

// Whether the parameters are sharded over the processes. If they are, each process writes its part.
enum class Sharding : std::uint8_t { none, in_parts };

// Continues from the latest checkpoint and saves after every batch, every second time in the
// background. Rank 0 reports the number of batches after loading and after each complete save.
void train_and_save(const std::string& folder, Sharding sharding, const ReportingJob::Group& group,
                    const ReportingJob::Reporter& report) {
    const bool in_parts = sharding == Sharding::in_parts;
    Training training(
        7, 0, true, group, project_in(folder),
        in_parts ? std::optional(accel::FullyShardedDataParallelPlugin{.sync_module_states = true})
                 : std::nullopt);
    const bool is_main = training.accelerator.is_main_process();
    if (accel::latest_checkpoint(folder + "/checkpoints")) training.accelerator.load_state();
    if (is_main) report(Event::loaded, training.counter.batches);
    training.run(1'000'000, [&] {
        const bool asynchronous = training.counter.batches % 2 == 0;
        training.accelerator.save_state(
            {}, {.asynchronous = asynchronous,
                 .state_dict_type =
                     in_parts ? accel::StateDictType::sharded : accel::StateDictType::full});
        training.accelerator.wait_for_saves();
        if (is_main) report(Event::saved, training.counter.batches);
    });
}

struct KillFigures {
    int kills = 0;
    std::int64_t saves = 0, lost = 0, unreadable = 0;
};

// Starts rounds + 1 jobs one after another with the same folder. Kills each job except the last at
// a random moment after its first save.
KillFigures kill_while_saving(int size, int rounds, Sharding sharding) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::mt19937 random(static_cast<unsigned>(size));
    KillFigures figures;
    std::int64_t saved = 0;
    for (int round = 0; round <= rounds; ++round) {
        SCOPED_TRACE(str("round ", round));
        ReportingJob job(size, [&](const auto& group, const auto& report) {
            train_and_save(folder.path(), sharding, group, report);
        });
        const auto loaded = job.next();
        if (!loaded || loaded->event != Event::loaded) {
            ADD_FAILURE() << "the job did not load its checkpoint";
            ++figures.unreadable;
            break;
        }
        if (loaded->value < saved) {
            ADD_FAILURE() << "saved " << saved << " batches, loaded " << loaded->value;
            ++figures.lost;
        }
        if (round == rounds) break;  // the job after the last kill has loaded its checkpoint
        if (const auto first = job.next(); !first) {
            ADD_FAILURE() << "the job did not save";
            break;
        } else {
            saved = first->value;
        }
        std::this_thread::sleep_for(microseconds(random() % 15'000));
        kill_some(job, random);
        ++figures.kills;
        while (const auto report = job.next(std::chrono::milliseconds(0))) saved = report->value;
    }
    figures.saves = saved;
    return figures;
}

void expect_no_loss(int size, int rounds, Sharding sharding = Sharding::none) {
    const KillFigures figures = kill_while_saving(size, rounds, sharding);
    EXPECT_EQ(figures.kills, rounds);
    EXPECT_EQ(figures.unreadable, 0);
    EXPECT_EQ(figures.lost, 0);
    record_figure(str("kills_while_saving_", size,
                      sharding == Sharding::in_parts ? "_processes_in_parts" : "_processes"),
                  {{"kills", figures.kills},
                   {"acknowledged_saves", figures.saves},
                   {"unreadable", figures.unreadable},
                   {"acknowledged_saves_lost", figures.lost}});
}

TEST(KilledSave, LosesNoAcknowledgedCheckpoint) { expect_no_loss(2, 20); }

TEST(KilledSave, LosesNoAcknowledgedShardedCheckpoint) {
    expect_no_loss(2, 20, Sharding::in_parts);
}

TEST(KilledSave, LosesNoAcknowledgedCheckpointInALongRun) {
    expect_no_loss(2, 1000);
    expect_no_loss(4, 300);
}

TEST(KilledSave, LosesNoAcknowledgedShardedCheckpointInALongRun) {
    expect_no_loss(4, 100, Sharding::in_parts);
}

constexpr std::int64_t kEpochs = 12;

// Continues from the latest checkpoint, trains to the end, saves after every batch, and writes each
// loss and the final state to files.
void train_to_the_end(const std::string& folder, const ReportingJob::Group& group,
                      const ReportingJob::Reporter& report) {
    Training training(7, 0, true, group, project_in(folder));
    if (accel::latest_checkpoint(folder + "/checkpoints")) training.accelerator.load_state();
    const bool is_main = training.accelerator.is_main_process();
    while (training.loader.epoch() < kEpochs) {
        for (auto& batch : training.loader) {
            const Tensor loss = tensor(training.micro_batch(batch), {.dtype = f64});
            save_safetensors(str(folder, "/loss_", group->rank(), '_', training.counter.batches),
                             {{"loss", loss}});
            training.accelerator.save_state();
            if (is_main) report(Event::saved, training.counter.batches);
        }
    }
    NamedTensors state;
    for (const Tensor& t : snapshot(training)) state.emplace_back(str(state.size()), t);
    save_safetensors(str(folder, "/end_", group->rank()), state);
    training.accelerator.wait_for_everyone();
    if (is_main) report(Event::finished, training.counter.batches);
}

// Returns the names and bytes of the files with the losses and final states of all ranks, in the
// order of the names.
std::string results_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.is_regular_file()) files[entry.path().filename()] = read_file(entry.path());
    std::string all;
    for (const auto& [name, bytes] : files)
        if (name.starts_with("loss_") || name.starts_with("end_")) all += name + bytes;
    return all;
}

// Runs the training until it finishes, and kills it `kills` times, each time after a random number
// of saves.
void run_chain(const std::string& folder, int size, int kills, unsigned seed) {
    std::mt19937 random(seed);
    for (;; --kills) {
        ReportingJob job(size, [&](const auto& group, const auto& report) {
            train_to_the_end(folder, group, report);
        });
        unsigned saves = 1 + random() % 4;
        for (;;) {
            const auto report = job.next();
            ASSERT_TRUE(report.has_value()) << "the job has failed";
            if (report->event == Event::finished) {
                EXPECT_TRUE(job.wait());
                EXPECT_LE(kills, 0) << "it finished before the last kill";
                return;
            }
            if (kills > 0 && --saves == 0) break;
        }
        std::this_thread::sleep_for(microseconds(random() % 5'000));
        kill_some(job, random);
    }
}

void expect_no_trace_of_kills(int size, int chains) {
    constexpr int kKills = 3;
    const TemporaryFolder whole(FolderStorage::in_memory);
    run_chain(whole.path(), size, 0, 0);
    const std::string expected = results_of(whole.path());
    int different = 0;
    for (int chain = 0; chain < chains; ++chain) {
        SCOPED_TRACE(str("chain ", chain));
        const TemporaryFolder folder(FolderStorage::in_memory);
        run_chain(folder.path(), size, kKills, static_cast<unsigned>(chain));
        different += results_of(folder.path()) != expected;
    }
    EXPECT_EQ(different, 0);
    record_figure(str("kill_and_resume_chains_", size, "_processes"),
                  {{"chains", chains},
                   {"kills_per_chain", kKills},
                   {"compared", "the loss of each step and the final state of each rank"},
                   {"chains_that_differ", different}});
}

TEST(KilledRun, ResumesBitExactly) { expect_no_trace_of_kills(2, 3); }

TEST(KilledRun, ResumesBitExactlyInALongRun) {
    expect_no_trace_of_kills(1, 100);
    expect_no_trace_of_kills(2, 100);
    expect_no_trace_of_kills(4, 100);
}

}  // namespace
}  // namespace axle::tests
