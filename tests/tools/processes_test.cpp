// Tests train_gpt, and evaluation in train_vision, on several processes that different launchers
// start. Training must match one process whose batch is as large as the batches of all processes
// together.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/free_port.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder

// Returns the path of a program in PATH, or "" if it is not found.
std::string found(const std::string& name) {
    const char* path = std::getenv("PATH");
    std::stringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
        if (const auto file = fs::path(folder) / name; access(file.c_str(), X_OK) == 0)
            return file.string();
    return {};
}

std::string axle_program() { return AXLE_BIN_DIR "/axle"; }

class LaunchedTrainer : public TrainerTest {
  protected:
    LaunchedTrainer() : TrainerTest("train_gpt") {}

    void SetUp() override {
        TrainerTest::SetUp();
        write_words(folder_ / "text.txt");
    }

    // Adds MASTER_PORT to the command of a launcher that does not choose a port. Each call uses
    // another free port, because tests run in parallel.
    static Arguments with_port(Arguments launcher) {
        launcher.insert(launcher.begin(),
                        {"/usr/bin/env", "MASTER_PORT=" + std::to_string(free_port())});
        return launcher;
    }

    Arguments training(const std::string& out, int batch_size) const {
        return {
            "--preset",    "tiny",      "--data", folder_ / "text.txt", "--out",
            folder_ / out, "--threads", "1",      "--batch-size",       std::to_string(batch_size)};
    }

    // Runs the launcher with the program and its options.
    Ended launch(const Arguments& launcher, const Arguments& options) {
        const std::string trainer = std::exchange(program_, launcher[0]);
        Arguments arguments(launcher.begin() + 1, launcher.end());
        arguments.push_back(trainer);
        arguments.insert(arguments.end(), options.begin(), options.end());
        const Ended ended = run(arguments);
        program_ = trainer;
        return ended;
    }

    // Expects that evaluation gives the same result on one process and on several processes.
    void expect_to_evaluate_as_one(Arguments options, const Arguments& keys) {
        const Ended trained = run(options);
        ASSERT_EQ(trained.code, 0) << trained.text();
        options.push_back("--eval-only");
        for (const char* processes : {"2", "3"}) {
            const Ended ended =
                launch({axle_program(), "launch", "--cpu", "--num_processes", processes}, options);
            ASSERT_EQ(ended.code, 0) << ended.text();
            EXPECT_EQ(ended.result()["processes"], std::stoi(processes));
            for (const std::string& key : keys)
                EXPECT_NEAR(ended.result()[key].get<double>(), trained.result()[key].get<double>(),
                            1e-6)
                    << key << " of " << processes;
        }
    }

    // Expects the results of training on one process. `readers` is the number of processes that
    // read different data, by default all processes.
    void expect_to_train_as_one(const Arguments& launcher, int processes = 2, int readers = 0) {
        ASSERT_EQ(run(training("one", 8)).code, 0);
        const int parts = readers == 0 ? processes : readers;
        const Ended ended = launch(launcher, training("two", 8 / parts));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(ended.result()["processes"], processes);
        EXPECT_EQ(ended.result()["steps"], 20);
        const auto one = metrics("one"), two = metrics("two");
        ASSERT_EQ(one.size(), two.size());
        for (std::size_t i = 0; i < one.size(); ++i) {
            EXPECT_NEAR(one[i]["loss"].get<double>(), two[i]["loss"].get<double>(), 1e-4) << i;
            EXPECT_EQ(one[i]["epoch"], two[i]["epoch"]);
            EXPECT_EQ(one[i]["lr"], two[i]["lr"]);
        }
        EXPECT_NEAR(one.back()["val_loss"].get<double>(), two.back()["val_loss"].get<double>(),
                    1e-4);
    }
};

TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithAxleLaunch) {
    expect_to_train_as_one({axle_program(), "launch", "--cpu", "--num_processes", "2"});
}

// Covers 14.sharding_strategy, 26.launch.
TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithFsdp) {
    expect_to_train_as_one({axle_program(), "launch", "--cpu", "--num_processes", "2", "--use_fsdp",
                            "--fsdp_sharding_strategy", "FULL_SHARD", "--fsdp_auto_wrap_policy",
                            "TRANSFORMER_BASED_WRAP"});
}

// Covers 17.TP, 26.launch.
TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithTensorParallelism) {
    expect_to_train_as_one({axle_program(), "launch", "--cpu", "--num_processes", "2",
                            "--use_parallelism_config", "--parallelism_config_tp_size", "2"},
                           2, 1);
}

// Covers 15.zero_stage, 26.launch.
TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithZeroStages2And3) {
    for (const char* stage : {"2", "3"}) {
        SCOPED_TRACE(stage);
        expect_to_train_as_one({axle_program(), "launch", "--cpu", "--num_processes", "2",
                                "--use_deepspeed", "--zero_stage", stage});
        fs::remove_all(folder_ / "one");
        fs::remove_all(folder_ / "two");
    }
}

// All runs train nanoGPT's model for a CPU in 100 updates, with the same batches of 12 sequences.
// Covers 14.sharding_strategy, 15.zero_stage, 26.launch.
TEST_F(LaunchedTrainer, ReachesTheLossOfOneProcessWithShardingInALongRun) {
    const auto training = [&](const std::string& out, int batch_size) -> Arguments {
        return {"--preset",     "shakespeare-char-cpu",
                "--data",       folder_ / "text.txt",
                "--out",        folder_ / out,
                "--steps",      "100",
                "--eval-every", "100",
                "--save-every", "100",
                "--threads",    "1",
                "--batch-size", std::to_string(batch_size)};
    };
    const Ended one = run(training("one", 12));
    ASSERT_EQ(one.code, 0) << one.text();
    const double expected = metrics("one").back()["val_loss"].get<double>();
    const std::vector<std::pair<std::string, Arguments>> launches = {
        {"full_shard",
         {"--use_fsdp", "--fsdp_sharding_strategy", "FULL_SHARD", "--fsdp_auto_wrap_policy",
          "TRANSFORMER_BASED_WRAP"}},
        {"stage_2", {"--use_deepspeed", "--zero_stage", "2"}},
        {"stage_3", {"--use_deepspeed", "--zero_stage", "3"}}};
    for (const auto& [name, flags] : launches) {
        SCOPED_TRACE(name);
        Arguments launcher = {axle_program(), "launch", "--cpu", "--num_processes", "2"};
        launcher.insert(launcher.end(), flags.begin(), flags.end());
        const Ended ended = launch(launcher, training(name, 6));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(ended.result()["processes"], 2);
        EXPECT_NEAR(metrics(name).back()["val_loss"].get<double>(), expected, 1e-3);
    }
}

// The variables describe two machines with two processes each.
// Covers 14.sharding_strategy.
TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithHybridSharding) {
    const std::string start = R"(pids=()
for rank in 0 1 2 3; do
    RANK=$rank LOCAL_RANK=$((rank % 2)) "$@" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done)";
    for (const char* strategy : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
        SCOPED_TRACE(strategy);
        expect_to_train_as_one(with_port({"/usr/bin/env", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2",
                                          "MASTER_ADDR=127.0.0.1", "ACCELERATE_USE_CPU=true",
                                          "ACCELERATE_USE_FSDP=true",
                                          std::string("FSDP_SHARDING_STRATEGY=") + strategy,
                                          "FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
                                          "/bin/bash", "-c", start, "start"}),
                               4);
        fs::remove_all(folder_ / "one");
        fs::remove_all(folder_ / "two");
    }
}

// The file has the keys of Accelerate's template for FSDP, with the type of GPT's blocks.
// Covers 28.deepspeed_config.
TEST_F(LaunchedTrainer, AcceptsAConfigurationFileOfAccelerateForFsdp) {
    std::ofstream(folder_ / "fsdp.yaml") << R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: GPT2Block
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
)";
    expect_to_train_as_one({axle_program(), "launch", "--config_file", folder_ / "fsdp.yaml"});
}

// The file has the keys and values of Accelerate's template for stage 2.
// Covers 15.hf_ds_config, 15.engine, 15.auto, 5.DummyOptim.
TEST_F(LaunchedTrainer, AcceptsADeepSpeedConfigurationOfAccelerate) {
    std::ofstream(folder_ / "zero_stage2_config.json") << R"({
    "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
             "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW",
                  "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": true,
                             "adam_w_mode": true}},
    "scheduler": {"type": "WarmupDecayLR",
                  "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                             "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "allgather_partitions": true,
                          "allgather_bucket_size": 2e8, "overlap_comm": true,
                          "reduce_scatter": true, "reduce_bucket_size": "auto",
                          "contiguous_gradients": true},
    "gradient_accumulation_steps": 1, "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false})";
    const Ended ended =
        launch({axle_program(), "launch", "--cpu", "--num_processes", "2", "--use_deepspeed",
                "--deepspeed_config_file", folder_ / "zero_stage2_config.json"},
               training("two", 4));
    ASSERT_EQ(ended.code, 0) << ended.text();
    const auto lines = metrics("two");
    ASSERT_EQ(lines.size(), 20u);
    EXPECT_LT(lines.back()["loss"].get<double>(), lines.front()["loss"].get<double>());
    // The rate rises from 0 to its maximum in 2 updates. After the fourth update, it decreases by
    // 1/18 of the maximum per update.
    EXPECT_EQ(lines[0]["lr"], 0);
    EXPECT_EQ(lines[2]["lr"], 1e-3);
    EXPECT_NEAR(lines[19]["lr"].get<double>(), 1e-3 * 2 / 18, 1e-6);
}

TEST_F(LaunchedTrainer, EvaluatesTextLikeOneProcess) {
    for (const int batch_size : {1, 3}) {  // evaluates 4 and 12 blocks at a time
        Arguments options = training(std::to_string(batch_size), batch_size);
        options.insert(options.end(), {"--sample", "5"});
        expect_to_evaluate_as_one(options, {"val_loss", "perplexity"});
    }
}

TEST_F(LaunchedTrainer, EvaluatesImagesLikeOneProcess) {
    program_ = AXLE_BIN_DIR "/train_vision";
    if (!fs::exists(program_)) GTEST_SKIP() << program_ << " was not built";
    for (const char* batch_size : {"1", "3"})
        expect_to_evaluate_as_one(
            {"--preset", "tiny", "--data", AXLE_TESTS_DIR "/golden/images", "--out",
             folder_ / batch_size, "--threads", "1", "--batch-size", batch_size, "--sample", "2"},
            {"val_loss", "accuracy"});
}

TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithTorchrun) {
    const char* named = std::getenv("AXLE_TORCHRUN");
    const std::string torchrun = named != nullptr ? named : found("torchrun");
    if (torchrun.empty()) GTEST_SKIP() << "neither AXLE_TORCHRUN nor PATH has a torchrun";
    expect_to_train_as_one({torchrun, "--standalone", "--nproc_per_node", "2", "--no_python"});
}

TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithOpenMpi) {
    const std::string mpirun = found("mpirun.openmpi");
    if (mpirun.empty()) GTEST_SKIP() << "there is no mpirun.openmpi";
    expect_to_train_as_one(
        with_port({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2"}));
}

TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithMpich) {
    const std::string mpirun = found("mpirun.mpich");
    if (mpirun.empty()) GTEST_SKIP() << "there is no mpirun.mpich";
    expect_to_train_as_one(with_port({mpirun, "-n", "2"}));
}

// The variables were recorded from srun with two tasks on one node. A shell sets the variables of
// each task.
TEST_F(LaunchedTrainer, TrainsLikeOneProcessWithEnvironmentVariablesOfSlurm) {
    const std::string script = folder_ / "srun.sh";
    std::ofstream(script) << R"(export SLURM_JOB_ID=)" << getpid() << R"( SLURM_NTASKS=2
export SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2 SLURM_NNODES=1
export SLURM_JOB_NODELIST=localhost SLURM_NODELIST=localhost SLURM_NODEID=0 SLURM_STEP_ID=0
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & other=$!
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait $other
)";
    expect_to_train_as_one({"/bin/bash", script});
}

TEST_F(LaunchedTrainer, ResumesAKilledRunExactlyOnTwoProcesses) {
    const Arguments launcher = {axle_program(), "launch", "--cpu", "--num_processes", "2"};
    ASSERT_EQ(launch(launcher, training("whole", 4)).code, 0);
    const std::string trainer = program_;
    // Kills the launcher during training. Its children then end too.
    program_ = launcher[0];
    Arguments arguments(launcher.begin() + 1, launcher.end());
    arguments.push_back(trainer);
    for (const std::string& more : training("cut", 4)) arguments.push_back(more);
    Arguments often = arguments;
    often.insert(often.end(), {"--save-every", "5"});
    killed_at(7, std::chrono::microseconds(0), "cut", often);
    often.insert(often.end(), {"--resume", "latest"});
    const Ended ended = run(often);
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(metrics("cut"), metrics("whole"));
    EXPECT_TRUE(model("cut") == model("whole"));
}

}  // namespace
}  // namespace axle
