// Fine-tunes a model from a Hugging Face folder. The program writes the folder itself.
#include <axle/axle.h>

using axle::Tensor;
using axle::nn::BertForSequenceClassification;

namespace {

// Writes a small model with random weights. A folder of BERT from the Hugging Face Hub has the same
// files.
void write_pretrained(const std::string& folder) {
    axle::nn::Bert({.vocab_size = 50,
                    .hidden_size = 32,
                    .num_hidden_layers = 2,
                    .num_attention_heads = 4,
                    .intermediate_size = 64,
                    .max_position_embeddings = 16})
        .save_pretrained(folder);
}

// Returns texts of eight tokens. The label is 1 if token 7 occurs, else 0.
axle::data::TensorDataset texts(std::int64_t n) {
    const Tensor ids = axle::randint(1, 9, {n, 8});
    return axle::data::TensorDataset(
        {{"ids", ids}, {"label", gt(eq(ids, 7).sum({1}), 0).to(axle::i64)}});
}

}  // namespace

int main() {
    axle::manual_seed(1);
    write_pretrained("pretrained");
    const auto train_set = texts(2048), test_set = texts(512);

    // [load]
    axle::Accelerator accelerator;
    auto bert = BertForSequenceClassification::from_pretrained("pretrained", 2);
    std::vector<Tensor> matrices, vectors;
    for (const Tensor& parameter : bert.parameters())
        (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
    axle::optim::AdamW adamw({{matrices, {.lr = 1e-3, .weight_decay = 0.01}},
                              {vectors, {.lr = 1e-3, .weight_decay = 0}}});
    // [/load]
    axle::data::DataLoader train_loader(train_set, {.batch_size = 64, .shuffle = true});
    axle::data::DataLoader test_loader(test_set, {.batch_size = 128});
    const int epochs = 5;
    auto linear =
        axle::optim::get_linear_schedule_with_warmup(adamw, 20, epochs * train_loader.len());
    auto [model, optimizer, loader, evaluation, scheduler] =
        accelerator.prepare(bert, adamw, train_loader, test_loader, linear);

    // [train]
    model.train();  // a loaded model is in evaluation mode
    for (int epoch = 0; epoch < epochs; ++epoch)
        for (auto& batch : loader) {
            accelerator.backward(model.loss(batch["ids"], batch["label"]));
            accelerator.clip_grad_norm_(model.parameters(), 1.0);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
        }
    // [/train]

    model.eval();
    const axle::NoGrad no_grad;
    axle::accel::Accuracy accuracy(accelerator);
    for (auto& batch : evaluation) accuracy.update(model(batch["ids"]), batch["label"]);
    accelerator.print("accuracy ", accuracy.compute());

    // [save]
    model.save_pretrained("fine_tuned", {.is_main_process = accelerator.is_main_process()});
    accelerator.wait_for_everyone();
    auto again = BertForSequenceClassification::from_pretrained("fine_tuned");
    // [/save]
    const Tensor ids = axle::randint(1, 9, {4, 8});
    model.to(axle::Device::cpu());
    const bool same = (model(ids) - again(ids)).abs().max().item() == 0;

    // [classes]
    again.classifier = axle::nn::Linear(again.config.hidden_size, 5);
    again.config.labels = {"bus", "car", "train", "tram", "truck"};
    again.train();
    // [/classes]
    const bool has_new_classes = again(ids).shape()[1] == 5;
    return accuracy.compute() > 0.95 && same && has_new_classes ? 0 : 1;
}
