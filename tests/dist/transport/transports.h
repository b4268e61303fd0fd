// Runs ranks as threads of one test, each with its own TcpTransport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/transport/tcp_transport.h"
#include "kernels/thread.h"
#include "tests/dist/rendezvous/fake_control.h"

namespace axle::tests {

using Bytes = std::vector<std::uint8_t>;
using Message = std::unique_ptr<dist::Transport::Message>;

// The transport of one rank, with the control that it uses.
struct RankTransport {
    RankTransport(FakeStore& store, int rank, int size,
                  std::chrono::milliseconds timeout = std::chrono::seconds(20),
                  const std::string& token = "a token")
        : control(store, rank, size, token),
          transport(dist::open_tcp_transport(control, "test", rank, size, timeout)) {}
    dist::Transport& operator*() const { return *transport; }
    dist::Transport* operator->() const { return transport.get(); }

    FakeControl control;
    std::unique_ptr<dist::Transport> transport;
};

// Runs f(rank) in a thread for each rank. Returns the text of each rank's exception, or "".
inline std::vector<std::string> run_threads(int size, const std::function<void(int)>& f) {
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    threads.reserve(errors.size());
    for (int rank = 0; rank < size; ++rank) {
        threads.push_back(kernels::start_thread("rank", [&, rank] {
            try {
                f(rank);
            } catch (const std::exception& error) {
                errors[static_cast<std::size_t>(rank)] = error.what();
            }
        }));
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
}
inline std::vector<std::string> run_transports(
    int size, const std::function<void(dist::Transport&)>& f,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    FakeStore store;
    return run_threads(size, [&](int rank) { f(*RankTransport(store, rank, size, timeout)); });
}

// Returns bytes that depend on `seed`.
inline Bytes pattern(std::size_t size, std::uint32_t seed) {
    Bytes bytes(size);
    std::uint32_t state = seed * 2654435761U + 12345;
    for (std::uint8_t& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::uint8_t>(state >> 24);
    }
    return bytes;
}

inline Message send(dist::Transport& transport, const Bytes& bytes, int to, std::uint64_t slot) {
    return transport.send(bytes.data(), static_cast<std::int64_t>(bytes.size()), to, slot);
}
inline Message receive(dist::Transport& transport, Bytes& bytes, int from, std::uint64_t slot) {
    return transport.receive(bytes.data(), static_cast<std::int64_t>(bytes.size()), from, slot);
}

}  // namespace axle::tests
