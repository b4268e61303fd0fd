#include "tools/axle/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/cuda.h"
#include "core/ops.h"
#include "core/random.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "dist/process_group.h"
#include "kernels/error.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "optim/sgd.h"
#include "tools/axle/cluster_config.h"
#include "tools/axle/commands.h"
#include "tools/axle/options.h"

namespace axle::launcher {
namespace {

void check(bool holds, const std::string& what) {
    if (!holds) throw Error("test: " + what);
}

std::vector<double> numbers(const Tensor& x) {
    std::vector<double> values;
    const Tensor flat = x.detach().to(Device::cpu()).to(f64).contiguous().view({x.numel()});
    for (std::int64_t i = 0; i < flat.numel(); ++i) values.push_back(flat.select(0, i).item());
    return values;
}

void check_is(const Tensor& x, const std::vector<double>& expected, const std::string& what) {
    check(numbers(x) == expected, what + " gave other values than it should");
}

// Rank r has r + 1 in each element: sums are of 1 to P.
void check_collectives(dist::ProcessGroup& group, Device device) {
    const int size = group.size(), rank = group.rank();
    const double sum = size * (size + 1) / 2.0;
    const auto mine = [&] {
        return full({3}, static_cast<double>(rank + 1), {.dtype = f32, .device = device});
    };
    const auto reduced = [&](dist::ReduceOp op) {
        const Tensor x = mine();
        group.all_reduce(x, op);
        return x;
    };
    check_is(reduced(dist::ReduceOp::sum), {sum, sum, sum}, "all_reduce(sum)");
    check_is(reduced(dist::ReduceOp::max), std::vector<double>(3, size), "all_reduce(max)");
    check_is(reduced(dist::ReduceOp::mean), std::vector<double>(3, sum / size), "all_reduce(mean)");

    const Tensor last = mine();
    group.broadcast(last, size - 1);
    check_is(last, std::vector<double>(3, size), "broadcast");

    std::vector<double> everybody;
    for (int r = 0; r < size; ++r) everybody.insert(everybody.end(), 3, r + 1);
    check_is(group.all_gather(mine()), everybody, "all_gather");

    const Tensor parts = full({size, 2}, static_cast<double>(rank + 1), {.device = device});
    check_is(group.reduce_scatter(parts), {sum, sum}, "reduce_scatter");

    const std::vector<Tree> objects = group.all_gather_object(Tree{{"rank", rank}});
    check(static_cast<int>(objects.size()) == size, "all_gather_object gave too few");
    for (int r = 0; r < size; ++r)
        check(objects[static_cast<std::size_t>(r)]["rank"].integer() == r,
              "all_gather_object mixed up the ranks");
    group.barrier();
}

// Every index comes on some process, none on two, and all processes have as many batches.
void check_shares(Accelerator& accelerator) {
    const std::int64_t batch = 4, batches = 3;
    const std::int64_t size = batch * batches * accelerator.num_processes();
    data::DataLoader loader(data::from_function(size,
                                                [](std::int64_t i) {
                                                    return Tree{{"index", i}};
                                                }),
                            {.batch_size = batch, .shuffle = true, .seed = 7});
    accelerator.prepare(loader);
    Tree mine = Tree::list();
    std::int64_t count = 0;
    for (auto& part : loader) {
        ++count;
        for (const double index : numbers(part["index"]))
            mine.push_back(static_cast<std::int64_t>(index));
    }
    check(count == batches, str("a process got ", count, " batches of ", batches));
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (const Tree& share : accelerator.state().process_group()->all_gather_object(mine))
        for (const Tree& index : share.elements()) {
            const auto i = static_cast<std::size_t>(index.integer());
            check(!seen[i], str("sample ", i, " came twice"));
            seen[i] = true;
        }
    check(std::find(seen.begin(), seen.end(), false) == seen.end(), "a sample came nowhere");
}

struct Net : nn::Model<Net> {
    nn::Linear hidden{4, 16}, out{16, 1};
    Tensor forward(const Tensor& x) { return out(tanh(hidden(x))); }
    void visit(nn::Visitor& v) override { v("hidden", hidden), v("out", out); }
};

constexpr std::int64_t kSteps = 10, kBatch = 4;

data::TensorDataset samples(std::int64_t n) {
    std::vector<double> x, y;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < 4; ++j) x.push_back(std::sin(static_cast<double>(i * 4 + j)));
        y.push_back(std::cos(static_cast<double>(i)));
    }
    return data::TensorDataset(Tree{{"x", tensor(x, {n, 4})}, {"y", tensor(y, {n, 1})}});
}

template <class Backward>
void train(Net& net, optim::SGD& optimizer, data::DataLoader& loader, Backward&& backward) {
    for (auto& batch : loader) {
        backward(mse_loss(net(batch["x"]), batch["y"]));
        optimizer.step();
        optimizer.zero_grad();
    }
}

std::vector<double> weights(const Net& net) {
    std::vector<double> all;
    for (const Tensor& parameter : net.parameters())
        for (const double value : numbers(parameter)) all.push_back(value);
    return all;
}

// The same ten steps, each process with its part of each batch and alone with whole batches.
void check_training(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes();
    const optim::SGDOptions options = {.lr = 0.1, .momentum = 0.9};
    const auto dataset = samples(kSteps * kBatch * processes);

    manual_seed(3);
    Net alone;
    optim::SGD alone_optimizer(alone.parameters(), options);
    data::DataLoader whole(dataset, {.batch_size = kBatch * processes});
    train(alone, alone_optimizer, whole, [](const Tensor& loss) { loss.backward(); });

    // Other weights at first where the rank isn't 0: preparing gives everybody the same.
    manual_seed(3 + static_cast<std::uint64_t>(accelerator.process_index()));
    Net net;
    optim::SGD optimizer(net.parameters(), options);
    data::DataLoader loader(dataset, {.batch_size = kBatch});
    accelerator.prepare(net, optimizer, loader);
    train(net, optimizer, loader, [&](const Tensor& loss) { accelerator.backward(loss); });

    const std::vector<double> expected = weights(alone), got = weights(net);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        worst = std::max(worst, std::abs(expected[i] - got[i]));
    check(worst < 1e-4, str("weights differ by ", worst, " from those of one process"));

    Tree mine = Tree::list();
    for (const double value : got) mine.push_back(value);
    for (const Tree& other : accelerator.state().process_group()->all_gather_object(mine))
        for (std::size_t i = 0; i < got.size(); ++i)
            check(other[i].number() == got[i], "processes have different weights");
}

int run_worker() {
    Accelerator accelerator({.mixed_precision = "no"});
    accelerator.print("Testing ", accelerator.num_processes(), " process(es), ",
                      accelerator.state().process_group()->backend(), ", on ",
                      accelerator.device());
    run_self_test(accelerator, [&](const std::string& what) { accelerator.print("  ", what); });
    return 0;
}

// Where nobody has said how to launch: every GPU, or two processes on the CPU.
std::vector<std::string> usual_launch() {
    const int gpus = cuda::device_count();
    if (gpus < 2) return {"--cpu", "--num_processes", "2"};
    return {"--multi_gpu", "--num_processes", str(gpus)};
}

}  // namespace

void run_self_test(Accelerator& accelerator,
                   const std::function<void(const std::string& what)>& passed) {
    const auto& group = accelerator.state().process_group();
    check_collectives(*group, accelerator.device());
    group->barrier();
    passed("collectives: right");
    check_shares(accelerator);
    group->barrier();
    passed("shares of the data: whole and disjoint");
    check_training(accelerator);
    group->barrier();
    passed("training: as on one process");
}

int run_test(std::vector<std::string> arguments) {
    CLI::App app(
        "Checks that training on several processes works here, as `axle launch` would start it: "
        "collectives, shares of the data, and that a model comes out as from one process.",
        "axle test");
    std::string config;
    int processes = 0;
    bool cpu = false, worker = false;
    app.add_option("--config_file", config, "The configuration of the launch to test");
    app.add_option("--num_processes", processes,
                   "Instead: so many processes; by default one for each GPU, or two")
        ->check(CLI::PositiveNumber);
    app.add_flag("--cpu", cpu, "On the CPU even where there is a GPU");
    app.add_flag("--worker", worker)->group("");
    if (!parse_options(app, std::move(arguments))) return 0;
    if (worker) return run_worker();

    std::vector<std::string> launch;
    if (!config.empty()) launch = {"--config_file", config};
    if (cpu) launch.emplace_back("--cpu");
    if (processes > 0) launch.insert(launch.end(), {"--num_processes", str(processes)});
    if (launch.empty() && !std::filesystem::exists(default_config_path())) launch = usual_launch();
    std::error_code ignored;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
    launch.insert(launch.end(), {"--quiet", program, "test", "--worker"});
    const int code = run_launch(std::move(launch));
    if (code == 0)
        std::cout << "The test has passed: this machine is ready for training on several "
                     "processes.\n";
    else
        std::cerr << "axle: the test has failed\n";
    return code;
}

}  // namespace axle::launcher
