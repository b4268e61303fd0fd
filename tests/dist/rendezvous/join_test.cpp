#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/system/log.h"
#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "tests/dist/job.h"
#include "tests/dist/rendezvous/joined.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Control;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

auto refused(const std::string& words) { return ThrowsMessage<CommError>(HasSubstr(words)); }

TEST(ControlJoin, ReturnsRankSizeAndLocalAddress) {
    const auto errors = run_threads(3, [job = ControlJob(3)](int rank) {
        const auto control = job.join(rank);
        EXPECT_EQ(control->rank(), rank);
        EXPECT_EQ(control->size(), 3);
        EXPECT_EQ(control->local_address(), "127.0.0.1");
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(ControlJoin, WaitsForRankZeroToStart) {
    std::atomic<pid_t> early = 0;  // the thread of rank 1
    const auto errors = run_threads(2, [&, job = ControlJob(2)](int rank) {
        if (rank == 1) early = ::gettid();
        // Between two attempts to connect, rank 1 sleeps.
        if (rank == 0) {
            EXPECT_TRUE(comes_true([&] { return early != 0 && is_blocked(early); }));
        }
        barrier(*job.join(rank), 1);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(ControlJoin, ReportsMissingRanks) {
    ControlJob job(4);
    job.options.join_timeout = milliseconds(500);
    const auto errors = run_threads(2, [&](int rank) { job.join(rank * 2); });
    EXPECT_THAT(errors, Each("join: ranks 1, 3 did not join within 0.5 s: 2 of 4 processes have "
                             "joined"));
}

TEST(ControlJoin, ReportsUnreachableRankZero) {
    ControlJob job(2);
    job.options.join_timeout = milliseconds(200);
    EXPECT_THAT(
        [&] { job.join(1); },
        refused(str("join: rank 0 was not reachable within 0.2 s: can't connect to 127.0.0.1:",
                    job.port, ": Connection refused")));
    dist::Environment lost = job.environment(1);
    lost.master_addr = "no such host";
    EXPECT_THAT([&] { Control::join(lost, job.options); }, refused("'no such host'"));
}

TEST(ControlJoin, ReportsAPortInUse) {
    const ControlJob job(2);
    const auto taken = dist::listen_at(dist::resolve("127.0.0.1", job.port).front());
    EXPECT_THAT([&] { job.join(0); },
                refused(str("can't listen at 127.0.0.1:", job.port, ": Address already in use")));
}

TEST(ControlJoin, RejectsAMasterAddressOfAnotherMachine) {
    const ControlJob job(2);
    dist::Environment e = job.environment(0);
    e.master_addr = "192.0.2.1";
    EXPECT_THAT([&] { Control::join(e, job.options); },
                refused("rank 0 cannot listen at '192.0.2.1': can't listen at 192.0.2.1"));
}

TEST(ControlJoin, ListensAtAnotherPortIfTheLauncherUsesMasterPort) {
    const ControlJob job(2);
    const auto environment = [&](int rank) {
        dist::Environment e = job.environment(rank);
        e.port_is_taken = true;
        e.token = str("of this test ", job.port);
        return e;
    };
    // The launcher's store uses the master port, and another server uses the first port of the
    // list.
    const auto store = dist::listen_at(dist::resolve("127.0.0.1", job.port).front());
    const int first = dist::ports_of(environment(0)).front();
    const auto unauthenticated = dist::listen_at(dist::resolve("127.0.0.1", first).front());
    std::thread hangs_up([&] {
        if (wait_readable(unauthenticated, dist::Clock::now() + seconds(20)))
            accept_from(unauthenticated);
    });
    const auto errors = run_threads(
        2, [&](int rank) { barrier(*Control::join(environment(rank), job.options), 1); });
    hangs_up.join();
    EXPECT_THAT(errors, Each(""));
}

TEST(ControlJoin, RejectsADuplicateRank) {
    Pair pair;
    EXPECT_THAT([&] { pair.join(1); },
                refused(str("rank 1 is used twice: by rank 1 (pid ", ::getpid())));
    pair.check(1);
}

TEST(ControlJoin, RejectsADifferentWorldSize) {
    Pair pair;
    dist::Environment e = pair.environment(1);
    e.world_size = 3;
    EXPECT_THAT([&] { Control::join(e, pair.options); },
                refused("WORLD_SIZE is 2 on rank 0, but 3 on rank 1"));
    pair.check(1);
}

TEST(ControlJoin, RejectsWrongTokens) {
    Pair pair;
    for (int i = 0; i < 100; ++i) {
        dist::Environment e = pair.environment(1);
        e.token = str("not the token ", i);
        EXPECT_THAT(
            [&] { Control::join(e, pair.options); },
            refused("the token of this process (AXLE_JOB_TOKEN) differs from the job's token"));
    }
    pair.check(1);
}

TEST(ControlJoin, RejectsAWrongTokenBeforeAllHaveJoined) {
    const ControlJob job(2);
    std::promise<void> rejected;
    const auto errors = run_threads(3, [&](int rank) {
        if (rank < 2) {
            if (rank == 1) rejected.get_future().wait_for(seconds(20));
            return barrier(*job.join(rank), 1);
        }
        dist::Environment e = job.environment(1);
        e.token = "";
        try {
            Control::join(e, job.options);
        } catch (...) {
            rejected.set_value();
            throw;
        }
    });
    EXPECT_EQ(errors[0] + errors[1], "");
    EXPECT_THAT(
        errors[2],
        HasSubstr("the token of this process (AXLE_JOB_TOKEN) differs from the job's token"));
}

// A server that accepts any token cannot prove that it has the correct token.
TEST(ControlJoin, RejectsAServerWithoutTheToken) {
    const ControlJob job(2);
    const auto listener = dist::listen_at(dist::resolve("127.0.0.1", job.port).front());
    std::thread impostor([&] {
        if (!wait_readable(listener, dist::Clock::now() + seconds(20))) return;
        const auto socket = accept_from(listener);
        const auto deadline = dist::Clock::now() + seconds(20);
        send_all(socket, encode(dist::Challenge{}) + encode(dist::JoinReply{1, "host", {}}),
                 deadline);
        std::array<char, 4096> bytes{};
        while (wait_readable(socket, deadline) && receive_some(socket, bytes) >= 0) {
        }
    });
    EXPECT_THAT([&] { job.join(1); }, refused("does not have the job's token"));
    impostor.join();
}

// A replayed proof is invalid because the server's nonce differs.
TEST(ControlJoin, RejectsAReplayedProof) {
    Pair pair;
    const auto key = dist::key_of(pair.environment(0));
    const auto deadline = dist::Clock::now() + seconds(20);
    const dist::Nonces nonces{.client = dist::make_nonce(), .server = dist::make_nonce()};
    dist::JoinRequest join_request{.rank = 1, .world_size = 2, .pid = 1, .host = "host"};
    sign(join_request, key, nonces);
    const auto socket = connect_to(dist::resolve("127.0.0.1", pair.port).front(), deadline);
    send_all(socket, encode(dist::JoinStart{.nonce = nonces.client}) + encode(join_request),
             deadline);
    std::string reply_text;
    std::array<char, 4096> bytes{};
    for (;;) {
        ASSERT_TRUE(wait_readable(socket, deadline));
        const auto count = receive_some(socket, bytes);
        if (count < 0) break;
        reply_text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    EXPECT_THAT(reply_text, HasSubstr("differs from the job's token"));
    pair.check(1);
}

TEST(ControlJoin, IgnoresConnectionsWithoutAValidHandshake) {
    Pair pair;
    const auto deadline = dist::Clock::now() + seconds(20);
    const std::string cases[] = {
        "GET / HTTP/1.1\r\n\r\n",
        std::string(100000, '\xff'),
        std::string(4, '\0'),
        encode(dist::Leave{}),
        encode(dist::Set{1, "key", "value"}),
        encode(dist::JoinRequest{.rank = 1, .world_size = 2, .host = "h"}),
        encode(dist::JoinStart{.protocol = 1}) + encode(dist::JoinRequest{})};
    for (const std::string& bytes : cases) {
        const auto socket = connect_to(dist::resolve("127.0.0.1", pair.port).front(), deadline);
        try {
            send_all(socket, bytes, deadline);
        } catch (const dist::SocketError&) {  // the server has closed the connection
        }
    }
    pair.check(1);
    EXPECT_THAT([&] { pair.zero->get("key", milliseconds(10)); }, refused("was not set"));
}

// Returns the hexadecimal local addresses of sockets that listen at a port.
std::set<std::string> listeners(int port) {
    std::set<std::string> found;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream file(table);
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string number, local, remote, state;
            words >> number >> local >> remote >> state;
            const auto colon = local.find(':');
            if (state != "0A" || colon == std::string::npos) continue;
            if (std::stoi(local.substr(colon + 1), nullptr, 16) == port)
                found.insert(local.substr(0, colon));
        }
    }
    return found;
}

TEST(ControlJoin, ListensOnlyAtTheMasterAddress) {
    Pair pair;
    char loopback[9];
    std::snprintf(loopback, sizeof loopback, "%08X", htonl(INADDR_LOOPBACK));
    EXPECT_THAT(listeners(pair.port), testing::ElementsAre(std::string(loopback)));
}

TEST(ControlJoin, ConnectsThroughAnIpv6Address) {
    const auto has_ipv6 = [] {
        try {
            dist::listen_at(dist::resolve("::1", 0).front());
            return true;
        } catch (const CommError&) {
            return false;
        }
    };
    if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
    const ControlJob job(2);
    const auto errors = run_threads(2, [&](int rank) {
        dist::Environment e = job.environment(rank);
        e.master_addr = "::1";
        const auto control = Control::join(e, job.options);
        EXPECT_EQ(control->local_address(), "::1");
        if (rank == 0) {
            EXPECT_THAT(listeners(job.port), testing::SizeIs(1));
        }
        barrier(*control, 1);
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(ControlJoin, WarnsIfTheTokenIsNotSecretOutsideLoopback) {
    const auto here = dist::local_address_towards(dist::resolve("192.0.2.1", 1).front());
    if (here.is_loopback()) GTEST_SKIP() << "this machine has no other address";
    for (const bool secret : {false, true}) {
        std::mutex mutex;
        std::string warnings;
        set_log_sink([&](LogLevel level, std::string_view text) {
            const std::lock_guard lock(mutex);
            if (level == LogLevel::warning) warnings += text;
        });
        const ControlJob job(2);
        const auto errors = run_threads(2, [&](int rank) {
            dist::Environment e = job.environment(rank);
            e.master_addr = here.host();
            e.token_is_secret = secret;
            const auto control = Control::join(e, job.options);
            EXPECT_EQ(control->local_address(), here.host());
            barrier(*control, 1);
        });
        set_log_sink({});
        EXPECT_THAT(errors, Each(""));
        EXPECT_EQ(warnings.find("set AXLE_JOB_TOKEN") == std::string::npos, secret) << warnings;
    }
}

TEST(ControlJoin, UsesTheInterfaceFromTheEnvironment) {
    ::setenv("GLOO_SOCKET_IFNAME", "no_such_interface", 1);
    ::setenv("AXLE_SOCKET_IFNAME", "lo", 1);
    const ControlJob job(1);
    EXPECT_EQ(job.join(0)->local_address(), "127.0.0.1");
    ::unsetenv("AXLE_SOCKET_IFNAME");
    EXPECT_THAT([&] { job.join(0); },
                ThrowsMessage<ValueError>(
                    AllOf(HasSubstr("GLOO_SOCKET_IFNAME: the network interface must be one of"),
                          HasSubstr(" lo,"), HasSubstr("but is 'no_such_interface'"))));
    ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(ControlJoin, ClosesAllDescriptors) {
    const auto descriptors = [] {
        int count = 0;
        for (int i = 0; i < 1024; ++i) count += ::fcntl(i, F_GETFD) >= 0 ? 1 : 0;
        return count;
    };
    const int before = descriptors();
    for (int i = 0; i < 5; ++i) Pair().check(1);
    EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace axle::tests
