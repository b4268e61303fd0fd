#include "dist/pipeline/simulation.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace axle::dist {
namespace {

using enum ActionKind;

constexpr const char* kOp = "simulate";

// Flags of events that have happened to a micro-batch on a stage.
enum Event : std::uint8_t {
    has_input = 1,
    has_output = 2,
    has_output_gradient = 4,
    has_input_gradient = 8,
    has_weight_gradients = 16,
    sent_activation = 32,
    sent_gradient = 64,
};

// The messages between two stages, in the order in which they were sent.
struct Channel {
    std::vector<std::pair<int, double>> sent;  // micro-batch and time of arrival
    std::size_t received = 0;
    int waiting_rank = -1;
};

class Simulation {
  public:
    Simulation(const Schedule& schedule, const ActionCosts& costs)
        : schedule_(schedule), costs_(costs), trains_(schedule.trains()) {
        if (schedule.ranks < 1 || schedule.chunks < 1 || schedule.micro_batches < 0)
            throw ValueError(str(kOp,
                                 ": a schedule must have at least one rank and one chunk, and not "
                                 "a negative number of micro-batches: ",
                                 schedule.ranks, " ranks, ", schedule.chunks, " chunks, ",
                                 schedule.micro_batches, " micro-batches"));
        const auto ranks = static_cast<std::size_t>(schedule.ranks);
        const auto stages = static_cast<std::size_t>(schedule.stages());
        if (schedule.actions.size() != ranks || schedule.bound.size() != ranks)
            throw ValueError(str(kOp,
                                 ": a schedule must have one list of actions and one bound for "
                                 "each rank: ",
                                 ranks, " ranks, ", schedule.actions.size(), " lists, ",
                                 schedule.bound.size(), " bounds"));
        if (!costs.stage_factors.empty() && costs.stage_factors.size() != stages)
            throw ValueError(str(kOp, ": stage_factors must have one factor for each of ", stages,
                                 " stages: it has ", costs.stage_factors.size()));
        events_.resize(stages * static_cast<std::size_t>(schedule.micro_batches));
        next_.resize(ranks);
        clocks_.resize(ranks);
        busy_.resize(ranks);
        stored_.resize(ranks);
        stored_by_stage_.resize(stages);
        activations_.resize(stages);
        gradients_.resize(stages);
        report_.peak_stored.resize(ranks);
        report_.peak_stored_by_stage.resize(stages);
        if (costs.keep_timeline) report_.timeline.resize(ranks);
    }

    ScheduleReport run() {
        for (int rank = schedule_.ranks; rank-- > 0;) runnable_.push_back(rank);
        while (!runnable_.empty()) {
            const int rank = runnable_.back();
            runnable_.pop_back();
            run_rank(rank);
        }
        check_complete();
        double busy = 0;
        for (const double time : busy_) busy += time;
        report_.time = *std::ranges::max_element(clocks_);
        if (report_.time > 0) report_.idle_share = 1 - busy / (report_.time * schedule_.ranks);
        return std::move(report_);
    }

  private:
    std::uint8_t& events(int stage, int micro_batch) {
        return events_[static_cast<std::size_t>(stage) *
                           static_cast<std::size_t>(schedule_.micro_batches) +
                       static_cast<std::size_t>(micro_batch)];
    }

    [[noreturn]] void fail(int rank, const Action& action, const std::string& why) const {
        throw ValueError(str(kOp, ": schedule ", schedule_.name, ": rank ", rank, ", ",
                             text_of(action), ": ", why));
    }

    // Marks the event. Throws ValueError if an event in `needed` has not happened, or if this event
    // has already happened.
    void mark(int rank, const Action& action, Event event, int needed, const char* missing) {
        std::uint8_t& have = events(action.stage, action.micro_batch);
        if ((have & needed) != needed) fail(rank, action, missing);
        if (have & event) fail(rank, action, "the action is repeated");
        have |= event;
    }

    // Executes the actions of a rank until the rank has to wait.
    void run_rank(int rank) {
        const std::vector<Action>& actions = schedule_.actions[static_cast<std::size_t>(rank)];
        std::size_t& next = next_[static_cast<std::size_t>(rank)];
        for (; next < actions.size(); ++next) {
            const Action& action = actions[next];
            if (action.stage < 0 || action.stage >= schedule_.stages() ||
                schedule_.rank_of(action.stage) != rank)
                fail(rank, action, "the stage is not on this rank");
            if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches)
                fail(rank, action,
                     str("the micro-batch must be in [0, ", schedule_.micro_batches, ")"));
            if (!run_action(rank, action)) return;
        }
    }

    // Returns false if the rank has to wait for a message.
    bool run_action(int rank, const Action& action) {
        const int last = schedule_.stages() - 1;
        const auto [kind, stage, micro_batch] = action;
        const auto at = static_cast<std::size_t>(stage);
        switch (kind) {
            case receive_activation:
                if (stage == 0) fail(rank, action, "the first stage has no previous stage");
                return receive(rank, action, activations_[at], has_input);
            case receive_gradient:
                if (stage == last) fail(rank, action, "the last stage has no next stage");
                if ((events(stage, micro_batch) & has_output) == 0)
                    fail(rank, action, "there is no output whose gradient can be received");
                return receive(rank, action, gradients_[at], has_output_gradient);
            case send_activation:
                if (stage == last) fail(rank, action, "the last stage has no next stage");
                mark(rank, action, sent_activation, has_output, "there is no output to send");
                send(rank, micro_batch, activations_[at + 1]);
                return true;
            case send_gradient:
                if (stage == 0) fail(rank, action, "the first stage has no previous stage");
                mark(rank, action, sent_gradient, has_input_gradient,
                     "there is no gradient to send");
                send(rank, micro_batch, gradients_[at - 1]);
                return true;
            case forward:
                if (stage > 0 && schedule_.rank_of(stage - 1) == rank &&
                    (events(stage - 1, micro_batch) & has_output))
                    events(stage, micro_batch) |= has_input;
                mark(rank, action, has_output, stage == 0 ? 0 : has_input,
                     "the input was not received");
                if (trains_) store(rank, action);
                spend(rank, action, costs_.forward);
                return true;
            case backward:
            case backward_input:
                if (stage < last && schedule_.rank_of(stage + 1) == rank &&
                    (events(stage + 1, micro_batch) & has_input_gradient))
                    events(stage, micro_batch) |= has_output_gradient;
                mark(rank, action, has_input_gradient,
                     has_output | (stage == last ? 0 : has_output_gradient),
                     "there is no output, or its gradient was not received");
                spend(rank, action, kind == backward ? costs_.backward : costs_.backward_input);
                if (kind == backward) {
                    mark(rank, action, has_weight_gradients, 0, "");
                    free(rank, stage);
                }
                return true;
            case backward_weight:
                mark(rank, action, has_weight_gradients, has_input_gradient,
                     "no gradients of weights are queued");
                spend(rank, action, costs_.backward_weight);
                free(rank, stage);
                return true;
        }
        return true;
    }

    bool receive(int rank, const Action& action, Channel& channel, Event event) {
        if (channel.received == channel.sent.size()) {
            channel.waiting_rank = rank;
            return false;
        }
        const auto [micro_batch, arrival] = channel.sent[channel.received++];
        if (micro_batch != action.micro_batch)
            fail(rank, action,
                 str("messages arrive in the order in which they are sent, and the next one "
                     "belongs to micro-batch ",
                     micro_batch));
        mark(rank, action, event, 0, "");
        double& clock = clocks_[static_cast<std::size_t>(rank)];
        clock = std::max(clock, arrival);
        return true;
    }

    void send(int rank, int micro_batch, Channel& channel) {
        channel.sent.emplace_back(micro_batch,
                                  clocks_[static_cast<std::size_t>(rank)] + costs_.link_delay);
        ++report_.messages;
        if (const int waiting = std::exchange(channel.waiting_rank, -1); waiting >= 0)
            runnable_.push_back(waiting);
    }

    void spend(int rank, const Action& action, double time) {
        const auto at = static_cast<std::size_t>(rank);
        if (!costs_.stage_factors.empty())
            time *= costs_.stage_factors[static_cast<std::size_t>(action.stage)];
        if (costs_.keep_timeline)
            report_.timeline[at].push_back({action, clocks_[at], clocks_[at] + time});
        clocks_[at] += time;
        busy_[at] += time;
    }

    void store(int rank, const Action& action) {
        const auto at = static_cast<std::size_t>(rank);
        const auto stage = static_cast<std::size_t>(action.stage);
        std::int64_t& peak = report_.peak_stored[at];
        peak = std::max(peak, ++stored_[at]);
        report_.peak_stored_by_stage[stage] =
            std::max(report_.peak_stored_by_stage[stage], ++stored_by_stage_[stage]);
        if (stored_[at] > schedule_.bound[at])
            fail(rank, action,
                 str("stores the activations of ", stored_[at], " micro-batches, but the bound is ",
                     schedule_.bound[at]));
    }
    void free(int rank, int stage) {
        --stored_[static_cast<std::size_t>(rank)];
        --stored_by_stage_[static_cast<std::size_t>(stage)];
    }

    void check_complete() {
        std::string waiting;
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            if (next_[at] == schedule_.actions[at].size()) continue;
            waiting += str(waiting.empty() ? "" : ", ", "rank ", rank, " waits in ",
                           text_of(schedule_.actions[at][next_[at]]));
        }
        if (!waiting.empty())
            throw ValueError(str(kOp, ": schedule ", schedule_.name, ": deadlock: ", waiting));
        const int needed = has_output | (trains_ ? has_input_gradient | has_weight_gradients : 0);
        for (int stage = 0; stage < schedule_.stages(); ++stage) {
            const auto at = static_cast<std::size_t>(stage);
            for (int m = 0; m < schedule_.micro_batches; ++m)
                if ((events(stage, m) & needed) != needed)
                    throw ValueError(str(kOp, ": schedule ", schedule_.name, ": stage ", stage,
                                         " does not complete micro-batch ", m));
            for (const Channel* channel : {&activations_[at], &gradients_[at]})
                if (channel->received != channel->sent.size())
                    throw ValueError(str(kOp, ": schedule ", schedule_.name, ": stage ", stage,
                                         " does not receive a message of micro-batch ",
                                         channel->sent[channel->received].first));
        }
    }

    const Schedule& schedule_;
    const ActionCosts& costs_;
    bool trains_;
    std::vector<std::uint8_t> events_;  // indexed by stage and micro-batch
    std::vector<std::size_t> next_;
    std::vector<double> clocks_, busy_;
    std::vector<std::int64_t> stored_, stored_by_stage_;
    std::vector<Channel> activations_, gradients_;  // indexed by the receiving stage
    std::vector<int> runnable_;
    ScheduleReport report_;
};

}  // namespace

std::string text_of(const Action& action) {
    return str(name_of(action.kind), " of micro-batch ", action.micro_batch, " on stage ",
               action.stage);
}

ScheduleReport simulate(const Schedule& schedule, const ActionCosts& costs) {
    return Simulation(schedule, costs).run();
}

}  // namespace axle::dist
