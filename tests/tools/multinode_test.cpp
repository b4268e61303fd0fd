// Tests hostfiles, filters, and the commands that start jobs on several machines. The expected
// commands follow the manuals of pdsh, Open MPI, Hydra (MPICH, MVAPICH) and SLURM.
#include "tools/axle/multinode/multinode.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/environment_variable.h"
#include "tests/temporary_folder.h"

namespace axle::launcher {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::Pair;
using tests::expect_error;

using Hosts = std::vector<HostSlots>;
const Hosts kHosts = {{"worker-0", {0, 1, 2, 3}}, {"worker-1", {0, 1, 2, 3}}};

// Covers 15.multinode.
TEST(Hostfile, ListsMachinesAndSlotsAndRejectsMissingOrLargeFiles) {
    EXPECT_EQ(parse_hostfile("# all\n\nworker-0 slots=4\n  worker-1\tslots=2  # slow\r\n"
                             "fe80::1 slots=1",
                             "hosts"),
              (Hosts{{"worker-0", {0, 1, 2, 3}}, {"worker-1", {0, 1}}, {"fe80::1", {0}}}));
    const tests::TemporaryFolder folder;
    write_file_atomically(folder / "hosts", "a slots=1\n");
    EXPECT_EQ(read_hostfile(folder / "hosts"), (Hosts{{"a", {0}}}));
    EXPECT_THROW(read_hostfile(folder / "none"), FileError);
    write_file_atomically(folder / "hosts", std::string(kMaxHostfile + 1, '#'));
    EXPECT_THROW(read_hostfile(folder / "hosts"), FileError);
}

// Covers 15.multinode.
TEST(Hostfile, ReportsTheNumbersOfInvalidLines) {
    const auto refused = [](const char* text, std::initializer_list<const char*> parts) {
        expect_error<ValueError>(parts, [&] { parse_hostfile(text, "hosts"); });
    };
    refused("a slots=1\nb\n", {"hosts:2: a line must be a machine and its slots", ": 'b'"});
    refused("a slots=x", {"hosts:1: a line must be a machine and its slots"});
    refused("a slots=1 b", {"hosts:1: a line must be a machine and its slots"});
    refused("a slots=0", {"hosts:1: slots must be from 1 to 1024"});
    refused("a slots=99999", {"hosts:1: slots must be from 1 to 1024"});
    refused("a slots=1\na slots=2", {"hosts:2: a machine must be listed only once"});
    refused("-R slots=1", {"hosts:1: a machine name must have letters, digits and ._-: only"});
    refused("a;ls slots=1", {"hosts:1: a machine name must have letters, digits and ._-: only"});
    refused("# nothing\n", {"hosts: the hostfile must list at least one machine"});
}

// Covers 15.multinode.
TEST(HostFilter, SelectsMachinesAndSlotsAndRejectsInvalidFilters) {
    EXPECT_EQ(filter_hosts(kHosts, "", ""), kHosts);
    EXPECT_EQ(filter_hosts(kHosts, "worker-1@worker-0:2,0", ""),
              (Hosts{{"worker-0", {0, 2}}, {"worker-1", {0, 1, 2, 3}}}));
    EXPECT_EQ(filter_hosts(kHosts, "", "worker-1:0"),
              (Hosts{{"worker-0", {0, 1, 2, 3}}, {"worker-1", {1, 2, 3}}}));
    EXPECT_EQ(filter_hosts(kHosts, "", "worker-0"), (Hosts{{"worker-1", {0, 1, 2, 3}}}));
    EXPECT_EQ(filter_hosts(kHosts, "", "worker-0:0,1,2,3"), (Hosts{{"worker-1", {0, 1, 2, 3}}}));
    EXPECT_EQ(slot_list({"a", {0, 2}}), "0,2");
    const auto refused = [](const char* inclusion, const char* exclusion, const char* text) {
        expect_error<ValueError>({"launch: ", text},
                                 [&] { filter_hosts(kHosts, inclusion, exclusion); });
    };
    refused("worker-0", "worker-1", "are both given; use one");
    refused("worker-2", "", "the hostfile does not list 'worker-2'");
    refused("worker-0:4", "", "worker-0 has no slot 4: the hostfile lists 4 slots");
    refused("worker-0:a", "", "a slot must be a number: 'a' in 'worker-0:a'");
    refused("@", "", "must be a list such as 'worker-0@worker-1:0,2': it is '@'");
    refused("", "worker-0@worker-1", "deepspeed_exclusion_filter must leave at least one slot");
}

// Covers 15.multinode, 28.deepspeed_config.
TEST(SelectHosts, ReadsAndChecksTheOptionsOfDeepSpeed) {
    const tests::TemporaryFolder folder;
    const std::string file = folder / "hosts";
    write_file_atomically(file, "a slots=4\nb slots=4\n");
    const Tree section = {{"deepspeed_hostfile", file}};
    const MultinodeHosts both = select_hosts({}, section, 2, 4);
    EXPECT_EQ(both.launcher, "pdsh");
    EXPECT_EQ(both.hosts, (Hosts{{"a", {0, 1}}, {"b", {0, 1}}}));
    EXPECT_FALSE(both.are_filtered);
    EXPECT_EQ(select_hosts({}, section, 1, {}).hosts[1].slots.size(), 4u);
    const MultinodeHosts one =
        select_hosts({{"deepspeed_inclusion_filter", "b:1,3"}}, section, 1, {});
    EXPECT_EQ(one.hosts, (Hosts{{"b", {1, 3}}}));
    EXPECT_TRUE(one.are_filtered);
    const MultinodeHosts nossh =
        select_hosts({{"deepspeed_multinode_launcher", "nossh"}}, section, 2, 8);
    EXPECT_EQ(nossh.launcher, "");
    EXPECT_EQ(nossh.hosts.size(), 2u);
    EXPECT_THAT(select_hosts({{"deepspeed_multinode_launcher", "standard"}}, {}, 2, 8).hosts,
                IsEmpty());
    EXPECT_EQ(select_hosts({{"deepspeed_multinode_launcher", "slurm"}}, {}, 2, 8).launcher,
              "slurm");
    EXPECT_EQ(select_hosts({}, {}, 2, 8).launcher, "");
    const auto refused = [&](const FlagValues& flags, int machines, std::optional<int> processes,
                             const char* text) {
        expect_error<ValueError>({"launch: ", text},
                                 [&] { select_hosts(flags, section, machines, processes); });
    };
    refused({}, 3, {}, "--num_machines is 3, but the hostfile and its filters leave 2 machines");
    refused({{"deepspeed_multinode_launcher", "standard"}}, 2, {},
            "deepspeed_multinode_launcher standard does not use --deepspeed_hostfile; use nossh");
    refused({}, 2, 3, "3 processes cannot be divided evenly among the 2 machines");
    refused({}, 2, 16, "leave 4 slots of a, but each machine needs 8 slots, one for");
    refused({{"deepspeed_exclusion_filter", "a:0"}}, 2, {}, "leave 4 slots of b, but each machine");
    expect_error<ValueError>(
        {"launch: deepspeed_inclusion_filter and ", "need --deepspeed_hostfile"}, [] {
            select_hosts({{"deepspeed_inclusion_filter", "a"}}, {}, 2, 2);
        });
    expect_error<ValueError>(
        {"launch: deepspeed_multinode_launcher openmpi needs --deepspeed_hostfile"}, [] {
            select_hosts({{"deepspeed_multinode_launcher", "openmpi"}}, {}, 2, 2);
        });
}

MultinodeJob job_with(const char* launcher) {
    return {.machines = {.launcher = launcher, .hostfile = "hosts", .hosts = kHosts},
            .num_machines = 2,
            .processes_per_machine = 4,
            .main_process_ip = "worker-0",
            .main_process_port = 29501,
            .command = {"./train", "--lr", "0.1"},
            .environment = {{"ACCELERATE_USE_DEEPSPEED", "true"}},
            .axle = "/bin/axle",
            .folder = "/my work",
            .token_file = "/job.token"};
}

std::vector<std::string> arguments_of(const MultinodeJob& job) {
    return multinode_command(job).arguments;
}

// pdsh joins its arguments for a shell on each machine, and replaces %n by the machine's number.
// Covers 15.multinode.
TEST(MultinodeCommand, StartsALauncherOnEachMachineWithPdshAndRequiresATokenFileAndEqualSlots) {
    MultinodeJob job = job_with("pdsh");
    job.environment = {{"A", "it's 5%"}};
    job.command = {"./train", "$HOME", "", "%n"};
    job.threads = 2;
    job.flags = {"--gpu_ids", "0,2"};
    const dist::Command command = multinode_command(job);
    EXPECT_THAT(command.arguments,
                ElementsAre("pdsh", "-S", "-f", "1024", "-w", "worker-0,worker-1",
                            "cd '/my work' && exec /bin/axle launch --machine_rank %n "
                            "--config_file none --no_python --num_machines 2 --num_processes 8 "
                            "--main_process_ip worker-0 --main_process_port 29501 --token_file "
                            "/job.token --num_cpu_threads_per_process 2 --gpu_ids 0,2 --env "
                            "'A=it'\\''s 5%%' -- ./train '$HOME' '' %%n"));
    EXPECT_THAT(command.environment, ElementsAre(Pair("PDSH_RCMD_TYPE", "ssh")));
    job.token_file.clear();
    expect_error<ValueError>({"launch: deepspeed_multinode_launcher pdsh needs --token_file"},
                             [&] { multinode_command(job); });
    job = job_with("pdsh");
    job.machines.hosts[1].slots = {1, 2, 3, 4};
    expect_error<ValueError>(
        {"launch: deepspeed_multinode_launcher pdsh needs the same slots on all machines: the job "
         "uses slots 1,2,3,4 of worker-1 and slots 0,1,2,3 of worker-0; use nossh, and run axle "
         "launch on each machine"},
        [&] { multinode_command(job); });
}

// Covers 15.multinode.
TEST(MultinodeCommand, StartsProcessesWithMpiAndRejectsFilters) {
    std::vector<std::string> open = {"mpirun",      "-n",          "8",
                                     "-hostfile",   "hosts",       "--npernode",
                                     "4",           "-x",          "AXLE_JOB_TOKEN",
                                     "-x",          "MASTER_ADDR", "-x",
                                     "MASTER_PORT", "-x",          "ACCELERATE_USE_DEEPSPEED"};
    if (::geteuid() == 0) open.emplace_back("--allow-run-as-root");
    for (const char* word : {"env", "-u", "AXLE_LAUNCHER_FD", "./train", "--lr", "0.1"})
        open.emplace_back(word);
    EXPECT_THAT(arguments_of(job_with("openmpi")), ElementsAreArray(open));
    EXPECT_THAT(multinode_command(job_with("openmpi")).environment,
                ElementsAre(Pair("ACCELERATE_USE_DEEPSPEED", "true"),
                            Pair("MASTER_ADDR", "worker-0"), Pair("MASTER_PORT", "29501")));
    for (const auto& [launcher, flag] : {std::pair("mpich", "-n"), std::pair("mvapich", "-np")})
        EXPECT_THAT(arguments_of(job_with(launcher)),
                    ElementsAre("mpirun", flag, "8", "-ppn", "4", "-hosts", "worker-0,worker-1",
                                "-genvlist",
                                "AXLE_JOB_TOKEN,MASTER_ADDR,MASTER_PORT,ACCELERATE_USE_DEEPSPEED",
                                "env", "-u", "AXLE_LAUNCHER_FD", "./train", "--lr", "0.1"));
    for (const char* launcher : {"openmpi", "mpich", "mvapich"}) {
        MultinodeJob job = job_with(launcher);
        job.machines.are_filtered = true;
        expect_error<ValueError>({"launch: deepspeed_multinode_launcher ", launcher,
                                  "does not support deepspeed_inclusion_filter"},
                                 [&] { multinode_command(job); });
    }
}

// Covers 15.multinode.
TEST(MultinodeCommand, StartsProcessesWithSrunAndRejectsSlotsThatAreNotCountedFromZero) {
    EXPECT_THAT(arguments_of(job_with("slurm")),
                ElementsAre("srun", "-n", "8", "--nodes", "2", "--ntasks-per-node", "4",
                            "--nodelist", "worker-0,worker-1", "--export=ALL", "env", "-u",
                            "AXLE_LAUNCHER_FD", "./train", "--lr", "0.1"));
    MultinodeJob job = job_with("slurm");
    job.machines.hosts.clear();
    job.main_process_ip.clear();
    job.threads = 3;
    EXPECT_THAT(arguments_of(job), testing::Not(testing::Contains("--nodelist")));
    EXPECT_THAT(multinode_command(job).environment,
                ElementsAre(Pair("ACCELERATE_USE_DEEPSPEED", "true"), Pair("AXLE_NUM_THREADS", "3"),
                            Pair("OMP_NUM_THREADS", "3")));
    job = job_with("slurm");
    for (HostSlots& host : job.machines.hosts) host.slots = {1, 2, 3, 4};
    expect_error<ValueError>(
        {"launch: deepspeed_multinode_launcher slurm needs the same slots, "
         "counted from 0, on all machines: the job uses slots 1,2,3,4 of worker-0; "},
        [&] { multinode_command(job); });
}

// Covers 15.multinode.
TEST(MultinodeCommand, NeedsTheProgramOfItsLauncherAndReportsItIfMissing) {
    EXPECT_STREQ(program_of("pdsh"), "pdsh");
    EXPECT_STREQ(program_of("slurm"), "srun");
    EXPECT_STREQ(program_of("mvapich"), "mpirun");
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", "/no/programs", 1);
    expect_error<FileError>({"launch: deepspeed_multinode_launcher slurm needs the program srun, "
                             "which is not in PATH"},
                            [] { check_multinode_program("slurm"); });
    ::setenv("PATH", path.c_str(), 1);
}

// Covers 15.multinode.
TEST(DeepSpeedEnv, SetsOneEnvironmentVariablePerLineAndRejectsOtherLines) {
    EXPECT_THAT(parse_deepspeed_env("# NCCL\nNCCL_IB_DISABLE=1\n\nA=b=c d\r\nEMPTY=\n", "env"),
                ElementsAre(Pair("A", "b=c d"), Pair("EMPTY", ""), Pair("NCCL_IB_DISABLE", "1")));
    for (const char* line : {"A", "=1", "export A=1"})
        expect_error<ValueError>({"env:1: a line must be NAME=VALUE, without spaces before '=': '"},
                                 [&] { parse_deepspeed_env(line, "env"); });
    const tests::TemporaryFolder folder;
    write_file_atomically(folder / "env", "A=1\n");
    const std::string path = folder / "env";
    const tests::EnvironmentVariable name("DS_ENV_FILE", path.c_str());
    EXPECT_THAT(read_deepspeed_env(), ElementsAre(Pair("A", "1")));
}

}  // namespace
}  // namespace axle::launcher
