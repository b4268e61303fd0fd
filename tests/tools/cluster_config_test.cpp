// Tests configuration files of launches, with files that Accelerate has written
// (tests/golden/accelerate_config), and the YAML format.
#include "tools/axle/cluster_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "accel/config/yaml.h"
#include "core/files/file.h"
#include "core/system/log.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"

namespace axle::launcher {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> recorded(const std::string& extension) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(AXLE_TESTS_DIR "/golden/accelerate_config"))
        if (entry.path().extension() == extension && entry.path().stem() != "default")
            files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

ClusterConfig read_recorded(const std::string& name) {
    return read_config(AXLE_TESTS_DIR "/golden/accelerate_config/" + name);
}

ClusterConfig parse(const std::string& text) {
    return config_from_tree(accel::parse_yaml(text, "c.yaml"), "c.yaml");
}

void expect_refused(const std::string& text, const std::vector<std::string>& words) {
    try {
        parse(text);
        ADD_FAILURE() << "accepted: " << text;
    } catch (const ValueError& error) {
        const std::string what = error.what();
        EXPECT_EQ(what.rfind("c.yaml: ", 0), 0u) << what;
        for (const std::string& word : words)
            EXPECT_NE(what.find(word), std::string::npos) << "no '" << word << "' in: " << what;
    }
}

class Quiet {
  public:
    Quiet() {
        set_log_sink(
            [this](LogLevel, std::string_view text) { logged += std::string(text) + "\n"; });
    }
    ~Quiet() { set_log_sink({}); }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    std::string logged;
};

class SetVariable {
  public:
    SetVariable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        value ? setenv(name, value, 1) : unsetenv(name);
    }
    ~SetVariable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
    SetVariable(const SetVariable&) = delete;
    SetVariable& operator=(const SetVariable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

// Covers 28.compute_environment, 28.fp8_config, 28.dynamo_config, 28.parallelism_config,
// 28.mpirun_config, 28.deepspeed_config.
TEST(ClusterConfig, RewritesFilesOfAccelerateByteForByte) {
    const Quiet quiet;
    tests::TemporaryFolder folder;
    std::size_t compared = 0;
    for (const char* extension : {".yaml", ".json"}) {
        for (const fs::path& file : recorded(extension)) {
            SCOPED_TRACE(file.filename());
            const std::string copy = folder / file.filename().string();
            write_config(read_config(file), copy);
            EXPECT_EQ(read_file(copy), read_file(file));
            ++compared;
        }
    }
    EXPECT_GE(compared, 14u);
}

TEST(ClusterConfig, ReadsTheFileOfAccelerateConfigDefault) {
    const ClusterConfig config = read_recorded("default.yaml");
    EXPECT_EQ(config.distributed_type, "NO");
    EXPECT_EQ(config.num_processes, 1);
    EXPECT_TRUE(config.use_cpu);
    EXPECT_EQ(config.mixed_precision, "no");
    EXPECT_FALSE(config.gpu_ids);
}

// Covers 28.num_processes.
TEST(ClusterConfig, ReadsConfigFilesOfAccelerate) {
    const ClusterConfig node = read_recorded("multi_node.yaml");
    EXPECT_EQ(node.distributed_type, "MULTI_GPU");
    EXPECT_EQ(node.num_processes, 16);
    EXPECT_EQ(node.num_machines, 2);
    EXPECT_EQ(node.machine_rank, 1);
    EXPECT_EQ(node.main_process_ip, "10.0.0.1");
    EXPECT_EQ(node.main_process_port, 29511);
    EXPECT_FALSE(node.same_network);
    EXPECT_EQ(node.rdzv_backend, "c10d");

    const ClusterConfig gpus = read_recorded("multi_gpu.yaml");
    EXPECT_EQ(gpus.gpu_ids, "0,1,2,3");
    EXPECT_EQ(gpus.mixed_precision, "fp16");
    EXPECT_EQ(to_tree(gpus).size(), to_tree(read_recorded("multi_gpu.json")).size());

    const ClusterConfig fsdp = read_recorded("fsdp.yaml");
    EXPECT_EQ(fsdp.fsdp_config["fsdp_version"].integer(), 2);
    EXPECT_EQ(fsdp.fsdp_config["fsdp_min_num_params"].integer(), 100000000);
    EXPECT_TRUE(fsdp.fsdp_config["fsdp_ignored_modules"].is_null());
    EXPECT_TRUE(read_recorded("one_gpu.yaml").enable_cpu_affinity);
    EXPECT_EQ(read_recorded("mpirun.yaml").mpirun_config["mpirun_hostfile"].string(),
              "/home/me/my hosts: all");
    EXPECT_EQ(read_recorded("quoting.yaml").main_process_ip, "1.0");
}

// Covers 28.num_processes.
TEST(ClusterConfig, UsesDefaultsOfAccelerateForMissingKeys) {
    const ClusterConfig alone = parse("distributed_type: 'NO'");
    EXPECT_EQ(alone.num_processes, 1);
    EXPECT_FALSE(alone.mixed_precision);
    EXPECT_EQ(alone.rdzv_backend, "static");
    EXPECT_EQ(alone.main_training_function, "main");
    EXPECT_EQ(parse("distributed_type: MULTI_GPU").num_processes, -1);
    EXPECT_EQ(parse("{distributed_type: 'NO', num_processes: 3}").num_processes, 3);
}

// Covers 28.compute_environment.
TEST(ClusterConfig, ReadsFilesOfOlderAccelerateVersions) {
    const ClusterConfig old = parse(
        "compute_environment: LOCAL_MACHINE\n"
        "deepspeed_config: {}\n"
        "distributed_type: MULTI_GPU\n"
        "dynamo_backend: INDUCTOR\n"
        "fp16: true\n"
        "fsdp_config: {}\n"
        "main_process_ip: null\n"
        "main_process_port: null\n"
        "num_machines: 1\n"
        "num_processes: 2\n");
    EXPECT_EQ(old.mixed_precision, "fp16");
    EXPECT_EQ(old.dynamo_config["dynamo_backend"].string(), "INDUCTOR");
    EXPECT_FALSE(old.main_process_ip);
    const Tree written = to_tree(old);
    for (const char* gone : {"fp16", "dynamo_backend", "fsdp_config", "main_process_ip"})
        EXPECT_FALSE(written.contains(gone)) << gone;
    EXPECT_TRUE(parse("{distributed_type: 'NO', dynamo_backend: 'NO'}").dynamo_config.is_null());
    EXPECT_FALSE(parse("{distributed_type: 'NO', fp16: false}").mixed_precision);
    EXPECT_EQ(parse("{distributed_type: 'NO', fp16: true, mixed_precision: bf16}").mixed_precision,
              "bf16");
}

TEST(ClusterConfig, ReadsUnquotedNoAsText) {
    const ClusterConfig config = parse("distributed_type: NO\nmixed_precision: no\n");
    EXPECT_EQ(config.distributed_type, "NO");
    EXPECT_EQ(config.mixed_precision, "no");
    EXPECT_EQ(config.num_processes, 1);
}

TEST(ClusterConfig, ReadsGpuIdsAsNumberOrList) {
    EXPECT_EQ(parse("{distributed_type: 'NO', gpu_ids: 1}").gpu_ids, "1");
    EXPECT_EQ(parse("{distributed_type: MULTI_GPU, gpu_ids: [0, 2]}").gpu_ids, "0,2");
    EXPECT_EQ(parse("distributed_type: MULTI_GPU\ngpu_ids: 0,1").gpu_ids, "0,1");
}

// Covers 28.compute_environment.
TEST(ClusterConfig, ReportsEveryUnknownKey) {
    expect_refused("{distributed_type: 'NO', num_proceses: 2, colour: red}",
                   {"'num_proceses' (num_processes?)", "'colour'"});
}

TEST(ClusterConfig, RejectsInvalidValues) {
    expect_refused("{distributed_type: 'NO', use_cpu: 1}", {"use_cpu must be true or false"});
    expect_refused("{distributed_type: 'NO', num_processes: '2'}", {"num_processes", "integer"});
    expect_refused("{distributed_type: 'NO', num_processes: 5000000000}", {"num_processes"});
    expect_refused("{distributed_type: 'NO', num_processes: 0}", {"num_processes", "at least 1"});
    expect_refused("{distributed_type: 'NO', main_process_ip: 10.1}", {"main_process_ip"});
    expect_refused("{distributed_type: 'NO', main_process_port: 70000}", {"main_process_port"});
    expect_refused("{distributed_type: 'NO', fsdp_config: full}", {"fsdp_config"});
    expect_refused("{distributed_type: 'NO', mixed_precision: fp17}", {"no, fp16, bf16 or fp8"});
    expect_refused("{distributed_type: MULTI_GPUS}", {"did you mean MULTI_GPU?"});
    expect_refused("{distributed_type: MULTI_CPU, num_machines: 2, machine_rank: 2}",
                   {"machine_rank must be from 0 to 1 (num_machines - 1)"});
    expect_refused("num_processes: 2", {"distributed_type", "axle config"});
    expect_refused("{compute_environment: AMAZON_SAGEMAKER, distributed_type: 'NO'}",
                   {"AMAZON_SAGEMAKER", "LOCAL_MACHINE"});
    expect_refused("- 1", {"map"});
}

// Covers 28.downcast_bf16.
TEST(ClusterConfig, WarnsAboutTpuKeys) {
    Quiet quiet;
    read_recorded("tpu.yaml");
    EXPECT_NE(quiet.logged.find("tpu.yaml: commands, tpu_env, tpu_name, tpu_use_cluster: these "
                                "keys are only used for TPUs"),
              std::string::npos)
        << quiet.logged;
    quiet.logged.clear();
    read_recorded("multi_node.yaml");
    EXPECT_EQ(quiet.logged, "");
}

// Covers 27.HF_HOME, 28.config.
TEST(ClusterConfig, UsesTheDefaultPathOfAccelerate) {
    const SetVariable home("HOME", "/home/me");
    {
        const SetVariable hf("HF_HOME", "~/hf"), xdg("XDG_CACHE_HOME", "/cache");
        EXPECT_EQ(default_config_path(), "/home/me/hf/accelerate/default_config.yaml");
    }
    const SetVariable hf("HF_HOME", nullptr);
    {
        const SetVariable xdg("XDG_CACHE_HOME", "/cache");
        EXPECT_EQ(default_config_path(), "/cache/huggingface/accelerate/default_config.yaml");
    }
    const SetVariable xdg("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(default_config_path(), "/home/me/.cache/huggingface/accelerate/default_config.yaml");
}

TEST(ClusterConfig, ReadsTheDefaultFileIfItExists) {
    tests::TemporaryFolder folder;
    const SetVariable hf("HF_HOME", folder.path().c_str());
    EXPECT_FALSE(read_default_config());
    ClusterConfig config;
    config.distributed_type = "MULTI_CPU";
    config.num_processes = 2;
    write_config(config, default_config_path());
    EXPECT_EQ(read_default_config()->num_processes, 2);
}

TEST(Yaml, MatchesPyYaml) {
    const Tree map = accel::parse_yaml(
        "a: 010\nb: 1_000\nc: 1:30\nd: 1e-3\ne: 1.5e-3\nf: off\ng: ~\nh:\ni: 0x1F\nj: .inf\n"
        "k: '1'\nl: !!str 2\nm: 2024-01-31\nn: 1:30.5\no: -0b11\np: y\nq: 0o7\nr: [1, [2]]\ns: "
        "+.5\n",
        "t");
    EXPECT_EQ(map["a"].integer(), 8);
    EXPECT_EQ(map["b"].integer(), 1000);
    EXPECT_EQ(map["c"].integer(), 90);
    EXPECT_EQ(map["d"].string(), "1e-3");
    EXPECT_EQ(map["e"].number(), 1.5e-3);
    EXPECT_FALSE(map["f"].boolean());
    EXPECT_TRUE(map["g"].is_null());
    EXPECT_TRUE(map["h"].is_null());
    EXPECT_EQ(map["i"].integer(), 31);
    EXPECT_TRUE(std::isinf(map["j"].number()));
    EXPECT_EQ(map["k"].string(), "1");
    EXPECT_EQ(map["l"].string(), "2");
    EXPECT_EQ(map["m"].string(), "2024-01-31");
    EXPECT_EQ(map["n"].number(), 90.5);
    EXPECT_EQ(map["o"].integer(), -3);
    EXPECT_EQ(map["p"].string(), "y");
    EXPECT_EQ(map["q"].string(), "0o7");
    EXPECT_EQ(map["r"][1][0].integer(), 2);
    EXPECT_EQ(map["s"].string(), "+.5");
}

TEST(Yaml, ReadsTheValuesThatItHasWritten) {
    const Tree map{{"line", "a\nb"},
                   {"colon", ":"},
                   {"blank", ""},
                   {"control", std::string("\x01\x7f")},
                   {"lists", Tree::list({Tree::list({1, Tree{{"x", 1}, {"y", Tree::list({"no"})}}}),
                                         Tree::list(), Tree::map(), 0.1, -1e300})},
                   {"line separator", "\xe2\x80\xa8"}};
    const std::string text = accel::to_yaml(map);
    EXPECT_EQ(to_json(accel::parse_yaml(text, "t")), to_json(map)) << text;
}

TEST(Yaml, RejectsInvalidAndExponentiallyLargeDocuments) {
    std::string laughs = "a0: &a0 [x]\n";
    for (int i = 1; i < 30; ++i) {
        const std::string before = "*a" + std::to_string(i - 1);
        laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " +
                  before + ", " + before + "]\n";
    }
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"a: 1\na: 2", "'a' is repeated"},
        {"a: [1", "not YAML"},
        {"a: !!python/object:os.system x", "tag"},
        {"a: !!binary x", "tag"},
        {laughs, "values"},
        {"a: 99999999999999999999", "from -2^53 to 2^53: "},
        {"a: \"\xff\"", "UTF-8"},
        {"a: " + std::string(40, '[') + std::string(40, ']'), "deeper"},
        {"[1]: 2", "key"},
        {"a: 0x" + std::string(100, '1'), "at most 40 digits: "}};
    for (const auto& [text, word] : cases) {
        try {
            accel::parse_yaml(text, "t");
            ADD_FAILURE() << "accepted: " << text.substr(0, 80);
        } catch (const ValueError& error) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        }
    }
}

}  // namespace
}  // namespace axle::launcher
