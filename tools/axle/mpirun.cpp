#include "tools/axle/mpirun.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"

namespace axle::launcher {
namespace {

// Returns the output of `program --version`, or "" if the program cannot be run or fails.
std::string version_of(const std::string& program) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return "";
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::execlp(program.c_str(), program.c_str(), "--version", nullptr);
        ::_exit(127);
    }
    ::close(ends[1]);
    std::string text;
    char bytes[512];
    for (;;) {
        const ssize_t size = ::read(ends[0], bytes, sizeof bytes);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) break;
        text.append(bytes, static_cast<std::size_t>(size));
    }
    ::close(ends[0]);
    int status = -1;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0 ? text : "";
}

}  // namespace

// Processes read their ranks from variables of MPI, and the address of rank 0 from MASTER_ADDR and
// MASTER_PORT. They must not inherit AXLE_LAUNCHER_FD, which connects mpirun with the launcher.
std::vector<std::string> mpirun_arguments(const LaunchPlan& plan, const std::string& program,
                                          Mpi mpi) {
    const std::string total = std::to_string(plan.processes_here * plan.num_machines);
    const std::string here = std::to_string(plan.processes_here);
    std::vector<std::string> all = {program};
    if (mpi == Mpi::open_mpi) {
        all.insert(all.end(),
                   {"--hostfile", plan.mpirun_hostfile, "--npernode", here, "-n", total});
        std::vector<std::string> names = {"MASTER_ADDR", "MASTER_PORT", "AXLE_JOB_TOKEN"};
        for (const auto& [name, value] : plan.environment) names.push_back(name);
        for (const std::string& name : names) all.insert(all.end(), {"-x", name});
        if (::geteuid() == 0) all.emplace_back("--allow-run-as-root");
    } else {
        all.insert(all.end(), {"-f", plan.mpirun_hostfile, "-ppn", here, "-n", total});
    }
    all.insert(all.end(), {"env", "-u", "AXLE_LAUNCHER_FD"});
    all.insert(all.end(), plan.command.begin(), plan.command.end());
    return all;
}

dist::Command mpirun_command(const LaunchPlan& plan) {
    for (const char* program : {"mpirun", "mpiexec"}) {
        const std::string version = version_of(program);
        if (version.empty()) continue;
        const Mpi mpi = version.find("Open MPI") != std::string::npos ||
                                version.find("OpenRTE") != std::string::npos
                            ? Mpi::open_mpi
                            : Mpi::other;
        dist::Command command{.arguments = mpirun_arguments(plan, program, mpi),
                              .environment = plan.environment};
        command.environment["MASTER_ADDR"] = plan.main_process_ip;
        if (plan.threads > 0)
            for (const char* name : {"OMP_NUM_THREADS", "AXLE_NUM_THREADS"})
                command.environment[name] = std::to_string(plan.threads);
        return command;
    }
    throw FileError(
        "launch: neither mpirun nor mpiexec can be run; install MPI, or add it to PATH");
}

}  // namespace axle::launcher
