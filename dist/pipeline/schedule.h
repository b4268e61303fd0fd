// Schedules of pipelines: for each rank, the list of actions that it executes in a training step.
//
//     dist::Schedule schedule = dist::make_schedule(dist::ScheduleKind::zero_bubble, 4, 8);
//     dist::ScheduleReport report =  // dist/pipeline/simulation.h
//         dist::simulate(schedule, {.forward = 1, .backward = 2});
//
// A schedule is data. Pipeline (pipeline.h) executes any schedule of training steps for the ranks
// of its group that simulate() accepts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axle::dist {

enum class ActionKind : std::uint8_t {
    forward,
    backward,            // gradients of the input and of the parameters
    backward_input,      // the gradient of the input; gradients of weights are queued
    backward_weight,     // the queued gradients of weights
    send_activation,     // sends the stage's output to the next stage
    receive_activation,  // receives the stage's input from the previous stage
    send_gradient,       // sends the gradient of the stage's input to the previous stage
    receive_gradient,    // receives the gradient of the stage's output from the next stage
};
const char* name_of(ActionKind kind);

// An action of one stage for one micro-batch. Sends do not block; receives wait for the message.
struct Action {
    ActionKind kind = ActionKind::forward;
    int stage = 0;
    int micro_batch = 0;
    friend bool operator==(const Action&, const Action&) = default;
};

// The actions of all ranks. Each rank has `chunks` stages; stage s is on rank s % ranks.
struct Schedule {
    std::string name;
    int ranks = 1;
    int chunks = 1;
    int micro_batches = 1;
    std::vector<std::vector<Action>> actions;  // indexed by rank
    // The maximum number of micro-batches whose activations a rank may store at once, indexed by
    // rank. A micro-batch on two stages counts twice. An activation is stored from forward to
    // backward. If weight gradients are queued, it is stored until backward_weight.
    std::vector<std::int64_t> bound;

    int stages() const { return ranks * chunks; }
    int rank_of(int stage) const { return stage % ranks; }
    // Returns whether the schedule has backward actions.
    bool trains() const;
    // Returns a hash of the sizes and the actions. It does not depend on the name and the bound.
    std::uint64_t fingerprint() const;
};

// The kinds of schedules:
// - gpipe: all forwards, then all backwards (Huang et al., arXiv:1811.06965).
// - one_forward_one_backward: after a warm-up, forwards and backwards alternate. Rank r then stores
//   the activations of at most ranks - r micro-batches (Narayanan et al., "PipeDream",
//   arXiv:1806.03377).
// - interleaved: the same with several stages per rank, which shortens the idle time and needs more
//   messages (Narayanan et al., arXiv:2104.04473).
// - zero_bubble: ZB-H1 of Qi et al., "Zero bubble pipeline parallelism" (arXiv:2401.10241).
//   Computes the gradients of weights when ranks of one_forward_one_backward are idle.
enum class ScheduleKind : std::uint8_t {
    gpipe,
    one_forward_one_backward,
    interleaved,
    zero_bubble
};
// Parses "gpipe", "1f1b", "interleaved" or "zero_bubble". Throws ValueError for other names.
ScheduleKind schedule_kind_of(std::string_view name);
const char* name_of(ScheduleKind kind);

// Returns a schedule of a training step. Throws ValueError if a number is less than 1. Only
// `interleaved` supports `chunks` above 1, and needs a multiple of `ranks` micro-batches; otherwise
// ValueError is thrown.
Schedule make_schedule(ScheduleKind kind, int ranks, int micro_batches, int chunks = 1);
// Returns a schedule of a forward pass, for evaluation. Throws ValueError if a number is less than
// 1.
Schedule make_forward_schedule(int ranks, int micro_batches, int chunks = 1);

}  // namespace axle::dist
