// Tests that training in deterministic mode gives the same bits in every run, for every number of
// processes and threads.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/system/numerics.h"
#include "kernels/thread_pool.h"
#include "nlohmann/json.hpp"
#include "tests/accel/training.h"
#include "tests/job.h"

namespace axle {
namespace {

using namespace std::chrono_literals;

struct Series {
    int runs = 1, updates = 0;
    std::vector<int> threads;
};

// Trains with `micro_batches` micro-batches per update, counted over all processes. Returns the
// loss and the norm of the gradients of each update, and the weights.
std::string trained(const dist::Environment& environment, int updates, int micro_batches,
                    int threads) {
    const auto group = dist::ProcessGroup::create(environment, {.join_timeout = 30s});
    use_deterministic_algorithms(true);
    kernels::set_num_threads(threads);
    manual_seed(7);
    tests::SmallNet net;
    net.eval();  // disables dropout, whose random numbers differ between ranks
    Accelerator accelerator({.gradient_accumulation_steps = micro_batches / group->size(),
                             .cpu = true,
                             .scheduler_steps = accel::SchedulerSteps::per_update,
                             .process_group = group});
    data::DataLoader loader(tests::samples(std::int64_t{3} * micro_batches * 5),
                            {.batch_size = 3, .shuffle = true, .seed = 11});
    optim::AdamW adamw(net.parameters(), {.lr = 0.02});
    auto cosine = optim::get_cosine_schedule_with_warmup(adamw, 2, updates);
    accelerator.prepare(net, adamw, loader, cosine);

    nlohmann::json curve = nlohmann::json::array();
    Tensor sum = zeros({}, {f64});
    while (static_cast<int>(curve.size()) < updates)
        for (auto& batch : loader) {
            auto scope = accelerator.accumulate(net);
            const Tensor loss = tests::squared_error(net(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            sum = sum + loss.detach().to(f64);
            if (accelerator.sync_gradients()) {
                const Tensor norm = accelerator.clip_grad_norm_(net.parameters(), 1);
                group->all_reduce(sum);
                curve.push_back({sum.item() / micro_batches, norm.item()});
                sum = zeros({}, {f64});
            }
            adamw.step();
            cosine.step();
            adamw.zero_grad();
        }
    for (const Tensor& p : net.parameters()) curve.push_back(p.detach().to_vector());
    return curve.dump();
}

void expect_same_bits(const Series& series) {
    for (const int micro_batches : {4, 8}) {
        std::string expected;
        for (int run = 0; run < series.runs; ++run)
            for (const int processes : {1, 2, 4})
                for (const int threads : series.threads) {
                    tests::Job job(processes, [&](const dist::Environment& environment) {
                        return trained(environment, series.updates, micro_batches, threads);
                    });
                    for (const tests::RankOutcome& rank : job.wait(120s)) {
                        if (expected.empty()) expected = rank.text;
                        ASSERT_TRUE(rank.text == expected)
                            << micro_batches << " micro-batches, run " << run << " on " << processes
                            << " processes with " << threads << " threads:\n"
                            << rank.text.substr(0, 500) << "\ninstead of\n"
                            << expected.substr(0, 500);
                    }
                }
        ASSERT_TRUE(expected.starts_with("[[")) << expected;
    }
}

TEST(WorldSize, DoesNotChangeTheBitsOfDeterministicTraining) {
    expect_same_bits({.runs = 2, .updates = 20, .threads = {2}});
}

TEST(WorldSize, DoesNotChangeTheBitsOfDeterministicTrainingInALongRun) {
    expect_same_bits({.runs = 10, .updates = 100, .threads = {1, 3}});
}

}  // namespace
}  // namespace axle
