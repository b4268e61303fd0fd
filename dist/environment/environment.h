// Environment: the rank and job of this process, read from the variables that its launcher sets.
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
    int local_rank = 0, local_world_size = 1;  // rank and number of processes on this machine
    int node_rank = 0;
    // Host name or address of rank 0. Port 0 is allowed only for a job with a single process.
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    // The launcher that set the variables: "axle", "torchrun", "slurm", "openmpi", "mpich",
    // "intel", or "" if there is none.
    std::string launcher;
    // A value shared by all processes of the job: AXLE_JOB_TOKEN, which is secret, or else the
    // launcher's job id (TORCHELASTIC_RUN_ID, SLURM_JOB_ID, ...), which only keeps jobs apart.
    std::string token;
    bool token_is_secret = false;
    int restart_count = 0;  // how often the launcher has restarted the job
    // True if the launcher's own store uses MASTER_PORT, so that rank 0 must listen on another
    // port.
    bool port_is_taken = false;
};

// Returns the value of an environment variable, or nullopt if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);

// Reads the first of these sets of variables that is present: RANK and WORLD_SIZE (torchrun, axle
// launch, or set by hand), OMPI_COMM_WORLD_* (Open MPI), PMI_* with MPI_LOCALRANKID (MPICH, Intel
// MPI), SLURM_* (srun). MASTER_ADDR and MASTER_PORT are always honoured; under SLURM they default
// to the first host of SLURM_JOB_NODELIST and a port derived from SLURM_JOB_ID. Throws ValueError
// with the name of a variable that is required but missing, not a number, or out of range.
Environment read_environment(const Variables& variables = process_variable);

// Expands a SLURM node list: "n[01-03,7],login" gives n01, n02, n03, n7, login. Throws ValueError
// if the list is malformed or names more than 65536 hosts.
std::vector<std::string> expand_nodelist(std::string_view list);

}  // namespace axle::dist
