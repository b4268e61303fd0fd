// Tests the functions and the commands of axle config, axle env and axle estimate-memory.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/tools/trainer_program.h"
#include "tests/vectors.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/estimate/estimate.h"
#include "tools/axle/estimate/sharded_estimate.h"
#include "tools/axle/questionnaire.h"

namespace axle::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::Arguments;
using tests::Ended;

std::string golden(const std::string& name) {
    return std::string(AXLE_TESTS_DIR "/golden/") + name;
}

struct Asked {
    ClusterConfig config;
    std::string questions;
};

Asked answer(const std::string& lines, int gpus) {
    std::istringstream in(lines);
    std::ostringstream out;
    ClusterConfig config = ask_for_config(in, out, gpus);
    EXPECT_FALSE(in.eof() && in.fail()) << "an answer was missing";
    std::string left;
    EXPECT_FALSE(std::getline(in, left)) << "not asked for: " << left;
    return {std::move(config), out.str()};
}

void expect_writes(const ClusterConfig& config, const std::string& name) {
    tests::TemporaryFolder folder;
    write_config(config, folder / "written.yaml");
    EXPECT_EQ(read_file(folder / "written.yaml"), read_file(golden("accelerate_config/" + name)));
}

// --- questions

// Covers 26.config.
TEST(Questionnaire, WritesTheSameFilesAsAccelerate) {
    expect_writes(answer("1\nno\n\n\n1\n", 1).config, "single.yaml");
    expect_writes(answer("2\n1\n4\n0,1,2,3\nno\n2\n", 4).config, "multi_gpu.yaml");
    expect_writes(answer("3\n1\n8\ny\n/home/me/my hosts: all\n\n", 0).config, "mpirun.yaml");
}

TEST(Questionnaire, ChoosesDefaultsByTheNumberOfGpus) {
    const ClusterConfig alone = answer("\n\n\n", 0).config;
    EXPECT_EQ(alone.distributed_type, "NO");
    EXPECT_TRUE(alone.use_cpu);
    EXPECT_EQ(alone.num_processes, 1);
    EXPECT_EQ(alone.mixed_precision, "no");
    const ClusterConfig gpus = answer("\n\n\n\n\n\n", 8).config;
    EXPECT_EQ(gpus.distributed_type, "MULTI_GPU");
    EXPECT_EQ(gpus.num_processes, 8);
    EXPECT_FALSE(gpus.use_cpu);
    EXPECT_EQ(gpus.gpu_ids, "all");
}

TEST(Questionnaire, AsksForRankAndAddressOnSeveralMachines) {
    const auto [config, questions] = answer("2\n2\n1\n10.0.0.1\n29511\nyes\n16\nall\nyes\n3\n", 8);
    EXPECT_EQ(config.num_machines, 2);
    EXPECT_EQ(config.machine_rank, 1);
    EXPECT_EQ(config.main_process_ip, "10.0.0.1");
    EXPECT_EQ(config.main_process_port, 29511);
    EXPECT_EQ(config.num_processes, 16);
    EXPECT_TRUE(config.enable_cpu_affinity);
    EXPECT_EQ(config.mixed_precision, "bf16");
    EXPECT_THAT(questions, HasSubstr("How many machines are there? [1]: "));
    EXPECT_THAT(questions, HasSubstr("How many GPUs, on all machines? [16]: "));
}

TEST(Questionnaire, RepeatsQuestionsAfterInvalidAnswers) {
    const auto [config, questions] =
        answer("seven\n9\n3\n2\n2\n0\n\n10.0.0.1\n\nmaybe\nn\n3\n4\nn\n2\n", 0);
    EXPECT_EQ(config.num_processes, 4);
    EXPECT_FALSE(config.same_network);
    EXPECT_EQ(config.main_process_port, 29500);
    EXPECT_THAT(questions, HasSubstr("Please enter a number from 1 to 5."));
    EXPECT_THAT(questions, HasSubstr("Please enter a number from 0 to 1."));
    EXPECT_THAT(questions, HasSubstr("Please enter a text; there is no default."));
    EXPECT_THAT(questions, HasSubstr("Please enter yes or no."));
    EXPECT_THAT(questions, HasSubstr("Please enter a multiple of 2."));
}

TEST(Questionnaire, RejectsAnEarlyEndOfInput) {
    std::istringstream in("2\n");
    std::ostringstream out;
    EXPECT_THROW(ask_for_config(in, out, 2), UsageError);
}

// --- the program

class AxleTest : public tests::TrainerTest {
  protected:
    AxleTest() : TrainerTest("axle") {}
    void SetUp() override {
        TrainerTest::SetUp();
        ASSERT_NE(std::freopen("/dev/null", "r", stdin), nullptr);
        setenv("HF_HOME", (folder_ / "home").c_str(), 1);
    }
    void TearDown() override { unsetenv("HF_HOME"); }

    std::string default_file() { return folder_ / "home/accelerate/default_config.yaml"; }
    Ended expect(int code, const Arguments& arguments, const Arguments& words) {
        const Ended ended = run(arguments);
        EXPECT_EQ(ended.code, code) << ended.text();
        for (const std::string& word : words) EXPECT_THAT(ended.text(), HasSubstr(word));
        return ended;
    }
    static std::string output(const Ended& ended) {
        std::string all;
        for (const auto& line : ended.out) all += line + "\n";
        return all;
    }
};
using AxleConfig = AxleTest;
using AxleEnv = AxleTest;
using AxleEstimateMemory = AxleTest;

// Covers 26.config-default.
TEST_F(AxleConfig, WritesTheDefaultFileAtTheDefaultPath) {
    EXPECT_THAT(output(expect(0, {"config", "default", "--mixed_precision", "bf16"}, {})),
                HasSubstr(default_file()));
    EXPECT_EQ(read_config(default_file()).mixed_precision, "bf16");
    const std::string before = read_file(default_file());
    expect(1, {"config", "default"}, {default_file(), "`axle config` to replace it"});
    EXPECT_EQ(read_file(default_file()), before);
}

TEST_F(AxleConfig, AsksNoQuestionsWithoutATerminal) {
    expect(2, {"config"}, {"not a terminal", "axle config default", "axle config --help"});
    EXPECT_FALSE(tests::fs::exists(default_file()));
}

// Covers 26.config.
TEST_F(AxleConfig, AcceptsAnswersAsFlags) {
    const std::string file = folder_ / "some/where.json";
    expect(0,
           {"config", "--config_file", file, "--cpu", "--num-processes", "4", "--num_machines=2",
            "--machine_rank", "1", "--main_process_ip", "10.0.0.1"},
           {});
    EXPECT_EQ(read_file(file)[0], '{');
    const ClusterConfig config = read_config(file);
    EXPECT_EQ(config.distributed_type, "MULTI_CPU");
    EXPECT_TRUE(config.use_cpu);
    EXPECT_EQ(config.num_processes, 4);
    EXPECT_EQ(config.machine_rank, 1);

    // Unlike `default`, this command replaces an existing file.
    expect(0,
           {"config", "--config_file", file, "--distributed_type", "MULTI_GPU", "--num_processes",
            "2", "--gpu_ids", "0,1"},
           {});
    EXPECT_EQ(read_config(file).distributed_type, "MULTI_GPU");
    EXPECT_FALSE(read_config(file).use_cpu);
    expect(0, {"config", "--config_file", file, "--mixed_precision", "fp16"}, {});
    EXPECT_EQ(read_config(file).distributed_type, "NO");
}

TEST_F(AxleConfig, RejectsConfigurationsThatCannotBeLaunched) {
    const std::vector<std::pair<Arguments, std::string>> cases = {
        {{"--num_machines", "2"}, "--main_process_ip"},
        {{"--num_machines", "2", "--num_processes", "3", "--main_process_ip", "a"},
         "divided evenly among 2 machines"},
        {{"--machine_rank", "1"}, "--machine_rank"},
        {{"--distributed_type", "NO", "--num_processes", "2"}, "one process"},
        {{"--distributed_type", "MULTI_CPU"}, "--num_processes"},
        {{"--cpu", "--gpu_ids", "0"}, "--use_cpu"},
        {{"--num_procesess", "2"}, "did you mean --num_processes?"},
        {{"--mixed_precision", "fp17"}, "fp17"},
        {{"defalt"}, "defalt"}};
    for (const auto& [options, word] : cases) {
        Arguments arguments = {"config"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        expect(2, arguments, {word});
    }
    EXPECT_FALSE(tests::fs::exists(default_file()));
}

// Covers 26.config-update.
TEST_F(AxleConfig, UpdatesFilesOfOlderVersionsAndRejectsUnknownKeys) {
    const std::string file = folder_ / "old.yaml";
    write_file_atomically(file, "distributed_type: MULTI_GPU\nnum_processes: 2\nfp16: true\n");
    expect(0, {"config", "update", "--config_file", file}, {});
    const std::string text = read_file(file);
    EXPECT_THAT(text, HasSubstr("mixed_precision: fp16\n"));
    EXPECT_THAT(text, HasSubstr("rdzv_backend: static\n"));
    EXPECT_THAT(text, testing::Not(HasSubstr("\nfp16")));
    expect(1, {"config", "update", "--config_file", folder_ / "none.yaml"}, {"none.yaml"});
    write_file_atomically(file, "distributed_type: 'NO'\nwhat: 1\n");
    expect(1, {"config", "update", "--config_file", file},
           {"unknown keys: 'what'; correct or remove them"});
    EXPECT_THAT(read_file(file), HasSubstr("what: 1"));
}

// Covers 26.env.
TEST_F(AxleEnv, ShowsTheMachineAndTheConfigurationAndRejectsMissingFiles) {
    const std::string without = output(expect(0, {"env"}, {}));
    for (const char* word :
         {"- Axle: ", "- Platform: Linux", "- CPU: ", "- System RAM: ", "- GPU", "none at "})
        EXPECT_THAT(without, HasSubstr(word));
    expect(0, {"config", "default"}, {});
    EXPECT_THAT(output(expect(0, {"env"}, {})), HasSubstr("    - mixed_precision: no\n"));
    EXPECT_THAT(
        output(expect(0, {"env", "--config_file", golden("accelerate_config/fsdp.yaml")}, {})),
        HasSubstr("\"fsdp_version\": 2"));
    expect(1, {"env", "--config_file", folder_ / "none.yaml"}, {"none.yaml"});
}

// Covers 26.estimate-memory.
TEST_F(AxleEstimateMemory, PrintsTablesOfMemoryAndRejectsInvalidArguments) {
    const Ended ended = expect(0, {"estimate-memory", "resnet50"}, {});
    ASSERT_EQ(ended.out.size(), 21u) << output(ended);
    EXPECT_EQ(ended.out[1], "│        Memory Usage for loading `resnet50`         │");
    EXPECT_EQ(ended.out[5], "│float32│   9.0 MB    │ 97.7 MB  │     390.78 MB     │");
    EXPECT_EQ(ended.out[8], "│ int4  │   1.12 MB   │ 12.21 MB │        N/A        │");
    EXPECT_EQ(ended.out[13], "│     strategy      │2 processes│4 processes│8 processes │");
    EXPECT_EQ(ended.out[15], "│ NO_SHARD, stage 0 │ 488.48 MB │ 488.48 MB │ 488.48 MB  │");
    const Ended one = expect(0, {"estimate-memory", "gpt2", "--num_processes", "3"}, {});
    EXPECT_EQ(one.out[13], "│     strategy      │            3 processes             │");
    expect(1, {"estimate-memory", "gpt2", "--num_processes", "1"},
           {"estimate-memory: each of --num_processes must be at least 2: 1"});
    expect(2, {"estimate-memory", "gpt2", "--dtypes", "float31"}, {"'float31'", "bfloat16"});
    expect(2, {"estimate-memory"}, {"model"});
    expect(1, {"estimate-memory", "gpt-2"}, {"did you mean gpt2?"});
}

// --- estimates

TEST(EstimateMemory, ReturnsTotalAndLargestLayerSizesOfAccelerate) {
    const ModelSize resnet = model_size(tensors_of("resnet50"));
    EXPECT_EQ(resnet.total, 102441032);
    EXPECT_EQ(resnet.largest, 9437184);
    // Accelerate's sizes include two buffers of the embeddings (position ids and token type ids) of
    // 4096 bytes each.
    const ModelSize bert = model_size(tensors_of("bert-base-cased"));
    EXPECT_EQ(bert.total, 433249280 - 8192);
    EXPECT_EQ(bert.largest, 90669056 - 8192);
    EXPECT_THAT(bert.largest_layers, ElementsAre("embeddings"));
    EXPECT_EQ(model_size(tensors_of("gpt2")).total, 4 * 124439808);
    EXPECT_EQ(model_size(tensors_of("gpt2-xl")).total, 4LL * 1557611200);
}

TEST(EstimateMemory, CountsABlockAsOneLayer) {
    const ModelSize size = model_size({{"wte.weight", 90},
                                       {"h.0.attn.weight", 50},
                                       {"h.0.attn.bias", 1},
                                       {"h.0.mlp.weight", 50},
                                       {"h.1.attn.weight", 101},
                                       {"layer1.0.conv.weight", 100},
                                       {"layer1.0.bn.weight", 2}});
    EXPECT_EQ(size.total, 394);
    EXPECT_EQ(size.largest, 101);
    EXPECT_THAT(size.largest_layers, ElementsAre("h.0", "h.1"));
}

// Covers 26.estimate-memory.
TEST(EstimateMemory, DividesTheMemoryThatAStrategyShards) {
    // Each block has 20 bytes, and the other tensors together have 20 bytes.
    const ModelSize size = model_size({{"wte.weight", 16},
                                       {"h.0.mlp.weight", 20},
                                       {"h.1.mlp.weight", 20},
                                       {"h.2.mlp.weight", 20},
                                       {"h.3.mlp.weight", 20},
                                       {"ln_f.weight", 4}});
    EXPECT_EQ(size.largest_block, 20);
    EXPECT_EQ(size.outside_of_blocks, 20);
    using enum EstimateStrategy;
    EXPECT_EQ(sharded_bytes(size, none, 4), 500);
    EXPECT_EQ(sharded_bytes(size, optimizer, 4), 25 + 100 + 100 + 50);
    EXPECT_EQ(sharded_bytes(size, gradients, 4), 25 + 100 + 25 + 40 + 50);
    EXPECT_EQ(sharded_bytes(size, until_backward, 2), 50 + 100 + 50 + 40 + 100);
    EXPECT_EQ(sharded_bytes(size, parameters, 4), 25 + 80 + 25 + 40 + 50);
}

TEST(EstimateMemory, ComputesTrainingMemoryOfFloatsForAdamAndBytesOfIntegers) {
    EXPECT_EQ(training_bytes(433249280, EstimateDType::float32)->step, 1732997120);
    EXPECT_EQ(training_bytes(433249280, EstimateDType::float16)->step, 866498560);
    EXPECT_EQ(training_bytes(102441032, EstimateDType::bfloat16)->step, 204882064);
    EXPECT_EQ(training_bytes(4, EstimateDType::float16)->step, 8);
    EXPECT_FALSE(training_bytes(433249280, EstimateDType::int8));
    EXPECT_FALSE(training_bytes(433249280, EstimateDType::int4));
    EXPECT_EQ(bytes_in(433249280, EstimateDType::int8), 108312320);
    EXPECT_EQ(bytes_in(433249280, EstimateDType::int4), 54156160);
}

// Returns the tensors of a recorded model. "M" is a small model, "3M" has three copies of it, and
// other names are names that axle estimate-memory accepts.
TensorBytes recorded_model(const std::string& name) {
    if (!name.ends_with('M')) return tensors_of(name);
    const TensorBytes small = {{"linear1.weight", 48},
                               {"linear1.bias", 16},
                               {"batchnorm.weight", 16},
                               {"batchnorm.bias", 16},
                               {"batchnorm.running_mean", 16},
                               {"batchnorm.running_var", 16},
                               {"batchnorm.num_batches_tracked", 8},
                               {"linear2.weight", 80},
                               {"linear2.bias", 20}};
    if (name == "M") return small;
    TensorBytes tensors;
    for (int i = 0; i < std::stoi(name); ++i)
        for (const auto& [tensor, bytes] : small) tensors.emplace_back(str(i, '.', tensor), bytes);
    return tensors;
}

// Each case is either a model with its layers, or the memory for training.
// Covers 26.estimate-memory.
TEST(EstimateMemory, MatchesRecordingsOfAccelerate) {
    const nlohmann::json recorded = tests::vectors("estimate_memory.json");
    for (const nlohmann::json& c : recorded["cases"]) {
        SCOPED_TRACE(c.dump());
        if (c.contains("model")) {
            const ModelSize size = model_size(recorded_model(c["model"]));
            EXPECT_EQ(size.total, c["total"]);
            EXPECT_EQ(size.largest, c["largest"]);
            if (c.contains("largest_names")) {
                EXPECT_EQ(nlohmann::json(size.largest_layers), c["largest_names"]);
            }
            continue;
        }
        const auto training = training_bytes(c["bytes"], estimate_dtype(c["dtype"]));
        const TrainingBytes none{-1, -1, -1, -1};
        const TrainingBytes got = training.value_or(none);
        EXPECT_EQ(got.model, c["usage"]["model"]);
        EXPECT_EQ(got.optimizer, c["usage"]["optimizer"]);
        EXPECT_EQ(got.gradients, c["usage"]["gradients"]);
        EXPECT_EQ(got.step, c["usage"]["step"]);
        EXPECT_EQ(got.step, c["shown"]);
    }
}

TEST(EstimateMemory, ReadsFoldersConfigurationsAndHeadersAndRejectsUnknownTypes) {
    for (const char* folder : {"gpt2_tiny", "llama_tiny"}) {
        const auto built = model_size(tensors_of(golden(folder)));
        const auto config = model_size(tensors_of(golden(folder) + "/config.json"));
        const auto header = model_size(tensors_of(golden(folder) + "/model.safetensors"));
        EXPECT_EQ(built.total, config.total) << folder;
        EXPECT_EQ(built.total, header.total) << folder;
        EXPECT_EQ(built.largest, header.largest) << folder;
    }
    EXPECT_EQ(model_size(tensors_of(golden("bert_classifier") + "/model.safetensors")).total,
              43596);

    tests::TemporaryFolder folder;
    write_file_atomically(folder / "config.json", R"({"model_type": "mamba"})");
    EXPECT_THROW(tensors_of(folder.path()), FileError);
    EXPECT_THROW(tensors_of(folder / "config.json"), FileError);
    save_safetensors(folder / "a.safetensors",
                     NamedTensors{{"x.w", zeros({2, 3}, {.dtype = f16})}});
    save_safetensors(folder / "b.safetensors", NamedTensors{{"y.w", zeros({5}, {.dtype = i64})}});
    EXPECT_EQ(model_size(tensors_of(folder.path())).total, 6 * 4 + 5 * 8);
}

TEST(EstimateMemory, RejectsInvalidConfigurationsAndMissingModels) {
    tests::TemporaryFolder folder;
    const auto with = [&](const std::string& text) {
        write_file_atomically(folder / "config.json", text);
        return tensors_of(folder / "config.json");
    };
    EXPECT_THROW(with(R"({"model_type": "gpt2", "n_layer": 2000000000})"), FileError);
    EXPECT_THROW(with(R"({"model_type": "gpt2", "n_embd": -1})"), FileError);
    EXPECT_THROW(with("[1]"), FileError);
    EXPECT_THROW(with("{"), FileError);
    EXPECT_THROW(tensors_of("/no/such/model"), ValueError);
}

}  // namespace
}  // namespace axle::launcher
