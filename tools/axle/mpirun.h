// Private to tools: jobs that mpirun starts.
#pragma once

#include <string>
#include <vector>

#include "dist/launch/launch.h"
#include "tools/axle/launch_plan.h"

namespace axle::launcher {

enum class Mpi { open_mpi, other };  // other: MPICH, Intel MPI, MVAPICH

std::vector<std::string> mpirun_arguments(const LaunchPlan& plan, const std::string& program,
                                          Mpi mpi);

// FileError where there is neither mpirun nor mpiexec.
dist::Command mpirun_command(const LaunchPlan& plan);

}  // namespace axle::launcher
