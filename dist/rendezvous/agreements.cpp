#include "dist/rendezvous/agreements.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::size_t kMaxRounds = 65536;  // maximum number of incomplete calls of one group
constexpr std::size_t kMaxGroups = 65536;
constexpr std::size_t kMaxListed = 32;    // maximum number of ranks that an error message lists
constexpr std::size_t kMaxReason = 1000;  // maximum number of bytes of a reason in an error message

const char* name_of(ReduceOp op) {
    constexpr const char* kNames[] = {"sum", "mean", "max", "min", "product"};
    return kNames[static_cast<std::size_t>(op)];
}

bool reduces(Collective op) {
    return op == Collective::all_reduce || op == Collective::reduce ||
           op == Collective::reduce_scatter;
}

bool has_tensors(Collective op) { return op < Collective::barrier; }

bool sends_from_root(Collective op) {
    return op == Collective::broadcast || op == Collective::scatter ||
           op == Collective::broadcast_object || op == Collective::scatter_object;
}

// Returns whether describe() prints numel. For other ops numel is 0, because sizes may differ
// between ranks.
bool has_size(const CollectiveCall& p) {
    return p.numel != 0 || reduces(p.op) || p.op == Collective::broadcast ||
           p.op == Collective::all_gather || p.op == Collective::all_to_all;
}

// Returns text such as "all_reduce(sum) of 100 float32" or "broadcast from rank 2 of 8 int64".
std::string describe(const CollectiveCall& p, const std::vector<int>& ranks) {
    std::string text = dist::name_of(p.op);
    if (reduces(p.op)) text += str('(', name_of(p.reduce_op), ')');
    if (p.root >= 0) {
        const auto root = static_cast<std::size_t>(p.root);
        text += sends_from_root(p.op) ? " from rank " : " to rank ";
        text += root < ranks.size() ? std::to_string(ranks[root]) : str(p.root, " of the group");
    }
    if (!has_tensors(p.op)) return text;
    text += " of ";
    if (has_size(p)) text += str(p.numel, ' ');
    text += name_of(p.dtype);
    return text += p.on_gpu ? " on a GPU" : "";
}

auto matched_fields(const CollectiveCall& p) {
    return std::tuple(p.op, p.dtype, p.numel, p.root, p.reduce_op, p.on_gpu, p.counts.size());
}

// Returns text such as "collective #12" or "collective #12 of group 3 (ranks 1, 3)".
std::string name_of_round(std::uint32_t id, const std::vector<int>& ranks, std::uint64_t sequence) {
    if (id == 0) return str("collective #", sequence);
    return str("collective #", sequence, " of group ", id, " (", ranks_text(ranks), ')');
}

}  // namespace

const char* name_of(Collective op) {
    constexpr const char* kNames[] = {"all_reduce",    "broadcast",         "reduce",
                                      "all_gather",    "all_gather_uneven", "reduce_scatter",
                                      "all_to_all",    "all_to_all_uneven", "gather",
                                      "scatter",       "barrier",           "all_gather_object",
                                      "gather_object", "broadcast_object",  "scatter_object",
                                      "new_group"};
    return kNames[static_cast<std::size_t>(op)];
}

std::string ranks_text(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(ranks.size(), kMaxListed); ++i)
        text += str(i == 0 ? "" : ", ", ranks[i]);
    if (ranks.size() > kMaxListed) text += str(" and ", ranks.size() - kMaxListed, " more");
    return text;
}

Agreements::Agreements(int world_size) : world_size_(world_size) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(world_size));
    std::iota(all.begin(), all.end(), 0);
    open(0, 0, all);
}

void Agreements::open(int rank, std::uint32_t id, const std::vector<std::int32_t>& ranks) {
    if (const auto found = groups_.find(id); found != groups_.end()) {
        if (found->second.ranks == ranks) return;
        throw AgreementError(-1,
                             str("new_group: ", ranks_text({rank}), " creates group ", id, " with ",
                                 ranks_text(ranks), ", but another rank created it with ",
                                 ranks_text(found->second.ranks)));
    }
    if (groups_.size() == kMaxGroups)
        throw AgreementError(rank, "new_group: a job can have at most 65536 groups");
    Group group;
    for (const int member : ranks) {
        const bool known = member >= 0 && member < world_size_;
        if (!known || !group.indices.emplace(member, group.indices.size()).second)
            throw AgreementError(rank,
                                 str("new_group: the ranks must be different ranks of the job: ",
                                     ranks_text(ranks)));
    }
    group.ranks.assign(ranks.begin(), ranks.end());
    group.last.resize(ranks.size());
    groups_.emplace(id, std::move(group));
}

Agreements::Group& Agreements::group_of(int rank, std::uint32_t id) {
    const auto found = groups_.find(id);
    if (found == groups_.end() || !found->second.indices.contains(rank))
        throw AgreementError(rank, str("rendezvous: rank ", rank, " is not in group ", id));
    return found->second;
}

const std::vector<int>& Agreements::members(std::uint32_t group) const {
    return groups_.at(group).ranks;
}

std::optional<Agreement> Agreements::announce_call(int rank, const CollectiveCall& call) {
    Group& group = group_of(rank, call.group);
    const std::size_t index = group.indices.at(rank);
    if (call.sequence != group.last[index] + 1)
        throw AgreementError(rank, str("rendezvous: the next call of rank ", rank, " in group ",
                                       call.group, " must have the number ", group.last[index] + 1,
                                       ": it has the number ", call.sequence));
    if (group.rounds.size() == kMaxRounds)
        throw AgreementError(
            rank, str("rendezvous: group ", call.group, " must have at most ", kMaxRounds,
                      " incomplete calls: rank ", rank, " adds #", call.sequence));
    group.last[index] = call.sequence;
    unavailable_.erase(rank);

    const std::size_t each = call.counts.size();
    const auto [at, is_new] = group.rounds.try_emplace(call.sequence);
    Round& round = at->second;
    if (is_new) {
        round.first = call;
        round.called.resize(group.ranks.size());
        round.counts.resize(group.ranks.size() * each);
    } else {
        check_same(call.group, group, round, rank, call);
    }
    round.called[index] = true;
    std::ranges::copy(call.counts,
                      round.counts.begin() + static_cast<std::ptrdiff_t>(index * each));
    if (++round.count < group.ranks.size()) {
        check_unavailable(call.group, group, round);
        return {};
    }
    Agreement agreement{call.group, call.sequence, static_cast<std::uint32_t>(each),
                        std::move(round.counts)};
    group.rounds.erase(at);
    return agreement;
}

void Agreements::check_same(std::uint32_t id, const Group& group, const Round& round, int rank,
                            const CollectiveCall& call) const {
    if (matched_fields(round.first) == matched_fields(call)) return;
    std::vector<int> others;
    for (std::size_t i = 0; i < round.called.size(); ++i) {
        if (round.called[i]) others.push_back(group.ranks[i]);
    }
    std::string first = describe(round.first, group.ranks), then = describe(call, group.ranks);
    if (first == then) {
        first += str(" with ", round.first.counts.size(), " sizes");
        then += str(" with ", call.counts.size(), " sizes");
    }
    // Calls of different operations often follow a loop that one rank has left early.
    const char* const hint =
        round.first.op == call.op
            ? ""
            : "; all ranks must make the same calls: if a rank leaves a loop early, as with "
              "break, all ranks must leave it";
    throw AgreementError(-1, str(name_of_round(id, group.ranks, call.sequence),
                                 id == 0 ? " of the group differs: " : " differs: ",
                                 ranks_text(others), others.size() == 1 ? " calls " : " call ",
                                 first, ", rank ", rank, " calls ", then, hint));
}

void Agreements::check_unavailable(std::uint32_t id, const Group& group, const Round& round) const {
    if (unavailable_.empty()) return;
    for (std::size_t i = 0; i < round.called.size(); ++i) {
        const int rank = group.ranks[i];
        const auto absent = unavailable_.find(rank);
        if (round.called[i] || absent == unavailable_.end()) continue;
        const auto& [how, why] = absent->second;
        throw AgreementError(rank, str("rank ", rank, ' ', how, ", but ",
                                       name_of_round(id, group.ranks, round.first.sequence), " (",
                                       name_of(round.first.op), ") needs it",
                                       why.empty() ? "" : str(": ", printable(why, kMaxReason))));
    }
}

void Agreements::leave(int rank, const std::string& why) { set_unavailable(rank, "has left", why); }
void Agreements::mark_missing(int rank, const std::string& why) {
    set_unavailable(rank, "makes no more calls", why);
}

void Agreements::set_unavailable(int rank, const char* how, const std::string& why) {
    unavailable_[rank] = {how, why};
    for (const auto& [id, group] : groups_) {
        if (!group.indices.contains(rank)) continue;
        for (const auto& [sequence, round] : group.rounds) check_unavailable(id, group, round);
    }
}

std::optional<Agreements::Missing> Agreements::missing(std::uint32_t id,
                                                       std::uint64_t sequence) const {
    const auto group = groups_.find(id);
    if (group == groups_.end()) return {};
    const auto round = group->second.rounds.find(sequence);
    if (round == group->second.rounds.end()) return {};
    Missing missing{round->second.first, {}};
    for (std::size_t i = 0; i < round->second.called.size(); ++i) {
        if (!round->second.called[i]) missing.ranks.push_back(group->second.ranks[i]);
    }
    return missing;
}

}  // namespace axle::dist
