// Tests load_state on folders written by Accelerate's save_state
// (tests/golden/record_accelerate_state.py).
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "nn/layers/container.h"
#include "optim/grad_scaler.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

std::string recorded(const std::string& name) {
    return AXLE_TESTS_DIR "/golden/accelerate_state/" + name;
}

// The training run that tests/golden/record_accelerate_state.py records.
struct TheirTraining {
    explicit TheirTraining(bool both, const std::string& precision = "no")
        : has_scale(both),
          net{nn::Linear(3, 4), [](const Tensor& x) { return tanh(x); }, nn::Linear(4, 1)},
          adamw((net.to(f64), net.parameters()), {.lr = 0.5}),
          cosine(adamw, 20),
          sgd((scale.to(f64), scale.parameters()), {.lr = 0.5, .momentum = 0.9}),
          steps(sgd, 2, 0.5),
          accelerator({.mixed_precision = precision, .gradient_accumulation_steps = 2}) {
        accelerator.prepare(net, adamw, cosine);
        if (both) accelerator.prepare(scale, sgd, steps);
        accelerator.register_for_checkpointing(counter);
    }

    double micro_batch(std::int64_t i) {
        auto scope = accelerator.accumulate();
        std::vector<double> values(6);
        for (double& value : values) value = std::cos(static_cast<double>(&value - &values[0] + i));
        const Tensor x = tensor(values, {2, 3}, {.dtype = f64});
        const Tensor y = x.sum({1}, true) / 2;
        const Tensor out = net(x);
        const Tensor loss = squared_error(has_scale ? scale(out) : out, y);
        accelerator.backward(loss);
        adamw.step(), cosine.step(), adamw.zero_grad();
        if (has_scale) sgd.step(), steps.step();
        sgd.zero_grad();
        ++counter.batches;
        return loss.item();
    }

    bool has_scale;
    nn::Sequential net;
    nn::Linear scale{1, 1};
    optim::AdamW adamw;
    optim::CosineAnnealingLR cosine;
    optim::SGD sgd;
    optim::StepLR steps;
    Counter counter;
    Accelerator accelerator;
};

// Covers 10.model.safetensors, 10.pytorch_model.bin, 10.optimizer.bin, 10.scheduler.bin,
// 10.random_states_<process_index>.pkl, 10.custom_checkpoint_<i>.pkl, 10.load.
TEST(AccelerateCheckpoint, GivesTheLossesOfPyTorchAfterLoading) {
    const auto losses = golden_json("accelerate_state/losses.json");
    for (const char* folder : {"whole", "pickled"}) {
        SCOPED_TRACE(folder);
        TheirTraining training(folder == std::string("whole"));
        LogCapture logged;
        training.accelerator.load_state(recorded(folder));
        EXPECT_THAT(logged.lines(), Contains(HasSubstr("random states, positions of loaders")));
        EXPECT_EQ(training.counter.batches, 6);
        EXPECT_EQ(training.adamw.param_groups()[0].weight_decay, 0.1);
        for (const double expected : losses[folder].get<std::vector<double>>())
            EXPECT_NEAR(training.micro_batch(training.counter.batches), expected, 1e-12);
    }
}

// Covers 10.scaler.pt.
TEST(AccelerateCheckpoint, RestoresTheGradScalerAndItsGrowthCounter) {
    TheirTraining training(true, "fp16");
    LogCapture logged;
    training.accelerator.load_state(recorded("whole"));
    const Tree state = training.accelerator.scaler()->state_dict();
    EXPECT_EQ(state["scale"].number(), 1024);
    EXPECT_EQ(state["_growth_tracker"].integer(), 3);
    EXPECT_EQ(state["growth_interval"].integer(), 50);
}

// A temporary copy of a recorded folder. Tests remove or replace files in the copy.
class Copy {
  public:
    explicit Copy(const std::string& folder) {
        fs::copy(recorded(folder), path(), fs::copy_options::recursive);
    }
    std::string path() const { return folder_ / "checkpoint_4"; }
    std::string operator/(const std::string& name) const { return path() + "/" + name; }

  private:
    TemporaryFolder folder_{FolderStorage::in_memory};
};

TEST(AccelerateCheckpoint, IsRejectedWithoutChangesIfAFileIsMissingOrDamaged) {
    LogCapture logged;
    for (const char* name :
         {"model_1.safetensors", "optimizer_1.bin", "scheduler.bin", "custom_checkpoint_0.pkl"}) {
        SCOPED_TRACE(name);
        const Copy copy("whole");
        TheirTraining training(true);
        const std::vector<double> before = training.net.parameters()[0].to_vector();
        const std::string file = copy / name, bytes = read_file(file);
        fs::remove(file);
        const std::string named = name == std::string("model_1.safetensors") ? "model_1" : name;
        expect_error<FileError>({copy.path().c_str(), named.c_str()},
                                [&] { training.accelerator.load_state(copy.path()); });
        write_file_atomically(file, bytes.substr(0, bytes.size() / 2));
        expect_error<FileError>({file.c_str()},
                                [&] { training.accelerator.load_state(copy.path()); });
        EXPECT_EQ(training.net.parameters()[0].to_vector(), before);
        EXPECT_EQ(training.counter.batches, 0);
    }
}

// If random states are missing or cannot be read, all other state is loaded.
TEST(AccelerateCheckpoint, CanBeLoadedIfRandomStatesAreMissingOrDamaged) {
    LogCapture logged;
    for (const bool damaged : {false, true}) {
        const Copy copy("whole");
        fs::remove(copy / "random_states_0.pkl");
        if (damaged) write_file_atomically(copy / "random_states_0.pkl", "text");
        TheirTraining training(true);
        training.accelerator.load_state(copy.path());
        EXPECT_EQ(training.counter.batches, 6);
    }
}

TEST(AccelerateCheckpoint, IsRejectedIfAPickleHasUnsupportedObjects) {
    const Copy copy("whole");
    fs::copy_file(copy / "random_states_0.pkl", copy / "custom_checkpoint_0.pkl",
                  fs::copy_options::overwrite_existing);
    TheirTraining training(true);
    expect_error<FileError>({(copy / "custom_checkpoint_0.pkl").c_str(), "numpy"},
                            [&] { training.accelerator.load_state(copy.path()); });
}

// Covers 2.step, 31.checkpoint, 31.save_state.
TEST(AccelerateCheckpoint, RestoresIterationAndMicroBatchCountAndIsNotReplaced) {
    LogCapture logged;
    const Copy copy("whole");
    TheirTraining training(true);
    training.accelerator.set_gradient_accumulation_steps(4);
    training.accelerator.load_state(copy.path());
    EXPECT_EQ(training.accelerator.save_iteration(), 5);
    EXPECT_FALSE(training.accelerator.sync_gradients());
    auto scope = training.accelerator.accumulate();  // begins the seventh micro-batch
    EXPECT_FALSE(training.accelerator.sync_gradients());
    auto next = training.accelerator.accumulate();
    EXPECT_TRUE(training.accelerator.sync_gradients());
    // save_state() does not replace a folder written by Accelerate.
    expect_error<FileError>({copy.path().c_str(), "can't be replaced by a checkpoint"},
                            [&] { training.accelerator.save_state(copy.path()); });
    EXPECT_TRUE(fs::exists(copy / "optimizer.bin"));
}

TEST(AccelerateCheckpoint, CanBeTheLatestCheckpointOfAProject) {
    LogCapture logged;
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::AcceleratorOptions options;
    options.project_config = {.project_dir = folder.path(),
                              .automatic_checkpoint_naming = true,
                              .total_limit = 1,
                              .iteration = 2};
    Accelerator accelerator(options);
    Counter counter;
    accelerator.register_for_checkpointing(counter);
    accelerator.save_state();
    fs::copy(recorded("whole"), folder / "checkpoints/checkpoint_11", fs::copy_options::recursive);
    accelerator.load_state();
    EXPECT_EQ(counter.batches, 6);
    EXPECT_EQ(accelerator.save_state(), folder / "checkpoints/checkpoint_12");
    EXPECT_TRUE(fs::exists(folder / "checkpoints/checkpoint_11"));
    EXPECT_FALSE(fs::exists(folder / "checkpoints/checkpoint_2"));
}

}  // namespace
}  // namespace axle::tests
