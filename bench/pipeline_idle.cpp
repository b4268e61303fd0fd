// Usage: bench_pipeline_idle [UNIT_MS] [STEPS] [DELAY_MS]...
//
// Forks four processes, measures their idle shares in steps of dist::Pipeline, and compares the
// idle shares with the simulated schedules. The pieces wait for a known time instead of computing,
// so that the processes do not need a core each. To simulate the delay of a link, each result
// contains the time when it was computed, and the next piece waits until the delay has passed.
// Prints JSON: for each schedule and delay, the measured and the simulated time of a step, the
// simulated idle share, and the idle share of each rank (medians over steps).
//
// UNIT_MS (30 by default) is the time that the stages of a rank need for each part of a
// micro-batch: the forward pass, the gradients of inputs, and the gradients of weights. STEPS (5 by
// default) is the number of measured steps. DELAY_MS are the delays; by default 0, UNIT_MS / 6 and
// UNIT_MS / 3.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "core/autograd/autograd.h"
#include "core/autograd/deferred.h"
#include "core/ops.h"
#include "dist/pipeline/pipeline.h"
#include "dist/pipeline/simulation.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "tests/dist/ranks.h"
#include "tests/fork.h"
#include "tests/free_port.h"

namespace axle::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4, kMicroBatches = 8;
constexpr std::int64_t kNumbers = 16384;  // elements of an activation

// Returns the time in seconds. All processes of a machine have the same clock.
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// The times of a stage in seconds, and the total work time of this process.
struct Stage {
    double unit = 0, delay = 0;
    double* busy = nullptr;

    // Waits instead of computing.
    void work() const {
        const double start = now();
        std::this_thread::sleep_for(std::chrono::duration<double>(unit));
        *busy += now() - start;
    }
    // Waits until the delay has passed since the time that the message contains.
    void receive(const Tensor& message) const {
        const double wait = message.data<double>()[0] + delay - now();
        if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    }
};

Tensor stamped() { return full({1, kNumbers}, now(), {.dtype = f64}); }

// Returns the output of a stage. x is undefined in the first stage.
Tensor forward(const Stage& stage, const Tensor& x, const Tensor& weight) {
    const NoGrad no_grad;
    std::vector<Tensor> inputs = {weight};
    if (x.defined()) {
        stage.receive(x);
        inputs.insert(inputs.begin(), x);
    }
    stage.work();
    const Tensor y = stamped();
    const GradMode recording(true);
    return record(
        "stage", y, inputs,
        [stage, weight = weight.detach(), count = inputs.size()](const Grads& dy, Needs) -> Grads {
            stage.receive(dy[0]);
            stage.work();
            const auto of_weight = [stage, weight] {
                stage.work();
                return Grads{zeros_like(weight)};
            };
            Grads result(count);
            const int last = static_cast<int>(count) - 1;
            if (!autograd::defer_gradients({last}, 0, of_weight)) result.back() = of_weight()[0];
            if (count == 2) result.front() = stamped();
            return result;
        });
}

struct Stages : nn::Model<Stages> {
    nn::ModuleList<nn::Linear> layers;  // only their weights are used

    explicit Stages(int count) {
        for (int i = 0; i < count; ++i) layers.push_back(nn::Linear(1, 1, {.bias = false}));
    }
    void visit(nn::Visitor& v) override { v("layers", layers); }

    std::vector<nn::Piece> pieces(const Stage& stage) {
        std::vector<nn::Piece> result;
        for (nn::Linear& layer : layers)
            result.push_back({.name = std::to_string(result.size()),
                              .modules = {&layer},
                              .forward = [&layer, stage](const Tensor& x, const Tree&) {
                                  return forward(stage, x, layer.weight);
                              }});
        return result;
    }
};

double median(std::vector<double> numbers) {
    std::ranges::sort(numbers);
    return numbers[numbers.size() / 2];
}

nlohmann::json measure(const std::shared_ptr<dist::ProcessGroup>& group, dist::ScheduleKind kind,
                       double unit, double delay, int steps) {
    const int chunks = kind == dist::ScheduleKind::interleaved ? 2 : 1;
    double busy = 0;
    Stages model(kRanks * chunks);
    dist::Pipeline pipeline(model, model.pieces({unit / chunks, delay, &busy}), group,
                            {.schedule = kind, .micro_batches = kMicroBatches, .chunks = chunks});
    const Tree batch = {{"x", zeros({kMicroBatches, 1})}};
    const auto loss = [](const Tensor& y, const Tree&) { return mean(y) * 0; };
    std::vector<double> times, idle;
    for (int step = -1; step < steps; ++step) {  // the first step agrees on shapes
        group->barrier();
        busy = 0;
        const double start = now();
        pipeline.step(batch, loss);
        const double time = now() - start;
        if (step < 0) continue;
        times.push_back(time);
        idle.push_back(1 - busy / time);
    }
    std::vector<double> ranks;
    for (const Tree& share : group->all_gather_object(median(idle)))
        ranks.push_back(share.number());
    double mean_idle = 0;
    for (const double share : ranks) mean_idle += share / kRanks;
    const dist::ScheduleReport theory =
        dist::simulate(pipeline.schedule(), {.forward = unit / chunks,
                                             .backward = 2 * unit / chunks,
                                             .backward_input = unit / chunks,
                                             .backward_weight = unit / chunks,
                                             .link_delay = delay});
    return {{"schedule", pipeline.schedule().name},
            {"delay_ms", 1e3 * delay},
            {"ms_per_step", 1e3 * median(times)},
            {"simulated_ms_per_step", 1e3 * theory.time},
            {"idle_of_ranks", ranks},
            {"idle", mean_idle},
            {"simulated_idle", theory.idle_share},
            {"relative_difference", mean_idle / theory.idle_share - 1}};
}

void run(const std::shared_ptr<dist::ProcessGroup>& group, double unit, int steps,
         const std::vector<double>& delays) {
    nlohmann::json rows = nlohmann::json::array();
    for (const double delay : delays)
        for (const dist::ScheduleKind kind :
             {dist::ScheduleKind::gpipe, dist::ScheduleKind::one_forward_one_backward,
              dist::ScheduleKind::interleaved, dist::ScheduleKind::zero_bubble})
            rows.push_back(measure(group, kind, unit, delay, steps));
    if (group->rank() != 0) return;
    const nlohmann::json facts = {{"ranks", kRanks},
                                  {"micro_batches", kMicroBatches},
                                  {"unit_ms", 1e3 * unit},
                                  {"message_bytes", kNumbers * size_of(f64)},
                                  {"steps", steps}};
    std::cout << nlohmann::json{{"facts", facts}, {"schedules", rows}}.dump(1) << '\n';
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    using namespace axle;
    const double unit = 1e-3 * (argc > 1 ? std::atof(argv[1]) : 30);
    const int steps = argc > 2 ? std::atoi(argv[2]) : 5;
    std::vector<double> delays;
    for (int i = 3; i < argc; ++i) delays.push_back(1e-3 * std::atof(argv[i]));
    if (delays.empty()) delays = {0, unit / 6, unit / 3};
    if (!(unit > 0) || steps < 1) {
        std::cerr << "bench_pipeline_idle: UNIT_MS must be positive and STEPS at least 1: "
                  << 1e3 * unit << ", " << steps << '\n';
        return 2;
    }
    const int port = tests::free_port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < bench::kRanks; ++rank) {
        const pid_t pid = tests::fork_process();
        if (pid != 0) {
            children.push_back(pid);
            continue;
        }
        try {
            bench::run(dist::ProcessGroup::create(tests::environment_of(rank, bench::kRanks, port)),
                       unit, steps, delays);
        } catch (const std::exception& e) {
            std::cerr << "bench_pipeline_idle: " << e.what() << '\n';
            ::_exit(1);
        }
        std::cout.flush();
        ::_exit(0);
    }
    int failed = 0;
    for (const pid_t pid : children) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        failed |= status;
    }
    return failed == 0 ? 0 : 1;
}
