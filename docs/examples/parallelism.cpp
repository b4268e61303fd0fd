// Trains a GPT whose weights are divided between two processes, and continues on one process. Also
// divides a custom module by its own plan, divides the experts of a mixture, and draws a mesh.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <axle/axle.h>
#include <axle/dist/group/mesh_drawing.h>

using axle::Tensor;

namespace {

axle::nn::Gpt make_gpt() {
    axle::manual_seed(1);
    return axle::nn::Gpt(
        {.vocab_size = 65, .block_size = 16, .n_layer = 2, .n_head = 4, .n_embd = 32});
}

axle::data::TensorDataset texts() {
    const Tensor ids = axle::randint(0, 65, {32, 17});
    return axle::data::TensorDataset({{"ids", ids.narrow(1, 0, 16).contiguous()},
                                      {"labels", ids.narrow(1, 1, 16).contiguous()}});
}

void train(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 4, .shuffle = true});
    // [tensor]
    axle::Accelerator accelerator(
        {.parallelism_config = {{.tp_size = 2, .tp_handler = {{.sequence_parallel = true}}}}});
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    for (auto& batch : loader) {
        accelerator.backward(model.loss(batch["ids"], batch["labels"]));
        accelerator.clip_grad_norm_(model.parameters(), 1.0);
        optimizer.step();
        optimizer.zero_grad();
    }
    accelerator.save_state("checkpoint");
    // [/tensor]
}

// A feed-forward network. train_net() divides it by a plan of its own.
struct Net : axle::nn::Model<Net> {
    Net() : up(8, 32), down(32, 8) {}
    Tensor forward(const Tensor& x) { return down(up(x, axle::Activation::relu)); }
    void visit(axle::nn::Visitor& v) override { v("up", up), v("down", down); }
    axle::nn::Linear up, down;
};

void train_net(const std::string&) {
    // [plan]
    Net net;
    auto group = axle::dist::ProcessGroup::create();
    axle::dist::tensor_parallelize(net, group, {.plan = {{"up", "colwise"}, {"down", "rowwise"}}});
    axle::optim::SGD sgd(net.parameters(), {.lr = 0.1});
    Tensor x = axle::ones({2, 8});  // equal on all ranks
    net(x).sum().backward();
    sgd.step();
    axle::nn::StateDict whole = axle::dist::full_state_dict(net);  // has tensors only on rank 0
    // [/plan]
    if (group->rank() == 0 && whole.size() != 4) std::exit(1);
}

// A network whose experts are divided among processes.
struct SparseNet : axle::nn::Model<SparseNet> {
    SparseNet() : block(8, 16), out(8, 2) {}
    Tensor forward(const Tensor& x) { return out(block(x)); }
    void visit(axle::nn::Visitor& v) override { v("block", block), v("out", out); }
    axle::nn::MixtureOfExperts block;
    axle::nn::Linear out;
};

void train_experts(const std::string&) {
    const Tensor x = axle::randn({32, 8});  // different on each rank
    // [experts]
    SparseNet net;  // has an nn::MixtureOfExperts, `block`, with 8 experts
    auto group = axle::dist::ProcessGroup::create();
    axle::dist::expert_parallelize(net, group);
    axle::Accelerator accelerator({.process_group = group});
    axle::optim::AdamW adamw(net.parameters());
    accelerator.prepare(net, adamw);
    Tensor y = net(x);  // auxiliary_loss() refers to the last call
    accelerator.backward(y.pow(2).mean() + 0.01 * net.block.auxiliary_loss());
    adamw.step();
    // [/experts]
    if (net.block.experts.up.size(0) != 4) std::exit(1);
}

}  // namespace

int main() {
    axle::dist::launch({.num_processes = 2}, train, "");
    axle::dist::launch({.num_processes = 2}, train_net, "");
    axle::dist::launch({.num_processes = 2}, train_experts, "");
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters());
    // [resume]
    axle::Accelerator accelerator;  // one process
    accelerator.prepare(gpt, adamw);
    accelerator.load_state("checkpoint");
    // [/resume]
    // [mesh]
    std::ofstream("parallelism_mesh.svg")
        << axle::dist::draw_mesh({{"dp_replicate", 2}, {"dp_shard", 2}, {"tp", 2}});
    // [/mesh]
    return std::filesystem::exists("checkpoint/model.safetensors") ? 0 : 1;
}
