// Tests messages between ranks that are threads of this process.
#include "dist/transport/tcp_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dist/transport/tcp_frame.h"
#include "kernels/error.h"
#include "tests/dist/transport/transports.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

using dist::Transport;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kEager = dist::kMaxEager;

std::string error_of(const std::function<void()>& f) {
    try {
        return f(), "";
    } catch (const CommError& error) {
        return error.what();
    }
}

class TcpTransportOfRanks : public testing::TestWithParam<int> {};

TEST_P(TcpTransportOfRanks, SendsMessagesOfManySizes) {
    const int size = GetParam();
    const auto errors = run_transports(size, [&](Transport& transport) {
        const int rank = transport.rank();
        transport.connect_all();
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{40000}, kEager,
              kEager + 1, std::size_t{dist::kMaxData}, std::size_t{dist::kMaxData + 1},
              std::size_t{3000001}}) {
            std::vector<Bytes> in, out;
            std::vector<Message> messages;
            for (int other = 0; other < size; ++other) {
                in.emplace_back(bytes);
                out.push_back(pattern(bytes, static_cast<std::uint32_t>(rank * 16 + other)));
            }
            for (int other = 0; other < size; ++other) {
                if (other == rank) continue;
                const auto i = static_cast<std::size_t>(other);
                messages.push_back(receive(transport, in[i], other, 1));
                messages.push_back(send(transport, out[i], other, 1));
            }
            for (const Message& message : messages) message->wait();
            for (int other = 0; other < size; ++other) {
                if (other == rank) continue;
                EXPECT_EQ(in[static_cast<std::size_t>(other)],
                          pattern(bytes, static_cast<std::uint32_t>(other * 16 + rank)))
                    << bytes;
            }
        }
    });
    EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TcpTransportOfRanks, testing::Values(2, 3, 4));

// Each rank starts its sends before its receives, and the data exceeds the buffers of the sockets.
TEST(TcpTransport, SendsLargeMessagesInBothDirectionsAtOnce) {
    const auto errors = run_transports(2, [&](Transport& transport) {
        const int rank = transport.rank(), other = 1 - rank;
        const Bytes first = pattern(16 << 20, static_cast<std::uint32_t>(rank));
        const Bytes second = pattern(1000, static_cast<std::uint32_t>(rank + 2));
        Bytes in(first.size()), short_in(second.size());
        const Message large = send(transport, first, other, 1);
        const Message small = send(transport, second, other, 2);
        const Message small_in = receive(transport, short_in, other, 2);
        const Message large_in = receive(transport, in, other, 1);
        small_in->wait();
        large->wait();
        large_in->wait();
        small->wait();
        EXPECT_EQ(in, pattern(in.size(), static_cast<std::uint32_t>(other)));
        EXPECT_EQ(short_in, pattern(short_in.size(), static_cast<std::uint32_t>(other + 2)));
    });
    EXPECT_THAT(errors, Each(""));
}

std::vector<std::size_t> mixed_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < 60; ++i) sizes.push_back(i % 3 == 1 ? kEager + 1000 * i : 1000 * i);
    return sizes;
}

// Small and large messages have different protocols, and together they exceed the memory for
// messages without a receive.
TEST(TcpTransport, KeepsTheOrderOfMessagesWithOneSlot) {
    for (const bool sends_first : {false, true}) {
        std::promise<void> sent;
        const auto errors = run_transports(2, [&](Transport& transport) {
            const std::vector<std::size_t> sizes = mixed_sizes();
            std::vector<Bytes> data;
            std::vector<Message> messages;
            for (const std::size_t size : sizes) {
                const auto seed = static_cast<std::uint32_t>(data.size());
                data.push_back(transport.rank() == 0 ? pattern(size, seed) : Bytes(size));
            }
            if (transport.rank() == 0) {
                for (const Bytes& bytes : data) messages.push_back(send(transport, bytes, 1, 5));
                sent.set_value();
            } else {
                if (sends_first) {
                    transport.connect_all();
                    sent.get_future().wait();
                }
                for (Bytes& bytes : data) messages.push_back(receive(transport, bytes, 0, 5));
            }
            for (const Message& message : messages) message->wait();
            for (std::size_t i = 0; i < data.size(); ++i)
                EXPECT_EQ(data[i], pattern(sizes[i], static_cast<std::uint32_t>(i))) << i;
        });
        EXPECT_THAT(errors, Each(""));
    }
}

TEST(TcpTransport, ReceivesSlotsInAnotherOrderThanSent) {
    const auto errors = run_transports(2, [&](Transport& transport) {
        const std::vector<std::size_t> sizes = mixed_sizes();
        std::vector<Bytes> data;
        std::vector<Message> messages;
        if (transport.rank() == 0) {
            for (std::size_t i = 0; i < sizes.size(); ++i)
                data.push_back(pattern(sizes[i], static_cast<std::uint32_t>(i)));
            for (std::size_t i = 0; i < sizes.size(); ++i)
                messages.push_back(send(transport, data[i], 1, i));
            for (const Message& message : messages) message->wait();
            return;
        }
        for (std::size_t i = sizes.size(); i-- > 0;) {
            Bytes in(sizes[i]);
            receive(transport, in, 0, i)->wait();
            EXPECT_EQ(in, pattern(sizes[i], static_cast<std::uint32_t>(i))) << i;
        }
    });
    EXPECT_THAT(errors, Each(""));
}

TEST(TcpTransport, TransfersMessagesOfSeveralThreads) {
    constexpr int kThreads = 4, kMessages = 60;
    const auto size_of_message = [](int thread, int i) {
        std::minstd_rand random(static_cast<unsigned>(thread * 1000 + i + 1));
        return static_cast<std::size_t>(random() % (i % 5 == 0 ? 300000 : 3000));
    };
    const auto errors = run_transports(2, [&](Transport& transport) {
        const int rank = transport.rank(), other = 1 - rank;
        const auto thread_errors = run_threads(2 * kThreads, [&](int thread) {
            const bool sends = thread < kThreads;
            const int slot = thread % kThreads;
            for (int i = 0; i < kMessages; ++i) {
                const std::size_t size = size_of_message(slot, i);
                const auto seed = static_cast<std::uint32_t>(slot * 1000 + i);
                if (sends) {
                    const Bytes out = pattern(size, seed + static_cast<std::uint32_t>(rank));
                    send(transport, out, other, static_cast<std::uint64_t>(slot))->wait();
                } else {
                    Bytes in(size);
                    receive(transport, in, other, static_cast<std::uint64_t>(slot))->wait();
                    EXPECT_EQ(in, pattern(size, seed + static_cast<std::uint32_t>(other)));
                }
            }
        });
        EXPECT_THAT(thread_errors, Each(""));
    });
    EXPECT_THAT(errors, Each(""));
}

struct Sizes {
    std::size_t sent, received;
};

class TcpMessageSizes : public testing::TestWithParam<Sizes> {};

// Tests messages that arrive before and after the receive is posted.
TEST_P(TcpMessageSizes, ThrowIfSendAndReceiveDiffer) {
    for (const bool sends_first : {false, true}) {
        std::promise<void> posted;
        const auto errors = run_transports(2, [&](Transport& transport) {
            transport.connect_all();
            Bytes none(1);
            if (transport.rank() == 0) {
                const Bytes out(GetParam().sent);
                if (!sends_first) posted.get_future().wait();
                const Message message = send(transport, out, 1, 3);
                if (sends_first) posted.set_value();
                // A small send can end before rank 1 finds the difference. Then the next receive
                // fails.
                message->wait();
                receive(transport, none, 1, 4)->wait();
            } else {
                Bytes in(GetParam().received, 7);
                if (sends_first) posted.get_future().wait();
                const Message message = receive(transport, in, 0, 3);
                if (!sends_first) posted.set_value();
                const std::string error = error_of([&] { message->wait(); });
                EXPECT_EQ(in, Bytes(in.size(), 7));
                throw CommError(error);
            }
        });
        EXPECT_THAT(errors[0], HasSubstr("tcp: connection to rank 1 failed: "));
        EXPECT_THAT(errors[1],
                    AllOf(HasSubstr("tcp: connection to rank 0 failed: "),
                          HasSubstr(str("rank 0 sends ", GetParam().sent,
                                        " bytes, but this rank receives ", GetParam().received))));
    }
}

INSTANTIATE_TEST_SUITE_P(Differ, TcpMessageSizes,
                         testing::Values(Sizes{8, 4}, Sizes{4, 8}, Sizes{0, 4},
                                         Sizes{8, kEager + 1}, Sizes{kEager + 1, 8},
                                         Sizes{kEager + 1, kEager + 2}, Sizes{5000000, 4000000}));

TEST(TcpTransport, ThrowsIfThePeerClosesTheConnection) {
    FakeStore store;
    std::unique_ptr<RankTransport> one;
    const auto errors = run_threads(2, [&](int rank) {
        if (rank == 1) {
            one = std::make_unique<RankTransport>(store, 1, 2);
            const Bytes last = pattern(3000, 1);
            send(**one, last, 0, 1)->wait();
            one.reset();
            return;
        }
        const RankTransport zero(store, 0, 2);
        Bytes in(3000), more(100000);
        EXPECT_EQ(error_of([&] { receive(*zero, more, 1, 2)->wait(); }),
                  "tcp: connection to rank 1 failed: the peer closed the connection");
        // A message that has arrived can still be received.
        receive(*zero, in, 1, 1)->wait();
        EXPECT_EQ(in, pattern(3000, 1));
        EXPECT_NE(error_of([&] { receive(*zero, in, 1, 1); }), "");
        EXPECT_NE(error_of([&] { send(*zero, in, 1, 1)->wait(); }), "");
    });
    EXPECT_THAT(errors, Each(""));
}

// Rank 0 receives nothing before rank 1 has closed the connection. The credit that rank 0 returns
// reaches a closed socket.
TEST(TcpTransport, ReceivesAllMessagesAfterThePeerHasClosedTheConnection) {
    FakeStore store;
    std::promise<void> closed;
    // This many messages fit into the window, so they are sent before the receives are posted.
    constexpr std::uint32_t kMessages = dist::kWindow / (kEager + dist::kEagerCost);
    const auto errors = run_threads(2, [&](int rank) {
        if (rank == 1) {
            {
                const RankTransport one(store, 1, 2);
                std::vector<Bytes> out;
                std::vector<Message> messages;
                for (std::uint32_t i = 0; i < kMessages; ++i) out.push_back(pattern(kEager, i));
                messages.reserve(out.size());
                for (const Bytes& bytes : out) messages.push_back(send(*one, bytes, 0, 1));
                for (const Message& message : messages) message->wait();
            }
            closed.set_value();
            return;
        }
        const RankTransport zero(store, 0, 2);
        zero->connect_all();
        closed.get_future().wait();
        for (std::uint32_t i = 0; i < kMessages; ++i) {
            Bytes in(kEager);
            receive(*zero, in, 1, 1)->wait();
            EXPECT_EQ(in, pattern(kEager, i)) << i;
        }
    });
    EXPECT_THAT(errors, Each(""));
}

// Rank 1 sends nothing, and rank 0 has a short timeout.
TEST(TcpTransport, FailsAllMessagesAfterATimeout) {
    FakeStore store;
    const RankTransport zero(store, 0, 3, milliseconds(300)), one(store, 1, 3), two(store, 2, 3);
    const auto connected = run_threads(3, [&](int rank) {
        (rank == 0 ? zero : rank == 1 ? one : two)->connect_all();
    });
    ASSERT_THAT(connected, Each(""));
    Bytes small(8), large(1 << 20), in(8);
    const Message first = receive(*zero, small, 1, 1), second = receive(*zero, large, 2, 1);
    EXPECT_EQ(error_of([&] { first->wait(); }),
              "tcp: connection to rank 1 failed: timed out after 300 ms");
    EXPECT_EQ(error_of([&] { second->wait(); }),
              "tcp: connection to rank 2 failed: the connection to rank 1 has timed out");
    EXPECT_NE(error_of([&] { send(*zero, in, 2, 1); }), "");
    EXPECT_EQ(error_of([&] { receive(*two, in, 0, 1)->wait(); }),
              "tcp: connection to rank 0 failed: the peer closed the connection");
}

TEST(TcpTransport, ThrowsAfterTheTimeoutIfARankDoesNotConnect) {
    FakeStore store;
    const RankTransport zero(store, 0, 2, milliseconds(100));
    Bytes in(8);
    EXPECT_EQ(error_of([&] { receive(*zero, in, 1, 1); }),
              "tcp: connection to rank 1 failed: timed out after 100 ms: the rank did not connect");
}

// The test calls abort() while other threads are blocked in connect, receive or send.
TEST(TcpTransport, EndsAllWaitsOnAbortAndThrowsInLaterCalls) {
    enum class Wait { connect, receive, receive_of_another_thread, send };
    for (const Wait wait :
         {Wait::connect, Wait::receive, Wait::receive_of_another_thread, Wait::send}) {
        FakeStore store;
        RankTransport zero(store, 0, 2);
        std::unique_ptr<RankTransport> one;
        if (wait != Wait::connect) {
            one = std::make_unique<RankTransport>(store, 1, 2);
            const auto connected =
                run_threads(2, [&](int rank) { (rank == 0 ? zero : *one)->connect_all(); });
            ASSERT_THAT(connected, Each(""));
        }
        std::vector<std::thread> waiting;
        std::vector<std::string> errors(2);
        std::array<std::promise<pid_t>, 2> ids;
        for (std::size_t i = 0; i < 2; ++i) {
            waiting.push_back(kernels::start_thread("waits", [&, i] {
                ids[i].set_value(::gettid());
                Bytes data(20 << 20);
                errors[i] = error_of([&] {
                    const bool sends = wait == Wait::send;
                    (sends ? send(*zero, data, 1, i) : receive(*zero, data, 1, i))->wait();
                });
            }));
            if (wait != Wait::receive_of_another_thread) break;
        }
        for (std::size_t i = 0; i < waiting.size(); ++i) {
            const pid_t thread = ids[i].get_future().get();
            EXPECT_TRUE(comes_true([&] { return is_blocked(thread); }));
        }
        zero->abort();
        for (std::thread& thread : waiting) thread.join();
        for (std::size_t i = 0; i < waiting.size(); ++i)
            EXPECT_EQ(errors[i], "tcp: connection to rank 1 failed: the connections were closed");
        Bytes data(8);
        EXPECT_NE(error_of([&] { send(*zero, data, 1, 9); }), "");
        EXPECT_NE(error_of([&] { zero->connect_all(), receive(*zero, data, 1, 9); }), "");
        EXPECT_FALSE(one && error_of([&] { receive(**one, data, 0, 9)->wait(); }).empty());
    }
}

// The poller's thread transfers the data while this thread destroys the message.
TEST(TcpTransport, DoesNotAccessTheMemoryOfADroppedMessage) {
    for (const bool drops_send : {false, true}) {
        const auto rank = [&](Transport& transport) {
            const bool sends = transport.rank() == 0;
            const int other = 1 - transport.rank();
            Bytes data(16 << 20), small(8);
            const auto start = [&](Bytes& b, int slot) {
                return sends ? send(transport, b, other, slot) : receive(transport, b, other, slot);
            };
            // A rank may detect that the other rank has dropped its message.
            error_of([&] {
                const Message message = start(data, 1);
                start(small, 2)->wait();
                if (sends != drops_send) message->wait();
            });
            if (sends == drops_send) std::ranges::fill(data, std::uint8_t{9});
            error_of([&] { receive(transport, small, other, 3)->wait(); });
            EXPECT_TRUE(sends != drops_send || std::ranges::count(data, 9) == std::ssize(data));
        };
        // If the message has ended before it is dropped, the last receive times out.
        EXPECT_THAT(run_transports(2, rank, milliseconds(1000)), Each(""));
    }
}

TEST(TcpTransport, RejectsARankWithAnotherToken) {
    FakeStore store;
    const milliseconds timeout(300);
    const RankTransport zero(store, 0, 2, timeout, "a token");
    const RankTransport one(store, 1, 2, timeout, "another token");
    Bytes in(8);
    const auto errors = run_threads(
        2, [&](int rank) { receive(rank == 0 ? *zero : *one, in, 1 - rank, 1)->wait(); });
    EXPECT_THAT(errors[0], HasSubstr("rank 1 failed: timed out after 300 ms: the rank did not"));
    EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0 failed: timed out after 300 ms: "),
                                 HasSubstr("handshake: the peer closed the connection")));
}

}  // namespace
}  // namespace axle::tests
