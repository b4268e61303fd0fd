// Private to dist: the C interface of libaxle_gloo.so, which alone links Gloo. A program opens it
// when it first needs it (dist/transport/gloo.cpp), so that one without other processes needs no
// library.
//
// No exception crosses it, and neither side needs a symbol of the other's but kGlooEntry. Functions
// that can fail return false (or null) and say why in `error`.
//
// All calls that move data are made on threads that block SIGPIPE, and so is open(), whose thread
// Gloo's own thread inherits that from: Gloo writes to sockets whose other end may be gone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axle::inline v0::dist {

struct GlooError {
    char text[1024];
};

struct GlooMesh;     // this rank's connections to all others
struct GlooMessage;  // a send or a receive under way

inline constexpr std::uint32_t kGlooVersion = 1;
inline constexpr const char* kGlooEntry = "axle_gloo_functions";

extern "C" {

// The interface of one version; axle_gloo_functions(version) is null for any but its own.
struct GlooFunctions {
    std::uint32_t version;

    // Listens at `address`, a number such as 127.0.0.1. A connection may take connect_ms.
    GlooMesh* (*open)(int rank, int size, const char* address, std::int64_t connect_ms,
                      GlooError* error);
    // After abort() or when no message is under way.
    void (*close)(GlooMesh* mesh);

    // Where `peer` finds this rank; to be given to its connect(). At most `capacity` bytes; returns
    // how many, 0 after an error.
    std::size_t (*address)(GlooMesh* mesh, int peer, char* bytes, std::size_t capacity,
                           GlooError* error);
    // Waits until the peer has called it too. Not twice at once for the same peer.
    bool (*connect)(GlooMesh* mesh, int peer, const char* bytes, std::size_t size,
                    GlooError* error);

    // Messages between two ranks with the same slot are matched in the order of these calls. Both
    // sides must give the same size: Gloo ends the process if more arrives than is expected.
    GlooMessage* (*send)(GlooMesh* mesh, const void* data, std::size_t size, int to,
                         std::uint64_t slot, GlooError* error);
    GlooMessage* (*receive)(GlooMesh* mesh, void* data, std::size_t size, int from,
                            std::uint64_t slot, GlooError* error);
    // Once for each message. A failure is one of the whole mesh, a timeout too.
    bool (*wait)(GlooMessage* message, std::int64_t timeout_ms, GlooError* error);
    // Its memory is not touched from then on.
    void (*drop)(GlooMessage* message);

    // From any thread: closes all connections; whoever waits, now or later, gets a failure.
    void (*abort)(GlooMesh* mesh);
};

using GlooEntry = const GlooFunctions* (*)(std::uint32_t version);

}  // extern "C"

}  // namespace axle::inline v0::dist
