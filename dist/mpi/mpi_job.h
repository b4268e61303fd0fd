// Private to dist: MpiJob, the state of MPI that the groups of a job share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/mpi/library.h"

namespace axle::dist {

class Control;

struct MpiJob {
    const MpiFunctions* functions = nullptr;
    std::vector<int> world_ranks;  // the rank in MPI_COMM_WORLD of each rank of the job
    int last_tag = 0;
};

// Opens the engine library with open() and initializes MPI. All ranks must call this function. If
// this fails on a rank, the implementations differ, or the ranks were not started together by MPI,
// all ranks throw CommError with the same reason.
MpiJob join_mpi(Control& control, std::chrono::milliseconds timeout,
                const std::function<MpiLibrary()>& open);

// --- implementation of join_mpi()

// Returns the reason why processes with these engine libraries cannot communicate, or "". Each text
// is '+' and the name of the implementation, or '-' and the reason why the rank has no library.
std::string find_library_obstacle(const std::vector<std::string>& texts);
// Returns the reason why these ranks of MPI cannot form a job, or "". Each text is "+<rank> <size>"
// of MPI_COMM_WORLD, or '-' and the reason why MPI was not initialized. Appends the rank in
// MPI_COMM_WORLD of each text to `ranks`. Throws CommError if a text after '+' has anything other
// than numbers.
std::string find_world_obstacle(const std::vector<std::string>& texts, std::vector<int>& ranks);

}  // namespace axle::dist
