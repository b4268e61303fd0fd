#include "dist/rendezvous/join.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "core/files/file.h"
#include "dist/rendezvous/handshake.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

// The timeouts of a handshake, of a connection to the only port, and to one of several ports.
constexpr std::chrono::seconds kHandshake{5};
constexpr std::chrono::seconds kConnect{10};
constexpr std::chrono::seconds kConnectToCandidate{1};
// The time after the join timeout in which the server can report the missing ranks.
constexpr std::chrono::seconds kServerReport{5};

// An error that another attempt can't avoid.
struct Refused : CommError {
    using CommError::CommError;
};

// Receives bytes. Returns false if the connection has ended.
bool receive(Connected& connected) {
    std::array<char, 16 << 10> bytes{};
    const auto count = receive_some(connected.socket, bytes);
    if (count > 0) connected.in.add({bytes.data(), static_cast<std::size_t>(count)});
    return count >= 0;
}

// Waits for the next frame, which is valid until the next call.
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
        std::chrono::milliseconds pause{10};
        for (;;) {
            if (auto connected = try_addresses()) return std::move(*connected);
            read_launcher();
            const TimePoint now = Clock::now();
            if (now >= deadline_) {
                throw CommError(str("join: rank 0 was not reachable within ",
                                    seconds_text(options_.join_timeout), ": ", reason_));
            }
            std::this_thread::sleep_until(std::min(now + pause, deadline_));
            pause = std::min(pause * 2, std::chrono::milliseconds(200));
        }
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
        try {
            const auto patience = ports_.size() == 1 ? kConnect : kConnectToCandidate;
            Connected connected;
            connected.address = address;
            connected.socket = connect_to(address, std::min(deadline_, Clock::now() + patience));
            handshake(connected);
            return connected;
        } catch (const Refused&) {
            throw;
        } catch (const CommError& error) {
            reason_ = error.what();
            return {};
        }
    }

    void handshake(Connected& connected) const {
        const TimePoint deadline = Clock::now() + kHandshake;
        Nonces nonces{.client = make_nonce()};
        send_all(connected.socket, encode(JoinStart{.nonce = nonces.client}), deadline);
        nonces.server = expect<Challenge>(connected, deadline).nonce;

        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
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
        if (join_refusal.try_again) throw CommError(text);
        throw Refused("join: " + text);
    }

    void wait_for_all(Connected& connected) {
        const TimePoint deadline = std::max(deadline_, Clock::now()) + kServerReport;
        for (;;) {
            if (all_joined(connected)) return;
            pollfd entries[] = {{connected.socket.descriptor(), POLLIN, 0},
                                {launcher_.descriptor(), POLLIN, 0}};
            if (::poll(entries, std::size(entries), milliseconds_until(deadline)) == 0)
                throw CommError(str("join: ", connected.server.text(), " did not report within ",
                                    seconds_text(options_.join_timeout),
                                    " that all ranks have joined"));
            if (entries[0].revents != 0 && !receive(connected)) {
                throw CommError(
                    str("join: ", connected.server.text(), " died before all ranks had joined"));
            }
            read_launcher();
            forward_child_ends(connected);
        }
    }

    // Returns whether all ranks have joined. Throws CommError if the join has failed.
    static bool all_joined(Connected& connected) {
        for (;;) {
            const auto frame = connected.in.next(Sender::server);
            if (!frame) return false;
            if (frame->kind == Kind::all_joined) return true;
            if (frame->kind == Kind::failure) throw CommError(decode<Failure>(frame->body).text);
            if (frame->kind != Kind::leave) continue;
            throw CommError(
                str("join: ", connected.server.text(), " has left before all ranks had joined"));
        }
    }

    // Sends the server the exits of processes that the launcher has reported.
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
    std::string reason_;
};

}  // namespace

Connected join_server(const Environment& environment, const ControlOptions& options,
                      LauncherConnection& launcher, const Address* own) {
    return Joiner(environment, options, launcher, own).join();
}

}  // namespace axle::dist
