// Tests load_state on folders in the layout of Accelerate's save_state with FSDP:
// SHARDED_STATE_DICT (tests/golden/record_dcp.py) and FULL_STATE_DICT
// (tests/golden/record_fsdp_state.py).
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "nn/layers/container.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string recorded(const std::string& name) { return AXLE_TESTS_DIR "/golden/dcp/" + name; }

// The training run that tests/golden/record_dcp.py records. It has another learning rate, because
// load_state must restore the recorded rate.
struct FsdpTraining {
    explicit FsdpTraining(const std::shared_ptr<dist::ProcessGroup>& group = {})
        : net{nn::Linear(3, 4), [](const Tensor& x) { return tanh(x); }, nn::Linear(4, 1)},
          adamw((net.to(f64), net.parameters()), {.lr = 0.5}),
          accelerator(options_for(group)) {
        accelerator.prepare(net, adamw);
    }
    static accel::AcceleratorOptions options_for(const std::shared_ptr<dist::ProcessGroup>& group) {
        if (!group) return {};
        return {.cpu = true, .fsdp_plugin = {{.sync_module_states = true}}, .process_group = group};
    }

    double step(std::int64_t i) {
        std::vector<double> values(6);
        for (std::size_t k = 0; k < values.size(); ++k)
            values[k] = std::cos(static_cast<double>(k) + static_cast<double>(i));
        const Tensor x = tensor(values, {2, 3}, {.dtype = f64});
        const Tensor loss = squared_error(net(x), x.sum({1}, true) / 2);
        accelerator.backward(loss);
        adamw.step(), adamw.zero_grad();
        return loss.item();
    }
    void expect_recorded_losses() {
        std::int64_t i = 3;
        for (const double expected : golden_json("dcp/losses.json").get<std::vector<double>>())
            EXPECT_NEAR(step(i++), expected, 1e-12);
    }

    nn::Sequential net;
    optim::AdamW adamw;
    Accelerator accelerator;
};

}  // namespace

// Covers 10.load, 10.FSDP.
TEST(AccelerateFsdpCheckpoint, GivesTheLossesOfPyTorchAfterLoading) {
    LogCapture logged;
    FsdpTraining training;
    training.accelerator.load_state(recorded("state"));
    EXPECT_EQ(training.adamw.param_groups()[0].lr, 0.05);
    EXPECT_EQ(training.adamw.param_groups()[0].weight_decay, 0.1);
    training.expect_recorded_losses();
}

// Covers 10.load, 10.FSDP.
TEST(AccelerateFsdpCheckpoint, CanBeLoadedIntoAShardedModel) {
    LogCapture logged;
    on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        FsdpTraining training(group);
        training.accelerator.load_state(recorded("state"));
        training.expect_recorded_losses();
    });
}

// The optimizer's file has names of parameters in place of numbers.
// Covers 10.load, 10.FSDP.
TEST(AccelerateFsdpCheckpoint, CanBeLoadedIfItHasFullStateDictsOfFsdp1Or2) {
    LogCapture logged;
    for (const char* version : {"1", "2"}) {
        SCOPED_TRACE(version);
        const std::string path = std::string(AXLE_TESTS_DIR "/golden/fsdp_state/full_") + version;
        FsdpTraining alone;
        alone.accelerator.load_state(path);
        EXPECT_EQ(alone.adamw.param_groups()[0].lr, 0.05);
        alone.expect_recorded_losses();
        on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            FsdpTraining training(group);
            training.accelerator.load_state(path);
            training.expect_recorded_losses();
        });
    }
}

TEST(AccelerateFsdpCheckpoint, IsRejectedIfItWasSavedWithLocalStateDict) {
    LogCapture logged;
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::ofstream(folder / "pytorch_model_fsdp_rank0.bin") << "a pickle of ShardedTensor";
    fs::copy_file(recorded("state/random_states_0.pkl"), folder / "random_states_0.pkl");
    FsdpTraining training;
    expect_error<FileError>({folder.path().c_str(), "was saved with LOCAL_STATE_DICT",
                             "pytorch_model_fsdp_rank0.bin", "save it with FULL_STATE_DICT"},
                            [&] { training.accelerator.load_state(folder.path()); });
}

TEST(AccelerateFsdpCheckpoint, IsRejectedWithoutChangesIfAFileIsDamaged) {
    LogCapture logged;
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const char* part : {"pytorch_model_fsdp_0", "optimizer_0"}) {
        SCOPED_TRACE(part);
        const std::string copy = folder / part;
        fs::copy(recorded("state"), copy, fs::copy_options::recursive);
        const std::string file = copy + "/" + part + "/__1_0.distcp";
        fs::resize_file(file, fs::file_size(file) / 2);
        FsdpTraining training;
        const std::vector<double> before = training.net.parameters()[0].to_vector();
        expect_error<FileError>({file.c_str(), "the data of '", "beyond the end of the file"},
                                [&] { training.accelerator.load_state(copy); });
        EXPECT_EQ(training.net.parameters()[0].to_vector(), before);
    }
}

// The test replaces the optimizer's checkpoint by the model's checkpoint.
TEST(AccelerateFsdpCheckpoint, IsRejectedIfTheOptimizerFolderHasTheModelCheckpoint) {
    LogCapture logged;
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string copy = folder / "state";
    fs::copy(recorded("state"), copy, fs::copy_options::recursive);
    fs::remove_all(copy + "/optimizer_0");
    fs::copy(copy + "/pytorch_model_fsdp_0", copy + "/optimizer_0");
    FsdpTraining training;
    expect_error<FileError>({(copy + "/optimizer_0: not the state of an optimizer").c_str()},
                            [&] { training.accelerator.load_state(copy); });
}

}  // namespace axle::tests
