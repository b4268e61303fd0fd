// Who this process is among those that train together, as whatever started it says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace axle::inline v0::dist {

// One process alone unless somebody says otherwise.
struct Environment {
    int rank = 0, world_size = 1;
    int local_rank = 0, local_world_size = 1;  // among the processes of this machine
    int node_rank = 0;
    // Where rank 0 is to be found. Port 0 is possible for a process alone only.
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    // Who said so: "" (nobody), "axle", "torchrun", "slurm", "openmpi", "mpich" or "intel".
    std::string launcher;
    // What all processes of the job know and nobody else: AXLE_JOB_TOKEN, else the launcher's name
    // for the job (TORCHELASTIC_RUN_ID, SLURM_JOB_ID, ...), which keeps jobs apart but is no
    // secret.
    std::string token;
    bool token_is_secret = false;
    int restart_count = 0;  // of the whole job, by its launcher
    // MASTER_PORT belongs to the launcher's own store, so that rank 0 has to take another.
    bool port_is_taken = false;
};

// A variable of the environment, or nothing.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_variable(const std::string& name);

// The first of these that there is: RANK and WORLD_SIZE (torchrun, axle launch, or set by hand),
// OMPI_COMM_WORLD_* (Open MPI), PMI_* with MPI_LOCALRANKID (MPICH, Intel MPI), SLURM_* under srun.
// MASTER_ADDR and MASTER_PORT are read under all of them; SLURM's master is the first host of
// SLURM_JOB_NODELIST, its port made from SLURM_JOB_ID. ValueError names a variable that is missing
// beside another, is no number, or is out of its range.
Environment read_environment(const Variables& variables = process_variable);

// "n[01-03,7],login" is n01 n02 n03 n7 login. ValueError where a list makes no sense or names more
// than 65536 hosts.
std::vector<std::string> expand_nodelist(std::string_view list);

}  // namespace axle::inline v0::dist
