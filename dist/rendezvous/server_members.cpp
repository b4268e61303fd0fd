// What the server says to its clients.
#include <algorithm>

#include "dist/rendezvous/server.h"
#include "kernels/error.h"

namespace axle::inline v0::dist {
namespace {

// For a launcher to say how a process ended whose connection has.
constexpr std::chrono::milliseconds kCauseOfDeath{300};

}  // namespace

bool Server::serve(Connection& connection, const Frame& frame) {
    if (connection.rank < 0) return serve_stranger(connection, frame);
    Member& member = member_of(connection.rank);
    if (frame.kind == Kind::goodbye) {
        leave(connection, decode<Goodbye>(frame.body).why);
        return false;
    }
    try {
        serve_member(connection, member, frame);
    } catch (const CommError& error) {
        fail(error.what(), connection.rank);
    }
    return true;
}

bool Server::serve_stranger(Connection& connection, const Frame& frame) {
    if (frame.kind == Kind::hello) {
        const auto hello = decode<Hello>(frame.body);
        connection.greeted = hello.protocol == kProtocol && !connection.greeted;
        connection.nonces = {hello.nonce, make_nonce()};
        send(connection, Challenge{.nonce = connection.nonces.server});
        return true;
    }
    const auto identity = decode<Identity>(frame.body);
    std::optional<Refusal> refusal;
    if (!connection.greeted) {
        refusal = Refusal{false, "it runs another version of Axle"};
    } else if (!is_signed(identity, key_, connection.nonces)) {
        // Where ports are tried in turn it may be another job's.
        refusal = Refusal{environment_.port_is_taken,
                          "the token of this process is not the job's (AXLE_JOB_TOKEN)"};
    } else {
        refusal = reason_to_refuse(identity);
    }
    if (!refusal) {
        welcome(connection, identity);
        return true;
    }
    send(connection, *refusal);
    drop(connection);
    return false;
}

std::optional<Refusal> Server::reason_to_refuse(const Identity& identity) const {
    const Process process{identity.rank, identity.pid, identity.host};
    const int size = environment_.world_size;
    if (environment_.launcher == "axle" && identity.restart_count != environment_.restart_count)
        return Refusal{true, str("it is of attempt ", environment_.restart_count, " of the job")};
    if (failed_) return Refusal{true, "its job has failed: " + failure_};
    if (identity.world_size != size) {
        return Refusal{false, str("WORLD_SIZE is ", size, " there, and ", identity.world_size,
                                  " for ", process.text())};
    }
    if (identity.rank < 0 || identity.rank >= size)
        return Refusal{false, str("there is no rank ", identity.rank, " among ", size)};
    const Member& first = members_[static_cast<std::size_t>(identity.rank)];
    if (first.state == State::absent) return {};
    return Refusal{false, str("rank ", identity.rank, " is there twice: ", first.process.text(),
                              " came first, and now ", process.text())};
}

void Server::welcome(Connection& connection, const Identity& identity) {
    Welcome message{self_.pid, self_.host, {}};
    sign(message, key_, connection.nonces);
    send(connection, message);

    connection.rank = identity.rank;
    Member& member = member_of(identity.rank);
    member.state = State::present;
    member.process = {identity.rank, identity.pid, identity.host};
    member.has_launcher = identity.has_launcher;
    member.connection = &connection;
    ++present_;
    // One that gives up takes everybody with it, so that all hear the same reason.
    const auto most = std::chrono::milliseconds(options_.join_timeout);
    const auto left = std::chrono::milliseconds(
        std::clamp<std::int64_t>(identity.join_timeout_ms, 0, most.count()));
    join_deadline_ = std::min(join_deadline_, now_ + left);
    wake_at(join_deadline_);

    if (std::cmp_less(present_, members_.size())) return;
    joined_ = true;
    send_to_all(encode(Joined{}));
    forgive();
}

void Server::serve_member(Connection& connection, Member& member, const Frame& frame) {
    switch (frame.kind) {
        case Kind::propose:
            return propose(member, decode<Propose>(frame.body).proposal);
        case Kind::heartbeat:
            return member.activity.note(decode<Heartbeat>(frame.body).activity);
        case Kind::open_group: {
            const auto group = decode<OpenGroup>(frame.body);
            return agreements_.open(connection.rank, group.group, group.ranks);
        }
        case Kind::absent:
            return on_absent(member, decode<Absent>(frame.body));
        case Kind::overdue:
            return on_overdue(decode<Overdue>(frame.body));
        case Kind::child_end:
            return on_child_end(decode<ChildEnded>(frame.body));
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
        Done done{set.id, 0, ""};
        answer(store_.set(set.key, std::move(set.value), done), set.key);
        return send(connection, done);
    }
    const auto add = decode<Add>(frame.body);
    Done done{add.id, 0, ""};
    answer(store_.add(add.key, add.delta, done), add.key);
    send(connection, done);
}

void Server::answer(const std::vector<Waiter>& waiters, const std::string& key) {
    for (const Waiter& waiter : waiters) {
        Connection* connection = member_of(waiter.rank).connection;
        if (connection != nullptr) send(*connection, Value{waiter.id, *store_.find(key)});
    }
}

void Server::propose(Member& member, const Proposal& proposal) {
    if (failed_) return;
    ++member.proposals;
    member.activity.propose(proposal);
    const auto agreement = agreements_.propose(member.process.rank, proposal);
    if (!agreement) return;
    const std::string frame = encode(*agreement);
    for (const int rank : agreements_.members(proposal.group)) {
        Connection* connection = member_of(rank).connection;
        if (connection != nullptr) send_frame(*connection, frame);
    }
}

void Server::on_absent(const Member& member, const Absent& absent) {
    if (absent.proposals == member.proposals)
        agreements_.stay_away(member.process.rank, absent.why);
}

void Server::on_overdue(const Overdue& overdue) {
    const auto missing = agreements_.missing(overdue.group, overdue.sequence);
    if (!missing) return;  // the answer is on its way
    std::string text =
        str(name_of_collective(missing->proposal), ": no sign of ", ranks_text(missing->ranks),
            " for ", seconds_text(std::chrono::milliseconds(overdue.waited_ms)));
    for (const int rank : missing->ranks) {
        const std::string activity = member_of(rank).activity.text();
        const char* alive = member_of(rank).state == State::present ? "alive" : "not there";
        text += rank == missing->ranks.front() ? ": " : "; ";
        text += missing->ranks.size() == 1 ? "it" : str("rank ", rank);
        text += str(" is ", alive, activity.empty() ? ", in no collective yet" : ", last in ",
                    activity);
    }
    fail(text);
}

void Server::on_child_end(const ChildEnded& end) {
    if (end.rank < 0 || std::cmp_greater_equal(end.rank, members_.size())) return;
    auto& known = ends_[static_cast<std::size_t>(end.rank)];
    if (known) return;
    known = ChildEnd{end.rank, 0, end.signal, end.exit_code};
    bury(member_of(end.rank));
}

// Tells everybody of a death, with its cause if that is known.
void Server::bury(Member& member) {
    const auto rank = static_cast<int>(&member - members_.data());
    const auto& end = ends_[static_cast<std::size_t>(rank)];
    std::string text;
    if (member.state == State::absent) {
        text =
            str("rank ", rank, " died before it had joined: ", cause_of(end.value_or(ChildEnd())));
    } else if (member.state == State::gone) {
        text = death_of(member.process, end, "") + " after it had left";
    } else {
        text = death_of(member.process, end, member.activity.text());
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
    connection.deadline = now_ + std::chrono::seconds(1);  // to take what is left
    if (connection.out.empty()) drop(connection);
    try {
        if (!joined_) fail(str(member.process.text(), " has left before all had come"), rank);
        agreements_.leave(rank, why);
    } catch (const CommError& error) {
        fail(error.what(), rank);
    }
}

void Server::lose(Connection& connection) {
    const int rank = connection.rank;
    drop(connection);
    if (rank < 0) return;
    Member& member = member_of(rank);
    member.connection = nullptr;
    --present_;
    store_.leave(rank);
    member.state = State::dying;
    const bool may_be_told = std::ranges::any_of(members_, [&](const Member& other) {
        return other.connection != nullptr && other.has_launcher &&
               other.process.host == member.process.host;
    });
    if (failed_ || leaving_ || !may_be_told || ends_[static_cast<std::size_t>(rank)])
        return bury(member);
    member.dying_until = now_ + kCauseOfDeath;
    wake_at(member.dying_until);
}

// The first failure is the one that everybody hears of.
void Server::fail(const std::string& text, int rank) {
    if (failed_) return;
    failed_ = true;
    failure_ = at_most(text, kMaxText);
    Failure failure{failure_, rank, "", 0};
    if (rank >= 0) {
        failure.op = member_of(rank).activity.op();
        failure.sequence = member_of(rank).activity.sequence();
    }
    send_to_all(encode(failure));
}

}  // namespace axle::inline v0::dist
