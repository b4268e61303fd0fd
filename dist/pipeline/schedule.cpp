#include "dist/pipeline/schedule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using Actions = std::vector<Action>;
using enum ActionKind;

constexpr const char* kKinds[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

// Adds the messages between stages on different ranks. Each input is received before it is used,
// and each result is sent after it was computed. Consecutive stages on one rank need no message.
void add_messages(Schedule& schedule) {
    const int last = schedule.stages() - 1;
    const auto crosses = [&](int from, int to) {
        return from >= 0 && to <= last && schedule.rank_of(from) != schedule.rank_of(to);
    };
    for (Actions& actions : schedule.actions) {
        Actions with_messages;
        for (const Action& action : actions) {
            const auto [kind, stage, micro_batch] = action;
            const bool needs_input = kind == forward && crosses(stage - 1, stage);
            const bool goes_back = kind == backward || kind == backward_input;
            if (needs_input) with_messages.push_back({receive_activation, stage, micro_batch});
            if (goes_back && crosses(stage, stage + 1))
                with_messages.push_back({receive_gradient, stage, micro_batch});
            with_messages.push_back(action);
            if (kind == forward && crosses(stage, stage + 1))
                with_messages.push_back({send_activation, stage, micro_batch});
            if (goes_back && crosses(stage - 1, stage))
                with_messages.push_back({send_gradient, stage, micro_batch});
        }
        actions = std::move(with_messages);
    }
}

void add_gpipe(Schedule& schedule, int rank) {
    Actions& actions = schedule.actions.emplace_back();
    for (int m = 0; m < schedule.micro_batches; ++m) actions.push_back({forward, rank, m});
    for (int m = 0; m < schedule.micro_batches; ++m) actions.push_back({backward, rank, m});
    schedule.bound.push_back(schedule.micro_batches);
}

void add_one_forward_one_backward(Schedule& schedule, int rank) {
    Actions& actions = schedule.actions.emplace_back();
    const int warm_up = std::min(schedule.ranks - rank - 1, schedule.micro_batches);
    for (int m = 0; m < warm_up; ++m) actions.push_back({forward, rank, m});
    for (int m = 0; m < schedule.micro_batches; ++m) {
        if (m + warm_up < schedule.micro_batches) actions.push_back({forward, rank, m + warm_up});
        actions.push_back({backward, rank, m});
    }
    schedule.bound.push_back(std::min(schedule.ranks - rank, schedule.micro_batches));
}

// Adds the actions of a rank for zero_bubble. While forwards remain, rank r computes the gradients
// of weights r micro-batches after the gradients of inputs. All ranks thus store the activations of
// the same number of micro-batches as rank 0 of one_forward_one_backward.
void add_zero_bubble(Schedule& schedule, int rank) {
    Actions& actions = schedule.actions.emplace_back();
    const int count = schedule.micro_batches;
    const int warm_up = std::min(schedule.ranks - rank - 1, count);
    int weights = 0;
    for (int m = 0; m < warm_up; ++m) actions.push_back({forward, rank, m});
    for (int m = 0; m < count; ++m) {
        const bool is_steady = m + warm_up < count;
        if (is_steady) actions.push_back({forward, rank, m + warm_up});
        actions.push_back({backward_input, rank, m});
        if (!is_steady || m >= rank) actions.push_back({backward_weight, rank, weights++});
    }
    while (weights < count) actions.push_back({backward_weight, rank, weights++});
    schedule.bound.push_back(std::min(schedule.ranks, count));
}

// Adds the actions of a rank for `interleaved`. Micro-batches pass through the chunks of a rank in
// groups of `ranks` micro-batches, as in Megatron-LM.
void add_interleaved(Schedule& schedule, int rank) {
    Actions& actions = schedule.actions.emplace_back();
    const int ranks = schedule.ranks, chunks = schedule.chunks;
    const int count = schedule.micro_batches * chunks;
    const auto nth = [&](ActionKind kind, int k) {
        const int chunk = k / ranks % chunks;
        const int micro_batch = k / (ranks * chunks) * ranks + k % ranks;
        const int passed = kind == forward ? chunk : chunks - 1 - chunk;
        return Action{kind, passed * ranks + rank, micro_batch};
    };
    const int warm_up = std::min((ranks - rank - 1) * 2 + (chunks - 1) * ranks, count);
    for (int k = 0; k < warm_up; ++k) actions.push_back(nth(forward, k));
    for (int k = 0; k < count; ++k) {
        if (k + warm_up < count) actions.push_back(nth(forward, k + warm_up));
        actions.push_back(nth(backward, k));
    }
    schedule.bound.push_back(std::min(warm_up + 1, count));
}

void check_sizes(const char* op, int ranks, int micro_batches, int chunks) {
    if (ranks < 1 || micro_batches < 1 || chunks < 1)
        throw ValueError(str(op, ": ranks, micro_batches and chunks must be at least 1: ranks ",
                             ranks, ", micro_batches ", micro_batches, ", chunks ", chunks));
}

}  // namespace

const char* name_of(ActionKind kind) {
    constexpr const char* kNames[] = {"forward",         "backward",        "backward_input",
                                      "backward_weight", "send_activation", "receive_activation",
                                      "send_gradient",   "receive_gradient"};
    return kNames[static_cast<std::size_t>(kind)];
}

const char* name_of(ScheduleKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

ScheduleKind schedule_kind_of(std::string_view name) {
    for (std::size_t i = 0; i < std::size(kKinds); ++i)
        if (name == kKinds[i]) return static_cast<ScheduleKind>(i);
    throw ValueError(
        str("schedule: must be one of gpipe, 1f1b, interleaved, zero_bubble: ", in_quotes(name)));
}

bool Schedule::trains() const {
    return std::ranges::any_of(actions, [](const Actions& list) {
        return std::ranges::any_of(list, [](const Action& action) {
            return action.kind == backward || action.kind == backward_input;
        });
    });
}

std::uint64_t Schedule::fingerprint() const {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    const auto add = [&](int number) {
        hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001b3;
    };
    for (const int number : {ranks, chunks, micro_batches}) add(number);
    for (const Actions& list : actions) {
        add(static_cast<int>(list.size()));
        for (const Action& action : list)
            for (const int number :
                 {static_cast<int>(action.kind), action.stage, action.micro_batch})
                add(number);
    }
    return hash;
}

Schedule make_schedule(ScheduleKind kind, int ranks, int micro_batches, int chunks) {
    check_sizes("make_schedule", ranks, micro_batches, chunks);
    if (chunks > 1 && kind != ScheduleKind::interleaved)
        throw ValueError(
            str("make_schedule: only interleaved schedules have several stages per "
                "rank: the schedule is ",
                name_of(kind), ", chunks is ", chunks));
    if (kind == ScheduleKind::interleaved && micro_batches % ranks != 0)
        throw ValueError(str("make_schedule: an interleaved schedule needs a multiple of ", ranks,
                             " micro-batches (the number of ranks): micro_batches is ",
                             micro_batches));
    Schedule schedule{.name = name_of(kind),
                      .ranks = ranks,
                      .chunks = chunks,
                      .micro_batches = micro_batches,
                      .actions = {},
                      .bound = {}};
    for (int rank = 0; rank < ranks; ++rank) switch (kind) {
            case ScheduleKind::gpipe:
                add_gpipe(schedule, rank);
                break;
            case ScheduleKind::one_forward_one_backward:
                add_one_forward_one_backward(schedule, rank);
                break;
            case ScheduleKind::interleaved:
                add_interleaved(schedule, rank);
                break;
            case ScheduleKind::zero_bubble:
                add_zero_bubble(schedule, rank);
                break;
        }
    add_messages(schedule);
    return schedule;
}

Schedule make_forward_schedule(int ranks, int micro_batches, int chunks) {
    check_sizes("make_forward_schedule", ranks, micro_batches, chunks);
    Schedule schedule{.name = "forward",
                      .ranks = ranks,
                      .chunks = chunks,
                      .micro_batches = micro_batches,
                      .actions = {},
                      .bound = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 0)};
    for (int rank = 0; rank < ranks; ++rank) {
        Actions& actions = schedule.actions.emplace_back();
        for (int begin = 0; begin < micro_batches; begin += ranks)
            for (int chunk = 0; chunk < chunks; ++chunk)
                for (int m = begin; m < std::min(begin + ranks, micro_batches); ++m)
                    actions.push_back({forward, chunk * ranks + rank, m});
    }
    add_messages(schedule);
    return schedule;
}

}  // namespace axle::dist
