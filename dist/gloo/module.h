// Private to dist: the C interface of libaxle_gloo.so, the only binary that links Gloo. A program
// opens it on first use (dist/transport/gloo.cpp), so single-process programs do not need it.
//
// No exception crosses the interface, and kGlooEntry is the only symbol that either side needs.
// Functions that can fail return false (or null) and write the reason to `error`.
//
// Threads that call open() or move data must block SIGPIPE, because Gloo writes to sockets whose
// other end may be closed. Gloo's own thread inherits the signal mask from the thread in open().
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle::dist {

struct GlooError {
    char text[1024];
};

struct GlooMesh;     // this rank's connections to all others
struct GlooMessage;  // a send or receive in progress

inline constexpr std::uint32_t kGlooVersion = 1;
inline constexpr const char* kGlooEntry = "axle_gloo_functions";

extern "C" {

// The functions of one interface version. axle_gloo_functions(version) returns null for another
// version.
struct GlooFunctions {
    std::uint32_t version;

    // Listens at `address`, a numeric IP such as 127.0.0.1. connect_ms limits the time of each
    // connection.
    GlooMesh* (*open)(int rank, int size, const char* address, std::int64_t connect_ms,
                      GlooError* error);
    // Must be called after abort(), or when no message is in progress.
    void (*close)(GlooMesh* mesh);

    // Writes the address at which `peer` can reach this rank, for its connect(): at most `capacity`
    // bytes. Returns the number of bytes, or 0 on error.
    std::size_t (*address)(GlooMesh* mesh, int peer, char* bytes, std::size_t capacity,
                           GlooError* error);
    // Waits until the peer has called it too. Must not run concurrently for the same peer.
    bool (*connect)(GlooMesh* mesh, int peer, const char* bytes, std::size_t size,
                    GlooError* error);

    // Messages between two ranks with the same slot are matched in the order of these calls. Both
    // sides must pass the same size: Gloo ends the process if more data arrives than expected.
    GlooMessage* (*send)(GlooMesh* mesh, const void* data, std::size_t size, int to,
                         std::uint64_t slot, GlooError* error);
    GlooMessage* (*receive)(GlooMesh* mesh, void* data, std::size_t size, int from,
                            std::uint64_t slot, GlooError* error);
    // Must be called once for each message. A failure, including a timeout, fails the whole mesh.
    bool (*wait)(GlooMessage* message, std::int64_t timeout_ms, GlooError* error);
    // Frees a message. Its memory is not accessed afterwards.
    void (*drop)(GlooMessage* message);

    // Closes all connections; pending and future waits fail. May be called from any thread.
    void (*abort)(GlooMesh* mesh);
};

using GlooEntry = const GlooFunctions* (*)(std::uint32_t version);

}  // extern "C"

}  // namespace axle::dist
