#include "dist/rendezvous/wire.h"

#include <cstring>

#include "gmock/gmock.h"
#include "kernels/error.h"

namespace axle::tests {
namespace {

using dist::FrameReader;
using dist::Kind;
using dist::Sender;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string frame_of(std::uint32_t length, Kind kind, const std::string& body = "") {
    std::string frame(4, '\0');
    std::memcpy(frame.data(), &length, sizeof length);
    return frame + static_cast<char>(kind) + body;
}

TEST(WireFormat, DecodesAnEncodedCall) {
    const dist::AnnounceCall sent{{.group = 3,
                                   .sequence = 12,
                                   .op = dist::Collective::reduce,
                                   .dtype = bf16,
                                   .numel = 100,
                                   .root = 2,
                                   .reduce_op = dist::ReduceOp::max,
                                   .counts = {1, -2, 3}}};
    FrameReader reader;
    reader.add(encode(sent));
    const auto frame = reader.next(Sender::member).value_or(dist::Frame());
    ASSERT_EQ(frame.kind, Kind::announce_call);
    const auto p = dist::decode<dist::AnnounceCall>(frame.body).call;
    EXPECT_EQ(p.group, 3);
    EXPECT_EQ(p.sequence, 12);
    EXPECT_EQ(p.op, dist::Collective::reduce);
    EXPECT_EQ(p.dtype, bf16);
    EXPECT_EQ(p.numel, 100);
    EXPECT_EQ(p.root, 2);
    EXPECT_EQ(p.reduce_op, dist::ReduceOp::max);
    EXPECT_THAT(p.counts, testing::ElementsAre(1, -2, 3));
    EXPECT_FALSE(reader.next(Sender::member));
}

TEST(WireFormat, AssemblesFramesFromSingleBytes) {
    const std::string bytes = encode(dist::Get{1, "a"}) + encode(dist::Leave{}) +
                              encode(dist::Get{2, std::string(dist::kMaxKey, 'k')});
    FrameReader reader;
    std::vector<Kind> kinds;
    for (const char byte : bytes) {
        reader.add({&byte, 1});
        for (auto frame = reader.next(Sender::member); frame; frame = reader.next(Sender::member))
            kinds.push_back(frame->kind);
    }
    EXPECT_THAT(kinds, testing::ElementsAre(Kind::get, Kind::leave, Kind::get));
}

TEST(WireFormat, RejectsExcessiveLengthsBeforeReadingBodies) {
    const auto read = [](const std::string& bytes, Sender sender) {
        FrameReader reader;
        reader.add(bytes);
        reader.next(sender);
    };
    for (int kind = 0; kind <= 255; ++kind) {
        const auto frame = frame_of(0xffffffff, static_cast<Kind>(kind));
        EXPECT_THROW(read(frame, Sender::member), CommError) << kind;
        EXPECT_THROW(read(frame, Sender::unauthenticated), CommError) << kind;
    }
    const auto longest = static_cast<std::uint32_t>(dist::max_body(Kind::set));
    EXPECT_LT(longest, 17 << 20);
    EXPECT_NO_THROW(read(frame_of(longest, Kind::set), Sender::member));
    EXPECT_THROW(read(frame_of(longest + 1, Kind::set), Sender::member), CommError);
    EXPECT_LT(dist::max_body(Kind::join_start), 1024);
    EXPECT_LT(dist::max_body(Kind::join_request), 1024);
}

TEST(WireFormat, AcceptsOnlyTheHandshakeBeforeAuthentication) {
    for (int kind = 0; kind <= static_cast<int>(dist::kLastKind); ++kind) {
        FrameReader reader;
        reader.add(frame_of(0, static_cast<Kind>(kind)));
        if (kind == static_cast<int>(Kind::join_start) ||
            kind == static_cast<int>(Kind::join_request)) {
            EXPECT_TRUE(reader.next(Sender::unauthenticated));
        } else {
            EXPECT_THROW(reader.next(Sender::unauthenticated), CommError) << kind;
        }
    }
}

TEST(WireFormat, RejectsMalformedBodies) {
    const std::string whole = encode(dist::Set{1, "key", "value"}).substr(5);
    EXPECT_NO_THROW(dist::decode<dist::Set>(whole));
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_THROW(dist::decode<dist::Set>(whole.substr(0, size)), CommError) << size;
    EXPECT_THAT([&] { dist::decode<dist::Set>(whole + '\0'); },
                ThrowsMessage<CommError>(HasSubstr("unexpected bytes at the end")));
    std::string key = encode(dist::Get{1, std::string(dist::kMaxKey, 'k')}).substr(5);
    key[8] = 1, key += 'k';  // changes the key's length to 1025
    EXPECT_THAT(
        [&] { dist::decode<dist::Get>(key); },
        ThrowsMessage<CommError>(HasSubstr("a field has the length 1025, more than the maximum")));
    std::string call = encode(dist::AnnounceCall{}).substr(5);
    call[12] = static_cast<char>(200);  // 200 is not an op
    EXPECT_THAT(
        [&] { dist::decode<dist::AnnounceCall>(call); },
        ThrowsMessage<CommError>(HasSubstr("an enum has the value 200, which is more than")));
    // The byte after the op is the dtype, and 200 is not a dtype.
    call[12] = 0, call[13] = static_cast<char>(200);
    EXPECT_THROW(dist::decode<dist::AnnounceCall>(call), CommError);
}

}  // namespace
}  // namespace axle::tests
