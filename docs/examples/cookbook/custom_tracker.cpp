// Sends metrics to a custom tracker, which continues after a checkpoint is loaded.
#include <filesystem>
#include <iostream>
#include <map>

#include <axle/axle.h>

using axle::Tensor;
using axle::Tree;

namespace {

// [tracker]
// Keeps the values of each metric for a chart.
class Chart : public axle::accel::Tracker {
  public:
    std::string name() const override { return "chart"; }
    void store_init_configuration(const Tree& config) override {
        title = axle::to_json(config, -1);
    }
    void log(const Tree& values, std::optional<std::int64_t> step, const Tree&) override {
        for (const auto& [tag, value] : axle::accel::flattened(values))
            if (value.is_number()) lines[tag][step.value_or(0)] = value.number();
    }
    void resume(std::optional<std::int64_t> step) override {
        for (auto& [tag, line] : lines)
            if (step) line.erase(line.lower_bound(*step), line.end());
    }

    std::string title;
    std::map<std::string, std::map<std::int64_t, double>> lines;
};
// [/tracker]

// Runs the updates `first` to `until` - 1. Loads the checkpoint `resume` first, unless it is "".
void train(const std::shared_ptr<Chart>& chart, int first, int until, const std::string& resume) {
    // [use]
    axle::Accelerator accelerator({.log_with = {chart, "csv"}, .project_dir = "run"});
    axle::nn::Linear linear(4, 1);
    axle::optim::SGD sgd(linear.parameters(), {.lr = 0.05});
    auto [model, optimizer] = accelerator.prepare(linear, sgd);
    accelerator.init_trackers("fit", {{"lr", 0.05}});
    if (!resume.empty()) accelerator.load_state(resume);
    for (int step = first; step < until; ++step) {
        if (step == 10) accelerator.save_state("run/step_10");
        const Tensor x = axle::randn({32, 4}, {.device = accelerator.device()});
        const Tensor loss = mse_loss(model(x), x.sum({1}, true));
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        accelerator.log({{"loss", loss}, {"norms", {{"weight", model.weight.abs().max()}}}}, step);
    }
    accelerator.end_training();
    // [/use]
}

}  // namespace

int main() {
    std::filesystem::remove_all("run");
    axle::manual_seed(1);
    const auto chart = std::make_shared<Chart>();
    train(chart, 0, 15, "");
    train(chart, 10, 13, "run/step_10");
    const auto& losses = chart->lines["loss"];
    std::cout << chart->title << ": " << losses.size() << " losses, the last "
              << losses.rbegin()->second << '\n';
    return losses.size() == 13 && losses.at(12) < losses.at(0) &&
                   chart->lines.contains("norms/weight")
               ? 0
               : 1;
}
