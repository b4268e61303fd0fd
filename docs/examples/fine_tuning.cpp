// Fine-tunes a language model with LoRA on questions and answers, and lets it write.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <axle/axle.h>
#include <axle/data/instructions/documents.h>
#include <axle/nn/adapters/lora.h>

using axle::Tensor;
namespace data = axle::data;
namespace nn = axle::nn;

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

// Writes a small base model and a file of questions, so that the program runs without downloads.
void write_files() {
    axle::manual_seed(1);
    nn::Llama({.vocab_size = 256,
               .hidden_size = 64,
               .intermediate_size = 128,
               .num_hidden_layers = 2,
               .num_attention_heads = 4,
               .max_position_embeddings = 64,
               .initializer_range = 0.2})
        .save_pretrained("base");
    std::ofstream lines("questions.jsonl");
    for (int i = 0; i < 64; ++i)
        lines << R"({"prompt": "Say )" << i % 8 << R"(: ", "completion": ")" << i % 8 << i % 8
              << R"(.\n"})" << '\n';
}

void train() {
    double first = 0, last = 0;
    // [rows]
    const data::ByteTokenizer tokenizer;
    const data::DocumentDataset rows(data::Table::from_json("questions.jsonl"), tokenizer,
                                     {.max_length = 64, .packing = data::Packing::best_fit});
    check(rows.num_documents() == 64 && rows.size() == 13);  // 5 documents in a sample
    // [/rows]
    // [train]
    axle::Accelerator accelerator;
    nn::Llama model = nn::Llama::from_pretrained("base");
    nn::add_lora(model, {.r = 8, .lora_alpha = 16, .target_modules = {"all-linear"}});
    model.train();

    data::DataLoader train_loader(rows, {.batch_size = 4, .shuffle = true});
    axle::optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 1e-2});
    auto [prepared, optimizer, loader] = accelerator.prepare(model, adamw, train_loader);

    for (int epoch = 0; epoch < 15; ++epoch)
        for (auto& batch : loader) {
            const Tensor loss =
                prepared.loss(batch["input_ids"], batch["labels"], {}, batch["position_ids"]);
            accelerator.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
            if (first == 0) first = loss.item();
            last = loss.item();
        }
    nn::save_adapter(model, "adapter", {.is_main_process = accelerator.is_main_process()});
    // [/train]
    std::cout << "loss " << first << " -> " << last << '\n';
    check(last < first / 4);
}

void write() {
    // [generate]
    nn::Llama model = nn::Llama::from_pretrained("base");
    nn::load_adapter(model, "adapter");
    nn::merge_and_unload(model);  // adds the updates to the weights, for speed

    const data::ByteTokenizer tokenizer;
    std::string answer;
    model.generate(tokenizer.encode("Say 3: "), 20,
                   {.temperature = 0, .on_token = [&](std::int64_t, std::int64_t token) {
                        answer += tokenizer.decode({{token}});
                        return token != '\n';  // the answer ends with its line
                    }});
    std::cout << answer;  // 33.
    // [/generate]
    check(answer == "33.\n");
}

void train_quantized() {
    // [qlora]
    nn::Llama model = [] {
        const nn::init::DeferredWeights scope;  // reads a weight when it is used
        return nn::Llama::from_pretrained("base");
    }();
    const auto layers = nn::quantize_linears(model);  // nf4 with double quantization
    nn::add_lora(model, {.r = 8, .lora_alpha = 16, .target_modules = {"all-linear"}});
    axle::optim::AdamW adamw(nn::trainable_parameters(model), {.lr = 1e-2});
    // [/qlora]
    check(layers == 14 && nn::trainable_parameters(model).size() == 28);
    const Tensor ids = axle::tensor({1, 2, 3, 4, 5, 6}).reshape({1, 6}).to(axle::i64);
    const auto step = [&] {
        const Tensor loss = model.loss(ids.slice(1, 0, -1), ids.slice(1, 1));
        loss.backward();
        adamw.step();
        adamw.zero_grad();
        return loss.item();
    };
    const double first = step();
    for (int i = 0; i < 10; ++i) step();
    check(step() < first / 2);
}

}  // namespace

int main() {
    write_files();
    train();
    write();
    train_quantized();
}
