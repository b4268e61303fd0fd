// Tests how ranks open data connections, even while strangers (clients without the key) connect.
#include "dist/transport/tcp_acceptor.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"
#include "kernels/thread.h"
#include "tests/fork.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::connect_and_prove;
using dist::Key;
using dist::Socket;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::size_t kMessage = dist::kHandshakeMessage;

const Key kKey = dist::hash("the key of these tests");

dist::TimePoint later() { return dist::Clock::now() + seconds(20); }

// The acceptor of rank 0, and the connections that it has accepted.
struct Rank0 {
    explicit Rank0(int size, const Key& key = kKey)
        : acceptor(dist::resolve("127.0.0.1", 0).front(), key, 0, size,
                   [this](int rank, Socket socket) {
                       const std::lock_guard lock(mutex);
                       connected.emplace(rank, std::move(socket));
                       changed.notify_all();
                   }) {}

    dist::Address address() const { return dist::resolve("127.0.0.1", acceptor.port()).front(); }
    Socket connect(int rank, const Key& key = kKey) const {
        return connect_and_prove(address(), key, rank, 0, later(), never);
    }
    Socket connect_as_stranger() const { return connect_to(address(), later()); }
    bool has(int rank) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, seconds(20), [&] { return connected.contains(rank); });
    }
    std::size_t count() {
        const std::lock_guard lock(mutex);
        return connected.size();
    }

    Socket never = dist::make_event();
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, Socket> connected;
    dist::TcpAcceptor acceptor;
};

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const CommError& error) {
        return error.what();
    }
    return "";
}

void write(const Socket& socket, const std::string& bytes) {
    try {
        send_all(socket, bytes, later());
    } catch (const dist::SocketError&) {  // the other side has closed the connection
    }
}

// Reads up to `size` bytes. Returns fewer if the other side closes the connection, or if no data
// arrives for 20 seconds.
std::string read(const Socket& socket, std::size_t size) {
    std::string all;
    std::array<char, 4096> bytes{};
    while (all.size() < size) {
        if (!wait_readable(socket, later())) break;
        const auto count =
            receive_some(socket, std::span(bytes).first(std::min(size - all.size(), bytes.size())));
        if (count < 0) break;
        all.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return all;
}

// Waits for up to 20 seconds, and returns whether the other side closes the connection before any
// data arrives.
bool is_closed_by_peer(const Socket& socket) {
    std::array<char, 1> byte{};
    while (wait_readable(socket, later())) {
        const auto count = receive_some(socket, byte);
        if (count != 0) return count < 0;
    }
    return false;
}

// Connects as a rank through a proxy. `change` can change the messages of the client. Returns these
// messages as the server received them.
std::string record_handshake(const Rank0& server, int rank,
                             const std::function<void(std::string&)>& change = {}) {
    const Socket listener = listen_at(dist::resolve("127.0.0.1", 0).front());
    std::string error;
    std::thread client = kernels::start_thread("client", [&] {
        error = error_of([&] {
            connect_and_prove(own_address(listener), kKey, rank, 0, later(), server.never);
        });
    });
    EXPECT_TRUE(wait_readable(listener, later()));
    const Socket from_client = accept_from(listener);
    const Socket to_server = server.connect_as_stranger();
    std::string recorded;
    for (int message = 0; message < 2; ++message) {
        std::string bytes = read(from_client, kMessage);
        if (change) change(bytes);
        recorded += bytes;
        write(to_server, bytes);
        const std::string reply = read(to_server, kMessage);
        if (reply.size() < kMessage) break;
        write(from_client, reply);
    }
    ::shutdown(from_client.descriptor(), SHUT_RDWR);
    client.join();
    return recorded;
}

TEST(TcpHandshake, ConnectsRanksThatHaveTheKey) {
    Rank0 server(3);
    const Socket two = server.connect(2), one = server.connect(1);
    ASSERT_TRUE(server.has(1) && server.has(2));
    write(one, "from rank 1");
    write(server.connected[2], "to rank 2");
    EXPECT_EQ(read(server.connected[1], 11), "from rank 1");
    EXPECT_EQ(read(two, 9), "to rank 2");
}

TEST(TcpHandshake, RejectsAClientWithAnotherKey) {
    Rank0 server(3);
    EXPECT_EQ(error_of([&] { server.connect(1, dist::hash("another key")); }),
              "handshake: the peer closed the connection");
    const Socket two = server.connect(2);
    EXPECT_TRUE(server.has(2));
    EXPECT_EQ(server.count(), 1u);
}

// The server has no key, so it sends back the client's own messages.
TEST(TcpHandshake, RejectsAServerWithoutTheKey) {
    const Socket listener = listen_at(dist::resolve("127.0.0.1", 0).front());
    std::thread server = kernels::start_thread("server", [&] {
        EXPECT_TRUE(wait_readable(listener, later()));
        const Socket client = accept_from(listener);
        for (int message = 0; message < 2; ++message) {
            std::string bytes = read(client, kMessage);
            const int rank = 0;
            std::memcpy(bytes.data() + 4, &rank, sizeof rank);
            write(client, bytes);
        }
        is_closed_by_peer(client);
    });
    const Socket never = dist::make_event();
    EXPECT_THROW(connect_and_prove(own_address(listener), kKey, 1, 0, later(), never),
                 dist::WrongKey);
    server.join();
}

TEST(TcpHandshake, RejectsAReplayedProof) {
    Rank0 first(2), second(2);
    const std::string recorded = record_handshake(first, 1);
    EXPECT_TRUE(first.has(1));
    ASSERT_EQ(recorded.size(), 2 * kMessage);
    const Socket replaying = second.connect_as_stranger();
    write(replaying, recorded);
    EXPECT_EQ(read(replaying, 2 * kMessage).size(), kMessage);  // receives only the nonce
    EXPECT_EQ(second.count(), 0u);
    const Socket one = second.connect(1);
    EXPECT_TRUE(second.has(1));
}

TEST(TcpHandshake, RejectsTheProofOfAnotherRank) {
    Rank0 server(3);
    record_handshake(server, 1, [](std::string& message) {
        const int rank = 2;
        std::memcpy(message.data() + 4, &rank, sizeof rank);
    });
    const Socket one = server.connect(1);
    EXPECT_TRUE(server.has(1));
    EXPECT_EQ(server.count(), 1u);
}

TEST(TcpHandshake, RejectsAClientWithAnInvalidRank) {
    Rank0 server(2);
    for (const int rank : {-1, 0, 2})
        EXPECT_EQ(error_of([&] { server.connect(rank); }),
                  "handshake: the peer closed the connection");
}

TEST(TcpHandshake, ThrowsWhenCanceled) {
    const Socket listener = listen_at(dist::resolve("127.0.0.1", 0).front());
    const Socket cancel = dist::make_event();
    std::promise<pid_t> id;
    std::thread canceller = kernels::start_thread("cancel", [&, waiting = ::gettid()] {
        EXPECT_TRUE(comes_true([&] { return is_blocked(waiting); }));
        signal_event(cancel);
    });
    EXPECT_EQ(
        error_of([&] { connect_and_prove(own_address(listener), kKey, 1, 0, later(), cancel); }),
        "handshake: canceled, because the connections are being closed");
    canceller.join();
}

TEST(TcpAcceptor, ClosesConnectionsOfUnauthenticatedClients) {
    Rank0 server(2);
    std::string start(kMessage, '\0');
    std::memcpy(start.data(), "AXD1\1\0\0\0", 8);
    for (const std::string& bytes : {std::string(100000, '\0'), std::string(100000, '\xff'),
                                     std::string("GET / HTTP/1.1\r\n") + std::string(100, ' '),
                                     start + std::string(100000, '\1')}) {
        const Socket stranger = server.connect_as_stranger();
        write(stranger, bytes);
        EXPECT_LE(read(stranger, 2 * kMessage).size(), kMessage);
        EXPECT_TRUE(is_closed_by_peer(stranger));
    }
    const Socket one = server.connect(1);
    EXPECT_TRUE(server.has(1));
}

// Strangers open more connections than the acceptor keeps, and some send the first message of a
// handshake, or half of it.
TEST(TcpAcceptor, ConnectsRanksWhileUnauthenticatedClientsHoldAllConnections) {
    constexpr int kRanks = 6;
    Rank0 server(kRanks);
    std::vector<Socket> strangers;
    std::string start(kMessage, '\0');
    std::memcpy(start.data(), "AXD1\1\0\0\0", 8);
    for (int i = 0; i < 200; ++i) {
        strangers.push_back(server.connect_as_stranger());
        if (i % 3 == 0) write(strangers.back(), start.substr(0, kMessage / 2));
        if (i % 3 == 1) write(strangers.back(), start);
    }
    std::vector<Socket> ranks;
    for (int rank = 1; rank < kRanks; ++rank) {
        const auto connected = [&] {
            try {
                ranks.push_back(server.connect(rank));
                return true;
            } catch (const CommError&) {  // a stranger has replaced this connection
                return false;
            }
        };
        EXPECT_TRUE(comes_true(connected));
    }
    // When all ranks have connected, the acceptor closes the connections of the strangers.
    for (const Socket& stranger : strangers) {
        read(stranger, kMessage);
        EXPECT_TRUE(is_closed_by_peer(stranger));
    }
    EXPECT_EQ(server.count(), static_cast<std::size_t>(kRanks - 1));
}

TEST(TcpAcceptor, StopsListeningWhenAllRanksHaveConnected) {
    Rank0 server(2);
    const Socket one = server.connect(1);
    EXPECT_TRUE(comes_true([&] {
        return error_of([&] { server.connect_as_stranger(); }).find("refused") != std::string::npos;
    }));
}

TEST(TcpAcceptor, ClosesSilentConnectionsAfterTheTimeout) {
    Rank0 server(2);
    const auto start = dist::Clock::now();
    const Socket stranger = server.connect_as_stranger();
    EXPECT_TRUE(is_closed_by_peer(stranger));
    EXPECT_GE(dist::Clock::now() - start, seconds(4));
}

double processor_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A child process has no free descriptor when a rank connects. The acceptor must not spin, and must
// accept the rank when there are descriptors again.
TEST(TcpAcceptor, WaitsWithoutSpinningWhileTheProcessHasTooManyOpenFiles) {
    int ports[2];
    ASSERT_EQ(::pipe(ports), 0);
    const auto accept_with_few_files = [&] {
        Rank0 server(2);
        const int port = server.acceptor.port();
        rlimit files{};
        ::getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = 64;
        ::setrlimit(RLIMIT_NOFILE, &files);
        std::vector<int> opened;
        for (int file = 0; (file = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
            opened.push_back(file);
        if (::write(ports[1], &port, sizeof port) != sizeof port) return 2;
        const double before = processor_seconds();
        std::this_thread::sleep_for(milliseconds(500));  // measures the processor time
        if (processor_seconds() - before > 0.2) return 3;
        if (server.count() != 0) return 4;
        for (const int file : opened) ::close(file);
        return server.has(1) ? 0 : 5;
    };
    const pid_t child = fork_process();
    if (child == 0) ::_exit(accept_with_few_files());
    int port = 0;
    ASSERT_EQ(::read(ports[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    const Socket never = dist::make_event();
    const Socket one =
        connect_and_prove(dist::resolve("127.0.0.1", port).front(), kKey, 1, 0, later(), never);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    ::close(ports[0]);
    ::close(ports[1]);
}

}  // namespace
}  // namespace axle::tests
