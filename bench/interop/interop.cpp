// The program that bench/interop/check calls: writes files for other programs, reads their files,
// and trains. Each call runs one command. Commands that read files or train print JSON.
//
// Tensors in files have known values: byte i is 7 i + 3 (mod 256), or (i + 1) mod 2 for bools.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/state/save_model.h"
#include "accel/tracking/tensorboard.h"
#include "bench/interop/interop_bytes.h"
#include "bench/interop/interop_sentences.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/files/torch_file.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/version.h"
#include "data/files/npy.h"
#include "nn/files/weight_files.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "optim/sgd.h"
#include "optim/state_file.h"

namespace axle::bench {
namespace {

using Arguments = std::vector<std::string>;

void answer(const Tree& tree) { std::puts(to_json(tree, -1).c_str()); }

// --- tensors in files

// Returns three tensors of a dtype, named such as "float32", "float32/scalar" and "float32/empty".
NamedTensors tensors_of(DType dtype) {
    const std::string name(name_of(dtype));
    return {{name, patterned({2, 3}, dtype)},
            {name + "/scalar", patterned({}, dtype)},
            {name + "/empty", patterned({3, 0}, dtype)}};
}

void write_safetensors(const Arguments& args) {
    NamedTensors tensors;
    for (const DType dtype : kAllDTypes)
        for (auto& named : tensors_of(dtype)) tensors.push_back(std::move(named));
    save_safetensors(args.at(0), tensors, {{"format", "pt"}, {"note", "\"é\"\n"}});
}

void read_safetensors(const Arguments& args) {
    Tree tensors = Tree::map(), metadata = Tree::map();
    const Safetensors file = load_safetensors(args.at(0));
    for (const auto& [name, tensor] : file.tensors) tensors.set(name, described(tensor));
    for (const auto& [key, value] : file.metadata) metadata.set(key, value);
    answer({{"tensors", tensors}, {"metadata", metadata}});
}

bool numpy_has(DType dtype) {
    return dtype != bf16 && dtype != DType::f8_e4m3 && dtype != DType::f8_e5m2 &&
           dtype != DType::f8_e8m0;
}

void write_npy(const Arguments& args) {
    create_directories(args.at(0));
    for (const DType dtype : kAllDTypes) {
        if (!numpy_has(dtype)) continue;
        for (const auto& [name, tensor] : tensors_of(dtype)) {
            std::string file = name;
            if (const auto slash = file.find('/'); slash != std::string::npos) file[slash] = '.';
            data::save_npy(args[0] + "/" + file + ".npy", tensor);
        }
    }
}

void read_npy(const Arguments& files) {
    Tree tensors = Tree::list();
    for (const std::string& file : files) tensors.push_back(described(data::load_npy(file)));
    answer(tensors);
}

Tree described_all(const Tree& tensors) {
    Tree all = Tree::map();
    for (const auto& [name, tensor] : tensors.entries()) all.set(name, described(tensor));
    return all;
}

void read_torch(const Arguments& args) { answer(described_all(load_torch_file(args.at(0)))); }

// --- weights of a model

struct SmallModel : nn::Model<SmallModel> {
    nn::Linear first{5, 7};
    nn::BatchNorm1d norm{7};
    nn::Linear last{7, 10};
    Tensor forward(const Tensor& x) { return last(norm(first(x))); }
    void visit(nn::Visitor& v) override { v("first", first), v("norm", norm), v("last", last); }
};

void read_weights(const Arguments& args) {
    SmallModel model;
    accel::load_checkpoint_in_model(model, args.at(0), {.strict = true});
    Tree state = Tree::map();
    for (const auto& [name, tensor] : model.state_dict()) state.set(name, tensor);
    answer(described_all(state));
}

// The command weights-write FOLDER SIZE FROM writes the weights in folder FROM to FOLDER, in shards
// of SIZE.
void write_weights(const Arguments& args) {
    SmallModel model;
    accel::load_checkpoint_in_model(model, args.at(2), {.strict = true});
    const bool is_number = args.at(1).find_first_not_of("0123456789") == std::string::npos;
    const nn::ShardSize size = is_number ? nn::ShardSize(std::stoll(args[1])) : args[1];
    accel::Accelerator({.cpu = true}).save_model(model, args.at(0), {.max_shard_size = size});
}

// --- models in folders

// Writes a model with random weights from N(0, 0.3). Norms and biases are random too, so that all
// weights affect the result.
template <class Model, class Config>
void write_model(const Config& config, const std::string& folder, const nn::ShardSize& size) {
    Model model(config);
    const NoGrad no_grad;
    for (Tensor& parameter : model.parameters()) parameter.normal_(0, 0.3);
    model.save_pretrained(folder, {.max_shard_size = size});
}

// The command model-write KIND FOLDER [SIZE] writes a model in shards of SIZE (by default 1GB).
void write_models(const Arguments& args) {
    const nn::ShardSize size = args.size() < 3 ? "1GB" : args[2];
    const std::map<std::string, std::function<void(const std::string&)>> kinds = {
        {"gpt2",
         [&](const std::string& folder) {
             write_model<nn::Gpt>(
                 nn::GptConfig{
                     .vocab_size = 61, .block_size = 16, .n_layer = 2, .n_head = 3, .n_embd = 24},
                 folder, size);
         }},
        {"llama",
         [&](const std::string& folder) {
             nn::LlamaConfig config;
             config.vocab_size = 61;
             config.hidden_size = 24;
             config.intermediate_size = 40;
             config.num_hidden_layers = 2;
             config.num_attention_heads = 4;
             config.num_key_value_heads = 2;
             config.max_position_embeddings = 16;
             write_model<nn::Llama>(config, folder, size);
         }},
        {"bert",
         [&](const std::string& folder) {
             nn::BertConfig config;
             config.vocab_size = 61;
             config.hidden_size = 24;
             config.num_hidden_layers = 2;
             config.num_attention_heads = 3;
             config.intermediate_size = 40;
             config.max_position_embeddings = 16;
             config.labels = {"no", "perhaps", "yes"};
             write_model<nn::BertForSequenceClassification>(config, folder, size);
         }},
    };
    manual_seed(7);
    kinds.at(args.at(0))(args.at(1));
}

// The command model-run KIND FOLDER INPUTS OUTPUT writes to OUTPUT the logits of the tensors "ids"
// and "mask" in INPUTS. GPT-2 does not use the mask.
void run_model(const Arguments& args) {
    const NoGrad no_grad;
    const auto inputs = load_safetensors(args.at(2)).tensors;
    const Tensor &ids = inputs.at("ids"), &mask = inputs.at("mask");
    const auto logits = [&]<class Model>(Model model, auto&&... more) {
        model.eval();
        return model(ids, more...);
    };
    const std::map<std::string, std::function<Tensor(const std::string&)>> kinds = {
        {"gpt2", [&](const std::string& f) { return logits(nn::Gpt::from_pretrained(f)); }},
        {"llama",
         [&](const std::string& f) { return logits(nn::Llama::from_pretrained(f), mask); }},
        {"bert",
         [&](const std::string& f) {
             return logits(nn::BertForSequenceClassification::from_pretrained(f), mask);
         }},
    };
    save_safetensors(args.at(3), NamedTensors{{"logits", kinds.at(args[0])(args[1])}});
}

// --- training

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& kind,
                                                 const std::vector<Tensor>& params) {
    const std::vector<Tensor> weights = {params[0], params[2]}, biases = {params[1], params[3]};
    if (kind == "sgd") {
        const optim::SGDOptions options = {.lr = 0.05, .momentum = 0.9, .nesterov = true};
        return std::make_unique<optim::SGD>(
            std::vector<optim::SGD::Group>{{weights, options}, {biases, options}});
    }
    if (kind == "adam") {
        const optim::AdamOptions options = {.lr = 0.01, .betas = {0.8, 0.9}, .amsgrad = true};
        return std::make_unique<optim::Adam>(
            std::vector<optim::Adam::Group>{{weights, options}, {biases, options}});
    }
    const optim::AdamWOptions options = {.lr = 0.02, .betas = {0.9, 0.95}, .weight_decay = 0.1};
    return std::make_unique<optim::AdamW>(
        std::vector<optim::AdamW::Group>{{weights, options}, {biases, {.lr = 0.03}}});
}

// The command train KIND FROM TO STEP trains ten steps in f64, starting at STEP. It reads
// model.safetensors, data.safetensors and, unless STEP is 0, optimizer.safetensors in folder FROM.
// It writes the model, the data and the optimizer to folder TO and prints the losses.
void train(const Arguments& args) {
    const std::string from = args.at(1) + "/", to = args.at(2) + "/";
    nn::Sequential model{nn::Linear(3, 4), [](const Tensor& x) { return tanh(x); },
                         nn::Linear(4, 2)};
    model.to(f64);
    const auto weights = load_safetensors(from + "model.safetensors").tensors;
    model.load_state_dict({weights.begin(), weights.end()});
    const auto optimizer = make_optimizer(args[0], model.parameters());
    const std::int64_t first = std::stoll(args.at(3));
    if (first > 0) optim::load_state(from + "optimizer.safetensors", *optimizer);
    const auto data = load_safetensors(from + "data.safetensors").tensors;
    Tree losses = Tree::list();
    for (std::int64_t step = first; step < first + 10; ++step) {
        optimizer->zero_grad();
        const Tensor loss = mse_loss(model(data.at("x")[step]), data.at("y")[step]);
        loss.backward();
        optimizer->step();
        losses.push_back(loss.item());
    }
    create_directories(to);
    save_safetensors(to + "model.safetensors", model.state_dict());
    save_safetensors(to + "data.safetensors", data);
    optim::save_state(to + "optimizer.safetensors", *optimizer);
    answer(losses);
}

// The command resume FOLDER STEPS resumes the training of tests/golden/record_accelerate_state.py
// with the state that Accelerate's save_state has written to FOLDER. It prints the losses of STEPS
// micro-batches.
void resume(const Arguments& args) {
    struct Counter : accel::Checkpointable {
        std::int64_t batches = 0;
        Tree state_dict() const override { return Tree{{"batches", batches}}; }
        void load_state_dict(const Tree& state) override { batches = state["batches"].integer(); }
    };
    nn::Sequential net{nn::Linear(3, 4), [](const Tensor& x) { return tanh(x); }, nn::Linear(4, 1)};
    net.to(f64);
    optim::AdamW adamw(net.parameters(), {});
    optim::CosineAnnealingLR cosine(adamw, 20);
    Counter counter;
    accel::Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
    accelerator.prepare(net, adamw, cosine);
    accelerator.register_for_checkpointing(counter);
    accelerator.load_state(args.at(0));
    Tree losses = Tree::list();
    for (std::int64_t left = std::stoll(args.at(1)); left > 0; --left) {
        auto scope = accelerator.accumulate(net);
        std::vector<double> values;
        for (int i = 0; i < 6; ++i)
            values.push_back(std::cos(static_cast<double>(i + counter.batches)));
        const Tensor x = tensor(values, {2, 3}, {.dtype = f64});
        const Tensor loss = mse_loss(net(x), x.sum({1}, true) / 2);
        accelerator.backward(loss);
        adamw.step(), cosine.step(), adamw.zero_grad();
        losses.push_back(loss.item());
        ++counter.batches;
    }
    answer(losses);
}

// --- TensorBoard

void write_tensorboard(const Arguments& args) {
    accel::SummaryWriter writer(args.at(0));
    writer.add_hparams({{"lr", 0.25}, {"model", "gpt"}, {"data", {{"shuffled", true}}}});
    for (int step = 0; step < 100; ++step)
        writer.add_scalar("train/loss", std::sin(0.1 * step), 10 * step);
    writer.add_scalar("huge", 1e300, 0);  // 1e300 is out of the range of f32
    writer.add_scalar("nan", std::nan(""), 3);
    writer.add_text("note", "# A *text*\nwith é and \"quotes\"", 5);
    writer.add_histogram("weights", arange(1000).to(f64) * 0.01 - 4, 6);
    writer.add_image("picture", patterned({3, 5, 4}, u8), 7);
    writer.add_hparams_end();
    writer.flush();
}

void version(const Arguments&) { std::puts(kVersion); }

int run(const Arguments& args) {
    const std::map<std::string, void (*)(const Arguments&)> commands = {
        {"version", version},
        {"safetensors-write", write_safetensors},
        {"safetensors-read", read_safetensors},
        {"torch-read", read_torch},
        {"weights-read", read_weights},
        {"weights-write", write_weights},
        {"npy-write", write_npy},
        {"npy-read", read_npy},
        {"model-write", write_models},
        {"model-run", run_model},
        {"train", train},
        {"resume", resume},
        {"sentences-embed", [](const Arguments& a) { answer(embed_sentences(a)); }},
        {"sentences-train", [](const Arguments& a) { answer(train_sentences(a)); }},
        {"tensorboard-write", write_tensorboard},
    };
    try {
        commands.at(args.at(0))({args.begin() + 1, args.end()});
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "interop: %s\n", error.what());
        return 1;
    }
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) { return axle::bench::run({argv + 1, argv + argc}); }
