// Simulates a schedule without processes: proves that it neither deadlocks nor stores more
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
    // The largest number of micro-batches whose activations are stored at once, by rank and by
    // stage. For a rank, a micro-batch on two stages counts twice.
    std::vector<std::int64_t> peak_stored;
    std::vector<std::int64_t> peak_stored_by_stage;
    std::int64_t messages = 0;
    std::vector<std::vector<TimedAction>> timeline = {};  // indexed by rank, without messages
};

// Executes the lists of a schedule. Time and memory are linear in the number of actions. Throws
// ValueError if a rank waits for a message that is never sent (deadlock), if the messages of a
// stage are sent and received in different orders, if an action uses a value that does not exist,
// if actions are missing, repeated or on a rank without their stage, and if a rank stores more
// activations than its bound. The error text contains the rank and the action, or the stage and the
// micro-batch. Also throws ValueError unless the schedule has one list and one bound for each rank,
// and stage_factors one number for each stage or none.
ScheduleReport simulate(const Schedule& schedule, const ActionCosts& costs = {});

// Returns text such as "forward of micro-batch 2 on stage 1".
std::string text_of(const Action& action);

}  // namespace axle::dist
