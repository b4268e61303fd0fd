// Private to dist: messages between the ranks of a group, which the collectives are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace axle::inline v0::dist {

class Transport {
  public:
    // A send or a receive under way; its memory is in use until it is destroyed.
    class Message {
      public:
        virtual ~Message() = default;
        // Once. CommError when the other side can't be reached, did not come in time, or after
        // abort().
        virtual void wait() = 0;
    };

    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;

    // Before an exchange in which everybody waits for everybody: connections are made in an order
    // in which nobody waits in a circle.
    virtual void connect_all() = 0;
    // They wait for a connection at most. What two ranks send each other with one slot arrives in
    // order, and both sides must name the same number of bytes. Several threads may call them; they
    // block SIGPIPE.
    virtual std::unique_ptr<Message> send(const void* data, std::int64_t bytes, int to,
                                          std::uint64_t slot) = 0;
    virtual std::unique_ptr<Message> receive(void* data, std::int64_t bytes, int from,
                                             std::uint64_t slot) = 0;
    // From any thread: whoever waits gets a CommError, and so does everybody from then on.
    virtual void abort() noexcept = 0;
};

}  // namespace axle::inline v0::dist
