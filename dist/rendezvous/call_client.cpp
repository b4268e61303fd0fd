#include "dist/rendezvous/call_client.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// The time that a call waits for a reply after its timeout.
constexpr milliseconds kReplyAfterTimeout{2000};
constexpr milliseconds kMissingDelay{2000};  // delay before a missing rank is reported

[[noreturn]] void refuse(const Agreement& agreement, const std::string& why) {
    throw CommError(str("rendezvous: invalid message: agreement on call #", agreement.sequence,
                        " of group ", agreement.group, ": ", why));
}

}  // namespace

CallClient::CallClient(ControlChannel& channel, int world_size) : channel_(channel) {
    groups_[0] = {static_cast<std::size_t>(world_size), true};
}

void CallClient::open_group(std::uint32_t group, const std::vector<int>& ranks) {
    {
        const Lock lock(channel_.mutex());
        channel_.check(lock);
        groups_[group] = {ranks.size(), std::ranges::find(ranks, 0) != ranks.end()};
    }
    channel_.send(OpenGroup{group, ranks});
}

// All steps that can fail, except sending, are done before the call is announced.
void CallClient::start_call(const CollectiveCall& call, const std::function<void()>& post) {
    if (call.counts.size() > kMaxCounts) {
        throw ValueError(str(name_of(call.op), ": a call can have at most ", kMaxCounts,
                             " sizes: it has ", call.counts.size()));
    }
    const std::string frame = encode(AnnounceCall{call});
    {
        const Lock lock(channel_.mutex());
        channel_.check(lock);
        rounds_[{call.group, call.sequence}].op = call.op;
    }
    try {
        post();
    } catch (...) {
        const Lock lock(channel_.mutex());
        rounds_.erase({call.group, call.sequence});
        throw;
    }
    {
        const Lock lock(channel_.mutex());
        ++calls_;
        missing_from_.reset();
        activity_.announce_call(call);
    }
    channel_.send_frame(frame);
}

std::vector<std::vector<std::int64_t>> CallClient::wait_for_agreement(std::uint32_t group,
                                                                      std::uint64_t sequence) {
    const milliseconds timeout = channel_.options().timeout;
    Lock lock(channel_.mutex());
    channel_.check(lock);
    const auto round = rounds_.find({group, sequence});
    assert(round != rounds_.end());
    const auto ready = [&] { return round->second.agreement.has_value(); };
    if (!channel_.wait(lock, Clock::now() + timeout, ready)) {
        lock.unlock();
        channel_.send(CallTimeout{group, sequence, timeout.count()});
        lock.lock();
        channel_.wait(lock, Clock::now() + kReplyAfterTimeout, ready);
    }
    channel_.check(lock);
    const auto agreement = std::move(rounds_.extract(round).mapped().agreement);
    if (!agreement) {
        throw CommError(str(activity_.text(), ": no agreement within ", seconds_text(timeout),
                            ", and no reply from rank 0"));
    }
    std::vector<std::vector<std::int64_t>> counts(groups_.at(group).size);
    auto at = agreement->counts.begin();
    for (auto& of_rank : counts) {
        of_rank.assign(at, at + agreement->each);
        at += agreement->each;
    }
    return counts;
}

void CallClient::note(std::string_view activity) {
    const Lock lock(channel_.mutex());
    activity_.note(activity);
}

void CallClient::set_missing_reason(const std::string& why) {
    const Lock lock(channel_.mutex());
    missing_reason_ = why;
    missing_from_.reset();
    if (!why.empty()) missing_from_ = Clock::now() + kMissingDelay;
}

void CallClient::on_agreement(const Lock&, Agreement agreement) {
    const auto group = groups_.find(agreement.group);
    const auto round = rounds_.find({agreement.group, agreement.sequence});
    if (group == groups_.end()) refuse(agreement, "this rank has not opened the group");
    if (round == rounds_.end()) refuse(agreement, "this rank has no such call in progress");
    const std::size_t expected = group->second.size * agreement.each;
    if (agreement.counts.size() != expected) {
        refuse(agreement, str("expected ", expected, " counts, ", agreement.each, " for each of ",
                              group->second.size, " ranks: it has ", agreement.counts.size()));
    }
    if (group->second.has_server) {
        server_activity_.announce_call(
            {.group = agreement.group, .sequence = agreement.sequence, .op = round->second.op});
    }
    round->second.agreement = std::move(agreement);
}

std::optional<MissingRank> CallClient::take_missing(const Lock&, TimePoint now) {
    if (!missing_from_ || now < *missing_from_) return {};
    missing_from_.reset();
    return MissingRank{at_most(missing_reason_, kMaxText), calls_};
}

}  // namespace axle::dist
