// Usage: bench_parallel_step [--parallel none|tensor|allgather|alltoall] [--threads N] [--steps N]
//
// Measures training steps of a Llama with grouped-query attention on the processes that axle launch
// has started. The processes divide the model's tensors (tensor) or the sequences of a batch
// (allgather or alltoall, as in Accelerate's cp_comm_strategy). All processes train on the same
// batch, so each choice gives the losses of one process (none), except for rounding errors. Prints
// one line of JSON with the first losses, the median time of a step and the peak memory.
// bench/peers/parallel_step.py runs the same steps in PyTorch, and bench/peers/compare runs the two
// programs in turn.
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/hashed.h"
#include "bench/time_steps.h"
#include "core/ops.h"
#include "dist/parallel/data_parallel.h"
#include "dist/sequence/context_parallel.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "kernels/thread_pool.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/clip.h"

namespace axle::bench {
namespace {

constexpr std::int64_t kBatch = 2, kTime = 512;

struct Options {
    std::string parallel = "none";
    int threads = 1, steps = 20;
};

nn::LlamaConfig config() {
    return {.vocab_size = 4096,
            .hidden_size = 256,
            .intermediate_size = 688,
            .num_hidden_layers = 4,
            .num_attention_heads = 8,
            .num_key_value_heads = 4};
}

// Returns the mean over the ranks of a loss that each rank has computed for its tokens.
Tensor mean_over(dist::ProcessGroup& group, const Tensor& loss) {
    const Tensor mean = loss.detach().clone();
    group.all_reduce(mean, dist::ReduceOp::mean);
    return mean;
}

nlohmann::json measure(const Options& options) {
    const std::shared_ptr<dist::ProcessGroup> group = dist::ProcessGroup::create();
    kernels::set_num_threads(options.threads);
    nn::Llama model(config());
    const double bound = 0.02 * std::sqrt(3.0);
    set_hashed_weights(model, [&](const std::string&, const Tensor&) { return bound; });
    const Tensor ids = hashed_ids(kDataKey, {kBatch, kTime}, config().vocab_size);
    const Tensor labels = hashed_ids(kDataKey + 1, {kBatch, kTime}, config().vocab_size);

    std::shared_ptr<dist::ContextParallel> context;
    std::shared_ptr<dist::DataParallel> replicas;  // averages gradients
    if (options.parallel == "tensor") {
        dist::tensor_parallelize(model, group);
    } else if (options.parallel != "none") {
        context = std::make_shared<dist::ContextParallel>(
            group, dist::context_exchange_of(options.parallel));
        replicas = std::make_shared<dist::DataParallel>(model, group);
    } else if (group->size() > 1) {
        throw std::invalid_argument(
            "bench_parallel_step: --parallel none needs one process: the job has " +
            std::to_string(group->size()));
    }

    optim::AdamW optimizer(model.parameters(),
                           {.lr = 1e-4, .betas = {0.9, 0.99}, .weight_decay = 0.1});
    const auto loss_and_gradients = [&] {
        if (!context) {
            const Tensor loss = model.loss(ids, labels);
            loss.backward();
            return loss;
        }
        const dist::ContextParallelScope scope(context, {ids, labels}, {1, 1});
        const Tensor loss = model.loss(ids, labels);
        loss.backward();
        return mean_over(*group, loss);
    };
    const auto step = [&] {
        const Tensor loss = loss_and_gradients();
        optim::clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        optimizer.zero_grad();
        return loss;
    };
    nlohmann::json row = StepTimer(step, 5, options.steps).measure();
    row.update({{"model", "llama"},
                {"parallel", options.parallel},
                {"threads", options.threads},
                {"rank", group->rank()},
                {"processes", group->size()},
                {"tokens_per_s", 1e3 * kBatch * kTime / row["ms_per_step"].get<double>()}});
    return row;
}

Options parse(const std::vector<std::string>& arguments) {
    Options options;
    for (std::size_t i = 0; i < arguments.size(); i += 2) {
        const std::string& name = arguments[i];
        if (i + 1 == arguments.size())
            throw std::invalid_argument("bench_parallel_step: " + name + " needs a value");
        const std::string& value = arguments[i + 1];
        if (name == "--parallel")
            options.parallel = value;
        else if (name == "--threads")
            options.threads = std::stoi(value);
        else if (name == "--steps")
            options.steps = std::stoi(value);
        else
            throw std::invalid_argument(
                "bench_parallel_step: the option must be --parallel, --threads or --steps: " +
                name);
    }
    if (options.steps < 1)
        throw std::invalid_argument("bench_parallel_step: --steps must be positive: " +
                                    std::to_string(options.steps));
    return options;
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    try {
        const auto row = axle::bench::measure(axle::bench::parse({argv + 1, argv + argc}));
        if (row["rank"] == 0) std::cout << row.dump() << '\n';
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
