// Simulates a schedule without processes: checks that it neither deadlocks nor stores more
// activations than its bound, and computes its time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/pipeline/schedule.h"

namespace axle::dist {

// The times of the actions of one stage for one micro-batch, in any unit.
struct ActionCosts {
    double forward = 1, backward = 2, backward_input = 1, backward_weight = 1;
    double link_delay = 0;  // time from the end of an action until the receiver has its result
    // Factors of the times of each stage; 1 for all stages if empty.
    std::vector<double> stage_factors = {};
    // Whether the report contains the timeline.
    bool keep_timeline = false;
};

struct TimedAction {
    Action action;
    double begin = 0, end = 0;
};

struct ScheduleReport {
    double time = 0;        // time from the first action to the end of the last one
    double idle_share = 0;  // the part of the time of all ranks in which they compute nothing
    // The maximum number of micro-batches whose activations are stored at once, by rank and by
    // stage. For a rank, a micro-batch on two stages counts twice.
    std::vector<std::int64_t> peak_stored;
    std::vector<std::int64_t> peak_stored_by_stage;
    std::int64_t messages = 0;
    // The actions of each rank, without messages; empty unless keep_timeline is true.
    std::vector<std::vector<TimedAction>> timeline = {};
};

// Simulates a schedule. Time and memory are linear in the number of actions. The messages of errors
// about actions contain the rank and the action, or the stage and the micro-batch.
//
// Throws ValueError
// - if a rank waits for a message that is never sent (deadlock), or a message is never received,
// - if the messages of a stage are sent and received in different orders,
// - if an action uses a value that does not exist,
// - if actions are missing, repeated, on a rank without their stage, or for a micro-batch that
//   does not exist,
// - if a rank stores more activations than its bound,
// - unless the schedule has at least one rank and one chunk, and no negative number of
//   micro-batches, or
// - unless the schedule has one list and one bound for each rank, and stage_factors is empty or has
//   one number for each stage.
ScheduleReport simulate(const Schedule& schedule, const ActionCosts& costs = {});

// Returns text such as "forward of micro-batch 2 on stage 1".
std::string text_of(const Action& action);

}  // namespace axle::dist
