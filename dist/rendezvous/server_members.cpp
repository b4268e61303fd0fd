// Implements the server's handling of received messages.
#include <algorithm>

#include "dist/rendezvous/server.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"

namespace axle::dist {
namespace {

// The time that the server waits for the launcher's report that a process has ended, after the
// connection of the process has ended.
constexpr std::chrono::milliseconds kCauseOfDeath{300};

}  // namespace

bool Server::serve(Connection& connection, const Frame& frame) {
    if (connection.rank < 0) return serve_unauthenticated(connection, frame);
    Member& member = member_of(connection.rank);
    if (frame.kind == Kind::leave) {
        leave(connection, decode<Leave>(frame.body).why);
        return false;
    }
    try {
        serve_member(connection, member, frame);
    } catch (const AgreementError& error) {
        fail(error.what(), error.rank);
    } catch (const CommError& error) {
        fail(error.what(), connection.rank);
    }
    return true;
}

bool Server::serve_unauthenticated(Connection& connection, const Frame& frame) {
    if (frame.kind == Kind::join_start) {
        // Only one handshake is allowed per connection. Otherwise a process without the token could
        // make the server compute and buffer many replies.
        if (connection.started) throw CommError("join: the handshake was started twice");
        connection.started = decode<JoinStart>(frame.body);
        connection.nonces = {connection.started->nonce, make_nonce()};
        send(connection, Challenge{.nonce = connection.nonces.server});
        return true;
    }
    const auto join_request = decode<JoinRequest>(frame.body);
    std::optional<JoinRefusal> join_refusal;
    if (!connection.started || connection.started->protocol != kProtocol) {
        join_refusal = JoinRefusal{false, "the process uses another version of Axle than rank 0"};
    } else if (!is_signed(join_request, key_, connection.nonces)) {
        // If processes try several ports, a process with another token may belong to another job
        // and should try the next port.
        join_refusal =
            JoinRefusal{environment_.port_is_taken,
                        "the token of this process (AXLE_JOB_TOKEN) differs from the job's token"};
    } else {
        join_refusal = reason_to_refuse(join_request);
    }
    if (!join_refusal) {
        accept_member(connection, join_request);
        return true;
    }
    send(connection, *join_refusal);
    drop(connection);
    return false;
}

std::optional<JoinRefusal> Server::reason_to_refuse(const JoinRequest& join_request) const {
    const Process process{join_request.rank, join_request.pid, join_request.host};
    const int size = environment_.world_size;
    if (environment_.launcher == "axle" && join_request.restart_count != environment_.restart_count)
        return JoinRefusal{true,
                           str("the job is at restart ", environment_.restart_count,
                               ", but the process is at restart ", join_request.restart_count)};
    if (failed_) {
        // If another launcher has restarted the job, the next attempt can reach a new server.
        const bool is_own = process.pid == self_.pid && process.host == self_.host;
        return JoinRefusal{!is_own && environment_.launcher != "axle",
                           "the job has failed: " + failure_};
    }
    if (join_request.world_size != size) {
        return JoinRefusal{false, str("WORLD_SIZE is ", size, " on rank 0, but ",
                                      join_request.world_size, " on ", process.text())};
    }
    if (join_request.rank < 0 || join_request.rank >= size)
        return JoinRefusal{
            false, str("rank ", join_request.rank, " is out of range for WORLD_SIZE ", size)};
    const Member& first = members_[static_cast<std::size_t>(join_request.rank)];
    if (first.state == State::not_joined) return {};
    return JoinRefusal{false, str("rank ", join_request.rank, " is used twice: by ",
                                  first.process.text(), " and ", process.text())};
}

void Server::accept_member(Connection& connection, const JoinRequest& join_request) {
    AXLE_FAILPOINT("join: before the reply");
    JoinReply message{self_.pid, self_.host, {}};
    sign(message, key_, connection.nonces);
    send(connection, message);

    connection.rank = join_request.rank;
    give_up_place(connection);
    --max_unauthenticated_;
    Member& member = member_of(join_request.rank);
    member.state = State::present;
    member.process = {join_request.rank, join_request.pid, join_request.host};
    member.has_launcher = join_request.has_launcher;
    member.connection = &connection;
    ++present_;
    // All ranks use the smallest join timeout of any rank, so that all ranks report the same
    // reason.
    const auto most = std::chrono::milliseconds(options_.join_timeout);
    const auto left = std::chrono::milliseconds(
        std::clamp<std::int64_t>(join_request.join_timeout_ms, 0, most.count()));
    join_deadline_ = std::min(join_deadline_, now_ + left);
    wake_at(join_deadline_);

    if (std::cmp_less(present_, members_.size())) return;
    joined_ = true;
    send_to_all(encode(AllJoined{}));
    reset_silence_timers();
}

void Server::serve_member(Connection& connection, Member& member, const Frame& frame) {
    switch (frame.kind) {
        case Kind::announce_call:
            return announce_call(member, decode<AnnounceCall>(frame.body).call);
        case Kind::heartbeat:
            return member.activity.update(decode<Heartbeat>(frame.body));
        case Kind::open_group: {
            const auto group = decode<OpenGroup>(frame.body);
            return agreements_.open(connection.rank, group.group, group.ranks);
        }
        case Kind::missing_rank:
            return on_missing_rank(member, decode<MissingRank>(frame.body));
        case Kind::call_timeout:
            return on_call_timeout(decode<CallTimeout>(frame.body));
        case Kind::child_end:
            return on_child_end(decode<ChildEndReport>(frame.body));
        case Kind::report:
            return fail(decode<Report>(frame.body).text);
        default:
            return serve_store(connection, frame);
    }
}

void Server::serve_store(Connection& connection, const Frame& frame) {
    if (frame.kind == Kind::get) {
        const auto get = decode<Get>(frame.body);
        const std::string* value = store_.find(get.key);
        if (value == nullptr) return store_.wait(get.key, {connection.rank, get.id});
        return send(connection, Value{get.id, *value});
    }
    if (frame.kind == Kind::cancel)
        return store_.cancel({connection.rank, decode<Cancel>(frame.body).id});
    if (frame.kind == Kind::set) {
        auto set = decode<Set>(frame.body);
        StoreReply reply{set.id, 0, ""};
        send_values(store_.set(set.key, std::move(set.value), reply), set.key);
        return send(connection, reply);
    }
    const auto add = decode<Add>(frame.body);
    StoreReply reply{add.id, 0, ""};
    send_values(store_.add(add.key, add.delta, reply), add.key);
    send(connection, reply);
}

void Server::send_values(const std::vector<Waiter>& waiters, const std::string& key) {
    for (const Waiter& waiter : waiters) {
        Connection* connection = member_of(waiter.rank).connection;
        if (connection != nullptr) send(*connection, Value{waiter.id, *store_.find(key)});
    }
}

void Server::announce_call(Member& member, const CollectiveCall& call) {
    if (failed_) return;
    ++member.calls;
    member.activity.announce_call(call);
    const auto agreement = agreements_.announce_call(member.process.rank, call);
    if (!agreement) return;
    const std::string frame = encode(*agreement);
    for (const int rank : agreements_.members(call.group)) {
        Connection* connection = member_of(rank).connection;
        if (connection != nullptr) send_frame(*connection, frame);
    }
}

void Server::on_missing_rank(const Member& member, const MissingRank& absent) {
    if (absent.calls == member.calls) agreements_.mark_missing(member.process.rank, absent.why);
}

void Server::on_call_timeout(const CallTimeout& timeout_error) {
    const auto missing = agreements_.missing(timeout_error.group, timeout_error.sequence);
    if (!missing) return;  // all members have made the call, and the reply was sent
    const std::string call = str(name_of_collective(missing->call), " within ",
                                 seconds_text(std::chrono::milliseconds(timeout_error.waited_ms)));
    std::string text;
    for (const int rank : missing->ranks) {
        const Member& member = member_of(rank);
        text += str(text.empty() ? "" : "; ", member.process.text(), state_text(member),
                    " did not call ", call, "; ", member.activity.history());
        if (text.size() > kMaxText) break;
    }
    const int first = missing->ranks.front();
    fail(text, first, member_of(first).connection != nullptr);
}

// Returns the state of a member as a part of a sentence, such as " is alive but".
std::string Server::state_text(const Member& member) const {
    if (member.connection == nullptr) return " is not connected and";
    const auto silence = now_ - member.connection->last_received;
    if (silence <= 2 * interval_) return " is alive but";
    return str(" sent no heartbeat for ", seconds_text(silence), " and");
}

void Server::on_child_end(const ChildEndReport& end) {
    if (end.rank < 0 || std::cmp_greater_equal(end.rank, members_.size())) return;
    auto& known = ends_[static_cast<std::size_t>(end.rank)];
    if (known) return;
    known = ChildEnd{end.rank, 0, end.signal, end.exit_code};
    report_death(member_of(end.rank));
}

// Reports that a rank has died. The report contains the cause if it is known.
void Server::report_death(Member& member) {
    const auto rank = static_cast<int>(&member - members_.data());
    const auto& end = ends_[static_cast<std::size_t>(rank)];
    std::string text;
    if (member.state == State::not_joined) {
        text = str("join: rank ", rank,
                   " died before it had joined: ", cause_text(end.value_or(ChildEnd())));
    } else if (member.state == State::gone) {
        text = death_text(member.process, end, "") + " after it had left";
    } else {
        text = death_text(member.process, end, member.activity.text());
    }
    if (member.state == State::dying) member.state = State::gone;
    fail(text, rank);
}

void Server::leave(Connection& connection, const std::string& why) {
    const int rank = connection.rank;
    Member& member = member_of(rank);
    member.state = State::gone;
    member.connection = nullptr;
    --present_;
    store_.leave(rank);
    connection.ignored = connection.ending = true;
    connection.rank = -1;
    connection.deadline = now_ + std::chrono::seconds(1);  // time to send the remaining output
    if (connection.out.empty()) drop(connection);
    try {
        if (!joined_)
            fail(str("join: ", member.process.text(), " has left before all ranks had joined"),
                 rank);
        agreements_.leave(rank, why);
    } catch (const AgreementError& error) {
        fail(error.what(), error.rank);
    }
}

void Server::on_disconnect(Connection& connection) {
    const int rank = connection.rank;
    drop(connection);
    if (rank < 0) return;
    Member& member = member_of(rank);
    member.connection = nullptr;
    --present_;
    store_.leave(rank);
    member.state = State::dying;
    const bool cause_expected = std::ranges::any_of(members_, [&](const Member& other) {
        return other.connection != nullptr && other.has_launcher &&
               other.process.host == member.process.host;
    });
    if (failed_ || leaving_ || !cause_expected || ends_[static_cast<std::size_t>(rank)])
        return report_death(member);
    member.dying_until = now_ + kCauseOfDeath;
    wake_at(member.dying_until);
}

// Reports a failure to all members. Later failures are ignored.
void Server::fail(const std::string& text, int rank, bool is_running) {
    if (failed_) return;
    failed_ = true;
    failure_ = at_most(text, kMaxText);
    Failure failure{.text = failure_};
    if (rank >= 0) {
        const Member& member = member_of(rank);
        failure = failure_of(member.process, is_running, member.activity, failure_);
        failure.rank = rank;  // the process of a rank that has not joined is unknown
    }
    send_to_all(encode(failure));
}

}  // namespace axle::dist
