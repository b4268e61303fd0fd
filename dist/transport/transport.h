// Private to dist: Transport, the point-to-point messages between the ranks of a group on which
// collectives are built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace axle::dist {

class Transport {
  public:
    // A send or receive in progress. Its memory must stay valid until the Message is destroyed.
    class Message {
      public:
        virtual ~Message() = default;
        // Must be called at most once. Throws CommError if the peer is unreachable, on a timeout,
        // or after abort().
        virtual void wait() = 0;
    };

    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // Opens the connections to all ranks in an order that cannot deadlock. Must be called before an
    // exchange in which every rank waits for all other ranks.
    virtual void connect_all() = 0;
    // Start a message, and wait only for its connection. Messages between two ranks with the same
    // slot arrive in order, and both sides must pass the same size. Thread-safe; the calling
    // threads block SIGPIPE.
    virtual std::unique_ptr<Message> send(const void* data, std::int64_t bytes, int to,
                                          std::uint64_t slot) = 0;
    virtual std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                             std::uint64_t slot) = 0;
    // Makes all pending and future waits throw CommError. May be called from any thread.
    virtual void abort() noexcept = 0;
};

}  // namespace axle::dist
