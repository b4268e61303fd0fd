// train_gpt: a GPT-2 trained on a text, from scratch, from a checkpoint or from published weights.
//
// Also meant to be copied: everything here is what a program of your own would call. The loop is in
// train(); what surrounds it reads options, data and files.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "accel/accelerator.h"
#include "accel/checkpoint.h"
#include "accel/config.h"
#include "accel/jsonl.h"
#include "accel/progress.h"
#include "accel/text.h"
#include "core/autograd.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/version.h"
#include "data/loader.h"
#include "data/text.h"
#include "data/tokens.h"
#include "kernels/thread_pool.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "optim/schedules.h"

namespace fs = std::filesystem;
using namespace axle;

// --- what to do

struct Settings {
    std::string data, out = "runs/gpt", preset = "shakespeare-char-cpu", config;
    std::string init_from, resume;
    std::string tokenizer = "char";  // char or byte; a .bin file holds tokens already
    nn::GptConfig model;
    std::int64_t batch_size = 12, accumulation = 1, steps = 2000;
    double epochs = 0;  // if given, decides the steps
    double lr = 1e-3, min_lr = 1e-4, beta2 = 0.99, weight_decay = 0.1, clip = 1.0;
    std::int64_t warmup = 100;
    std::int64_t eval_every = 250, save_every = 500, sample = 0;
    std::uint64_t seed = 1;
    int threads = 0;  // 0: what the library chooses
    bool eval_only = false;
    std::string mixed_precision = "no", device = "cpu";
};

const std::vector<std::string> kPresets = {"shakespeare-char-cpu", "quickstart", "gpt2", "tiny"};

Settings preset_of(const std::string& name) {
    Settings s;
    s.preset = name;
    s.model = {.block_size = 64,
               .n_layer = 4,
               .n_head = 4,
               .n_embd = 128,
               .bias = false,
               .activation = Gelu::erf};  // nanoGPT's setting for a CPU
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
    const std::string near = accel::nearest(name, kPresets);
    throw UsageError("unknown preset '" + name + "'" +
                     (near.empty() ? "" : "; did you mean " + near + "?"));
}

// The value of the last --name in a list of arguments.
std::optional<std::string> value_of(const std::vector<std::string>& args, const std::string& name) {
    std::optional<std::string> value;
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i] == name && i + 1 < args.size()) value = args[i + 1];
        if (args[i].starts_with(name + "=")) value = args[i].substr(name.size() + 1);
    }
    return value;
}

// The command line, behind the options of a --config file. Nothing if it was --help or --version.
std::optional<Settings> parse(std::vector<std::string> args) {
    if (const auto path = value_of(args, "--config")) {
        std::vector<std::string> from_file;
        for (const auto& [key, value] : accel::read_config(*path))
            from_file.push_back(str("--", key, "=", value));
        args.insert(args.begin(), from_file.begin(), from_file.end());
    }
    Settings s = preset_of(value_of(args, "--preset").value_or(Settings().preset));

    CLI::App app{
        "Trains a GPT-2 on a text, lets it write, and saves it as Hugging Face does.\n\n"
        "  train_gpt --data shakespeare.txt --out runs/a            train\n"
        "  train_gpt --data shakespeare.txt --out runs/a --resume latest   go on\n"
        "  train_gpt --data shakespeare.txt --out runs/a --eval-only --sample 500\n"
        "  train_gpt --data tokens.bin --init-from gpt2/ --preset gpt2     fine-tune\n"};
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.allow_extras();
    app.set_version_flag("--version", std::string(kVersion));
    const auto option = [&](const char* name, auto& value, const char* help) {
        return app.add_option(name, value, help)->capture_default_str();
    };
    app.get_formatter()->column_width(34);
    option("--data", s.data, "Text file, or tokens as nanoGPT's .bin")->required();
    option("--out", s.out, "Folder for metrics, checkpoints and the model");
    option("--preset", s.preset, "Defaults: shakespeare-char-cpu, quickstart, gpt2 or tiny");
    option("--config", s.config, "YAML file with these options as keys; the command line wins");
    option("--init-from", s.init_from, "Start from a Hugging Face GPT-2 folder or .safetensors");
    option("--resume", s.resume, "Go on from a checkpoint folder, or 'latest' of --out");
    option("--seed", s.seed, "Of weights, batches, dropout and samples");
    option("--threads", s.threads, "CPU threads; 0 takes AXLE_NUM_THREADS or all CPUs")
        ->check(CLI::Range(0, 1024));
    const auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
    option("--steps", s.steps, "Optimizer updates")->check(count);
    option("--epochs", s.epochs, "Passes over the text, instead of --steps")
        ->check(CLI::NonNegativeNumber);
    option("--batch-size", s.batch_size, "Sequences in a micro-batch")->check(count);
    option("--gradient-accumulation-steps", s.accumulation, "Micro-batches in an update")
        ->check(count);
    option("--block-size", s.model.block_size, "Tokens in a sequence")->check(count);
    option("--lr", s.lr, "Highest learning rate")->check(CLI::NonNegativeNumber);
    option("--min-lr", s.min_lr, "Learning rate at the end of the cosine")
        ->check(CLI::NonNegativeNumber);
    option("--warmup", s.warmup, "Updates of linear warmup")->check(CLI::NonNegativeNumber);
    option("--weight-decay", s.weight_decay, "AdamW's, on matrices")->check(CLI::NonNegativeNumber);
    option("--dropout", s.model.dropout, "Probability")->check(CLI::Range(0.0, 0.99));
    option("--eval-every", s.eval_every, "Updates between evaluations; 0 only at the end")
        ->check(CLI::NonNegativeNumber);
    option("--save-every", s.save_every, "Updates between checkpoints; 0 only at the end")
        ->check(CLI::NonNegativeNumber);
    app.add_flag("--eval-only", s.eval_only, "Evaluate and sample, don't train")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    option("--sample", s.sample, "Tokens to write at the end")->check(CLI::NonNegativeNumber);
    option("--mixed-precision", s.mixed_precision, "no or bf16");
    option("--device", s.device, "cpu");

    try {
        std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
        app.parse(args);
    } catch (const CLI::Success& success) {
        app.exit(success);
        return std::nullopt;
    } catch (const CLI::Error& error) {
        throw UsageError(error.what());
    }
    if (const auto unknown = app.remaining(); !unknown.empty()) {
        const std::string name = unknown[0].substr(0, unknown[0].find('='));
        std::vector<std::string> names;
        for (const CLI::Option* known : app.get_options()) names.push_back(known->get_name());
        const std::string near = accel::nearest(name, names);
        throw UsageError("unknown option '" + name + "'" +
                         (near.empty() ? "; see --help" : "; did you mean " + near + "?"));
    }
    return s;
}

// --- the text

// A text as tokens, the last tenth for validation.
struct Corpus {
    std::unique_ptr<data::Tokenizer> tokenizer;  // null for a file of tokens
    std::int64_t vocab_size = 0;
    data::Tokens train, validation;
    double unigram_entropy = 0;
};

// What f makes of a file's text; its complaints begin with the path.
template <class F>
auto made_from(const std::string& path, F&& f) {
    try {
        return f();
    } catch (const ValueError& error) {
        throw FileError(printable(path) + ": " + error.what());
    }
}

std::unique_ptr<data::CharTokenizer> read_tokenizer(const std::string& path) {
    const std::string text = read_file(path);
    return made_from(path, [&] {
        return std::make_unique<data::CharTokenizer>(data::CharTokenizer::from_json(text));
    });
}

// The vocabulary of a character model lies beside it; one from scratch takes that of its text.
std::unique_ptr<data::Tokenizer> tokenizer_for(const Settings& s, const std::string& text,
                                               bool is_new) {
    if (s.tokenizer == "byte") return std::make_unique<data::ByteTokenizer>();
    const std::string path = (fs::path(s.out) / "tokenizer.json").string();
    if (!is_new && fs::exists(path)) return read_tokenizer(path);
    const std::string start = (fs::path(s.init_from) / "tokenizer.json").string();
    auto tokenizer = !s.init_from.empty() && fs::exists(start)
                         ? read_tokenizer(start)
                         : std::make_unique<data::CharTokenizer>(made_from(
                               s.data, [&] { return data::CharTokenizer::from_text(text); }));
    write_file_atomically(path, tokenizer->to_json() + "\n");
    return tokenizer;
}

Corpus load_corpus(const Settings& s, bool is_new) {
    std::unique_ptr<data::Tokenizer> tokenizer;
    std::vector<std::int64_t> ids;
    if (s.data.ends_with(".bin")) {
        const auto all = data::Tokens::open(s.data, {.vocab_size = s.model.vocab_size});
        ids.resize(static_cast<std::size_t>(all.size()));
        all.copy(0, ids);
    } else {
        const std::string text = data::read_text(s.data);
        tokenizer = tokenizer_for(s, text, is_new);
        ids = made_from(s.data, [&] { return tokenizer->encode(text); });
    }
    const std::size_t cut = ids.size() * 9 / 10;
    if (ids.size() - cut <= static_cast<std::size_t>(s.model.block_size))
        throw FileError(str(printable(s.data), ": too short: the last tenth of its ", ids.size(),
                            " tokens must be longer than a block of ", s.model.block_size));
    const std::int64_t vocab_size = tokenizer ? tokenizer->vocab_size() : s.model.vocab_size;
    return {std::move(tokenizer), vocab_size, data::Tokens(std::span(ids).first(cut)),
            data::Tokens(std::span(ids).subspan(cut)), data::unigram_entropy(data::Tokens(ids))};
}

// --- training

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Mean loss over every block of a split, in nats.
double evaluate(nn::Gpt& model, data::DataLoader& loader) {
    const NoGrad no_grad;
    model.eval();
    double total = 0;
    std::int64_t rows = 0;
    for (auto& batch : loader) {
        const std::int64_t n = batch["input_ids"].tensor().size(0);
        total += model.loss(batch["input_ids"], batch["labels"]).item() * static_cast<double>(n);
        rows += n;
    }
    model.train();
    return total / static_cast<double>(rows);
}

// The updates done, saved with the rest.
struct Progress : accel::Checkpointable {
    std::int64_t step = 0;
    Tree state_dict() const override { return Tree{{"step", step}}; }
    void load_state_dict(const Tree& state) override { step = state["step"].integer(); }
};

struct Outcome {
    double val_loss = 0, seconds = 0, tokens_per_s = 0;
    std::int64_t step = 0;
    std::string checkpoint;
};

std::string checkpoint_folder(const Settings& s) {
    return (fs::path(s.out) / "checkpoints").string();
}

// Loads what --resume names into what is prepared, and returns its path: "" without --resume.
std::string resume(const Settings& s, Accelerator& accelerator) {
    if (s.resume.empty()) return "";
    const std::string folder = checkpoint_folder(s);
    const auto path = s.resume == "latest" ? accel::latest_checkpoint(folder) : s.resume;
    if (!path) throw FileError(printable(folder) + ": there is no checkpoint to resume from");
    accelerator.load_state(*path);
    return *path;
}

// Takes the model alone from a checkpoint, so that the options of training need not be repeated.
Outcome only_evaluate(const Settings& s, const Corpus& corpus, nn::Gpt& gpt) {
    Accelerator accelerator({.mixed_precision = s.mixed_precision});
    nn::Gpt& model = accelerator.prepare(gpt);
    Progress progress;
    accelerator.register_for_checkpointing(progress);
    Outcome outcome;
    outcome.checkpoint = resume(s, accelerator);
    outcome.step = progress.step;
    data::DataLoader loader(data::BlockDataset(corpus.validation, gpt.config.block_size),
                            {.batch_size = 4 * s.batch_size});
    outcome.val_loss = evaluate(model, loader);
    return outcome;
}

Outcome train(const Settings& s, const Corpus& corpus, nn::Gpt& gpt) {
    Accelerator accelerator({.mixed_precision = s.mixed_precision,
                             .gradient_accumulation_steps = static_cast<int>(s.accumulation),
                             .project_dir = s.out});

    const std::int64_t block = gpt.config.block_size;
    const std::int64_t micro_batches = s.steps * s.accumulation;
    data::DataLoader train_loader(
        data::RandomBlockDataset(corpus.train, block, micro_batches * s.batch_size, s.seed),
        {.batch_size = s.batch_size});
    data::DataLoader val_loader(data::BlockDataset(corpus.validation, block),
                                {.batch_size = 4 * s.batch_size});

    std::vector<Tensor> matrices, vectors;
    for (const Tensor& p : gpt.parameters()) (p.dim() >= 2 ? matrices : vectors).push_back(p);
    optim::AdamWOptions adam{.lr = s.lr, .betas = {0.9, s.beta2}, .weight_decay = s.weight_decay};
    std::vector<optim::AdamW::Group> groups = {{matrices, adam}};
    adam.weight_decay = 0;
    optim::AdamW::Group undecayed(vectors, adam);
    if (!vectors.empty()) groups.push_back(std::move(undecayed));
    optim::AdamW adamw(groups);
    auto cosine = optim::get_cosine_schedule_with_warmup(
        adamw, std::min(s.warmup, s.steps - 1), s.steps, 0.5, s.lr > 0 ? s.min_lr / s.lr : 0);

    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(gpt, adamw, train_loader, cosine);
    Progress progress;
    accelerator.register_for_checkpointing(progress);

    Outcome outcome;
    outcome.checkpoint = resume(s, accelerator);
    outcome.step = progress.step;
    if (progress.step >= s.steps) {
        outcome.val_loss = evaluate(model, val_loader);
        return outcome;
    }

    accel::JsonLines metrics((fs::path(s.out) / "metrics.jsonl").string(), progress.step);
    accel::ProgressBar bar(s.steps, {.title = "train", .start = progress.step});
    const auto start = std::chrono::steady_clock::now();
    auto update_start = start;
    double loss_sum = 0, training_seconds = 0;
    const auto tokens = static_cast<double>(s.batch_size * s.accumulation * block);
    std::int64_t updates = 0;

    for (auto& batch : loader) {
        auto scope = accelerator.accumulate(model);
        const Tensor loss = model.loss(batch["input_ids"], batch["labels"]);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), s.clip);
        const double lr = scheduler.get_last_lr()[0];
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();

        loss_sum += loss.item();
        if (!accelerator.sync_gradients()) continue;
        ++progress.step, ++updates;
        const double mean = loss_sum / static_cast<double>(s.accumulation);
        const double seconds = seconds_since(update_start);
        loss_sum = 0;
        training_seconds += seconds;

        const bool last = progress.step == s.steps;
        Tree row{{"step", progress.step},
                 {"epoch", static_cast<double>(progress.step) * tokens /
                               static_cast<double>(corpus.train.size())},
                 {"loss", mean},
                 {"lr", lr},
                 {"tokens_per_s", tokens / seconds}};
        if (last || (s.eval_every > 0 && progress.step % s.eval_every == 0)) {
            outcome.val_loss = evaluate(model, val_loader);
            row.set("val_loss", outcome.val_loss);
            bar.print(str("step ", progress.step, ": val_loss ", outcome.val_loss));
        }
        metrics.write(row);
        if (last || (s.save_every > 0 && progress.step % s.save_every == 0)) {
            outcome.checkpoint =
                accelerator.save_state(str(checkpoint_folder(s), "/step_", progress.step));
            accel::rotate_checkpoints(checkpoint_folder(s), 2);
        }
        bar.update(progress.step, str("loss ", mean, "  lr ", lr, "  ",
                                      accel::human_bytes(host_memory::stats().peak)));
        update_start = std::chrono::steady_clock::now();
    }
    bar.close();
    model.save_pretrained(s.out);
    outcome.step = progress.step;
    outcome.seconds = seconds_since(start);
    outcome.tokens_per_s = static_cast<double>(updates) * tokens / training_seconds;
    return outcome;
}

// Continues from a line break, or from where the text begins.
void print_sample(const Settings& s, const Corpus& corpus, nn::Gpt& model) {
    std::vector<std::int64_t> ids = {corpus.train[0]};
    try {
        if (corpus.tokenizer) ids = corpus.tokenizer->encode("\n");
    } catch (const ValueError&) {
        // The text has no line break.
    }
    ids = model.generate(ids, s.sample, {.temperature = 0.8});
    if (corpus.tokenizer) {
        std::cout << corpus.tokenizer->decode(ids) << '\n';
        return;
    }
    for (const std::int64_t id : ids) std::cout << id << ' ';
    std::cout << '\n';
}

int run(Settings s) {
    if (s.threads > 0) kernels::set_num_threads(s.threads);
    if (!Device::parse(s.device).is_cpu())
        throw DeviceError("device: a model is trained on cpu, not on '" + s.device + "'");
    if (s.eval_only && s.resume.empty() && s.init_from.empty()) s.resume = "latest";
    create_directories(s.out);
    manual_seed(s.seed);

    std::optional<nn::Gpt> model;
    if (!s.init_from.empty()) {
        model.emplace(nn::Gpt::from_pretrained(s.init_from));
        s.model.vocab_size = model->config.vocab_size;
        s.model.block_size = model->config.block_size;
    }
    const Corpus corpus = load_corpus(s, s.resume.empty());
    if (!model) {
        s.model.vocab_size = corpus.vocab_size;
        model.emplace(s.model);
    } else if (corpus.vocab_size > model->config.vocab_size) {
        throw ValueError(str("the text has ", corpus.vocab_size,
                             " tokens, the model of --init-from ", model->config.vocab_size));
    }
    if (s.epochs > 0) {
        const double per_update = static_cast<double>(s.batch_size * s.accumulation) *
                                  static_cast<double>(model->config.block_size);
        s.steps = std::max<std::int64_t>(
            1, std::llround(s.epochs * static_cast<double>(corpus.train.size()) / per_update));
    }
    std::cout << "model: " << model->num_parameters()
              << " parameters; text: " << corpus.train.size() + corpus.validation.size()
              << " tokens of " << corpus.vocab_size << ", unigram entropy "
              << corpus.unigram_entropy << " nats\n"
              << std::flush;

    const Outcome outcome = (s.eval_only ? only_evaluate : train)(s, corpus, *model);
    if (s.sample > 0) print_sample(s, corpus, *model);
    std::cout << "validation loss " << outcome.val_loss << " nats a token, "
              << corpus.unigram_entropy - outcome.val_loss << " below the unigram entropy\n";
    std::cout << to_json(Tree{{"val_loss", outcome.val_loss},
                              {"unigram_entropy", corpus.unigram_entropy},
                              {"steps", outcome.step},
                              {"seconds", outcome.seconds},
                              {"tokens_per_s", outcome.tokens_per_s},
                              {"threads", kernels::num_threads()},
                              {"device", s.device},
                              {"checkpoint", outcome.checkpoint}},
                         -1)
              << std::endl;
    return 0;
}

int main(int argc, char** argv) {
    try {
        const auto settings = parse({argv + 1, argv + argc});
        return settings ? run(*settings) : 0;
    } catch (const std::exception& error) {
        std::cerr << "train_gpt: " << error.what() << '\n';
        return 1;
    }
}
