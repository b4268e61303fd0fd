// Saves a run, loads it, and checks that it resumes with the same bits.
#include <filesystem>

#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset samples(std::int64_t n) {
    const Tensor x = axle::randn({n, 4});
    return axle::data::TensorDataset({{"x", x}, {"y", x.sum({1}, true)}});
}

// [progress]
struct Progress : axle::accel::Checkpointable {
    std::int64_t updates = 0;

    axle::Tree state_dict() const override { return {{"updates", updates}}; }
    void load_state_dict(const axle::Tree& state) override { updates = state["updates"].integer(); }
};
// [/progress]

// Trains until the end of the third pass. Loads the checkpoint `resume` first, unless it is "".
Tensor train(const axle::data::Dataset& dataset, const std::string& resume) {
    // [save]
    axle::Accelerator accelerator;
    axle::nn::Linear linear(4, 1);
    axle::optim::AdamW adamw(linear.parameters(), {.lr = 1e-2});
    axle::data::DataLoader batches(dataset, {.batch_size = 4, .shuffle = true, .seed = 5});
    auto [model, optimizer, loader] = accelerator.prepare(linear, adamw, batches);
    Progress progress;
    accelerator.register_for_checkpointing(progress);

    if (!resume.empty()) accelerator.load_state(resume);
    while (loader.epoch() < 3)
        for (auto& batch : loader) {
            accelerator.backward(mse_loss(model(batch["x"]), batch["y"]));
            optimizer.step();
            optimizer.zero_grad();
            if (++progress.updates == 10) accelerator.save_state("run/step_10");
        }
    // [/save]
    // [model]
    accelerator.wait_for_everyone();
    accelerator.save_model(model, "run/model", {.max_shard_size = "5GB"});
    // [/model]
    return progress.updates == 24 ? linear.weight.detach() : Tensor();
}

// Checks that with automatic names two checkpoints are kept and the newest checkpoint is loaded.
bool by_number() {
    axle::nn::Linear linear(4, 1);
    // [naming]
    axle::Accelerator accelerator({.project_config = {.project_dir = "run/numbered",
                                                      .automatic_checkpoint_naming = true,
                                                      .total_limit = 2}});
    accelerator.prepare(linear);
    for (int i = 0; i < 3; ++i) accelerator.save_state();  // writes checkpoint_0, _1 and _2
    const std::string newest = accelerator.load_state();
    // [/naming]
    namespace fs = std::filesystem;
    return newest.ends_with("checkpoints/checkpoint_2") &&
           !fs::exists("run/numbered/checkpoints/checkpoint_0") &&
           fs::exists("run/numbered/checkpoints/checkpoint_1");
}

}  // namespace

int main() {
    std::filesystem::remove_all("run/numbered");
    if (!by_number()) return 1;
    axle::manual_seed(1);
    const auto dataset = samples(32);
    const Tensor whole = train(dataset, ""), resumed = train(dataset, "run/step_10");
    // [weights]
    axle::nn::Linear again(4, 1);
    axle::accel::load_checkpoint_in_model(again, "run/model");
    // [/weights]
    return (whole - resumed).abs().max().item() == 0 &&
                   (whole - again.weight).abs().max().item() == 0
               ? 0
               : 1;
}
