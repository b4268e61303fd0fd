// Private to dist: the C interface of an engine library, libaxle_mpi_openmpi.so or
// libaxle_mpi_mpich.so. Implementations of MPI have different binary interfaces, so each
// implementation has its own library. Only these libraries link MPI. A program opens one of them
// when it uses the backend "mpi" (library.h).
//
// No function throws, and kMpiEntry is the only exported symbol. Functions that can fail return
// false, nullptr or MpiState::failed and write the reason to `error`. All data is bytes, except the
// value of maximum(); Axle reduces numbers itself. Functions may be called concurrently.
#pragma once

#include <cstdint>

namespace axle::dist {

struct MpiError {
    char text[512];
};

struct MpiComm;     // a communicator
struct MpiRequest;  // an operation in progress

inline constexpr std::uint32_t kMpiVersion = 1;
inline constexpr const char* kMpiEntry = "axle_mpi_functions";

enum class MpiState : std::int32_t { pending, done, failed };

extern "C" {

// The functions of one version of the interface. axle_mpi_functions(version) returns nullptr if the
// library has another version.
struct MpiFunctions {
    std::uint32_t version;
    std::uint32_t size;          // sizeof(MpiFunctions)
    const char* implementation;  // "Open MPI" or "MPICH"

    // Initializes MPI with MPI_THREAD_MULTIPLE, unless the program has initialized it. Fails if MPI
    // does not provide this thread level or was finalized. If this function has initialized MPI,
    // MPI is finalized when the program exits, unless operations are still in progress. Writes the
    // rank and the size of MPI_COMM_WORLD, and the largest message tag.
    bool (*init)(int* rank, int* size, int* last_tag, MpiError* error);

    // Creates a communicator of ranks of MPI_COMM_WORLD, ranks[i] as rank i. Waits until all these
    // ranks have called open(). Ranks that create communicators concurrently need different tags.
    MpiComm* (*open)(const int* ranks, int size, int tag, MpiError* error);
    // Frees the communicator. No operation may be in progress.
    void (*close)(MpiComm* comm);

    // Start an operation and return its request, which test() frees. Counts and offsets are in
    // bytes, with one entry for each rank, and are copied. Data must stay valid until the end of
    // the operation. In gather(), only the root uses `out` and the arrays; in scatter(), only the
    // root uses `in` and the arrays.
    MpiRequest* (*broadcast)(MpiComm* comm, void* data, int bytes, int root, MpiError* error);
    MpiRequest* (*all_gather)(MpiComm* comm, const void* in, int bytes, void* out,
                              const int* counts, const int* offsets, MpiError* error);
    MpiRequest* (*all_to_all)(MpiComm* comm, const void* in, const int* in_counts,
                              const int* in_offsets, void* out, const int* out_counts,
                              const int* out_offsets, MpiError* error);
    MpiRequest* (*gather)(MpiComm* comm, const void* in, int bytes, void* out, const int* counts,
                          const int* offsets, int root, MpiError* error);
    MpiRequest* (*scatter)(MpiComm* comm, const void* in, const int* counts, const int* offsets,
                           void* out, int bytes, int root, MpiError* error);
    // Replaces the value of all ranks by their maximum.
    MpiRequest* (*maximum)(MpiComm* comm, std::int64_t* value, MpiError* error);
    MpiRequest* (*barrier)(MpiComm* comm, MpiError* error);
    // Messages with the same tag between two ranks arrive in order. A receive fails if the message
    // has another size.
    MpiRequest* (*send)(MpiComm* comm, const void* data, int bytes, int to, int tag,
                        MpiError* error);
    MpiRequest* (*receive)(MpiComm* comm, void* data, int bytes, int from, int tag,
                           MpiError* error);

    // Returns the state of an operation. Frees the request unless the operation is pending or MPI
    // was finalized. Must be called until the operation ends, because MPI makes progress in this
    // call.
    MpiState (*test)(MpiRequest* request, MpiError* error);
    // Cancels a receive. test() then ends with success or a failure. Does nothing for other
    // operations, because MPI cannot cancel them.
    void (*cancel)(MpiRequest* request);
};

using MpiEntry = const MpiFunctions* (*)(std::uint32_t version);

}  // extern "C"

}  // namespace axle::dist
