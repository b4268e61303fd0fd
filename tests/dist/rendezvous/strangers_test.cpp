// Tests the server with strangers: clients that never prove that they have the token.
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/server.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "tests/dist/rendezvous/joined.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Address;
using dist::Clock;
using dist::Socket;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Each;

// Sets the number of files that this process may open. The destructor restores the old number.
class FileLimit {
  public:
    explicit FileLimit(rlim_t files) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit changed{std::min(files, before_.rlim_max), before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &changed);
    }
    ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;

  private:
    rlimit before_{};
};

Address address_of(const ControlJob& job) { return dist::resolve("127.0.0.1", job.port).front(); }

// Connects, and waits only a short time. Returns nullopt if the server does not listen or its queue
// of connections is full. Closing the connection leaves no state in the system.
std::optional<Socket> try_connect(const Address& address) {
    try {
        Socket socket = dist::connect_to(address, Clock::now() + milliseconds(100));
        const linger at_once{1, 0};
        ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        return socket;
    } catch (const dist::SocketError&) {
        return {};
    }
}
Socket connect_stranger(const Address& address) {
    std::optional<Socket> socket;
    EXPECT_TRUE(comes_true([&] { return (socket = try_connect(address)).has_value(); }));
    return socket ? std::move(*socket) : Socket();
}

bool is_closed(const Socket& socket) {
    std::array<char, 512> bytes{};
    for (;;) {
        const auto count = dist::receive_some(socket, bytes);
        if (count <= 0) return count < 0;
    }
}

// Calls f repeatedly in a thread until the object is destroyed, for at most 30 seconds.
class Repeated {
  public:
    explicit Repeated(std::function<void()> f)
        : thread_([this, f = std::move(f), end = Clock::now() + seconds(30)] {
              for (; !stop_ && Clock::now() < end; ++count_) f();
          }) {}
    ~Repeated() {
        stop_ = true;
        thread_.join();
    }
    Repeated(const Repeated&) = delete;
    Repeated& operator=(const Repeated&) = delete;

    void wait_for(int count) {
        EXPECT_TRUE(comes_true([&] { return count_ >= count; }));
    }

  private:
    std::atomic<bool> stop_ = false;
    std::atomic<int> count_ = 0;
    std::thread thread_;
};

TEST(UnauthenticatedClients, CannotPreventAJoinByHoldingAllConnections) {
    ControlJob job(3);
    // The server drops a silent connection after the join timeout, if this is less than 5 seconds.
    // The timeout of rank 0 begins before the strangers connect, so the ranks must join before the
    // server drops a stranger for its silence.
    job.options.join_timeout = milliseconds(4500);
    const Address address = address_of(job);
    std::vector<Socket> held(dist::max_unauthenticated() + 100);
    std::atomic<bool> all_are_held = false;
    Repeated strangers([&] {
        bool all = true;
        for (Socket& socket : held) {
            if (socket.descriptor() >= 0 && !is_closed(socket)) continue;
            socket = Socket();
            if (auto again = try_connect(address)) socket = std::move(*again);
            all &= socket.descriptor() >= 0;
        }
        if (all) all_are_held = true;
    });
    const auto errors = run_threads(3, [&](int rank) {
        if (rank != 0) {
            EXPECT_TRUE(comes_true([&] { return all_are_held.load(); }));
        }
        barrier(*job.join(rank), 1);
    });
    EXPECT_THAT(errors, Each(""));
}

// The behavior of a stranger (a client without the token) on a new connection.
enum class Stranger { holds, sends_garbage, sends_half_a_handshake, closes };

class UnauthenticatedFlood : public testing::TestWithParam<Stranger> {};

TEST_P(UnauthenticatedFlood, DoesNotPreventRanksFromJoining) {
    const ControlJob job(4);
    const Address address = address_of(job);
    std::deque<Socket> held;
    Repeated strangers([&] {
        auto socket = try_connect(address);
        if (!socket || GetParam() == Stranger::closes) return;
        std::string bytes;
        if (GetParam() == Stranger::sends_garbage) bytes.assign(2000, '\xff');
        if (GetParam() == Stranger::sends_half_a_handshake)
            bytes = encode(dist::JoinStart{.nonce = {}}) + encode(dist::JoinRequest{}).substr(0, 9);
        if (!bytes.empty()) dist::send_some(*socket, bytes);
        held.push_back(std::move(*socket));
        if (held.size() > dist::max_unauthenticated() + 100) held.pop_front();
    });
    const auto errors = run_threads(4, [&](int rank) {
        if (rank != 0) strangers.wait_for(1000 * rank);
        barrier(*job.join(rank), 1);
    });
    EXPECT_THAT(errors, Each(""));
}

std::string title(const testing::TestParamInfo<Stranger>& named) {
    const char* const names[] = {"Holds", "SendsGarbage", "SendsHalfAHandshake", "Closes"};
    return names[static_cast<int>(named.param)];
}

INSTANTIATE_TEST_SUITE_P(Strangers, UnauthenticatedFlood,
                         testing::Values(Stranger::holds, Stranger::sends_garbage,
                                         Stranger::sends_half_a_handshake, Stranger::closes),
                         title);

TEST(UnauthenticatedClients, HaveALimitedNumberOfConnections) {
    const FileLimit limit(512);
    ASSERT_EQ(dist::max_unauthenticated(), 64u);
    Pair pair;
    std::vector<Socket> strangers;
    for (int i = 0; i < 64 + 20; ++i) strangers.push_back(connect_stranger(address_of(pair)));
    const auto closed = [&] { return std::ranges::count_if(strangers, is_closed); };
    EXPECT_TRUE(comes_true([&] { return closed() >= 20; }));
    pair.check(1);
    EXPECT_EQ(closed(), 20);
    strangers.clear();
    pair.check(2);
}

TEST(UnauthenticatedClients, MayHoldAnEighthOfTheFileLimitButAtLeast16Connections) {
    for (const auto& [files, places] : {std::pair{100, 16}, {1024, 128}}) {
        const FileLimit limit(static_cast<rlim_t>(files));
        EXPECT_EQ(dist::max_unauthenticated(), static_cast<std::size_t>(places));
    }
}

TEST(UnauthenticatedClients, AreDroppedAfterAShortJoinTimeout) {
    Pair pair(seconds(2));
    const auto begin = Clock::now();
    const auto socket = dist::connect_to(address_of(pair), begin + seconds(20));
    ASSERT_TRUE(wait_readable(socket, begin + seconds(15)));
    EXPECT_TRUE(is_closed(socket));
    EXPECT_GE(Clock::now() - begin, milliseconds(1900));  // the join timeout is 2 s
    pair.check(1);
}

TEST(UnauthenticatedClients, GetAtMostOneReplyIfTheyRepeatTheHandshake) {
    Pair pair;
    const auto deadline = Clock::now() + seconds(20);
    const auto socket = dist::connect_to(address_of(pair), deadline);
    std::string starts;
    for (int i = 0; i < 1000; ++i) starts += encode(dist::JoinStart{.nonce = {}});
    try {
        send_all(socket, starts, deadline);
    } catch (const dist::SocketError&) {  // the server has closed the connection
    }
    // The server replies only to the first message.
    std::string received;
    std::array<char, 4096> bytes{};
    for (std::ptrdiff_t count = 0; count >= 0 && wait_readable(socket, deadline);) {
        count = receive_some(socket, bytes);
        if (count > 0) received.append(bytes.data(), static_cast<std::size_t>(count));
    }
    EXPECT_LE(received.size(), encode(dist::Challenge{}).size());
    pair.check(1);
}

// Duplicates a descriptor until the process has no free descriptor. Returns the copies.
std::vector<Socket> use_all_descriptors() {
    std::vector<Socket> used;
    for (;;) {
        Socket file(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
        if (file.descriptor() < 0) return used;
        used.push_back(std::move(file));
    }
}

// Connects an existing socket, for a process that cannot open another socket.
void connect_now(const Socket& socket, const Address& address) {
    const auto* to = reinterpret_cast<const sockaddr*>(&address.storage);
    ASSERT_EQ(::connect(socket.descriptor(), to, address.length), 0);
    ASSERT_EQ(::fcntl(socket.descriptor(), F_SETFL, O_NONBLOCK), 0);
}

TEST(UnauthenticatedClients, AreReplacedIfTheProcessHasNoMoreDescriptors) {
    const FileLimit limit(256);
    Pair pair;
    const Address address = address_of(pair);
    const Socket first = connect_stranger(address);
    // When the server replies, it has accepted the first stranger.
    const auto deadline = Clock::now() + seconds(20);
    send_all(first, encode(dist::JoinStart{.nonce = {}}), deadline);
    ASSERT_TRUE(wait_readable(first, deadline));
    EXPECT_FALSE(is_closed(first));

    const Socket second(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
        const auto used = use_all_descriptors();
        connect_now(second, address);
        EXPECT_TRUE(comes_true([&] { return is_closed(first); }));
    }
    pair.check(1);
}

TEST(UnauthenticatedClients, AreAcceptedWhenTheProcessHasDescriptorsAgain) {
    const FileLimit limit(256);
    Pair pair;
    const Address address = address_of(pair);
    const Socket late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
        const auto used = use_all_descriptors();
        connect_now(late, address);
        pair.check(1);
    }
    const auto deadline = Clock::now() + seconds(20);
    send_all(late, encode(dist::JoinStart{.nonce = {}}), deadline);
    EXPECT_TRUE(wait_readable(late, deadline));
    EXPECT_FALSE(is_closed(late));
    pair.check(2);
}

}  // namespace
}  // namespace axle::tests
