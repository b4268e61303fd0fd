// Private to dist: TcpConnection, the connection between two ranks, and its messages.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dist/transport/socket.h"
#include "dist/transport/tcp_frame.h"
#include "dist/transport/transport.h"

namespace axle::dist {

class TcpConnection;
class TcpPoller;

// A message that a rank sends or receives. If it is destroyed before its end, the connection fails.
class TcpMessage final : public Transport::Message {
  public:
    TcpMessage(TcpConnection& connection, std::byte* data, std::uint64_t bytes, std::uint64_t slot,
               bool is_send)
        : connection_(connection), data_(data), bytes_(bytes), slot_(slot), is_send_(is_send) {}
    ~TcpMessage() override;
    TcpMessage(const TcpMessage&) = delete;
    TcpMessage& operator=(const TcpMessage&) = delete;
    void wait() override;

  private:
    friend class TcpConnection;
    enum class State : std::uint8_t { pending, done, failed };
    State state() const { return state_.load(std::memory_order_acquire); }
    bool is_over() const { return state() != State::pending; }

    TcpConnection& connection_;
    std::byte* const data_;  // only read if the message is a send
    const std::uint64_t bytes_, slot_;
    const bool is_send_;
    bool is_requested_ = false;  // whether a receive has sent a request
    std::uint64_t id_ = 0;       // the id of the announcement
    std::uint64_t moved_ = 0;    // bytes sent or received; updated at the end of each frame
    std::atomic<State> state_ = State::pending;
};

// The functions of a transport that its connections call.
class TcpOwner {
  public:
    virtual ~TcpOwner() = default;
    // Returns the timeout of TcpMessage::wait().
    virtual std::chrono::milliseconds timeout() const = 0;
    // Makes all messages of all connections fail.
    virtual void fail_all(const std::string& reason) noexcept = 0;
};

// Transfers messages in frames (tcp_frame.h). Thread-safe. If a receive is posted, its data is
// received directly into its memory, except for the bytes that arrive together with a frame header.
//
// One thread at a time reads the connection: a thread that waits for a receive, or the poller's
// thread if no thread waits. One thread at a time writes the queued frames: a thread that queues
// frames or waits for a message, or, if the socket's buffer is full, the poller's thread. System
// calls are made without the mutex, so their memory must stay valid. A message that is destroyed
// early therefore waits for the end of the call.
class TcpConnection {
  public:
    // `peer` is the rank of the peer. The caller adds the connection to the poller.
    TcpConnection(Socket socket, int peer, TcpOwner& owner, TcpPoller& poller);
    TcpConnection(const TcpConnection&) = delete;
    TcpConnection& operator=(const TcpConnection&) = delete;

    int descriptor() const { return socket_.descriptor(); }
    // Start a message (Transport). Throw CommError if the connection has failed, except for the
    // receive of a message that has arrived completely.
    std::unique_ptr<TcpMessage> send(const void* data, std::uint64_t bytes, std::uint64_t slot);
    std::unique_ptr<TcpMessage> receive(void* data, std::uint64_t bytes, std::uint64_t slot);
    // Makes all pending and later messages fail, and closes the connection for both ranks. Only the
    // first call has an effect.
    void fail(const std::string& reason) noexcept;

    // Called by the poller's thread.
    void on_readable() noexcept;
    void on_writable() noexcept;

    // Functions that end the connection after all messages, when the poller has stopped.
    // close_writing() signals to the peer that no more data follows. Then call is_flushed() until
    // it returns true: the socket can be closed without losing data that the peer has not received.
    void close_writing() noexcept;
    bool is_flushed() noexcept;

  private:
    friend class TcpMessage;
    using Lock = std::unique_lock<std::mutex>;

    // A message that was announced or has arrived, completely or in part, before its receive was
    // posted.
    struct Arrived {
        std::uint64_t slot = 0, size = 0, id = 0;
        bool is_eager = false, is_complete = false;
        std::vector<std::byte> data;  // the data of an eager message
        TcpMessage* taker = nullptr;  // the receive that was posted before the end of the data
    };
    struct Outgoing {
        FrameHeader header;
        TcpMessage* message = nullptr;
        const std::byte* data = nullptr;
        std::uint64_t sent = 0;  // bytes sent, including the header
        std::uint64_t size() const { return sizeof header + header.length; }
    };
    struct Requests {
        std::uint64_t slot = 0;
        std::size_t count = 0;
    };

    // --- tcp_connection.cpp: posting and waiting
    void match_arrived(std::list<Arrived>::iterator arrived, TcpMessage& message);
    bool take_request(std::uint64_t slot);
    void wait(TcpMessage& message);
    void read_until_over(Lock& lock, TcpMessage& message, TimePoint deadline);
    bool wait_for_change(Lock& lock, TimePoint deadline, const std::function<bool()>& ready);
    void unlock(Lock& lock);
    void drop(TcpMessage& message) noexcept;
    void complete(TcpMessage& message);
    bool is_same_size(const TcpMessage& receive, std::uint64_t sent);
    void fail_locked(std::string_view reason) noexcept;
    void fail_sends();
    void set_failed(TcpMessage* message);
    [[noreturn]] void throw_failure() const;

    // --- tcp_write.cpp: frames to send
    void queue(const FrameHeader& header, TcpMessage* message = nullptr);
    void queue_data();
    void queue_credit();
    void flush(Lock& lock);
    bool write_some(Lock& lock);
    void pop_sent(std::uint64_t sent);

    // --- tcp_read.cpp: received frames
    void read_some(Lock& lock, const TcpMessage* until);
    bool receive_once(Lock& lock);
    void consume(std::uint64_t received);
    void advance_payload(std::uint64_t bytes);
    void end_payload();
    void on_frame(const FrameHeader& frame);
    void on_eager(const FrameHeader& frame);
    void on_announce(const FrameHeader& frame);
    void on_request(const FrameHeader& frame);
    void on_grant(const FrameHeader& frame);
    void on_data(const FrameHeader& frame);
    void on_credit(const FrameHeader& frame);
    TcpMessage* take_posted(std::uint64_t slot);
    void expect(TcpMessage& message, std::uint64_t id);
    void return_credit(std::uint64_t size);

    const Socket socket_;
    const int peer_;
    TcpOwner& owner_;
    TcpPoller& poller_;

    std::mutex mutex_;
    std::condition_variable changed_;
    int waiting_ = 0;            // threads that wait for changed_
    int dropping_ = 0;           // threads in drop(); waiting_ includes them
    bool has_changed_ = false;   // whether unlock() must notify the waiting threads
    std::string failure_;        // the reason why all messages fail, or ""
    std::string write_failure_;  // the reason why sends fail, or ""

    // --- sending
    bool writing_ = false;        // whether a thread is in flush()
    bool write_blocked_ = false;  // whether the poller waits until the socket is writable
    bool data_queued_ = false;    // whether the queue contains a data frame
    std::deque<Outgoing> queue_;
    std::deque<TcpMessage*> bulk_;   // messages whose data can be sent, in order
    std::vector<TcpMessage*> held_;  // announced messages that wait for the receiver
    std::vector<Requests> requests_;
    std::uint64_t last_id_ = 0;
    std::uint64_t eager_in_flight_ = 0;  // bytes without credit

    // --- receiving
    bool reading_ = false;       // whether a thread reads
    bool missed_event_ = false;  // whether the poller's thread found that another thread reads
    const TcpMessage* receiving_ = nullptr;  // the message whose memory recvmsg() may write
    std::vector<std::byte> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // received bytes in the buffer
    struct Payload {                   // the rest of the current frame
        std::byte* to = nullptr;
        std::uint64_t left = 0, length = 0;
        TcpMessage* message = nullptr;
        std::list<Arrived>::iterator arrived;
        bool is_data = false;
    };
    Payload payload_;
    std::vector<TcpMessage*> posted_;    // receives whose message has not arrived
    std::vector<TcpMessage*> expected_;  // receives of announced messages
    std::list<Arrived> arrived_;
    std::uint64_t uncredited_ = 0;  // bytes of eager messages for which no credit was sent
    std::uint64_t consumed_ = 0;    // bytes in uncredited_ whose messages were received
};

}  // namespace axle::dist
