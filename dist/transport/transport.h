// Private to dist: Transport, the interface for messages between two ranks of a group. Collectives
// on host memory use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace axle::dist {

class Transport {
  public:
    // A send or receive in progress. The memory of its data must stay valid until the Message is
    // destroyed.
    class Message {
      public:
        virtual ~Message() = default;
        // Waits until the data is sent or received. Must be called at most once. Throws CommError
        // if the peer can't be reached, after the timeout, or after abort().
        virtual void wait() = 0;
    };

    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // Opens the connections to all ranks in an order that cannot deadlock. Must be called before an
    // exchange in which every rank waits for all other ranks. Throws CommError if a rank can't be
    // reached, and after abort().
    virtual void connect_all() = 0;
    // Start a message. The functions wait for the connection, but not for the transfer of the data.
    // Messages between two ranks with the same slot arrive in order. If the sizes in bytes differ,
    // the receiver's wait() throws CommError, and all later messages between the two ranks fail.
    // Thread-safe. The functions throw CommError if the peer can't be reached, and after abort().
    virtual std::unique_ptr<Message> send(const void* data, std::int64_t bytes, int to,
                                          std::uint64_t slot) = 0;
    virtual std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                             std::uint64_t slot) = 0;
    // Makes all messages that have not ended, and all later messages, fail with CommError.
    // Thread-safe.
    virtual void abort() noexcept = 0;
};

}  // namespace axle::dist
