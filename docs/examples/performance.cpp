// Measures the time of a training step, and profiles a few steps.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include <axle/axle.h>
#include <axle/core/profiler/profiler.h>

using axle::Tensor;

int main() {
    std::filesystem::remove_all("profile");
    axle::manual_seed(1);
    const Tensor x = axle::randn({1024, 64});
    const axle::data::TensorDataset rows({{"x", x}, {"y", x.sum({1}, true)}});
    axle::Accelerator accelerator;
    axle::nn::Mlp net({64, 256, 1});
    axle::optim::AdamW adamw(net.parameters());
    axle::data::DataLoader batches(rows, {.batch_size = 32, .shuffle = true});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);

    // [measure]
    using Clock = std::chrono::steady_clock;
    std::vector<double> milliseconds;
    auto last = Clock::now();
    for (auto& batch : loader) {
        const Tensor loss = mse_loss(model(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        loss.item();  // waits for a GPU
        const auto now = Clock::now();
        milliseconds.push_back(std::chrono::duration<double, std::milli>(now - last).count());
        last = now;
    }
    // Leaves out the first steps and prints the median of the remaining steps.
    milliseconds.erase(milliseconds.begin(), milliseconds.begin() + 5);
    std::ranges::sort(milliseconds);
    accelerator.print(milliseconds[milliseconds.size() / 2], " ms per step");
    // [/measure]

    // [profile]
    auto profile = accelerator.profile({
        .schedule_option = axle::accel::ProfileSchedule{.wait = 2, .warmup = 1, .active = 5},
        .on_trace_ready =
            [&](axle::accel::ProfileSession& session) {
                accelerator.print(axle::profiler::table(session.key_averages(), {.row_limit = 10}));
            },
        .output_trace_dir = "profile",  // profile_0.json, for chrome://tracing or Perfetto
    });
    for (auto& batch : loader) {
        accelerator.backward(mse_loss(model(batch["x"]), batch["y"]));
        optimizer.step();
        optimizer.zero_grad();
        profile.step();
        if (profile.step_num() == 8) break;
    }
    profile.stop();
    // [/profile]
    return milliseconds.front() > 0 && std::filesystem::exists("profile/profile_0.json") ? 0 : 1;
}
