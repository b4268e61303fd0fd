// Private to dist: finds and opens the engine library of an implementation of MPI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/mpi/plugin.h"

namespace axle::dist {

struct MpiLibrary {
    const MpiFunctions* functions = nullptr;  // nullptr if no library was opened
    std::string error;                        // the reason why `functions` is nullptr
};

// Opens the engine library. Its path is AXLE_MPI_LIBRARY (an absolute path), or else
// libaxle_mpi_openmpi.so or libaxle_mpi_mpich.so in one of `folders`. The variables of the launcher
// select the implementation. If they do not, exactly one of the libraries must exist. The interface
// of the library must have the given version. A library whose functions are returned is never
// closed.
MpiLibrary open_mpi_library(const std::vector<std::string>& folders,
                            const Variables& variables = process_variable,
                            std::uint32_t version = kMpiVersion);

}  // namespace axle::dist
