// Tests the connection of rank 0 to rank 1. The test itself acts as rank 1: it completes the
// handshake and writes the frames.
#include "dist/transport/tcp_frame.h"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dist/transport/socket.h"
#include "dist/transport/tcp_handshake.h"
#include "kernels/error.h"
#include "tests/dist/transport/transports.h"

namespace axle::tests {
namespace {

using dist::FrameHeader;
using dist::FrameKind;
using std::chrono::seconds;
using testing::HasSubstr;

std::string text_of(const FrameHeader& header, const Bytes& data = {}) {
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
           std::string(data.begin(), data.end());
}

// Rank 0 of two ranks, and its connection to the test.
struct ConnectedRank {
    ConnectedRank() {
        const FakeControl control(store, 1, 2);
        const std::string published = store.values.at("tcp/test/0");
        const std::string salt = published.substr(0, sizeof(dist::Nonce));
        const int port = std::stoi(published.substr(salt.size()));
        socket = connect_and_prove(dist::resolve("127.0.0.1", port).front(),
                                   control.key_for("tcp/test/" + salt), 1, 0,
                                   dist::Clock::now() + seconds(20), never);
    }

    void write(const std::string& bytes) const {
        send_all(socket, bytes, dist::Clock::now() + seconds(20));
    }
    void write(const FrameHeader& header, const Bytes& data = {}) const {
        write(text_of(header, data));
    }
    // Reads until the received bytes end with the frame `last`, the connection is closed, or no
    // data arrive for 20 seconds. Returns all bytes that were read.
    std::string read_until(const FrameHeader& last) const {
        const std::string end = text_of(last);
        std::string all;
        std::array<char, 65536> bytes{};
        while (!all.ends_with(end)) {
            if (!wait_readable(socket, dist::Clock::now() + seconds(20))) break;
            const auto count = receive_some(socket, bytes);
            if (count < 0) break;
            all.append(bytes.data(), static_cast<std::size_t>(count));
        }
        return all;
    }
    // Returns the error of a receive of rank 0 with this slot and size, or "".
    std::string error_of_receive(std::size_t size, std::uint64_t slot) {
        Bytes in(size);
        try {
            receive(*rank, in, 1, slot)->wait();
        } catch (const CommError& error) {
            return error.what();
        }
        return "";
    }

    FakeStore store;
    RankTransport rank{store, 0, 2};
    dist::Socket never = dist::make_event(), socket;
};

struct InvalidFrame {
    const char* name;
    FrameHeader header;
    const char* error;
};

class TcpFrame : public testing::TestWithParam<InvalidFrame> {};

TEST_P(TcpFrame, IsRejectedIfInvalid) {
    ConnectedRank job;
    job.write(GetParam().header);
    EXPECT_EQ(
        job.error_of_receive(8, 1),
        str("tcp: connection to rank 1 failed: received an invalid message: ", GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TcpFrame,
    testing::Values(
        InvalidFrame{"Zeros", {}, "its kind is unknown: 0"},
        InvalidFrame{"Kind", {.kind = static_cast<FrameKind>(77)}, "its kind is unknown: 77"},
        InvalidFrame{"Length",
                     {.kind = FrameKind::announce, .length = 1, .size = 1},
                     "its kind has no data: its length is 1"},
        InvalidFrame{
            "LargeEager",
            {.kind = FrameKind::eager, .length = dist::kMaxEager + 1, .size = dist::kMaxEager + 1},
            "its size must be the number of its data bytes, and at most 131072: its size is "
            "131073, its data has 131073 bytes"},
        InvalidFrame{"HugeEager",
                     {.kind = FrameKind::eager, .length = 8, .size = std::uint64_t{1} << 60},
                     "its size must be the number of its data bytes, and at most 131072: its size "
                     "is 1152921504606846976, its data has 8 bytes"},
        InvalidFrame{"Data",
                     {.kind = FrameKind::data, .length = 8, .size = 8, .id = 3},
                     "data that was not requested: id 3"},
        InvalidFrame{
            "Grant", {.kind = FrameKind::grant, .id = 3}, "a grant without an announcement: id 3"},
        InvalidFrame{"Credit",
                     {.kind = FrameKind::credit, .size = 1},
                     "too much credit: 1 bytes, but only 0 were sent without credit"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(TcpFrames, AreRejectedIfDataDoesNotHaveTheAnnouncedSize) {
    for (const FrameHeader data :
         {FrameHeader{.kind = FrameKind::data, .length = 100, .size = 99999, .id = 5},
          FrameHeader{.kind = FrameKind::data, .length = 0, .size = 100000, .id = 5},
          FrameHeader{.kind = FrameKind::data, .length = 100001, .size = 100000, .id = 5}}) {
        ConnectedRank job;
        Bytes in(100000);
        const Message message = receive(*job.rank, in, 1, 1);
        job.write({.kind = FrameKind::announce, .slot = 1, .size = in.size(), .id = 5});
        job.write(data);
        EXPECT_THROW(message->wait(), CommError);
        EXPECT_THAT(job.error_of_receive(8, 2), HasSubstr("an invalid message: its size"));
    }
}

TEST(TcpFrames, AreRejectedIfTheyNeedMoreMemoryThanAgreed) {
    ConnectedRank job;
    const Bytes data(dist::kMaxEager);
    constexpr std::uint64_t kCost = dist::kMaxEager + dist::kEagerCost;
    for (std::uint64_t sent = 0; sent + kCost <= dist::kWindow; sent += kCost)
        job.write(
            {.kind = FrameKind::eager, .length = dist::kMaxEager, .slot = 1, .size = data.size()},
            data);
    EXPECT_EQ(job.error_of_receive(data.size(), 1), "");
    // Rank 0 has not returned the credit for the first message yet.
    job.write({.kind = FrameKind::eager, .length = dist::kMaxEager, .slot = 1, .size = data.size()},
              data);
    EXPECT_THAT(job.error_of_receive(8, 2), HasSubstr("it needs more memory than agreed"));
}

TEST(TcpConnection, AnnouncesMessagesThatExceedTheWindow) {
    ConnectedRank job;
    const Bytes data(dist::kMaxEager);
    std::vector<Message> messages;
    for (int i = 0; i < 100; ++i) messages.push_back(send(*job.rank, data, 1, 1));
    constexpr std::uint64_t kSent = dist::kWindow / (dist::kMaxEager + dist::kEagerCost);
    const std::string bytes = job.read_until(
        {.kind = FrameKind::announce, .slot = 1, .size = dist::kMaxEager, .id = 100 - kSent});
    EXPECT_EQ(bytes.size(), 100 * sizeof(FrameHeader) + kSent * dist::kMaxEager);
    // The peer receives the first announced message.
    job.write({.kind = FrameKind::grant, .id = 1});
    messages[kSent]->wait();
}

// The peer sends half of the data of a message, and the rest after rank 0 has destroyed the
// message. Rank 0 reads the message `mark` and the beginning of the data in one system call. When
// `mark` has arrived, rank 0 has therefore begun to receive the data.
TEST(TcpFrames, AreNotWrittenToADroppedMessage) {
    ConnectedRank job;
    Bytes in(dist::kMaxEager + 1), mark(1);
    const auto size = static_cast<std::uint32_t>(in.size());
    Message message = receive(*job.rank, in, 1, 1);
    const Bytes half(in.size() / 2, 3), rest(in.size() - half.size(), 3);
    job.write(text_of({.kind = FrameKind::announce, .slot = 1, .size = size, .id = 1}) +
              text_of({.kind = FrameKind::eager, .length = 1, .slot = 2, .size = 1}, mark) +
              text_of({.kind = FrameKind::data, .length = size, .size = size, .id = 1}, half));
    receive(*job.rank, mark, 1, 2)->wait();
    message.reset();
    in.assign(in.size(), 9);
    try {
        job.write(std::string(rest.begin(), rest.end()));
    } catch (const CommError&) {  // rank 0 has closed the connection
    }
    EXPECT_THAT(job.error_of_receive(8, 3), HasSubstr("a message was dropped before its end"));
    EXPECT_EQ(in, Bytes(in.size(), 9));
}

}  // namespace
}  // namespace axle::tests
