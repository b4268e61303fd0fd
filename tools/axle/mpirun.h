// Private to tools: starts jobs with mpirun.
#pragma once

#include <string>
#include <vector>

#include "dist/launch/launch.h"
#include "tools/axle/launch_plan.h"

namespace axle::launcher {

enum class Mpi { open_mpi, other };  // other: MPICH, Intel MPI, MVAPICH

// Returns the command line that starts the processes of `plan` with `program`, the mpirun of `mpi`.
std::vector<std::string> mpirun_arguments(const LaunchPlan& plan, const std::string& program,
                                          Mpi mpi);

// Returns the command that starts a job with mpirun. Throws FileError if neither mpirun nor mpiexec
// can be run.
dist::Command mpirun_command(const LaunchPlan& plan);

}  // namespace axle::launcher
