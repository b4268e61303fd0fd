// Tests the parsing of environment variables that were recorded from each launcher or set by hand,
// of host lists of SLURM, and the ports and keys that a job derives from the variables.
#include "dist/environment/environment.h"

#include <map>

#include "dist/rendezvous/handshake.h"
#include "gmock/gmock.h"
#include "kernels/error.h"

namespace axle::tests {
namespace {

using dist::Environment;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Variables = std::map<std::string, std::string>;

Environment read(const Variables& variables) {
    return dist::read_environment([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return {};
        return found->second;
    });
}
Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
}
Variables without(Variables variables, const std::string& name) {
    variables.erase(name);
    return variables;
}

const Variables& torchrun() {
    static const Variables variables{{"RANK", "5"},
                                     {"WORLD_SIZE", "8"},
                                     {"LOCAL_RANK", "1"},
                                     {"LOCAL_WORLD_SIZE", "4"},
                                     {"GROUP_RANK", "1"},
                                     {"GROUP_WORLD_SIZE", "2"},
                                     {"ROLE_RANK", "5"},
                                     {"ROLE_NAME", "default"},
                                     {"MASTER_ADDR", "10.0.0.4"},
                                     {"MASTER_PORT", "29400"},
                                     {"TORCHELASTIC_RESTART_COUNT", "2"},
                                     {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                     {"TORCHELASTIC_RUN_ID", "job-7"},
                                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
    return variables;
}
const Variables& open_mpi() {
    static const Variables variables{{"OMPI_COMM_WORLD_RANK", "3"},
                                     {"OMPI_COMM_WORLD_SIZE", "4"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                                     {"OMPI_UNIVERSE_SIZE", "4"},
                                     {"PMIX_NAMESPACE", "1290534913"},
                                     {"PMIX_RANK", "3"},
                                     {"MASTER_ADDR", "head"}};
    return variables;
}
const Variables& mpich() {
    static const Variables variables{{"PMI_RANK", "1"},
                                     {"PMI_SIZE", "2"},
                                     {"PMI_FD", "9"},
                                     {"MPI_LOCALRANKID", "1"},
                                     {"MPI_LOCALNRANKS", "2"}};
    return variables;
}
const Variables& srun() {
    static const Variables variables{{"SLURM_JOB_ID", "123456"},
                                     {"SLURM_JOBID", "123456"},
                                     {"SLURM_JOB_NODELIST", "n[07-09]"},
                                     {"SLURM_STEP_NODELIST", "n[08-09]"},
                                     {"SLURM_STEP_ID", "1"},
                                     {"SLURM_STEP_NUM_TASKS", "3"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                                     {"SLURM_NTASKS", "3"},
                                     {"SLURM_PROCID", "2"},
                                     {"SLURM_LOCALID", "0"},
                                     {"SLURM_NODEID", "1"}};
    return variables;
}

auto refused(const std::string& words) { return ThrowsMessage<ValueError>(HasSubstr(words)); }

TEST(Environment, DefaultsToOneProcess) {
    const Environment e = read({});
    EXPECT_EQ(e.rank, 0);
    EXPECT_EQ(e.world_size, 1);
    EXPECT_EQ(e.local_world_size, 1);
    EXPECT_EQ(e.master_addr, "127.0.0.1");
    EXPECT_EQ(e.master_port, 29500);
    EXPECT_EQ(e.launcher, "");
    EXPECT_EQ(e.token, "");
    EXPECT_FALSE(e.token_is_secret || e.port_is_taken);
}

// Covers 9.MASTER_ADDR, 27.RANK, 27.WORLD_SIZE, 27.LOCAL_RANK, 27.LOCAL_WORLD_SIZE, 27.MASTER_ADDR.
TEST(Environment, ReadsVariablesOfTorchrun) {
    const Environment e = read(torchrun());
    EXPECT_EQ(e.rank, 5);
    EXPECT_EQ(e.world_size, 8);
    EXPECT_EQ(e.local_rank, 1);
    EXPECT_EQ(e.local_world_size, 4);
    EXPECT_EQ(e.node_rank, 1);
    EXPECT_EQ(e.master_addr, "10.0.0.4");
    EXPECT_EQ(e.master_port, 29400);
    EXPECT_EQ(e.launcher, "torchrun");
    EXPECT_EQ(e.token, "job-7");
    EXPECT_FALSE(e.token_is_secret);
    EXPECT_EQ(e.restart_count, 2);
    EXPECT_TRUE(e.port_is_taken);
    EXPECT_FALSE(read(with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port_is_taken);
}

TEST(Environment, ReadsVariablesOfAxleLaunch) {
    const Environment e = read({{"RANK", "1"},
                                {"WORLD_SIZE", "2"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", "29501"},
                                {"AXLE_LAUNCHER_FD", "7"},
                                {"AXLE_RESTART_COUNT", "1"},
                                {"AXLE_JOB_TOKEN", "a secret"}});
    EXPECT_EQ(e.launcher, "axle");
    EXPECT_EQ(e.token, "a secret");
    EXPECT_TRUE(e.token_is_secret);
    EXPECT_EQ(e.restart_count, 1);
    EXPECT_FALSE(e.port_is_taken);
}

// Covers 9.MASTER_ADDR, 27.RANK.
TEST(Environment, ReadsVariablesOfOpenMpi) {
    const Environment e = read(open_mpi());
    EXPECT_EQ(e.rank, 3);
    EXPECT_EQ(e.world_size, 4);
    EXPECT_EQ(e.local_rank, 1);
    EXPECT_EQ(e.local_world_size, 2);
    EXPECT_EQ(e.node_rank, 1);
    EXPECT_EQ(e.launcher, "openmpi");
    EXPECT_EQ(e.token, "1290534913");
    EXPECT_EQ(e.master_addr, "head");
    EXPECT_EQ(e.master_port, 29500);
}

// Covers 9.MASTER_ADDR, 27.RANK.
TEST(Environment, ReadsVariablesOfMpichAndIntelMpi) {
    const Environment e = read(mpich());
    EXPECT_EQ(e.rank, 1);
    EXPECT_EQ(e.world_size, 2);
    EXPECT_EQ(e.local_rank, 1);
    EXPECT_EQ(e.local_world_size, 2);
    EXPECT_EQ(e.launcher, "mpich");
    EXPECT_EQ(read(with(mpich(), {{"I_MPI_MPIRUN", "mpirun"}})).launcher, "intel");
}

// Covers 9.MASTER_ADDR, 27.RANK.
TEST(Environment, ReadsVariablesOfMvapich) {
    const Environment e = read({{"MV2_COMM_WORLD_RANK", "1"},
                                {"MV2_COMM_WORLD_SIZE", "2"},
                                {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
    EXPECT_EQ(e.rank, 1);
    EXPECT_EQ(e.launcher, "mpich");
}

// Covers 9.MASTER_ADDR.
TEST(Environment, ReadsVariablesOfSrun) {
    const Environment e = read(srun());
    EXPECT_EQ(e.rank, 2);
    EXPECT_EQ(e.world_size, 3);
    EXPECT_EQ(e.local_rank, 0);
    EXPECT_EQ(e.local_world_size, 1);
    EXPECT_EQ(e.node_rank, 1);
    EXPECT_EQ(e.launcher, "slurm");
    EXPECT_EQ(e.master_addr, "n08");
    EXPECT_EQ(e.token, "123456.1");
    const Environment another = read(with(srun(), {{"SLURM_JOB_ID", "123457"}}));
    EXPECT_NE(e.master_port, another.master_port);
    EXPECT_EQ(read(with(srun(), {{"MASTER_PORT", "1234"}, {"MASTER_ADDR", "m"}})).master_port,
              1234);
    EXPECT_EQ(read(with(srun(), {{"MASTER_PORT", "1234"}, {"MASTER_ADDR", "m"}})).master_addr, "m");
}

TEST(Environment, ReadsTasksPerNodeOfSlurmAndRejectsInvalidLists) {
    const auto local_size = [](const char* node, const char* tasks) {
        return read(with(srun(), {{"SLURM_NODEID", node},
                                  {"SLURM_STEP_NUM_TASKS", "9"},
                                  {"SLURM_STEP_TASKS_PER_NODE", tasks}}))
            .local_world_size;
    };
    EXPECT_EQ(local_size("0", "2(x3),3"), 2);
    EXPECT_EQ(local_size("2", "2(x3),3"), 2);
    EXPECT_EQ(local_size("3", "2(x3),3"), 3);
    EXPECT_THAT([&] { local_size("4", "2(x3),3"); },
                refused("SLURM_STEP_TASKS_PER_NODE must give a number of tasks from 1 to "));
    EXPECT_THAT([&] { local_size("0", "2(x"); }, refused("SLURM_STEP_TASKS_PER_NODE"));
    EXPECT_THAT([&] { local_size("0", "many"); }, refused("SLURM_STEP_TASKS_PER_NODE"));
}

TEST(Environment, HasOneProcessInASlurmJobWithoutSrun) {
    EXPECT_EQ(read(without(srun(), "SLURM_STEP_ID")).world_size, 1);
    EXPECT_EQ(read(with(srun(), {{"SLURM_STEP_ID", "4294967291"}})).world_size, 1);
    EXPECT_EQ(read(without(srun(), "SLURM_PROCID")).world_size, 1);
}

TEST(Environment, PrefersRankVariableThenMpiThenSlurm) {
    EXPECT_EQ(read(with(with(srun(), open_mpi()), torchrun())).launcher, "torchrun");
    EXPECT_EQ(read(with(srun(), open_mpi())).launcher, "openmpi");
    // srun --mpi=pmi2 sets these variables too.
    EXPECT_EQ(read(with(srun(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})).launcher, "slurm");
}

TEST(Environment, InfersLocalRankOfManuallyStartedProcesses) {
    const Variables pair{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
    EXPECT_EQ(read(pair).local_rank, 1);
    EXPECT_EQ(read(pair).local_world_size, 2);
    const Environment e = read(with(pair, {{"MASTER_ADDR", "10.0.0.4"}}));
    EXPECT_EQ(e.local_rank, 0);
    EXPECT_EQ(e.local_world_size, 1);
    EXPECT_EQ(e.node_rank, 1);
}

// Covers 27.RANK.
TEST(Environment, ReportsMissingVariable) {
    EXPECT_THAT([] { read({{"RANK", "0"}}); }, refused("WORLD_SIZE is missing but RANK is set"));
    EXPECT_THAT(
        [] {
            read({{"WORLD_SIZE", "1"}});
        },
        refused("RANK is missing but WORLD_SIZE is set"));
    EXPECT_THAT([] { read(without(torchrun(), "LOCAL_RANK")); }, refused("LOCAL_RANK is missing"));
    EXPECT_THAT([] { read(without(mpich(), "PMI_SIZE")); }, refused("PMI_SIZE is missing"));
    EXPECT_THAT([] { read({{"PMI_RANK", "0"}}); }, refused("PMI_SIZE is missing"));
    EXPECT_THAT([] { read(without(srun(), "SLURM_LOCALID")); },
                refused("SLURM_LOCALID is missing"));
    EXPECT_THAT([] { read(without(torchrun(), "MASTER_ADDR")); },
                refused("MASTER_ADDR is missing"));
    EXPECT_THAT([] { read(without(open_mpi(), "MASTER_ADDR")); },
                refused("MASTER_ADDR is missing"));
}

TEST(Environment, ReportsInvalidOrOutOfRangeVariable) {
    for (const char* value :
         {"", " 1", "1 ", "one", "0x1", "1.0", "-1", "8", "99999999999999999999"})
        EXPECT_THAT(
            [&] {
                read(with(torchrun(), {{"RANK", value}}));
            },
            refused("RANK must be an integer from 0 to "))
            << value;
    EXPECT_THAT(
        [] {
            read({{"RANK", "0"}, {"WORLD_SIZE", "0"}});
        },
        refused("WORLD_SIZE must be an integer from 1 to 65536: '0'"));
    EXPECT_THAT([] { read({{"RANK", "0"}, {"WORLD_SIZE", "65537"}}); }, refused("WORLD_SIZE"));
    EXPECT_THAT(
        [] {
            read(with(torchrun(), {{"LOCAL_RANK", "4"}}));
        },
        refused("LOCAL_RANK must be an integer from 0 to 3: '4'"));
    EXPECT_THAT([] { read(with(torchrun(), {{"MASTER_PORT", "65536"}})); }, refused("MASTER_PORT"));
    EXPECT_THAT(
        [] {
            read(with(torchrun(), {{"MASTER_PORT", "0"}}));
        },
        refused("MASTER_PORT is 0"));
    EXPECT_EQ(read({{"MASTER_PORT", "0"}}).master_port, 0);
    EXPECT_THAT([] { read(with(torchrun(), {{"MASTER_ADDR", ""}})); }, refused("MASTER_ADDR"));
    EXPECT_THAT([] { read({{"AXLE_JOB_TOKEN", ""}}); }, refused("AXLE_JOB_TOKEN is empty"));
    EXPECT_THAT([] { read(with(torchrun(), {{"RANK", "a\nline"}})); }, refused("'a\\x0aline'"));
}

TEST(Handshake, DerivesDifferentKeysForDifferentJobs) {
    Environment e;
    const auto key = dist::key_of(e);
    EXPECT_EQ(dist::key_of(e), key);
    e.master_port = 29501;
    EXPECT_NE(dist::key_of(e), key);
    e.master_port = 29500;
    e.token = "a token";
    EXPECT_NE(dist::key_of(e), key);
}

TEST(PortsOf, ReturnsMasterPortUnlessItIsTaken) {
    Environment e;
    EXPECT_THAT(dist::ports_of(e), ElementsAre(29500));
    e.port_is_taken = true;
    const auto ports = dist::ports_of(e);
    EXPECT_EQ(ports.size(), 16);
    EXPECT_EQ(dist::ports_of(e), ports);
    EXPECT_THAT(ports, testing::Each(AllOf(testing::Ge(1024), testing::Lt(32768))));
    EXPECT_THAT(ports, testing::Not(testing::Contains(29500)));
    e.token = "another";
    EXPECT_NE(dist::ports_of(e), ports);
}

TEST(Nodelist, ExpandsSlurmLists) {
    EXPECT_THAT(dist::expand_nodelist("n[01-03,7],login"),
                ElementsAre("n01", "n02", "n03", "n7", "login"));
    EXPECT_THAT(dist::expand_nodelist("one"), ElementsAre("one"));
    EXPECT_THAT(dist::expand_nodelist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
    EXPECT_THAT(dist::expand_nodelist("r[1-2]n[08-09].x"),
                ElementsAre("r1n08.x", "r1n09.x", "r2n08.x", "r2n09.x"));
    EXPECT_EQ(dist::expand_nodelist("n[1-65536]").size(), 65536);
}

TEST(Nodelist, RejectsMalformedLists) {
    for (const char* list : {"", ",", "a,", "n[", "n]", "n[[1]]", "n[]", "n[1-]", "n[-1]", "n[3-1]",
                             "n[a]", "n[1 ]", "n[1,]", "n[1-65537]", "n[1-256]m[1-257]",
                             "n[1-99999999999999999999]", "n[18446744073709551615]"})
        EXPECT_THROW(dist::expand_nodelist(list), ValueError) << list;
    EXPECT_THROW(dist::expand_nodelist(std::string(256, 'a')), ValueError);
}

}  // namespace
}  // namespace axle::tests
