// Tests the hooks that run when a state is saved or loaded, and objects registered for
// checkpointing.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "accel/config/project.h"
#include "accel/state/checkpoint.h"
#include "core/files/file.h"
#include "core/memory/memory.h"
#include "gmock/gmock.h"
#include "tests/accel/training.h"
#include "tests/dist/launch/child.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using accel::HookHandle;
using testing::ElementsAre;
using testing::HasSubstr;
using Group = std::shared_ptr<dist::ProcessGroup>;
using Models = std::vector<nn::Module*>;
using Weights = std::vector<nn::StateDict>;

TEST(StateHooks, CannotReplaceTheManifest) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Accelerator accelerator({.cpu = true});
    accelerator.register_save_state_pre_hook(
        [](const Models&, Weights&, const std::string& directory) {
            write_file_atomically(directory + "/manifest.json", "{}");
        });
    EXPECT_THROW(accelerator.save_state(folder / "state"), FileError);
    EXPECT_FALSE(fs::exists(folder / "state"));
}

// Covers 3.register_save_state_pre_hook, 10.order, 3.register_load_state_pre_hook.
TEST(StateHooks, RunInOrderOnEveryRankReplaceWeightsAndAddFilesToTheManifest) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::vector<std::string> called[2];
    on_ranks(2, [&](const Group& group) {
        std::vector<std::string>& calls = called[group->rank()];
        SmallNet first;
        nn::Linear second(2, 3);
        Accelerator accelerator({.process_group = group});
        accelerator.prepare(first, second);
        accelerator.register_save_state_pre_hook(
            [&](const Models& models, Weights& weights, const std::string& directory) {
                calls.emplace_back("save");
                EXPECT_THAT(models, ElementsAre(&first, &second));
                ASSERT_EQ(weights.size(), 2u);
                EXPECT_EQ(weights[1][0].first, "weight");
                weights.erase(weights.begin());
                if (!accelerator.is_main_process()) return;
                create_directories(directory + "/net/deep");
                accelerator.save(first.state_dict(), directory + "/net/deep/in.safetensors");
            });
        accelerator.register_save_state_pre_hook(
            [&](const Models&, Weights& weights, const std::string&) {
                calls.emplace_back("then");
                EXPECT_EQ(weights.size(), 1u);
            });
        accelerator.save_state(folder / "s");
        const nn::StateDict whole = first.state_dict();
        const Tensor saved = first.in.weight.detach().clone();
        Tensor(first.in.weight.detach()).fill_(0);
        accelerator.wait_for_everyone();

        accelerator.register_load_state_pre_hook([&](Models& models, const std::string& directory) {
            calls.emplace_back("load");
            EXPECT_EQ(directory, folder / "s");
            EXPECT_THAT(models, ElementsAre(&first, &second));
            models.erase(models.begin());
            accel::load_checkpoint_in_model(first, directory + "/net/deep/in.safetensors");
        });
        accelerator.load_state(folder / "s");
        EXPECT_EQ(first.in.weight.to_vector(), saved.to_vector());
    });
    for (const auto& calls : called) EXPECT_THAT(calls, ElementsAre("save", "then", "load"));
    EXPECT_TRUE(fs::exists(folder / "s/model.safetensors"));
    EXPECT_FALSE(fs::exists(folder / "s/model_1.safetensors"));
    // The manifest lists the files that a hook writes.
    const std::string file = folder / "s/net/deep/in.safetensors";
    const std::string bytes = read_file(file);
    write_file_atomically(file, bytes.substr(0, bytes.size() - 1) + "x");
    expect_error<FileError>({file.c_str(), "changed since"},
                            [&] { accel::CheckpointReader reader(folder / "s"); });
}

TEST(StateHooks, AreRemovedByTheirHandle) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    int saves = 0, loads = 0;
    HookHandle save, load, once;
    {
        Accelerator accelerator;
        save = accelerator.register_save_state_pre_hook(
            [&](const Models&, Weights&, const std::string&) { ++saves; });
        once = accelerator.register_save_state_pre_hook(
            [&](const Models&, Weights&, const std::string&) { ++saves, once.remove(); });
        load =
            accelerator.register_load_state_pre_hook([&](Models&, const std::string&) { ++loads; });
        accelerator.save_state(folder / "s");
        EXPECT_EQ(saves, 2);
        accelerator.save_state(folder / "s");
        EXPECT_EQ(saves, 3);
        save.remove();
        save.remove();
        accelerator.save_state(folder / "s");
        EXPECT_EQ(saves, 3);
        accelerator.load_state(folder / "s");
        EXPECT_EQ(loads, 1);
    }
    load.remove();
}

TEST(StateHooks, LeaveThePreviousCheckpointUnchangedWhenTheyThrow) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    on_ranks(2, [&](const Group& group) {
        Accelerator accelerator({.process_group = group});
        accelerator.save_state(folder / "s");
        accelerator.register_save_state_pre_hook([&](const Models&, Weights&, const std::string&) {
            if (group->rank() == 1) throw ValueError("no room");
        });
        EXPECT_THROW(accelerator.save_state(folder / "s"), Error);
    });
    EXPECT_EQ(accel::CheckpointReader(folder / "s").label().iteration, 0);
    EXPECT_EQ(folder.count(), 1u);
}

// A user-defined object with state_dict() and load_state_dict(), but without a base class.
struct BestLoss {
    double value = 1;
    Tree state_dict() const { return Tree{{"value", value}}; }
    void load_state_dict(const Tree& state) { value = state["value"].number(); }
};
static_assert(accel::Registrable<BestLoss> && accel::Registrable<Counter> &&
              accel::Registrable<nn::Linear> && accel::Registrable<optim::AdamW> &&
              accel::Registrable<data::DataLoader>);
static_assert(!accel::Registrable<Tensor> && !accel::Registrable<int>);

// Covers 3.register_for_checkpointing, 10.custom_checkpoint_<i>.pkl.
TEST(RegisterForCheckpointing, SavesEachObjectOnceAndRestoresAll) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    BestLoss best;
    Counter counter;
    nn::Linear ema(2, 2);
    Accelerator accelerator;
    accelerator.register_for_checkpointing(best, counter, ema);
    accelerator.register_for_checkpointing(best);  // the second call has no effect
    best.value = 0.25, counter.batches = 4;
    const std::vector<double> weight = ema.weight.to_vector();
    accelerator.save_state(folder / "s");
    EXPECT_FALSE(fs::exists(folder / "s/custom_checkpoint_3.json"));
    best.value = 0, counter.batches = 0;
    Tensor(ema.weight.detach()).fill_(0);
    accelerator.free_memory();  // registered objects stay registered
    accelerator.load_state(folder / "s");
    EXPECT_EQ(best.value, 0.25);
    EXPECT_EQ(counter.batches, 4);
    EXPECT_EQ(ema.weight.to_vector(), weight);
}

// Covers 3.register_for_checkpointing, 31.registered.
TEST(RegisterForCheckpointing, RejectsNullObjectsAndIgnoresExtraFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Counter first, second;
    Accelerator accelerator;
    expect_error<ValueError>({"register_for_checkpointing", "index 0, 2"}, [&] {
        accelerator.register_for_checkpointing({nullptr, &first, nullptr});
    });
    accelerator.register_for_checkpointing({&first, &second});
    accelerator.save_state(folder / "s");
    Accelerator other;
    other.register_for_checkpointing(first);
    LogCapture logged;
    other.load_state(folder / "s");
    EXPECT_THAT(logged.lines(),
                ElementsAre(HasSubstr("the files of the remaining objects are ignored")));
    EXPECT_TRUE(fs::exists(folder / "s/custom_checkpoint_1.json"));
}

}  // namespace
}  // namespace axle::tests
