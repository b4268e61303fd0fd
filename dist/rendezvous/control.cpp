#include "dist/rendezvous/control.h"

#include <algorithm>
#include <cassert>

#include <poll.h>
#include <sys/socket.h>

#include "core/files/file.h"
#include "dist/rendezvous/client.h"
#include "dist/rendezvous/join.h"
#include "kernels/error.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFailureDelay{1500};       // wait for the cause of an error to be reported
constexpr milliseconds kReplyAfterTimeout{2000};  // wait for the server's reply after a timeout
constexpr milliseconds kLeaveTimeout{500};
constexpr milliseconds kMissingDelay{2000};  // before a missing rank is reported
constexpr milliseconds kLongestSend{60000};

std::string address_of(const Address& server) {
    const auto chosen = address_of_chosen_interface();
    return (chosen.empty() ? local_address_towards(server) : chosen.front()).host();
}

void check_key(const std::string& key) {
    if (key.size() <= kMaxKey) return;
    throw ValueError(str("store: a key has at most ", kMaxKey, " bytes, not ", key.size()));
}

std::string no_answer(const std::string& key, milliseconds timeout) {
    return str("store: no reply from rank 0 for key ", in_quotes(key), " within ",
               seconds_text(timeout));
}

}  // namespace

Client::Client(const Environment& environment, const ControlOptions& options)
    : rank_(environment.rank),
      size_(environment.world_size),
      options_(options),
      interval_(std::clamp<milliseconds>(options.heartbeat_timeout / 4, milliseconds(1),
                                         milliseconds(1000))),
      quit_event_(make_event()),
      failure_event_(make_event()),
      scratch_(64 << 10) {
    if (rank_ == 0) server_ = std::make_unique<Server>(environment, options);
    Connected connected =
        join_server(environment, options, launcher_, server_ ? &server_->address() : nullptr);
    local_address_ = address_of(connected.address);
    server_process_ = connected.server;
    socket_ = std::move(connected.socket);
    in_ = std::move(connected.in);
    for (const ChildEnd& end : connected.ends) ends_.emplace(end.rank, end);
    last_received_ = Clock::now();
    groups_[0] = {static_cast<std::size_t>(size_), true};
    dispatch_all();  // messages that arrived together with the end of the handshake
    thread_ = kernels::start_thread("axle control", [this] { run(); });
}

Client::~Client() {
    {
        const Lock lock(mutex_);
        quit_ = true;
    }
    signal_event(quit_event_);
    thread_.join();
    if (disconnected_) return;
    try {
        const TimePoint deadline = Clock::now() + kLeaveTimeout;
        send_all(socket_, encode(Leave{at_most(leave_reason_, kMaxText)}), deadline);
        // Closing a socket with unread bytes resets the connection, and the peer could lose the
        // Leave message.
        ::shutdown(socket_.descriptor(), SHUT_WR);
        while (wait_readable(socket_, deadline) && receive_some(socket_, scratch_) >= 0) {
        }
    } catch (const CommError&) {  // the server has ended
    }
}

// --- calls

void Client::check(const Lock&) const {
    if (failure_) throw CommError(failure_->text);
}

bool Client::wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready) {
    while (!failure_ && !ready()) {
        if (Clock::now() >= deadline) return false;
        if (reading_ || disconnected_) {
            changed_.wait_until(lock, deadline);
            continue;
        }
        reading_ = true;
        ++reads_;
        lock.unlock();
        pollfd entries[] = {{socket_.descriptor(), POLLIN, 0},
                            {failure_event_.descriptor(), POLLIN, 0}};
        ::poll(entries, 2, milliseconds_until(deadline));
        lock.lock();
        if (entries[0].revents != 0) receive(lock);
        reading_ = false;
        changed_.notify_all();
    }
    return true;
}

void Client::wait_for_failure(Lock& lock) {
    wait(lock, Clock::now() + kFailureDelay, [] { return false; });
}

void Client::send_frame(std::string_view frame) {
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(socket_, frame,
                 Clock::now() + std::min<milliseconds>(options_.timeout, kLongestSend));
    } catch (const SocketError& error) {
        Lock lock(mutex_);
        if (error.code == ETIMEDOUT)
            fail({server_process_.text() + " does not read its messages", 0, "", 0});
        on_disconnect();
        wait_for_failure(lock);
        check(lock);
        throw;
    }
}

template <class Message>
Client::Reply Client::request(Message message, milliseconds timeout,
                              const std::string& timeout_error) {
    {
        const Lock lock(mutex_);
        check(lock);
        message.id = next_id_++;
        replies_[message.id];
    }
    send(message);
    Lock lock(mutex_);
    const auto entry = replies_.find(message.id);
    const bool there =
        wait(lock, Clock::now() + timeout, [&] { return entry->second.has_value(); });
    const auto reply = std::move(replies_.extract(entry).mapped());
    check(lock);
    if (there && reply) return *reply;
    lock.unlock();
    send(Cancel{message.id});
    throw CommError(timeout_error);
}

void Client::set(const std::string& key, std::string_view value) {
    check_key(key);
    if (value.size() > kMaxValue) {
        throw ValueError(str("store: a value has at most ", kMaxValue, " bytes, that of ",
                             in_quotes(key), " has ", value.size()));
    }
    const Reply reply = request(Set{0, key, std::string(value)}, options_.timeout,
                                no_answer(key, options_.timeout));
    if (!reply.text.empty()) throw CommError(reply.text);
}

std::string Client::get(const std::string& key, milliseconds timeout) {
    check_key(key);
    return request(
               Get{0, key}, timeout,
               str("store: key ", in_quotes(key), " was not set within ", seconds_text(timeout)))
        .text;
}

std::int64_t Client::add(const std::string& key, std::int64_t delta) {
    check_key(key);
    const Reply reply =
        request(Add{0, key, delta}, options_.timeout, no_answer(key, options_.timeout));
    if (!reply.text.empty()) throw CommError(reply.text);
    return reply.sum;
}

void Client::open_group(std::uint32_t group, const std::vector<int>& ranks) {
    {
        const Lock lock(mutex_);
        check(lock);
        groups_[group] = {ranks.size(), std::ranges::find(ranks, 0) != ranks.end()};
    }
    send(OpenGroup{group, ranks});
}

void Client::announce_call(const CollectiveCall& call) {
    if (call.counts.size() > kMaxCounts) {
        throw ValueError(
            str(name_of(call.op), ": at most ", kMaxCounts, " sizes, not ", call.counts.size()));
    }
    {
        const Lock lock(mutex_);
        check(lock);
        ++calls_;
        missing_from_.reset();
        activity_.announce_call(call);
        rounds_[{call.group, call.sequence}].op = call.op;
    }
    send(AnnounceCall{call});
}

std::vector<std::vector<std::int64_t>> Client::wait_for_agreement(std::uint32_t group,
                                                                  std::uint64_t sequence) {
    Lock lock(mutex_);
    check(lock);
    const auto round = rounds_.find({group, sequence});
    assert(round != rounds_.end());
    const auto ready = [&] { return round->second.agreement.has_value(); };
    const TimePoint begin = Clock::now();
    if (!wait(lock, begin + options_.timeout, ready)) {
        lock.unlock();
        send(CallTimeout{group, sequence, milliseconds(options_.timeout).count()});
        lock.lock();
        wait(lock, Clock::now() + kReplyAfterTimeout, ready);
    }
    check(lock);
    const auto agreement = std::move(rounds_.extract(round).mapped().agreement);
    if (!agreement) {
        throw CommError(str(activity_.text(), ": no agreement within ",
                            seconds_text(options_.timeout), ", and no reply from rank 0"));
    }
    std::vector<std::vector<std::int64_t>> counts(groups_.at(group).size);
    auto at = agreement->counts.begin();
    for (auto& of_rank : counts) {
        of_rank.assign(at, at + agreement->each);
        at += agreement->each;
    }
    return counts;
}

void Client::note(std::string_view activity) {
    const Lock lock(mutex_);
    activity_.note(activity);
}

std::optional<std::string> Client::failure() const {
    const Lock lock(mutex_);
    if (!failure_) return {};
    return failure_->text;
}

void Client::report(const std::string& text) {
    try {
        send(Report{at_most(text, kMaxText)});
    } catch (const CommError&) {  // this process has a failure already
    }
    Lock lock(mutex_);
    wait_for_failure(lock);
    fail({text, -1, "", 0});
}

void Client::set_leave_reason(const std::string& why) {
    const Lock lock(mutex_);
    leave_reason_ = why;
}

void Client::set_missing_reason(const std::string& why) {
    const Lock lock(mutex_);
    missing_reason_ = why;
    missing_from_.reset();
    if (!why.empty()) missing_from_ = Clock::now() + kMissingDelay;
}

void Client::on_failure(std::function<void()> wake) {
    {
        const Lock lock(mutex_);
        if (!notified_) {
            failure_callbacks_.push_back(std::move(wake));
            return;
        }
    }
    wake();
}

void Client::throw_failure(const std::string& otherwise) {
    Lock lock(mutex_);
    wait_for_failure(lock);
    throw CommError(failure_ ? failure_->text : otherwise);
}

std::unique_ptr<Control> Control::join(const Environment& environment,
                                       const ControlOptions& options) {
    return std::make_unique<Client>(environment, options);
}

}  // namespace axle::dist
