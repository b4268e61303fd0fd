// Private to dist: the frames that two ranks exchange on a data connection after the handshake.
//
// A small message is sent immediately, as one `eager` frame. A rank that has not posted the receive
// yet stores the message. The sender counts the bytes that the receiver may have stored, and the
// receiver returns them in `credit` frames. A small message is sent like a large one if the count
// would exceed kWindow. The memory is thus bounded, and no connection ever stops reading.
//
// A large message is announced, and its data is sent when the receiver has posted the receive:
//
//     sender                            receiver
//                                   <-  request, if the receive is posted before `announce` arrives
//     announce                      ->
//                                   <-  grant, unless the receiver has sent a request
//     data, one or several frames   ->
//
// Only receives of large messages send requests. A request belongs to the first large message with
// the same slot that has no request or grant yet. Small messages and other frames are sent between
// the `data` frames of large messages. Messages with the same slot have the order of their `eager`
// and `announce` frames.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace axle::dist {

enum class FrameKind : std::uint32_t { eager = 1, announce, request, grant, data, credit };

struct FrameHeader {
    FrameKind kind{};
    std::uint32_t length = 0;  // bytes of the message that follow the header
    std::uint64_t slot = 0;    // the slot, in eager, announce and request frames
    // The bytes of the whole message, in eager, announce, request and data frames. The credit, in
    // credit frames.
    std::uint64_t size = 0;
    // The id of a large message, in announce, grant and data frames. Chosen by the message's
    // sender.
    std::uint64_t id = 0;
};
static_assert(sizeof(FrameHeader) == 32);
static_assert(std::endian::native == std::endian::little);

// The maximum size in bytes of a message that is sent as an eager frame.
inline constexpr std::uint64_t kMaxEager = 128 << 10;
// The maximum number of bytes of eager messages without credit. The size of a message plus
// kEagerCost is counted.
inline constexpr std::uint64_t kWindow = 1 << 20;
inline constexpr std::uint64_t kEagerCost = 64;
// The maximum length in bytes of a data frame.
inline constexpr std::uint64_t kMaxData = 512 << 10;
// The maximum number of announcements, of slots with requests, and of requests for one slot, that
// are pending on one side of a connection.
inline constexpr std::size_t kMaxWaiting = 1 << 20;

}  // namespace axle::dist
