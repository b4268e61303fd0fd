// The program train_mlm: trains BERT on texts as a masked language model.
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
#include <utility>
#include <vector>

#include "accel/metrics.h"
#include "core/autograd/autograd.h"
#include "data/loading/loader.h"
#include "data/loading/padding.h"
#include "data/masked_tokens.h"
#include "data/tables/table.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "nn/models/bert.h"
#include "optim/adam.h"
#include "optim/schedules/get_scheduler.h"
#include "tools/trainer/fingerprint.h"
#include "tools/trainer/language_model.h"
#include "tools/trainer/run.h"
#include "tools/trainer/text_rows.h"

namespace fs = std::filesystem;
using namespace axle;

// --- options

struct Settings : trainer::Options {
    std::string validation;  // a file, or "" to validate on a tenth of the training file
    std::string text = "text";
    std::int64_t max_length = 128, workers = 1, sample = 3;
    double probability = 0.15;
    double warmup = 0.1;  // the fraction of the updates
};

const std::vector<std::string> kPresets = {"default", "tiny"};

Settings preset_of(const std::string& name) {
    Settings s;
    s.preset = name, s.out = "runs/mlm";
    s.batch_size = 16, s.epochs = 3, s.lr = 5e-5, s.weight_decay = 0.01;
    s.eval_every = -1, s.save_every = 500;
    if (name == "default") return s;
    if (name == "tiny") {
        s.batch_size = 8, s.epochs = 0, s.steps = 40, s.lr = 1e-2;
        s.eval_every = 20, s.save_every = 20;
        return s;
    }
    trainer::throw_unknown("preset", name, kPresets);
}

// Parses the command line. Returns nullopt after --help or --version.
std::optional<Settings> parse(std::vector<std::string> arguments) {
    trainer::CommandLine line(
        "Trains a BERT of Hugging Face on texts: random tokens are masked, and the model predicts "
        "them.\n\n"
        "  train_mlm --data reviews.txt --init-from bert-base-uncased/ --out runs/a\n"
        "  train_mlm --data train.jsonl --validation dev.jsonl --text body --init-from bert/ --out "
        "runs/b\n",
        std::move(arguments));
    Settings s = preset_of(line.peek("preset").value_or(kPresets[0]));
    line.add("data", s.data,
             "A .txt file with a text on each line, or a .csv, .tsv, .jsonl or .json file", true);
    line.add("init-from", s.init_from, "A folder with a BERT and its tokenizer.json", true);
    line.add("validation", s.validation, "File for validation; default: a tenth of --data");
    line.add("text", s.text, "The column with the text, except in .txt files");
    line.add("preset", s.preset, "Defaults: default or tiny");
    s.add_to(line);
    line.add("max-length", s.max_length, "Tokens of a text; longer texts are truncated", 3);
    line.add("mlm-probability", s.probability,
             "Probability of selecting a token for the prediction", 0.001, 1);
    line.add("warmup", s.warmup, "Fraction of the updates with increasing learning rate", 0, 1);
    line.add("workers", s.workers, "Threads that tokenize batches", 0, 256);
    line.add("sample", s.sample, "Texts whose predictions are shown at the end");
    if (!line.parse()) return std::nullopt;
    s.values = line.values();
    return s;
}

// --- the texts

struct Texts {
    data::Table train, validation;
    data::PretrainedTokenizer tokenizer;
    std::int64_t vocab_size;  // of the model
};

// Opens a file. Rows without a text are left out.
data::Table read_table(const Settings& s, const std::string& path) {
    const bool is_plain = fs::path(path).extension() == ".txt";
    const data::Table rows = is_plain ? data::Table::from_text(path).rename_column("text", s.text)
                                      : trainer::open_rows(path, {s.text}).select_columns({s.text});
    return rows.filter([&](const Tree& row) { return !trainer::text_of(row, s.text).empty(); });
}

Texts load_texts(const Settings& s, std::int64_t vocab_size) {
    auto tokenizer = data::PretrainedTokenizer::from_pretrained(s.init_from);
    const data::Table all = read_table(s, s.data);
    if (!s.validation.empty()) return {all, read_table(s, s.validation), tokenizer, vocab_size};
    const auto parts = all.train_test_split({.test_size = 0.1, .seed = s.split_seed});
    return {parts.train, parts.test, tokenizer, vocab_size};
}

// Returns the tensors of a row. Worker threads call it when they read the row.
Tree tokenize(const Settings& s, const Texts& texts, const Tree& row) {
    const data::Encoding encoding =
        texts.tokenizer.encode(trainer::text_of(row, s.text),
                               {.truncation = data::Truncation{.max_length = s.max_length}});
    return Tree{{"input_ids", tensor(encoding.ids)},
                {"attention_mask", tensor(encoding.attention_mask)},
                {"token_type_ids", tensor(encoding.type_ids)},
                {"special_tokens_mask", tensor(encoding.special_tokens_mask)}};
}

// Returns a loader of texts with masked tokens. The same tokens of a validation text are masked in
// all evaluations.
data::DataLoader loader_of(const Settings& s, const Texts& texts, bool is_training) {
    const data::Table& table = is_training ? texts.train : texts.validation;
    const data::Table rows =
        table.map([&s, &texts](const Tree& row) { return tokenize(s, texts, row); },
                  {.remove_columns = table.column_names()});
    const auto mask = texts.tokenizer.token_to_id("[MASK]");
    if (!mask) throw ValueError("--init-from: the tokenizer has no token [MASK]");
    const std::uint64_t seed = is_training ? s.seed : s.split_seed;
    const auto masked = std::make_shared<data::MaskedTokensDataset>(
        rows.share(), data::MaskedTokensOptions{.mask_token_id = *mask,
                                                .vocab_size = texts.vocab_size,
                                                .mlm_probability = s.probability,
                                                .seed = seed,
                                                .is_constant = !is_training});
    const std::int64_t padding = texts.tokenizer.token_to_id("[PAD]").value_or(0);
    return data::DataLoader(masked,
                            {.batch_size = s.batch_size,
                             .shuffle = is_training,
                             .num_workers = static_cast<int>(s.workers),
                             .collate_fn = data::padding_collate(
                                 {.padding_values = {{"input_ids", padding}, {"labels", -100}}}),
                             .seed = s.seed});
}

// --- training

// Returns the mean loss in nats over the masked tokens, the perplexity, and the fraction of the
// masked tokens that are predicted correctly.
Tree evaluate(Accelerator& accelerator, nn::BertForMaskedLM& model, data::DataLoader& validation) {
    const NoGrad no_grad;
    model.eval();
    accel::Accuracy accuracy(accelerator);
    accel::Perplexity perplexity(accelerator);
    for (auto& batch : accelerator.prepare(validation)) {
        const Tensor logits = model.outputs(batch).logits;
        accuracy.update(logits, batch["labels"]);
        perplexity.update(logits, batch["labels"]);
    }
    model.train();
    return Tree{{"accuracy", accuracy.compute()},
                {"val_loss", std::log(perplexity.compute())},
                {"perplexity", perplexity.compute()}};
}

trainer::Run::Plan plan_for(const Settings& s, const Texts& texts, Accelerator& accelerator,
                            nn::BertForMaskedLM& model) {
    const auto validation = std::make_shared<data::DataLoader>(loader_of(s, texts, false));
    const auto samples = static_cast<double>(texts.train.size());
    return {.steps = s.updates(samples),
            .unit = "samples",
            .per_update = static_cast<double>(s.samples_per_update()),
            .per_epoch = samples,
            .evaluate = [&accelerator, &model, validation] {
                return evaluate(accelerator, model, *validation);
            }};
}

// Evaluates a checkpoint. Loads only the model, so that the options of the training are not needed.
trainer::Outcome only_evaluate(const Settings& s, const Texts& texts, nn::BertForMaskedLM& bert) {
    Accelerator accelerator(s.accelerator());
    accelerator.prepare(bert);
    trainer::Run::Plan plan = plan_for(s, texts, accelerator, bert);
    plan.steps = 0;
    return trainer::Run(s, accelerator, std::move(plan)).finish();
}

trainer::Outcome train(const Settings& s, const Texts& texts, nn::BertForMaskedLM& bert) {
    Accelerator accelerator(s.accelerator());
    bert.train();  // from_pretrained() returns a model in evaluation mode
    const trainer::Run::Plan plan = plan_for(s, texts, accelerator, bert);
    data::DataLoader train_loader = loader_of(s, texts, true);
    optim::AdamW adamw = trainer::adamw(bert, {.lr = s.lr, .weight_decay = s.weight_decay});
    optim::LambdaLR linear = optim::get_linear_schedule_with_warmup(
        adamw, std::llround(s.warmup * static_cast<double>(plan.steps)), plan.steps);

    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(bert, adamw, train_loader, linear);
    trainer::Run run(s, accelerator, plan);
    while (!run.done()) {
        for (auto& batch : loader) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = model.loss(batch["input_ids"], batch["labels"],
                                           batch["attention_mask"], batch["token_type_ids"]);
            accelerator.backward(loss);
            run.add_loss(loss);
            if (accelerator.sync_gradients())
                run.note("grad_norm", accelerator.clip_grad_norm_(model.parameters(), s.clip));
            run.note("lr", scheduler.get_last_lr()[0]);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
            if (accelerator.sync_gradients()) run.end_update();
            if (run.done()) break;
        }
    }
    accelerator.on_main_process([&] {
        model.save_pretrained(s.out);
        trainer::copy_tokenizer(s.init_from, s.out);
    });
    return run.finish();
}

// --- the report

// Returns the first texts for validation with their masks, and the predicted tokens, with the
// masked token if it is another one.
std::string sample_predictions(const Settings& s, const Texts& texts, nn::BertForMaskedLM& model) {
    const NoGrad no_grad;
    model.eval();
    const Device device = model.predictions.bias.device();
    std::string out;
    std::int64_t left = s.sample;
    for (auto& batch : loader_of(s, texts, false)) {
        const Tensor guesses =
            argmax(model(batch["input_ids"].to(device), batch["attention_mask"].to(device),
                         batch["token_type_ids"].to(device)),
                   -1)
                .to(Device::cpu());
        for (std::int64_t row = 0; row < guesses.size(0); ++row) {
            if (left-- <= 0) return out;
            std::vector<std::int64_t> ids;
            std::string predicted;
            for (std::int64_t i = 0; i < guesses.size(1); ++i) {
                const auto at = [&](const Tensor& t) {
                    return static_cast<std::int64_t>(t.select(0, row).select(0, i).item());
                };
                if (at(batch["attention_mask"]) == 0) break;
                ids.push_back(at(batch["input_ids"]));
                const std::int64_t label = at(batch["labels"]), guess = at(guesses);
                if (label == -100) continue;
                const auto name = [&](std::int64_t id) {
                    return printable(texts.tokenizer.id_to_token(id).value_or(str(id)), 40);
                };
                predicted += str(predicted.empty() ? "" : ", ", name(guess),
                                 guess == label ? "" : str(" (", name(label), ")"));
            }
            out += str(printable(texts.tokenizer.decode(ids, false), 400),
                       "\n    predicted: ", predicted, "\n");
        }
    }
    return out;
}

int run(Settings s) {
    // --init-from names the initial model, which is not the model to evaluate.
    if (s.eval_only && s.resume.empty()) s.resume = "latest";
    std::error_code missing;
    if (fs::equivalent(s.out, s.init_from, missing))
        throw UsageError(
            "--out must be another folder than --init-from, whose model it would replace");
    s.divides_rows = s.validation.empty();
    s.apply();
    auto model = nn::BertForMaskedLM::from_pretrained(s.init_from);
    const Texts texts = load_texts(s, model.config.vocab_size);
    if (texts.tokenizer.vocab_size() > model.config.vocab_size)
        throw ValueError(
            str("--init-from: the model's vocabulary is smaller than the tokenizer's: ",
                "the model has ", model.config.vocab_size, " tokens, the tokenizer has ",
                texts.tokenizer.vocab_size()));
    s.max_length = std::min(s.max_length, model.config.max_position_embeddings);
    s.identity = {{"model", str(model.num_parameters(), " parameters, mask ", s.probability)},
                  {"data", trainer::fingerprint(s.data)}};
    std::cout << "model: " << model.num_parameters() << " parameters; texts: " << texts.train.size()
              << " to train, " << texts.validation.size() << " to validate\n"
              << std::flush;

    const trainer::Outcome outcome = (s.eval_only ? only_evaluate : train)(s, texts, model);
    const std::string text = sample_predictions(s, texts, model);
    if (!s.eval_only)
        std::cout << "report: "
                  << trainer::write_report(s, outcome, {.title = "train_mlm", .text = text})
                  << '\n';
    std::cout << text << "accuracy " << outcome.summary["accuracy"].number()
              << " on masked tokens of " << texts.validation.size() << " texts, perplexity "
              << outcome.summary["perplexity"].number() << '\n'
              << to_json(outcome.summary, -1) << std::endl;
    return 0;
}

int main(int argc, char** argv) {
    try {
        const auto settings = parse({argv + 1, argv + argc});
        return settings ? run(*settings) : 0;
    } catch (const trainer::Stopped& stopped) {
        std::cerr << "train_mlm: stopped by a signal; resume with --resume " << stopped.checkpoint
                  << '\n';
        return trainer::kStopped;
    } catch (const std::exception& error) {
        std::cerr << "train_mlm: " << error.what() << '\n';
        return 1;
    }
}
