// Trains inside a program that has its own logger and a limit for Axle's memory.
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;

namespace {

// [logger]
class HostLog {
  public:
    void write(axle::LogLevel level, std::string_view text) {
        const std::lock_guard lock(mutex_);  // several threads of Axle can log at the same time
        lines_.push_back(axle::str(level >= axle::LogLevel::warning ? "[!] " : "[ ] ", text));
    }
    std::vector<std::string> lines() const {
        const std::lock_guard lock(mutex_);
        return lines_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::string> lines_;
};
// [/logger]

}  // namespace

int main() {
    HostLog log;
    constexpr std::int64_t kLimit = 64 << 20;
    // [host]
    axle::set_log_sink(
        [&](axle::LogLevel level, std::string_view text) { log.write(level, text); });
    axle::set_error_policy(axle::ErrorPolicy::raise);
    axle::host_memory::set_limit(kLimit);

    axle::manual_seed(1);
    axle::Accelerator accelerator({.cpu = true});
    auto train = axle::accel::find_executable_batch_size(
        [&](int batch_size) {
            axle::log(axle::LogLevel::info, "trying batch size ", batch_size);
            axle::nn::Mlp net({64, 512, 1});
            axle::optim::AdamW adamw(net.parameters());
            auto [model, optimizer] = accelerator.prepare(net, adamw);
            const Tensor x = axle::randn({batch_size, 64});
            double loss = 0;
            for (int step = 0; step < 5; ++step) {
                const Tensor y = mse_loss(model(x), x.sum({1}, true));
                accelerator.backward(y);
                optimizer.step();
                optimizer.zero_grad();
                loss = y.item();
            }
            return loss;
        },
        32768);
    const double loss = train();
    // [/host]
    axle::set_log_sink({});  // the sink refers to `log`
    for (const std::string& line : log.lines()) std::cout << line << '\n';
    const auto memory = axle::host_memory::stats();
    std::cout << "batch size " << train.batch_size() << ", loss " << loss << ", " << memory.reserved
              << " bytes\n";
    return train.batch_size() < 32768 && train.batch_size() > 1000 && !log.lines().empty() &&
                   memory.reserved <= kLimit
               ? 0
               : 1;
}
