#include "dist/rendezvous/join.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "core/files/file.h"
#include "dist/rendezvous/handshake.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// The timeouts of each part of a handshake, and of a connection to one of several ports.
constexpr std::chrono::seconds kHandshake{5};
constexpr std::chrono::seconds kConnectToCandidate{1};
// The timeouts for connecting if there is only one port. The first timeout is short: if clients
// without the token fill the queue of the server, a new attempt is faster than the retries of TCP.
// The timeout doubles after each attempt that exceeds it, because the network may be slow.
constexpr milliseconds kFirstConnect{500}, kLongestConnect{10000};
// The minimum and maximum pause between two attempts.
constexpr milliseconds kShortPause{10}, kLongPause{200};
// The time after the join timeout during which the server can report the missing ranks.
constexpr std::chrono::seconds kServerReport{5};

// An error after which no further attempt is made, because it would fail in the same way.
struct Refused : CommError {
    using CommError::CommError;
};
// An error after which the next attempt is delayed: a later attempt may succeed, but an immediate
// attempt would fail in the same way.
struct RefusedForNow : CommError {
    using CommError::CommError;
};

// Receives bytes. Returns false if the connection has ended.
bool receive(Connected& connected) {
    std::array<char, 16 << 10> bytes{};
    const auto count = receive_some(connected.socket, bytes);
    if (count > 0) connected.in.add({bytes.data(), static_cast<std::size_t>(count)});
    return count >= 0;
}

// Waits for the next frame, which is valid until the next call. Throws CommError if the frame does
// not arrive by the deadline, if the connection ends, or if the frame is invalid.
Frame read_frame(Connected& connected, TimePoint deadline) {
    for (;;) {
        if (const auto frame = connected.in.next(Sender::server)) return *frame;
        if (!wait_readable(connected.socket, deadline))
            throw CommError(str(connected.address.text(),
                                " accepted the connection, but did not respond in time"));
        if (!receive(connected))
            throw CommError(str(connected.address.text(), " closed the connection"));
    }
}

class Joiner {
  public:
    Joiner(const Environment& environment, const ControlOptions& options,
           LauncherConnection& launcher, const Address* own)
        : environment_(environment),
          options_(options),
          launcher_(launcher),
          own_(own),
          key_(key_of(environment)),
          ports_(ports_of(environment)),
          deadline_(Clock::now() + options.join_timeout) {}

    Connected join() {
        Connected connected = find();
        forward_child_ends(connected);
        wait_for_all(connected);
        connected.ends = std::move(ends_);
        return connected;
    }

  private:
    Connected find() {
        milliseconds pause = kShortPause;
        for (;;) {
            was_dropped_ = false;
            if (auto connected = try_addresses()) return std::move(*connected);
            read_launcher();
            const TimePoint now = Clock::now();
            if (now >= deadline_) {
                fail({.text = str("join: rank 0 was not reachable within ",
                                  seconds_text(options_.join_timeout), ": ", reason_),
                      .rank = 0,
                      .is_running = true});
            }
            // While the server has too many connections, it drops random ones. An immediate attempt
            // may then succeed.
            if (was_dropped_) pause = kShortPause;
            std::this_thread::sleep_until(std::min(now + with_jitter(pause), deadline_));
            pause = std::min(pause * 2, kLongPause);
        }
    }

    // Returns a random time from 0.5 to 1.5 times `pause`, so that ranks do not retry at the same
    // time.
    std::chrono::nanoseconds with_jitter(milliseconds pause) {
        const double share = std::uniform_real_distribution<double>(0.5, 1.5)(random_);
        return std::chrono::duration_cast<std::chrono::nanoseconds>(pause * share);
    }

    std::optional<Connected> try_addresses() {
        if (own_ != nullptr) return try_address(*own_);
        std::vector<Address> addresses;
        try {
            addresses = resolve(environment_.master_addr, 0);
        } catch (const CommError& error) {
            reason_ = error.what();
        }
        for (const int port : ports_) {
            for (const Address& address : addresses) {
                if (auto connected = try_address(with_port(address, port))) return connected;
            }
        }
        return {};
    }

    std::optional<Connected> try_address(const Address& address) {
        const bool is_only_port = ports_.size() == 1;
        Connected connected;
        connected.address = address;
        try {
            const auto patience = is_only_port ? connect_timeout_ : kConnectToCandidate;
            connected.socket = connect_to(address, std::min(deadline_, Clock::now() + patience));
            handshake(connected);
            return connected;
        } catch (const Refused&) {
            throw;
        } catch (const RefusedForNow& error) {
            reason_ = error.what();
        } catch (const SocketError& error) {
            reason_ = error.what();
            note_end(connected, error.code == ETIMEDOUT);
        } catch (const CommError& error) {
            reason_ = error.what();
            note_end(connected, false);
        }
        return {};
    }

    // Records how an attempt has ended. `connected` has a socket if the server has accepted the
    // connection.
    void note_end(const Connected& connected, bool has_timed_out) {
        const bool was_connected = connected.socket.descriptor() >= 0;
        if (was_connected && ports_.size() == 1) was_dropped_ = true;
        if (!was_connected && has_timed_out)
            connect_timeout_ = std::min(connect_timeout_ * 2, kLongestConnect);
    }

    void handshake(Connected& connected) const {
        const TimePoint first_deadline = std::min(deadline_, Clock::now() + kHandshake);
        Nonces nonces{.client = make_nonce()};
        send_all(connected.socket, encode(JoinStart{.nonce = nonces.client}), first_deadline);
        nonces.server = expect<Challenge>(connected, first_deadline).nonce;
        AXLE_FAILPOINT("join: before the proof");

        const TimePoint deadline = Clock::now() + kHandshake;
        const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
        JoinRequest join_request{.rank = environment_.rank,
                                 .world_size = environment_.world_size,
                                 .restart_count = environment_.restart_count,
                                 .pid = ::getpid(),
                                 .host = host_name(),
                                 .has_launcher = launcher_.is_open(),
                                 .join_timeout_ms = std::max<std::int64_t>(left, 0),
                                 .proof = {}};
        sign(join_request, key_, nonces);
        send_all(connected.socket, encode(join_request), deadline);
        const auto accept_member = expect<JoinReply>(connected, deadline);
        if (!is_signed(accept_member, key_, nonces)) {
            throw Refused(str("join: the server at ", connected.address.text(),
                              " does not have the job's token (AXLE_JOB_TOKEN)"));
        }
        connected.server = {0, accept_member.pid, accept_member.host};
    }

    template <class Message>
    Message expect(Connected& connected, TimePoint deadline) const {
        const Frame frame = read_frame(connected, deadline);
        if (frame.kind == Message::kind) return decode<Message>(frame.body);
        if (frame.kind != Kind::join_refusal)
            throw CommError(str(connected.address.text(), " is not an Axle server"));
        const auto join_refusal = decode<JoinRefusal>(frame.body);
        const std::string text = str("rank 0 at ", connected.address.text(), " rejects rank ",
                                     environment_.rank, ": ", printable(join_refusal.text));
        if (join_refusal.try_again) throw RefusedForNow(text);
        throw Refused("join: " + text);
    }

    void wait_for_all(Connected& connected) {
        const TimePoint deadline = std::max(deadline_, Clock::now()) + kServerReport;
        for (;;) {
            if (all_joined(connected)) return;
            pollfd entries[] = {{connected.socket.descriptor(), POLLIN, 0},
                                {launcher_.descriptor(), POLLIN, 0}};
            if (::poll(entries, std::size(entries), milliseconds_until(deadline)) == 0) {
                fail(failure_of(
                    connected.server, true, {},
                    str("join: ", connected.server.text(), " did not report within ",
                        seconds_text(options_.join_timeout), " that all ranks have joined")));
            }
            if (entries[0].revents != 0 && !receive(connected)) {
                fail(failure_of(
                    connected.server, false, {},
                    str("join: ", connected.server.text(), " died before all ranks had joined")));
            }
            read_launcher();
            forward_child_ends(connected);
        }
    }

    // Returns whether all ranks have joined. Throws CommError if the join has failed.
    bool all_joined(Connected& connected) const {
        for (;;) {
            const auto frame = connected.in.next(Sender::server);
            if (!frame) return false;
            if (frame->kind == Kind::all_joined) return true;
            if (frame->kind == Kind::failure) fail(decode<Failure>(frame->body));
            if (frame->kind != Kind::leave) continue;
            fail(failure_of(
                connected.server, false, {},
                str("join: ", connected.server.text(), " has left before all ranks had joined")));
        }
    }

    // Sends the failure to the launcher and throws it.
    [[noreturn]] void fail(const Failure& failure) const {
        launcher_.write({.text = failure.text,
                         .rank = environment_.rank,
                         .failed = failure.rank,
                         .op = {},
                         .pid = failure.pid,
                         .host = failure.host,
                         .is_running = failure.is_running});
        throw CommError(failure.text);
    }

    // Forwards the launcher's reports of process exits to the server.
    void forward_child_ends(const Connected& connected) {
        for (; forwarded_ < ends_.size(); ++forwarded_) {
            const ChildEnd& end = ends_[forwarded_];
            send_all(connected.socket, encode(ChildEndReport{end.rank, end.signal, end.exit_code}),
                     Clock::now() + kHandshake);
        }
    }

    // Reads the reports of the launcher. Throws CommError if rank 0 has ended.
    void read_launcher() {
        if (!launcher_.is_open()) return;
        for (const ChildEnd& end : launcher_.read()) {
            ends_.push_back(end);
            if (end.rank == 0)
                throw Refused("join: rank 0 died before all ranks had joined: " + cause_text(end));
        }
    }

    const Environment& environment_;
    const ControlOptions& options_;
    LauncherConnection& launcher_;
    std::vector<ChildEnd> ends_;
    std::size_t forwarded_ = 0;
    const Address* const own_;
    const Key key_;
    const std::vector<int> ports_;
    const TimePoint deadline_;
    milliseconds connect_timeout_ = kFirstConnect;
    bool was_dropped_ = false;  // whether the only port has accepted a connection and then ended it
    std::minstd_rand random_{std::random_device{}()};
    std::string reason_;
};

}  // namespace

Connected join_server(const Environment& environment, const ControlOptions& options,
                      LauncherConnection& launcher, const Address* own) {
    return Joiner(environment, options, launcher, own).join();
}

}  // namespace axle::dist
