// An engine library (plugin.h): implements its interface with one implementation of MPI. This file
// is compiled once for each implementation.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include "dist/mpi/plugin.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include <mpi.h>

namespace axle::dist {

struct MpiComm {
    MPI_Comm comm = MPI_COMM_NULL;
    int size = 0;
};

struct MpiRequest {
    MPI_Request request = MPI_REQUEST_NULL;
    int expected = -1;  // the number of bytes of a receive, or -1
    // The counts and offsets. They are stored because MPI reads them until the end of the
    // operation.
    std::vector<int> arrays[4];
};

namespace {

std::atomic<bool> is_finalized = false;
std::atomic<int> in_progress = 0;  // number of requests

void write_text(MpiError* error, const char* text) {
    std::snprintf(error->text, sizeof error->text, "%s", text);
}

// Returns whether `code` is MPI_SUCCESS. If not, writes the error text to `error`.
bool check(int code, const char* function, MpiError* error) {
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        std::snprintf(text, sizeof text, "error %d", code);
    std::snprintf(error->text, sizeof error->text, "%s: %s", function, text);
    return false;
}

// Returns whether the program has finalized MPI, or finalize() was called.
bool is_ended() {
    int done = 0;
    return is_finalized || MPI_Finalized(&done) != MPI_SUCCESS || done != 0;
}

// Finalizes MPI when the program exits. Does not call MPI_Finalize if operations are in progress,
// because it would wait for operations that may never end. No further operations can start.
void finalize() {
    const bool finalizes = in_progress == 0 && !is_ended();
    is_finalized = true;
    if (finalizes) MPI_Finalize();
}

bool initialize(MpiError* error) {
    int done = 0, level = MPI_THREAD_SINGLE;
    if (!check(MPI_Initialized(&done), "MPI_Initialized", error)) return false;
    if (done != 0) {
        if (!check(MPI_Query_thread(&level), "MPI_Query_thread", error)) return false;
        if (level == MPI_THREAD_MULTIPLE) return true;
        write_text(error,
                   "the program has initialized MPI without MPI_THREAD_MULTIPLE: call "
                   "MPI_Init_thread with this level");
        return false;
    }
    if (!check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread",
               error))
        return false;
    std::atexit(finalize);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level == MPI_THREAD_MULTIPLE) return true;
    write_text(error, "this MPI does not provide MPI_THREAD_MULTIPLE");
    return false;
}

bool init(int* rank, int* size, int* last_tag, MpiError* error) {
    static std::mutex mutex;
    static bool is_ready = false;
    const std::lock_guard lock(mutex);
    if (is_ended()) {
        write_text(error, "MPI was finalized and cannot be used again");
        return false;
    }
    if (!is_ready && !initialize(error)) return false;
    is_ready = true;
    void* limit = nullptr;
    int found = 0;
    if (!check(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", error) ||
        !check(MPI_Comm_size(MPI_COMM_WORLD, size), "MPI_Comm_size", error) ||
        !check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found),
               "MPI_Comm_get_attr", error))
        return false;
    *last_tag = found != 0 ? *static_cast<int*>(limit) : 32767;
    return true;
}

MpiComm* open(const int* ranks, int size, int tag, MpiError* error) {
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    const bool created =
        check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group", error) &&
        check(MPI_Group_incl(world, size, ranks, &members), "MPI_Group_incl", error) &&
        check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm), "MPI_Comm_create_group",
              error) &&
        check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", error);
    if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
    if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
    if (!created) return nullptr;
    auto made = std::make_unique<MpiComm>();
    made->comm = comm;
    made->size = size;
    return made.release();
}

// Frees a communicator. Ranks free their communicators at different times. MPI_Comm_free is a
// collective in the standard, but neither implementation waits for other ranks in it.
void close(MpiComm* comm) {
    if (!is_ended()) MPI_Comm_free(&comm->comm);
    delete comm;
}

// Starts an operation: calls f(request), which returns the result of MPI.
template <class F>
MpiRequest* start(const char* function, MpiError* error, F&& f) {
    if (is_ended()) {
        write_text(error, "MPI was finalized");
        return nullptr;
    }
    try {
        auto request = std::make_unique<MpiRequest>();
        if (!check(f(*request), function, error)) return nullptr;
        ++in_progress;
        return request.release();
    } catch (const std::exception& e) {
        write_text(error, e.what());
        return nullptr;
    }
}

// Stores a copy of `values`, one value per rank, in the request and returns the copy. MPI reads the
// copy until the operation ends.
const int* copied(MpiRequest& request, std::size_t which, const MpiComm& comm, const int* values) {
    if (values != nullptr) request.arrays[which].assign(values, values + comm.size);
    return request.arrays[which].data();
}

MpiRequest* broadcast(MpiComm* comm, void* data, int bytes, int root, MpiError* error) {
    return start("MPI_Ibcast", error, [&](MpiRequest& r) {
        return MPI_Ibcast(data, bytes, MPI_BYTE, root, comm->comm, &r.request);
    });
}

MpiRequest* all_gather(MpiComm* comm, const void* in, int bytes, void* out, const int* counts,
                       const int* offsets, MpiError* error) {
    return start("MPI_Iallgatherv", error, [&](MpiRequest& r) {
        return MPI_Iallgatherv(in, bytes, MPI_BYTE, out, copied(r, 0, *comm, counts),
                               copied(r, 1, *comm, offsets), MPI_BYTE, comm->comm, &r.request);
    });
}

MpiRequest* all_to_all(MpiComm* comm, const void* in, const int* in_counts, const int* in_offsets,
                       void* out, const int* out_counts, const int* out_offsets, MpiError* error) {
    return start("MPI_Ialltoallv", error, [&](MpiRequest& r) {
        return MPI_Ialltoallv(in, copied(r, 0, *comm, in_counts), copied(r, 1, *comm, in_offsets),
                              MPI_BYTE, out, copied(r, 2, *comm, out_counts),
                              copied(r, 3, *comm, out_offsets), MPI_BYTE, comm->comm, &r.request);
    });
}

MpiRequest* gather(MpiComm* comm, const void* in, int bytes, void* out, const int* counts,
                   const int* offsets, int root, MpiError* error) {
    return start("MPI_Igatherv", error, [&](MpiRequest& r) {
        return MPI_Igatherv(in, bytes, MPI_BYTE, out, copied(r, 0, *comm, counts),
                            copied(r, 1, *comm, offsets), MPI_BYTE, root, comm->comm, &r.request);
    });
}

MpiRequest* scatter(MpiComm* comm, const void* in, const int* counts, const int* offsets, void* out,
                    int bytes, int root, MpiError* error) {
    return start("MPI_Iscatterv", error, [&](MpiRequest& r) {
        return MPI_Iscatterv(in, copied(r, 0, *comm, counts), copied(r, 1, *comm, offsets),
                             MPI_BYTE, out, bytes, MPI_BYTE, root, comm->comm, &r.request);
    });
}

MpiRequest* maximum(MpiComm* comm, std::int64_t* value, MpiError* error) {
    return start("MPI_Iallreduce", error, [&](MpiRequest& r) {
        return MPI_Iallreduce(MPI_IN_PLACE, value, 1, MPI_INT64_T, MPI_MAX, comm->comm, &r.request);
    });
}

MpiRequest* barrier(MpiComm* comm, MpiError* error) {
    return start("MPI_Ibarrier", error,
                 [&](MpiRequest& r) { return MPI_Ibarrier(comm->comm, &r.request); });
}

MpiRequest* send(MpiComm* comm, const void* data, int bytes, int to, int tag, MpiError* error) {
    return start("MPI_Isend", error, [&](MpiRequest& r) {
        return MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm->comm, &r.request);
    });
}

MpiRequest* receive(MpiComm* comm, void* data, int bytes, int from, int tag, MpiError* error) {
    return start("MPI_Irecv", error, [&](MpiRequest& r) {
        r.expected = bytes;
        return MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm->comm, &r.request);
    });
}

// Returns whether a receive was not canceled and has received all bytes.
bool is_complete(const MpiRequest& request, const MPI_Status& status, MpiError* error) {
    int canceled = 0, received = 0;
    if (!check(MPI_Test_cancelled(&status, &canceled), "MPI_Test_cancelled", error)) return false;
    if (canceled != 0) {
        write_text(error, "the receive was canceled");
        return false;
    }
    if (!check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count", error)) return false;
    if (received == request.expected) return true;
    std::snprintf(error->text, sizeof error->text, "expected a message of %d bytes, received %d",
                  request.expected, received);
    return false;
}

MpiState test(MpiRequest* request, MpiError* error) {
    int done = 0;
    MPI_Status status = {};
    if (is_ended()) {
        write_text(error, "MPI was finalized");
        return MpiState::failed;
    }
    const int code = MPI_Test(&request->request, &done, &status);
    if (code == MPI_SUCCESS && done == 0) return MpiState::pending;
    const std::unique_ptr<MpiRequest> owned(request);
    --in_progress;
    if (!check(code, "MPI_Test", error)) return MpiState::failed;
    if (owned->expected >= 0 && !is_complete(*owned, status, error)) return MpiState::failed;
    return MpiState::done;
}

void cancel(MpiRequest* request) {
    if (!is_ended() && request->expected >= 0) MPI_Cancel(&request->request);
}

#if defined(OPEN_MPI)
constexpr const char* kImplementation = "Open MPI";
#else
constexpr const char* kImplementation = "MPICH";
#endif

constexpr MpiFunctions kFunctions = {
    .version = kMpiVersion,
    .size = sizeof(MpiFunctions),
    .implementation = kImplementation,
    .init = init,
    .open = open,
    .close = close,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .gather = gather,
    .scatter = scatter,
    .maximum = maximum,
    .barrier = barrier,
    .send = send,
    .receive = receive,
    .test = test,
    .cancel = cancel,
};

}  // namespace
}  // namespace axle::dist

extern "C" __attribute__((visibility("default"))) const axle::dist::MpiFunctions*
axle_mpi_functions(std::uint32_t version) {
    return version == axle::dist::kMpiVersion ? &axle::dist::kFunctions : nullptr;
}
