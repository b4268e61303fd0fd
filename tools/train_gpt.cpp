// The program train_gpt: trains GPT-2 on a text. Training starts with random weights, with a
// checkpoint, or with published weights.
//
// The program is an example to copy: it uses only the public API, and the helpers in
// tools/trainer/. The training loop is in train().
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/metrics.h"
#include "accel/prepare/deepspeed_objects.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "data/files/text.h"
#include "data/files/tokens.h"
#include "data/loading/loader.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "nn/init.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "tools/trainer/fingerprint.h"
#include "tools/trainer/run.h"

namespace fs = std::filesystem;
using namespace axle;

// --- options

struct Settings : trainer::Options {
    std::string tokenizer = "char";  // "char" or "byte"; not used for a .bin file, which has tokens
    nn::GptConfig model;
    double min_lr = 1e-4, beta2 = 0.99;
    std::int64_t warmup = 100, sample = 0;
};

const std::vector<std::string> kPresets = {"shakespeare-char-cpu", "quickstart", "gpt2", "tiny"};

Settings preset_of(const std::string& name) {
    Settings s;
    s.preset = name, s.out = "runs/gpt";
    // nanoGPT's settings for training on a CPU.
    s.batch_size = 12, s.steps = 2000, s.lr = 1e-3, s.weight_decay = 0.1;
    s.eval_every = 250, s.save_every = 500;
    s.model = {.block_size = 64,
               .n_layer = 4,
               .n_head = 4,
               .n_embd = 128,
               .bias = false,
               .activation = Gelu::erf};
    if (name == "shakespeare-char-cpu") return s;
    if (name == "quickstart") {
        s.tokenizer = "byte";
        s.steps = 1000, s.eval_every = 200;
        return s;
    }
    if (name == "gpt2") {
        s.model = {};
        s.batch_size = 4, s.lr = 6e-4, s.min_lr = 6e-5, s.beta2 = 0.95;
        return s;
    }
    if (name == "tiny") {
        s.model.block_size = 16, s.model.n_layer = 1, s.model.n_head = 2, s.model.n_embd = 16;
        s.tokenizer = "byte";
        s.batch_size = 4, s.steps = 20, s.warmup = 2, s.eval_every = 10, s.save_every = 10;
        return s;
    }
    trainer::throw_unknown("preset", name, kPresets);
}

// Parses the command line. Returns nullopt after --help or --version.
std::optional<Settings> parse(std::vector<std::string> arguments) {
    trainer::CommandLine line(
        "Trains a GPT-2 on a text, generates text, and saves the model as Hugging Face does.\n\n"
        "  train_gpt --data shakespeare.txt --out runs/a            train\n"
        "  train_gpt --data shakespeare.txt --out runs/a --resume latest   resume\n"
        "  train_gpt --data shakespeare.txt --out runs/a --eval-only --sample 500\n"
        "  train_gpt --data tokens.bin --init-from gpt2/ --preset gpt2     fine-tune\n",
        std::move(arguments));
    Settings s = preset_of(line.peek("preset").value_or(kPresets[0]));
    line.add("data", s.data, "Text file, or tokens as nanoGPT's .bin", true);
    line.add("preset", s.preset, "Defaults: shakespeare-char-cpu, quickstart, gpt2 or tiny");
    s.add_to(line);
    line.add("init-from", s.init_from, "Start from a Hugging Face GPT-2 folder or .safetensors");
    line.add("block-size", s.model.block_size, "Tokens in a sequence", 1);
    line.add("min-lr", s.min_lr, "Learning rate at the end of the cosine");
    line.add("warmup", s.warmup, "Updates of linear warmup");
    line.add("dropout", s.model.dropout, "Probability", 0, 0.99);
    line.add("sample", s.sample, "Tokens to write at the end");
    if (!line.parse()) return std::nullopt;
    s.values = line.values();
    return s;
}

// --- the text

// A tokenized text. The last tenth of the tokens is used for validation.
struct Corpus {
    std::unique_ptr<data::Tokenizer> tokenizer;  // null for a file of tokens
    std::int64_t vocab_size = 0;
    data::Tokens train, validation;
    double unigram_entropy = 0;
};

std::unique_ptr<data::CharTokenizer> read_tokenizer(const std::string& path) {
    constexpr std::int64_t kMaxBytes = std::int64_t{16} << 20;  // all characters of Unicode fit
    const std::string text = read_file(path, kMaxBytes);
    try {
        return std::make_unique<data::CharTokenizer>(data::CharTokenizer::from_json(text));
    } catch (const ValueError& error) {
        throw FileError(printable(path) + ": " + error.what());
    }
}

// Returns the tokenizer of a model. The vocabulary of a character model is a file in the model's
// folder; a new model gets the vocabulary in the folder of --init-from, or else of its text.
std::unique_ptr<data::Tokenizer> tokenizer_for(const Settings& s, bool is_new) {
    if (s.tokenizer == "byte") return std::make_unique<data::ByteTokenizer>();
    const std::string path = (fs::path(s.out) / "tokenizer.json").string();
    if (!is_new && fs::exists(path)) return read_tokenizer(path);
    const std::string start = (fs::path(s.init_from) / "tokenizer.json").string();
    auto tokenizer =
        !s.init_from.empty() && fs::exists(start)
            ? read_tokenizer(start)
            : std::make_unique<data::CharTokenizer>(data::CharTokenizer::from_file(s.data));
    write_file_atomically(path, tokenizer->to_json() + "\n");
    return tokenizer;
}

// Opens the file of --data and splits its tokens. They stay in the file, which can be larger than
// the memory.
Corpus load_corpus(const Settings& s, bool is_new) {
    std::unique_ptr<data::Tokenizer> tokenizer;
    if (!s.data.ends_with(".bin")) tokenizer = tokenizer_for(s, is_new);
    const data::Tokens all = tokenizer
                                 ? tokenizer->encode_file(s.data)
                                 : data::Tokens::open(s.data, {.vocab_size = s.model.vocab_size});
    const std::int64_t cut = all.size() * 9 / 10;
    if (all.size() - cut <= s.model.block_size)
        throw FileError(str(printable(s.data), ": the file is too short: a tenth of its ",
                            all.size(), " tokens must be longer than a block, which has ",
                            s.model.block_size, " tokens"));
    const std::int64_t vocab_size = tokenizer ? tokenizer->vocab_size() : s.model.vocab_size;
    return {std::move(tokenizer), vocab_size, all.slice(0, cut), all.slice(cut, all.size()),
            data::unigram_entropy(all)};
}

// --- training

// Returns the mean loss in nats over all blocks of a split, and the perplexity. The loader is
// prepared after --resume, because its position is not part of a checkpoint. The model returns one
// loss per batch, so repeated blocks are removed from the batch before the model is called.
Tree evaluate(Accelerator& accelerator, nn::Gpt& model, data::DataLoader& blocks) {
    const NoGrad no_grad;
    model.eval();
    accel::Mean loss(accelerator);
    for (auto& batch : accelerator.prepare(blocks)) {
        const Tensor& ids = batch["input_ids"];
        const Tensor& labels = batch["labels"];
        const std::int64_t rows = accelerator.valid_rows(ids.size(0));
        // Keeps at least one row, so that all ranks call the model. Ranks that divide the model
        // need the same rows, although only one rank has valid rows.
        const data::DataLoader& loader = *accelerator.active_dataloader();
        const std::int64_t kept = std::max<std::int64_t>(
            1, loader.batch_samples() == ids.size(0) ? loader.valid_samples() : ids.size(0));
        loss.update(model.loss(ids.narrow(0, 0, kept), labels.narrow(0, 0, kept)),
                    static_cast<double>(rows));
    }
    model.train();
    const double mean = loss.compute();
    return Tree{{"val_loss", mean}, {"perplexity", std::exp(mean)}};
}

trainer::Run::Plan plan_for(const Settings& s, const Corpus& corpus, Accelerator& accelerator,
                            nn::Gpt& gpt) {
    const std::int64_t block = gpt.config.block_size;
    const auto blocks =
        std::make_shared<data::DataLoader>(data::BlockDataset(corpus.validation, block),
                                           data::LoaderOptions{.batch_size = 4 * s.batch_size});
    return {
        .steps = s.updates(static_cast<double>(corpus.train.size()) / static_cast<double>(block)),
        .unit = "tokens",
        .per_update = static_cast<double>(s.samples_per_update() * block),
        .per_epoch = static_cast<double>(corpus.train.size()),
        .evaluate = [&accelerator, &gpt, blocks] { return evaluate(accelerator, gpt, *blocks); }};
}

// Evaluates a checkpoint. Loads only the model, so that the options of the training are not needed.
trainer::Outcome only_evaluate(const Settings& s, const Corpus& corpus, nn::Gpt& gpt) {
    Accelerator accelerator(s.accelerator());
    accelerator.prepare(gpt);
    trainer::Run::Plan plan = plan_for(s, corpus, accelerator, gpt);
    plan.steps = 0;
    trainer::Outcome outcome = trainer::Run(s, accelerator, std::move(plan)).finish();
    dist::unshard(gpt);
    dist::join_slices(gpt);
    return outcome;
}

trainer::Outcome train(const Settings& s, const Corpus& corpus, nn::Gpt& gpt) {
    Accelerator accelerator(s.accelerator());
    gpt.train();  // from_pretrained() returns a model in evaluation mode
    const trainer::Run::Plan plan = plan_for(s, corpus, accelerator, gpt);
    // The i-th block of the dataset depends only on i and the seed, so the number of steps may
    // change when a run is resumed.
    constexpr std::int64_t kSamples = std::int64_t{1} << 40;
    data::DataLoader train_loader(
        data::RandomBlockDataset(corpus.train, gpt.config.block_size, kSamples, s.seed),
        {.batch_size = s.batch_size});

    // A DeepSpeed configuration can select another optimizer and another schedule.
    accel::DummyOptim adamw(gpt.parameters(), s.lr, s.weight_decay);
    adamw.optimizer_callable = [&] {
        return std::make_unique<optim::AdamW>(trainer::adamw(
            gpt, {.lr = s.lr, .betas = {0.9, s.beta2}, .weight_decay = s.weight_decay}));
    };
    const std::int64_t warmup = std::min(s.warmup, plan.steps - 1);
    accel::DummyScheduler cosine{.total_num_steps = plan.steps * accelerator.num_processes(),
                                 .warmup_num_steps = warmup};
    cosine.lr_scheduler_callable = [&](optim::Optimizer& created) {
        return std::make_unique<optim::LambdaLR>(optim::get_cosine_with_min_lr_schedule_with_warmup(
            created, warmup, plan.steps, {.min_lr = s.min_lr}));
    };
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(gpt, adamw, train_loader, cosine);
    trainer::Run run(s, accelerator, plan);
    for (auto& batch : loader) {
        if (run.done()) break;
        auto scope = accelerator.accumulate(model);
        const Tensor loss = model.loss(batch["input_ids"], batch["labels"]);
        accelerator.backward(loss);
        run.add_loss(loss);
        if (accelerator.sync_gradients())
            run.note("grad_norm", accelerator.clip_grad_norm_(model.parameters(), s.clip));
        run.note("lr", scheduler.get_last_lr()[0]);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
        if (accelerator.sync_gradients()) run.end_update();
    }
    trainer::Outcome outcome = run.finish();
    dist::unshard(model);
    dist::join_slices(model);
    accelerator.on_main_process([&] { model.save_pretrained(s.out); });
    return outcome;
}

// Returns generated text or, without a tokenizer, generated token ids. The prompt is a line break
// if the tokenizer has one, else the first token of the training data.
std::string sample(const Settings& s, const Corpus& corpus, nn::Gpt& model) {
    std::vector<std::int64_t> ids = {corpus.train[0]};
    try {
        if (corpus.tokenizer) ids = corpus.tokenizer->encode("\n");
    } catch (const ValueError&) {
        // The vocabulary has no line break.
    }
    ids = model.generate(ids, s.sample, {.temperature = 0.8});
    if (corpus.tokenizer) return corpus.tokenizer->decode(ids);
    std::string text;
    for (const std::int64_t id : ids) text += std::to_string(id) + ' ';
    return text;
}

int run(Settings s) {
    s.apply();

    std::optional<nn::Gpt> model;
    if (!s.init_from.empty()) {
        model.emplace(nn::Gpt::from_pretrained(s.init_from));
        s.model.vocab_size = model->config.vocab_size;
        s.model.block_size = model->config.block_size;
    }
    const Corpus corpus = load_corpus(s, s.resume.empty());
    if (!model) {
        s.model.vocab_size = corpus.vocab_size;
        // With --use_fsdp or ZeRO stage 3, no process needs memory for the whole model.
        const nn::init::DeferredWeights scope;
        model.emplace(s.model);
    } else if (corpus.vocab_size > model->config.vocab_size) {
        throw ValueError(str("--init-from: the model's vocabulary is smaller than the text's: the ",
                             "model has ", model->config.vocab_size, " tokens, the text has ",
                             corpus.vocab_size));
    }
    s.identity = {{"model", str(s.model.vocab_size, " tokens, ", model->config.n_layer, " layers, ",
                                model->config.n_head, " heads, ", model->config.n_embd,
                                " wide, blocks of ", model->config.block_size)},
                  {"data", trainer::fingerprint(s.data)}};
    std::cout << "model: " << model->num_parameters()
              << " parameters; text: " << corpus.train.size() + corpus.validation.size()
              << " tokens of " << corpus.vocab_size << ", unigram entropy "
              << corpus.unigram_entropy << " nats\n"
              << std::flush;

    const trainer::Outcome outcome = (s.eval_only ? only_evaluate : train)(s, corpus, *model);
    const double val_loss = outcome.summary["val_loss"].number();
    const std::string text = s.sample > 0 ? sample(s, corpus, *model) : "";
    if (!s.eval_only)
        std::cout << "report: "
                  << trainer::write_report(s, outcome, {.title = "train_gpt", .text = text})
                  << '\n';
    if (s.sample > 0) std::cout << text << '\n';
    const double gain = corpus.unigram_entropy - val_loss;
    std::cout << "validation loss " << val_loss << " nats a token, " << std::abs(gain)
              << (gain < 0 ? " above" : " below") << " the unigram entropy, perplexity "
              << outcome.summary["perplexity"].number() << '\n';
    Tree summary{{"unigram_entropy", corpus.unigram_entropy}};
    for (const auto& [key, value] : outcome.summary.entries()) summary.set(key, value);
    std::cout << to_json(summary, -1) << std::endl;
    return 0;
}

int main(int argc, char** argv) {
    try {
        const auto settings = parse({argv + 1, argv + argc});
        return settings ? run(*settings) : 0;
    } catch (const trainer::Stopped& stopped) {
        std::cerr << "train_gpt: stopped by a signal; resume with --resume " << stopped.checkpoint
                  << '\n';
        return trainer::kStopped;
    } catch (const std::exception& error) {
        std::cerr << "train_gpt: " << error.what() << '\n';
        return 1;
    }
}
