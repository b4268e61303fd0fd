// Private to dist: the C interface of libaxle_gloo.so, the only binary that links Gloo. A program
// opens the library on first use (dist/transport/gloo.cpp), so programs with one process do not
// need it.
//
// No function throws, and kGlooEntry is the only exported symbol. Functions that can fail return
// false, null or 0 and write the reason to `error`.
//
// Threads that call open(), send() or receive() must block SIGPIPE, because Gloo writes to sockets
// that the peer may have closed. Gloo's own thread inherits the signal mask of the thread that
// calls open().
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle::dist {

struct GlooError {
    char text[1024];
};

struct GlooMesh;     // this rank's connections to the other ranks
struct GlooMessage;  // a send or receive in progress

inline constexpr std::uint32_t kGlooVersion = 1;
inline constexpr const char* kGlooEntry = "axle_gloo_functions";

extern "C" {

// The functions of one version of the interface. axle_gloo_functions(version) returns null if the
// library has another version.
struct GlooFunctions {
    std::uint32_t version;

    // Listens at `address`, a numeric IP address such as 127.0.0.1. connect_ms is the timeout of
    // each connection in milliseconds.
    GlooMesh* (*open)(int rank, int size, const char* address, std::int64_t connect_ms,
                      GlooError* error);
    // Frees the mesh. Must be called after abort(), or when no message is in progress.
    void (*close)(GlooMesh* mesh);

    // Writes the address that `peer` passes to connect() to reach this rank. Returns the number of
    // bytes, or 0 on error, for example if the address has more than `capacity` bytes.
    std::size_t (*address)(GlooMesh* mesh, int peer, char* bytes, std::size_t capacity,
                           GlooError* error);
    // Connects to a peer, whose address is `bytes`. Waits until the peer has called connect() too.
    // Calls for the same peer must not be concurrent.
    bool (*connect)(GlooMesh* mesh, int peer, const char* bytes, std::size_t size,
                    GlooError* error);

    // Start a message. Messages between two ranks with the same slot are matched in the order of
    // these calls. Both ranks must pass the same size, because Gloo ends the process if more data
    // arrives than expected.
    GlooMessage* (*send)(GlooMesh* mesh, const void* data, std::size_t size, int to,
                         std::uint64_t slot, GlooError* error);
    GlooMessage* (*receive)(GlooMesh* mesh, void* data, std::size_t size, int from,
                            std::uint64_t slot, GlooError* error);
    // Waits until a message is sent or received. Must be called at most once for each message.
    // After a failure or a timeout, all messages of the mesh fail.
    bool (*wait)(GlooMessage* message, std::int64_t timeout_ms, GlooError* error);
    // Frees a message. The memory of its data is not accessed afterwards.
    void (*drop)(GlooMessage* message);

    // Closes all connections; pending and future waits fail. Thread-safe.
    void (*abort)(GlooMesh* mesh);
};

using GlooEntry = const GlooFunctions* (*)(std::uint32_t version);

}  // extern "C"

}  // namespace axle::dist
