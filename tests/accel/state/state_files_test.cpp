// Tests how StateFiles saves and loads checkpoints without an Accelerator.
#include "accel/state/state_files.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/temporary_folder.h"

namespace axle::accel {
namespace {

using tests::Counter;
using tests::SmallNet;
using tests::TemporaryFolder;

struct Prepared {
    explicit Prepared(ProjectConfiguration project = {})
        : files(std::move(project), processes, preparation, *loop) {
        preparation.prepare(net);
        preparation.prepare(sgd);
        files.add_object(&counter, as_checkpointable(counter));
    }

    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 1, .momentum = 0.5}};
    Counter counter;
    PartialState processes{{.cpu = true, .process_group = dist::ProcessGroup::alone()}};
    std::shared_ptr<LoopState> loop = std::make_shared<LoopState>();
    Preparation preparation{{}, processes, loop};
    StateFiles files;
};

TEST(StateFiles, RestoresObjectsAndCounts) {
    const TemporaryFolder folder;
    Prepared saved, loaded;
    saved.sgd.param_groups()[0].lr = 0.25;
    saved.counter.batches = 3;
    saved.loop->accumulation.set_num_steps(2);
    saved.loop->accumulation.begin_micro_batch();
    saved.net(ones({2, 4})).sum().backward();
    const std::string path = saved.files.save(folder / "state", {});
    EXPECT_EQ(loaded.files.load(path, {.strict = true}), path);
    tests::expect_same_bits(loaded.net.in.weight, saved.net.in.weight);
    tests::expect_same_bits(loaded.net.in.weight.grad(), saved.net.in.weight.grad());
    EXPECT_EQ(loaded.sgd.param_groups()[0].lr, 0.25);
    EXPECT_EQ(loaded.counter.batches, 3);
    EXPECT_EQ(loaded.loop->accumulation.counts().step, 1);
    EXPECT_FALSE(loaded.loop->accumulation.sync_gradients());
    EXPECT_EQ(loaded.files.project().iteration, 1);
}

TEST(StateFiles, UsesNonnegativeIterationsInCheckpointNamesAndLoadsTheLatest) {
    const TemporaryFolder folder;
    Prepared run({.project_dir = folder.path(), .automatic_checkpoint_naming = true});
    run.files.set_iteration(4);
    EXPECT_EQ(run.files.save({}, {}), folder / "checkpoints/checkpoint_4");
    EXPECT_EQ(run.files.save({}, {}), folder / "checkpoints/checkpoint_5");
    EXPECT_EQ(run.files.load({}, {.strict = true}), folder / "checkpoints/checkpoint_5");
    EXPECT_EQ(run.files.project().iteration, 6);
    EXPECT_THROW(run.files.set_iteration(-1), ValueError);
}

TEST(StateFiles, SavesAnObjectOnceIfItIsAddedTwice) {
    struct CountingState : Checkpointable {
        mutable int saves = 0;
        Tree state_dict() const override { return Tree{{"saves", ++saves}}; }
        void load_state_dict(const Tree&) override {}
    } object;
    const TemporaryFolder folder;
    Prepared run;
    for (int i = 0; i < 2; ++i) run.files.add_object(&object, as_checkpointable(object));
    run.files.save(folder / "state", {});
    EXPECT_EQ(object.saves, 1);
}

TEST(StateFiles, LeavesRegisteredObjectsUnchangedIfTheCheckpointIsMissing) {
    const TemporaryFolder folder;
    Prepared run;
    run.counter.batches = 3;
    EXPECT_THROW(run.files.load(folder / "missing", {.strict = true}), FileError);
    EXPECT_EQ(run.counter.batches, 3);
}

}  // namespace
}  // namespace axle::accel
