// Trains a model in a background thread, which the program throttles and cancels.
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include <axle/axle.h>

using axle::Tensor;

namespace {

// [training]
struct Training {
    std::atomic<int> steps = 0;
    std::atomic<double> pause = 0;  // sleep after a step, as a multiple of its duration
    std::exception_ptr error;       // valid after the thread has ended

    void run(const std::stop_token& stop) try {
        const axle::kernels::InlineScope one_thread;  // leaves the thread pool to the program
        axle::manual_seed(1);
        const Tensor x = axle::randn({512, 8});
        const axle::data::TensorDataset rows({{"x", x}, {"y", x.sum({1}, true)}});
        axle::Accelerator accelerator({.cpu = true});
        axle::nn::Mlp net({8, 64, 1});
        axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
        axle::data::DataLoader batches(rows, {.batch_size = 32, .shuffle = true});
        auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
        while (!stop.stop_requested())
            for (auto& batch : loader) {
                const auto start = std::chrono::steady_clock::now();
                accelerator.backward(mse_loss(model(batch["x"]), batch["y"]));
                optimizer.step();
                optimizer.zero_grad();
                ++steps, steps.notify_all();
                if (stop.stop_requested()) break;
                std::this_thread::sleep_for((std::chrono::steady_clock::now() - start) *
                                            pause.load());
            }
        accelerator.save_model(model, "cancelled");
    } catch (...) {
        error = std::current_exception();  // an exception that leaves a thread ends the program
    }
};
// [/training]

}  // namespace

int main() {
    // [program]
    Training training;
    std::jthread thread([&](const std::stop_token& stop) { training.run(stop); });
    const auto wait_for_step = [&](int step) {
        for (int now = training.steps; now < step; now = training.steps) training.steps.wait(now);
    };
    wait_for_step(200);
    training.pause = 3;  // sleeps 3/4 of the time: uses a quarter of one CPU
    wait_for_step(250);
    thread.request_stop();
    thread.join();
    if (training.error) std::rethrow_exception(training.error);
    // [/program]

    axle::nn::Mlp model({8, 64, 1});
    axle::accel::load_checkpoint_in_model(model, "cancelled");
    const axle::NoGrad no_grad;
    const Tensor x = axle::randn({256, 8});
    return mse_loss(model(x), x.sum({1}, true)).item() < 0.5 ? 0 : 1;
}
