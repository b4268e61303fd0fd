// Shards loaders over processes, resumes a run on fewer processes, and makes batches of texts.
#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset numbers(std::int64_t n) {
    return axle::data::TensorDataset({{"x", axle::arange(n)}});
}

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

void share() {
    const auto train_set = numbers(22);
    axle::Accelerator accelerator;
    std::int64_t rows = 0;
    // [share]
    axle::data::DataLoader train_loader(train_set,
                                        {.batch_size = 4, .shuffle = true, .num_workers = 2});
    auto& loader = accelerator.prepare(train_loader);
    for (auto& batch : loader) rows += accelerator.valid_rows(batch["x"].tensor().size(0));
    // [/share]
    check(accelerator.reduce(axle::full({}, rows)).item() == 22);
}

// [functions]
std::pair<axle::data::DataLoader, axle::data::DataLoader> make_loaders() {
    axle::data::TensorDataset train({{"x", axle::ones({8, 4})}, {"y", axle::zeros({8})}});
    axle::data::TensorDataset test({{"x", axle::ones({6, 4})}, {"y", axle::zeros({6})}});
    return {axle::data::DataLoader(std::move(train), {.batch_size = 4, .shuffle = true}),
            axle::data::DataLoader(std::move(test), {.batch_size = 3})};
}
// [/functions]

void bind_names() {
    axle::Accelerator accelerator;
    std::int64_t rows = 0;
    // [names]
    auto [train_loader, test_loader] = make_loaders();
    accelerator.prepare(train_loader, test_loader);
    for (auto& [x, y] : train_loader) {
        check(x.size(0) == y.size(0));
        rows += x.size(0);
    }
    // [/names]
    check(rows == 8 && test_loader.len() == 2);
}

void batches_of_texts() {
    std::int64_t rows = 0;
    const axle::data::FunctionDataset texts(50, [](std::int64_t i) {
        return axle::Tree{{"input_ids", axle::arange(1 + i % 20)},
                          {"labels", axle::arange(1 + i % 20)}};
    });
    // [texts]
    auto parts = axle::data::random_split(texts, {0.8, 0.2}, 42);  // the seed is 42
    const axle::data::Subset& train_set = parts[0];
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < train_set.size(); ++i)
        lengths.push_back(train_set.get(i)["input_ids"].size(0));
    axle::data::DataLoader train_loader(
        train_set,
        {.batch_sampler = std::make_shared<axle::data::TokenBatchSampler>(lengths, 64),
         .collate_fn = axle::data::padding_collate({.padding_values = {{"labels", -100}}})});
    for (auto& batch : train_loader) {
        check(batch["input_ids"].numel() <= 64);
        rows += batch["labels"].size(0);
    }
    // [/texts]
    check(rows == 40 && parts[1].size() == 10);
}

void run(std::int64_t batch_size, bool resumes) {
    const auto train_set = numbers(32 * 320);
    axle::Accelerator accelerator;
    axle::data::DataLoader loader(train_set, {.batch_size = batch_size});
    accelerator.prepare(loader);
    std::int64_t step = resumes ? 300 : 0;
    const auto train = [&](axle::Tree& batch) {
        check(accelerator.gather(batch)["x"].tensor().min().item() == 32 * step++);
    };
    // [resume]
    // The resumed run has 2 processes with batch_size = 16.
    if (resumes) accelerator.load_state("run/step_300");
    for (auto& batch : loader) {
        train(batch);
        // The first run has 4 processes with batch_size = 8.
        if (loader.position() == 300) accelerator.save_state("run/step_300");
    }
    // [/resume]
    check(step == 320);
}

void mesh_of_four() {
    // [mesh]
    using Dimensions = std::vector<axle::dist::DeviceMesh::Dimension>;
    const auto group = axle::dist::ProcessGroup::create();
    const auto mesh =
        std::make_shared<axle::dist::DeviceMesh>(group, Dimensions{{"dp_replicate", 2}, {"tp", 2}});
    axle::Accelerator accelerator({
        .process_group = group,
        .device_mesh = mesh,  // two processes along "tp" get the same batches
    });
    // [/mesh]
    const auto dataset = numbers(8);
    axle::data::DataLoader loader(dataset, {.batch_size = 2});
    accelerator.prepare(loader);
    const auto first = (*loader.begin())["x"].tensor()[0].item();
    check(first == 2 * mesh->coordinate("dp_replicate"));
}

}  // namespace

int main() {
    using axle::dist::debug_launch;
    debug_launch([] { share(); }, 2);
    bind_names();
    batches_of_texts();
    debug_launch([] { run(8, false); }, 4);
    debug_launch([] { run(16, true); }, 2);
    debug_launch([] { mesh_of_four(); }, 4);
}
