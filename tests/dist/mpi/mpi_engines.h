// MPI engines for tests under mpirun, without a process group.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "dist/group/engine.h"
#include "dist/mpi/library.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"

namespace axle::tests {

// Opens an engine of the first `size` processes of mpirun. All of these processes must call this
// function. A transfer has at most round_bytes bytes for each rank; 0 selects the limit of process
// groups.
inline std::unique_ptr<dist::HostEngine> open_mpi_engine(int rank, int size,
                                                         std::chrono::milliseconds timeout,
                                                         std::int64_t round_bytes = 0) {
    const dist::MpiLibrary library = dist::open_mpi_library(kernels::own_library_folders());
    if (library.functions == nullptr) throw CommError(library.error);
    dist::MpiError error = {};
    int own = 0, all = 0, last_tag = 0;
    if (!library.functions->init(&own, &all, &last_tag, &error)) throw CommError(error.text);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    dist::MpiComm* const comm = library.functions->open(ranks.data(), size, 1, &error);
    if (comm == nullptr) throw CommError(error.text);
    return dist::make_mpi_engine(*library.functions, comm, rank, size, last_tag, timeout,
                                 round_bytes);
}

}  // namespace axle::tests
