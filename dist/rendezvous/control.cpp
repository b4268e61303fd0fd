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

namespace axle::inline v0::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNews{1500};    // for a failure that must have a cause to be heard of
constexpr milliseconds kAnswer{2000};  // of the server, after a timeout
constexpr milliseconds kFarewell{500};
constexpr milliseconds kPatience{2000};  // with a process that may not come
constexpr milliseconds kLongestSend{60000};

std::string address_of(const Address& server) {
    const auto chosen = address_of_chosen_interface();
    return (chosen.empty() ? local_address_towards(server) : chosen.front()).host();
}

void check_key(const std::string& key) {
    if (key.size() <= kMaxKey) return;
    throw ValueError(str("store: a key has at most ", kMaxKey, " bytes, this one ", key.size()));
}

std::string no_answer(const std::string& key, milliseconds timeout) {
    return str("store: rank 0 did not answer about ", in_quotes(key), " within ",
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
      news_event_(make_event()),
      scratch_(64 << 10) {
    if (rank_ == 0) server_ = std::make_unique<Server>(environment, options);
    Connected connected =
        join_server(environment, options, launcher_, server_ ? &server_->address() : nullptr);
    local_address_ = address_of(connected.address);
    server_process_ = connected.server;
    socket_ = std::move(connected.socket);
    in_ = std::move(connected.in);
    for (const ChildEnd& end : connected.ends) ends_.emplace(end.rank, end);
    heard_ = Clock::now();
    groups_[0] = {static_cast<std::size_t>(size_), true};
    dispatch_all();  // what came together with the last word of the handshake
    thread_ = kernels::start_thread("axle control", [this] { run(); });
}

Client::~Client() {
    {
        const Lock lock(mutex_);
        quit_ = true;
    }
    signal_event(quit_event_);
    thread_.join();
    if (lost_) return;
    try {
        const TimePoint deadline = Clock::now() + kFarewell;
        send_all(socket_, encode(Goodbye{at_most(parting_words_, kMaxText)}), deadline);
        // Closing it with bytes that nobody has read would take back what has been said.
        ::shutdown(socket_.descriptor(), SHUT_WR);
        while (wait_readable(socket_, deadline) && receive_some(socket_, scratch_) >= 0) {
        }
    } catch (const CommError&) {  // the server is gone itself
    }
}

// --- calls

void Client::check(const Lock&) const {
    if (failure_) throw CommError(failure_->text);
}

bool Client::wait(Lock& lock, TimePoint deadline, const std::function<bool()>& ready) {
    while (!failure_ && !ready()) {
        if (Clock::now() >= deadline) return false;
        if (reading_ || lost_) {
            changed_.wait_until(lock, deadline);
            continue;
        }
        reading_ = true;
        ++reads_;
        lock.unlock();
        pollfd entries[] = {{socket_.descriptor(), POLLIN, 0},
                            {news_event_.descriptor(), POLLIN, 0}};
        ::poll(entries, 2, milliseconds_until(deadline));
        lock.lock();
        if (entries[0].revents != 0) receive(lock);
        reading_ = false;
        changed_.notify_all();
    }
    return true;
}

void Client::wait_for_news(Lock& lock) {
    wait(lock, Clock::now() + kNews, [] { return false; });
}

void Client::send_frame(std::string_view frame) {
    try {
        const std::lock_guard sending(send_mutex_);
        send_all(socket_, frame,
                 Clock::now() + std::min<milliseconds>(options_.timeout, kLongestSend));
    } catch (const SocketError& error) {
        Lock lock(mutex_);
        if (error.code == ETIMEDOUT)
            fail({server_process_.text() + " takes no messages", 0, "", 0});
        lose();
        wait_for_news(lock);
        check(lock);
        throw;
    }
}

template <class Message>
Client::Reply Client::call(Message message, milliseconds timeout, const std::string& overdue) {
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
    throw CommError(overdue);
}

void Client::set(const std::string& key, std::string_view value) {
    check_key(key);
    if (value.size() > kMaxValue) {
        throw ValueError(str("store: a value has at most ", kMaxValue, " bytes, that of ",
                             in_quotes(key), " has ", value.size()));
    }
    const Reply reply =
        call(Set{0, key, std::string(value)}, options_.timeout, no_answer(key, options_.timeout));
    if (!reply.text.empty()) throw CommError(reply.text);
}

std::string Client::get(const std::string& key, milliseconds timeout) {
    check_key(key);
    return call(Get{0, key}, timeout,
                str("store: nobody has set ", in_quotes(key), " within ", seconds_text(timeout)))
        .text;
}

std::int64_t Client::add(const std::string& key, std::int64_t delta) {
    check_key(key);
    const Reply reply =
        call(Add{0, key, delta}, options_.timeout, no_answer(key, options_.timeout));
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

void Client::propose(const Proposal& proposal) {
    if (proposal.counts.size() > kMaxCounts) {
        throw ValueError(str(name_of(proposal.op), ": at most ", kMaxCounts, " sizes, not ",
                             proposal.counts.size()));
    }
    {
        const Lock lock(mutex_);
        check(lock);
        ++proposals_;
        absent_from_.reset();
        activity_.propose(proposal);
        rounds_[{proposal.group, proposal.sequence}].op = proposal.op;
    }
    send(Propose{proposal});
}

std::vector<std::vector<std::int64_t>> Client::agreed(std::uint32_t group, std::uint64_t sequence) {
    Lock lock(mutex_);
    check(lock);
    const auto round = rounds_.find({group, sequence});
    assert(round != rounds_.end());
    const auto ready = [&] { return round->second.agreement.has_value(); };
    const TimePoint begin = Clock::now();
    if (!wait(lock, begin + options_.timeout, ready)) {
        lock.unlock();
        send(Overdue{group, sequence, milliseconds(options_.timeout).count()});
        lock.lock();
        wait(lock, Clock::now() + kAnswer, ready);
    }
    check(lock);
    const auto agreement = std::move(rounds_.extract(round).mapped().agreement);
    if (!agreement) {
        throw CommError(str(activity_.text(), ": no agreement within ",
                            seconds_text(options_.timeout), ", and rank 0 does not say why"));
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
    } catch (const CommError&) {  // a failure of its own
    }
    Lock lock(mutex_);
    wait_for_news(lock);
    fail({text, -1, "", 0});
}

void Client::set_parting_words(const std::string& why) {
    const Lock lock(mutex_);
    parting_words_ = why;
}

void Client::set_absence(const std::string& why) {
    const Lock lock(mutex_);
    absence_ = why;
    absent_from_.reset();
    if (!why.empty()) absent_from_ = Clock::now() + kPatience;
}

void Client::on_failure(std::function<void()> wake) {
    {
        const Lock lock(mutex_);
        if (!announced_) {
            wakes_.push_back(std::move(wake));
            return;
        }
    }
    wake();
}

void Client::throw_failure(const std::string& otherwise) {
    Lock lock(mutex_);
    wait_for_news(lock);
    throw CommError(failure_ ? failure_->text : otherwise);
}

std::unique_ptr<Control> Control::join(const Environment& environment,
                                       const ControlOptions& options) {
    return std::make_unique<Client>(environment, options);
}

}  // namespace axle::inline v0::dist
