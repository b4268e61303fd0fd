// Runs an evaluation and collectives in two processes.
#include <cstdlib>

#include <axle/axle.h>

using axle::Tensor;

namespace {

axle::data::TensorDataset images(std::int64_t n) {
    const Tensor image = axle::randn({n, 10});
    return axle::data::TensorDataset({{"image", image}, {"label", argmax(image, 1)}});
}

void evaluate() {
    axle::manual_seed(1);
    const auto test_set = images(25);
    axle::data::DataLoader test(test_set, {.batch_size = 4});
    axle::Accelerator accelerator;
    axle::nn::Linear model(10, 10);
    accelerator.prepare(model);
    // [evaluate]
    const axle::NoGrad no_grad;
    model.eval();
    axle::accel::Mean loss(accelerator);
    axle::accel::Accuracy accuracy(accelerator, {.top_k = 5});
    for (auto& batch : accelerator.prepare(test)) {
        const Tensor logits = model(batch["image"]);
        loss.update(cross_entropy(logits, batch["label"], {.reduction = axle::Reduction::none}));
        accuracy.update(logits, batch["label"]);
    }
    accelerator.print(loss.compute(), ' ', accuracy.compute());
    // [/evaluate]
}

void communicate() {
    Tensor gradient = axle::ones({4}), bucket = axle::ones({8});
    // [group]
    auto group = axle::dist::ProcessGroup::create();
    group->all_reduce(gradient, axle::dist::ReduceOp::mean);
    auto work = group->all_reduce_async(bucket);  // returns before the reduction ends
    work.wait();
    // [/group]
    if (bucket.sum().item() != 8 * group->size()) std::exit(1);
}

void train(const std::string& data) {
    if (data == "communicate") return communicate();
    evaluate();
}

}  // namespace

int main() {
    for (const std::string path : {"communicate", "evaluate"}) {
        // [launch]
        axle::dist::launch(
            {.num_processes = 2}, [](const std::string& data) { train(data); }, path);
        // [/launch]
    }
}
