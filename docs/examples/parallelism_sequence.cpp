// Trains a GPT whose sequences are divided between two processes: with context parallelism, with
// packed documents, and with Ulysses.
// Covers 3.maybe_context_parallel, 3.deepspeed_ulysses_dl_adapter.
#include <cmath>
#include <cstdlib>
#include <string>

#include <axle/axle.h>
#include <axle/dist/sequence/ulysses.h>

using axle::Tensor;

namespace {

axle::nn::Gpt make_gpt() {
    axle::manual_seed(1);
    return axle::nn::Gpt(
        {.vocab_size = 64, .block_size = 32, .n_layer = 2, .n_head = 4, .n_embd = 32});
}

// Returns texts; labels[t] is the token after input_ids[t].
axle::data::TensorDataset texts() {
    const Tensor ids = axle::randint(0, 64, {64, 33});
    return axle::data::TensorDataset({{"input_ids", ids.narrow(1, 0, 32).contiguous()},
                                      {"labels", ids.narrow(1, 1, 32).contiguous()}});
}

void train_with_context(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 4});
    // [context]
    axle::Accelerator accelerator({
        .fsdp_plugin = {{.fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"}},
        .parallelism_config = axle::accel::ParallelismConfig{.cp_size = 2},
    });
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    for (auto& batch : loader) {
        const Tensor ids = batch["input_ids"], labels = batch["labels"];
        auto scope = accelerator.maybe_context_parallel({ids, labels}, {1, 1}, {ids, labels});
        accelerator.backward(model.loss(ids, labels));  // ids and labels are [4, 16] here
        optimizer.step();
        optimizer.zero_grad();
    }
    // [/context]
}

// Returns sequences of two documents with 20 and 12 tokens.
axle::data::TensorDataset packed_texts() {
    const Tensor ids = axle::randint(0, 64, {64, 33});
    const Tensor positions = axle::cat({axle::arange(20), axle::arange(12)}).unsqueeze(0);
    Tensor labels = ids.narrow(1, 1, 32).contiguous();
    labels.select(1, 19).fill_(-100);
    return axle::data::TensorDataset({{"input_ids", ids.narrow(1, 0, 32).contiguous()},
                                      {"labels", labels},
                                      {"position_ids", expand(positions, {64, 32}).contiguous()}});
}

void train_with_packed_documents(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = packed_texts();
    axle::data::DataLoader batches(data, {.batch_size = 4});
    axle::Accelerator accelerator({
        .fsdp_plugin = {{.fsdp_version = 2, .auto_wrap_policy = "TRANSFORMER_BASED_WRAP"}},
        .parallelism_config = axle::accel::ParallelismConfig{.cp_size = 2},
    });
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    // [packed]
    for (auto& batch : loader) {
        const Tensor ids = batch["input_ids"], labels = batch["labels"];
        const Tensor positions = batch["position_ids"];  // for example 0 to 19 and 0 to 11
        auto scope = accelerator.maybe_context_parallel({ids, labels, positions}, {1, 1, 1});
        accelerator.backward(model.loss(ids, labels, positions));
        optimizer.step();
        optimizer.zero_grad();
    }
    // [/packed]
}

void train_with_ulysses(const std::string&) {
    axle::nn::Gpt gpt = make_gpt();
    axle::optim::AdamW adamw(gpt.parameters(), {.lr = 1e-3});
    const auto data = texts();
    axle::data::DataLoader batches(data, {.batch_size = 4});
    // [ulysses]
    axle::Accelerator accelerator(
        {.parallelism_config = axle::accel::ParallelismConfig{.sp_size = 2}});
    auto [model, optimizer, loader] = accelerator.prepare(gpt, adamw, batches);
    accelerator.deepspeed_ulysses_dl_adapter(loader, model);
    const auto group = accelerator.torch_device_mesh()->get_group("sp");
    for (auto& batch : loader) {
        const Tensor labels = batch["labels"], tokens = ne(labels, -100).sum();
        const Tensor loss =
            axle::dist::mean_over_tokens(model.loss(batch["input_ids"], labels), tokens, group);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        if (!std::isfinite(loss.item())) std::exit(1);
    }
    // [/ulysses]
}

}  // namespace

int main() {
    axle::dist::launch({.num_processes = 2}, train_with_context, "");
    axle::dist::launch({.num_processes = 2}, train_with_packed_documents, "");
    axle::dist::launch({.num_processes = 2}, train_with_ulysses, "");
}
