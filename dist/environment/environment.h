// Environment: the rank and job of this process, read from the variables of its launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace axle::dist {

// The rank of this process and the address of its job. The default is a job with a single process.
struct Environment {
    int rank = 0, world_size = 1;
    // The local rank, and the number of processes on this machine.
    int local_rank = 0, local_world_size = 1;
    int node_rank = 0;
    // The host name or address of rank 0. Port 0 is allowed only for a job with a single process.
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    // The launcher that set the variables: "axle", "torchrun", "slurm", "openmpi", "mpich" (also
    // for MVAPICH), "intel", or "" if it is unknown.
    std::string launcher;
    // A text that is the same on all processes of the job. It is AXLE_JOB_TOKEN, which is secret,
    // or else the launcher's job id, for example from TORCHELASTIC_RUN_ID or SLURM_JOB_ID. A job id
    // only distinguishes jobs. If neither is set, the token is "".
    std::string token;
    bool token_is_secret = false;
    int restart_count = 0;  // number of times that the launcher has restarted the job
    // Whether MASTER_PORT is used by the launcher's own store. If true, rank 0 must listen on
    // another port.
    bool port_is_taken = false;
};

// A function that returns the value of an environment variable, or nullopt if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
// Returns the value of a variable of this process's environment, or nullopt if it is not set.
std::optional<std::string> process_variable(const std::string& name);

// Reads the rank and job of this process from the first of these groups of variables that is set:
// - RANK and WORLD_SIZE (torchrun, axle launch, or set by the user),
// - OMPI_COMM_WORLD_* (Open MPI),
// - MV2_COMM_WORLD_* (MVAPICH),
// - PMI_* and MPI_LOCAL* (MPICH, Intel MPI),
// - SLURM_* (srun). Under srun, PMI_RANK without MPI_LOCALRANKID is ignored, because srun can set
//   it too.
//
// Without any group, returns the default, a job with one process. If a group other than SLURM_*
// lacks the local rank and the number of local processes, all processes are assumed to be on this
// machine if MASTER_ADDR is not set or is a loopback address, and otherwise one process on each
// machine. The address of rank 0 is MASTER_ADDR and MASTER_PORT. Their defaults are 127.0.0.1 (with
// SLURM_* on several machines, the first host of the job step) and 29500 (with SLURM_*, a port
// computed from the ids of the job and the step). Throws ValueError with the name of the variable
// if a required variable is missing or a value is invalid.
Environment read_environment(const Variables& variables);
Environment read_environment();  // reads the variables of this process

// Returns the hosts of a SLURM node list: "n[01-03,7],login" is n01, n02, n03, n7, login. Throws
// ValueError, whose message begins with `op`, if the list is malformed, or has more than 65536
// hosts or a name of more than 255 characters.
std::vector<std::string> expand_nodelist(std::string_view list,
                                         const std::string& op = "expand_nodelist");

}  // namespace axle::dist
