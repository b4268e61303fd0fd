// Tests the files in docs/examples/cluster/. The tests run the batch script with a stand-in for
// srun, and start processes with the variables of the Kubernetes Job. Each process runs
// LaunchedProcess.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>

#include "accel/config/yaml.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/free_port.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using testing::HasSubstr;

constexpr const char* kExpectedSize = "AXLE_TEST_LAUNCHED_SIZE";

// A test that ctest does not run. The tests of ClusterExamples run it in the processes of a job.
TEST(LaunchedProcess, JoinsTheJobAndReducesATensor) {
    const char* const expected = std::getenv(kExpectedSize);
    if (expected == nullptr) GTEST_SKIP() << "runs only under a launcher (ClusterExamples.*)";
    const dist::Environment environment = dist::read_environment();
    EXPECT_TRUE(environment.token_is_secret);
    EXPECT_GE(environment.token.size(), 64U);
    const auto group = dist::ProcessGroup::create(environment);
    EXPECT_EQ(group->size(), std::atoi(expected));
    const Tensor x = full({1}, group->rank() + 1, {f32});
    group->all_reduce(x);
    EXPECT_EQ(x.item(), group->size() * (group->size() + 1) / 2);
}

std::string text_of(const std::string& file) {
    std::ifstream in(std::string(AXLE_TESTS_DIR) + "/../docs/examples/cluster/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write_program(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0755);
}

struct Ended {
    int code = -1;
    std::string output;
    int passed = 0;  // processes whose test has passed
};

Ended run(const std::string& command) {
    Ended ended;
    FILE* const pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
    if (pipe == nullptr) return ended;
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        ended.output.append(buffer, n);
    const int status = ::pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    for (std::size_t at = 0; (at = ended.output.find("[  PASSED  ]", at)) != std::string::npos;
         ++at)
        ++ended.passed;
    return ended;
}

// Returns a command that runs LaunchedProcess in one process of a job with `size` processes.
std::string launched(int size) {
    return str(kExpectedSize, '=', size, ' ',
               std::filesystem::read_symlink("/proc/self/exe").string(),
               " --gtest_brief=1 --gtest_filter=LaunchedProcess.*");
}

// The stand-in for srun starts two tasks on this machine instead of 32, with the variables that
// srun sets.
// Covers 27.RANK, 30.22.
TEST(ClusterExamples, StartAJobWithTheBatchScriptOfSlurm) {
    const std::string script = text_of("train.sbatch");
    for (const char* option : {"--nodes=4", "--ntasks-per-node=8", "--cpus-per-task=8"})
        EXPECT_THAT(script, HasSubstr(str("\n#SBATCH ", option, "\n")));
    const tests::TemporaryFolder folder;
    write_program(folder / "train.sbatch", script);
    write_program(folder / "train_gpt",
                  str("#!/bin/sh\n[ \"$*\" = '--data tokens.bin --resume auto' "
                      "] || exit 9\n[ \"$AXLE_NUM_THREADS\" = 8 ] || exit 8\n",
                      launched(2), "\n"));
    write_program(folder / "srun", R"(#!/bin/sh
[ "$1" = --kill-on-bad-exit=1 ] || exit 7
shift
export SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2
SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 "$@" || exit 1
wait $first
)");
    const Ended ended =
        run(str("cd ", folder.path(), "\nunset RANK WORLD_SIZE AXLE_JOB_TOKEN\nMASTER_PORT=",
                tests::free_port(), " SLURM_JOB_ID=4242 SLURM_CPUS_PER_TASK=8 PATH=", folder.path(),
                ":$PATH bash train.sbatch"));
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(ended.passed, 2) << ended.output;
}

// Returns the value of a pod's variable, or "" if it refers to a field of the pod or to a secret.
std::string value_of(const Tree& environment, const std::string& name) {
    for (const Tree& each : environment.elements())
        if (each["name"].string() == name)
            return each.contains("value") ? each["value"].string() : "";
    ADD_FAILURE() << name << " is missing";
    return {};
}

// Covers 30.22.
TEST(ClusterExamples, StartAJobWithTheVariablesOfTheKubernetesJob) {
    const std::string text = text_of("train.yaml");
    const std::size_t middle = text.find("\n---\n");
    ASSERT_NE(middle, std::string::npos);
    const Tree service = accel::parse_yaml(text.substr(0, middle), "service");
    const Tree job = accel::parse_yaml(text.substr(middle + 5), "job");
    EXPECT_EQ(service["kind"].string(), "Service");
    EXPECT_EQ(job["kind"].string(), "Job");
    const Tree &spec = job["spec"], &pod = spec["template"]["spec"];
    const std::string name = job["metadata"]["name"].string();
    const std::string domain = service["metadata"]["name"].string();
    EXPECT_EQ(spec["completionMode"].string(), "Indexed");
    EXPECT_EQ(service["spec"]["clusterIP"].string(), "None");
    EXPECT_EQ(service["spec"]["selector"]["job-name"].string(), name);
    EXPECT_EQ(pod["subdomain"].string(), domain);
    const Tree& variables = pod["containers"][0]["env"];
    const std::string size = value_of(variables, "WORLD_SIZE");
    EXPECT_EQ(str(spec["completions"].integer()), size);
    EXPECT_EQ(str(spec["parallelism"].integer()), size);
    EXPECT_EQ(value_of(variables, "MASTER_ADDR"), name + "-0." + domain);
    EXPECT_EQ(value_of(variables, "RANK"), "");            // Kubernetes sets it to the pod's index
    EXPECT_EQ(value_of(variables, "AXLE_JOB_TOKEN"), "");  // Kubernetes sets it from a secret

    std::string command = str("export MASTER_ADDR=127.0.0.1 MASTER_PORT=", tests::free_port(),
                              " AXLE_JOB_TOKEN=", std::string(64, '7'));
    for (const char* each : {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
        command += str(' ', each, '=', value_of(variables, each));
    for (int rank = 0; rank < 4; ++rank)
        command += str("\nRANK=", rank, ' ', launched(4), " & pid", rank, "=$!");
    for (int rank = 0; rank < 4; ++rank) command += str("\nwait $pid", rank, " || exit 1");
    const Ended ended = run(command);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_EQ(ended.passed, 4) << ended.output;
}

// docs/clusters.md shows the batch script, and the variables of the Job that set ranks.
TEST(ClusterExamples, AreShownInTheDocumentation) {
    std::ifstream in(std::string(AXLE_TESTS_DIR) + "/../docs/clusters.md");
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(page, HasSubstr("```bash\n" + text_of("train.sbatch") + "```"));
    std::string variables, line;
    const std::string job = text_of("train.yaml");
    const std::size_t begin = job.find("          env:\n"),
                      end = job.find("            - name: AXLE_JOB_TOKEN");
    ASSERT_LT(begin, end);
    for (std::size_t at = begin; at < end; at = job.find('\n', at) + 1)
        variables += job.substr(at + 10, job.find('\n', at) - at - 9);
    EXPECT_THAT(page, HasSubstr("```yaml\n" + variables + "```"));
}

}  // namespace
}  // namespace axle
