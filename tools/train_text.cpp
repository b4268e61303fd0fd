// The program train_text: fine-tunes BERT to classify the texts of a CSV or JSON lines file, all
// parameters or a LoRA adapter.
//
// The program is an example to copy: it uses only the public API, and the helpers in
// tools/trainer/. The training loop is in train().
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "accel/metrics.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "data/loading/loader.h"
#include "data/loading/padding.h"
#include "data/tables/table.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "nn/adapters/lora.h"
#include "nn/models/bert.h"
#include "optim/adam.h"
#include "optim/schedules/get_scheduler.h"
#include "tools/trainer/fingerprint.h"
#include "tools/trainer/language_model.h"
#include "tools/trainer/lora_options.h"
#include "tools/trainer/run.h"
#include "tools/trainer/text_rows.h"

namespace fs = std::filesystem;
using namespace axle;
using Classifier = nn::BertForSequenceClassification;

// --- options

struct Settings : trainer::Options {
    std::string validation;  // a file, or "" to validate on a tenth of the training file
    std::string text = "text", pair, label = "label";  // names of columns
    std::int64_t max_length = 128, workers = 1, sample = 8;
    trainer::LoraOptions lora{.targets = "query,value"};
    double warmup = 0.1;  // the fraction of the updates
};

const std::vector<std::string> kPresets = {"default", "tiny"};

Settings preset_of(const std::string& name) {
    Settings s;
    s.preset = name, s.out = "runs/text";
    s.batch_size = 16, s.epochs = 3, s.lr = 2e-5, s.weight_decay = 0.01;
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
        "Fine-tunes a BERT of Hugging Face to classify texts, or pairs of texts.\n\n"
        "  train_text --data reviews.csv --init-from bert-base-uncased/ --out runs/a\n"
        "  train_text --data train.jsonl --validation dev.jsonl --text question --pair answer "
        "--init-from bert/ --lora-r 8 --lr 2e-4 --out runs/b\n",
        std::move(arguments));
    Settings s = preset_of(line.peek("preset").value_or(kPresets[0]));
    line.add("data", s.data, "A .csv, .tsv, .jsonl or .json file with a row for each text", true);
    line.add("init-from", s.init_from, "A folder with a BERT and its tokenizer.json", true);
    line.add("validation", s.validation, "File for validation; default: a tenth of --data");
    line.add("text", s.text, "The column with the text");
    line.add("pair", s.pair, "The column with a second text, for pairs");
    line.add("label", s.label, "The column with the class; rows without a class are left out");
    line.add("preset", s.preset, "Defaults: default or tiny");
    s.add_to(line);
    line.add("max-length", s.max_length, "Tokens of a text; longer texts are truncated", 3);
    line.add("warmup", s.warmup, "Fraction of the updates with increasing learning rate", 0, 1);
    s.lora.add_to(line);
    line.add("workers", s.workers, "Threads that tokenize batches", 0, 256);
    line.add("sample", s.sample, "Predictions to show at the end");
    if (!line.parse()) return std::nullopt;
    s.lora.check();
    s.values = line.values();
    return s;
}

// --- the texts

struct Texts {
    data::Table train, validation;  // rows with the columns of --text, --pair and --label
    std::vector<std::string> classes;
    data::PretrainedTokenizer tokenizer;
};

data::Table read_table(const Settings& s, const std::string& path) {
    std::vector<std::string> texts = {s.text};
    if (!s.pair.empty()) texts.push_back(s.pair);
    std::vector<std::string> columns = texts;
    columns.push_back(s.label);
    return trainer::open_rows(path, texts).select_columns(columns).filter([&](const Tree& row) {
        return !row[s.label].is_null();
    });
}

// Opens the files. Classes are numbered in the order of their names, and both files need the same
// numbers. Rows without a label are left out.
Texts load_texts(const Settings& s) {
    auto tokenizer = data::PretrainedTokenizer::from_pretrained(s.init_from);
    data::Table train = read_table(s, s.data);
    if (s.validation.empty()) {
        const data::Table encoded = train.class_encode_column(s.label);
        auto parts = encoded.train_test_split(
            {.test_size = 0.1, .seed = s.split_seed, .stratify_by_column = s.label});
        return {parts.train, parts.test, encoded.column_schema(s.label).class_names, tokenizer};
    }
    const data::Table validation = read_table(s, s.validation);
    const data::Table all =
        data::Table::concatenate({train, validation}).class_encode_column(s.label);
    std::vector<std::int64_t> first, second;
    for (std::int64_t i = 0; i < all.size(); ++i) (i < train.size() ? first : second).push_back(i);
    return {all.select(first), all.select(second), all.column_schema(s.label).class_names,
            tokenizer};
}

// Throws ValueError if the texts have other classes than the trained model in --out.
void check_classes(const Settings& s, const Texts& texts) {
    const fs::path config = fs::path(s.out) / "config.json";
    if (!fs::exists(config)) return;
    const auto trained =
        nn::BertConfig::from_json(read_file(config.string(), std::int64_t{2} << 20)).labels;
    const auto listed = [](const std::vector<std::string>& names) {
        std::string all;
        for (const std::string& name : names)
            all += (all.empty() ? "" : ", ") + printable(name, 40);
        return printable(all, 400);
    };
    if (trained != texts.classes)
        throw ValueError(
            str("--data must have the classes of the model in --out: ", listed(trained),
                "; the column ", in_quotes(s.label), " has ", listed(texts.classes)));
}

// Returns the tensors of a row. Worker threads call it when they read the row.
Tree tokenize(const Settings& s, const Texts& texts, const Tree& row) {
    const data::EncodeOptions options{.truncation = data::Truncation{.max_length = s.max_length}};
    const std::string text = trainer::text_of(row, s.text);
    const data::Encoding encoding =
        s.pair.empty() ? texts.tokenizer.encode(text, options)
                       : texts.tokenizer.encode(text, trainer::text_of(row, s.pair), options);
    return Tree{{"input_ids", tensor(encoding.ids)},
                {"attention_mask", tensor(encoding.attention_mask)},
                {"token_type_ids", tensor(encoding.type_ids)},
                {"labels", row[s.label].integer()}};
}

data::DataLoader loader_of(const Settings& s, const Texts& texts, const data::Table& table,
                           data::LoaderOptions options) {
    data::Table rows = table.map([&s, &texts](const Tree& row) { return tokenize(s, texts, row); },
                                 {.remove_columns = table.column_names()});
    const std::int64_t padding = texts.tokenizer.token_to_id("[PAD]").value_or(0);
    options.collate_fn = data::padding_collate({.padding_values = {{"input_ids", padding}}});
    options.num_workers = static_cast<int>(s.workers);
    return data::DataLoader(rows, options);
}

// --- training

// Returns the accuracy from 0 to 1 and the mean loss in nats.
Tree evaluate(Accelerator& accelerator, Classifier& model, data::DataLoader& validation) {
    const NoGrad no_grad;
    model.eval();
    accel::Accuracy accuracy(accelerator);
    accel::Mean loss(accelerator);
    for (auto& batch : accelerator.prepare(validation)) {
        const Tensor logits = model.outputs(batch).logits;
        accuracy.update(logits, batch["labels"]);
        loss.update(cross_entropy(logits, batch["labels"], {.reduction = Reduction::none}));
    }
    model.train();
    return Tree{{"accuracy", accuracy.compute()}, {"val_loss", loss.compute()}};
}

trainer::Run::Plan plan_for(const Settings& s, const Texts& texts, Accelerator& accelerator,
                            Classifier& model) {
    const auto validation = std::make_shared<data::DataLoader>(
        loader_of(s, texts, texts.validation, {.batch_size = 4 * s.batch_size}));
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
trainer::Outcome only_evaluate(const Settings& s, const Texts& texts, Classifier& classifier) {
    Accelerator accelerator(s.accelerator());
    accelerator.prepare(classifier);
    trainer::Run::Plan plan = plan_for(s, texts, accelerator, classifier);
    plan.steps = 0;
    return trainer::Run(s, accelerator, std::move(plan)).finish();
}

// Writes the model or, with --lora-r, the adapter, and the tokenizer.
void save(const Settings& s, const Classifier& model) {
    if (s.lora.is_used()) {
        nn::save_adapter(model, s.out);
        // The names of the classes.
        write_file_atomically((fs::path(s.out) / "config.json").string(),
                              model.config.to_json() + "\n");
    } else {
        model.save_pretrained(s.out);
    }
    trainer::copy_tokenizer(s.init_from, s.out);
}

trainer::Outcome train(const Settings& s, const Texts& texts, Classifier& classifier) {
    Accelerator accelerator(s.accelerator());
    classifier.train();  // from_pretrained() returns a model in evaluation mode
    const trainer::Run::Plan plan = plan_for(s, texts, accelerator, classifier);
    data::DataLoader train_loader = loader_of(
        s, texts, texts.train, {.batch_size = s.batch_size, .shuffle = true, .seed = s.seed});
    optim::AdamW adamw = trainer::adamw(classifier, {.lr = s.lr, .weight_decay = s.weight_decay});
    optim::LambdaLR linear = optim::get_linear_schedule_with_warmup(
        adamw, std::llround(s.warmup * static_cast<double>(plan.steps)), plan.steps);

    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(classifier, adamw, train_loader, linear);
    trainer::Run run(s, accelerator, plan);
    while (!run.done()) {
        for (auto& batch : loader) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = model.outputs(batch).loss;
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
    accelerator.on_main_process([&] { save(s, model); });
    return run.finish();
}

// --- the report

// Returns the predicted classes of all texts for validation.
std::vector<std::int64_t> predictions(const Settings& s, const Texts& texts, Classifier& model) {
    const NoGrad no_grad;
    model.eval();
    const Device device = model.classifier.weight.device();
    std::vector<std::int64_t> result;
    for (auto& batch : loader_of(s, texts, texts.validation, {.batch_size = 4 * s.batch_size}))
        for (const double guess :
             argmax(model(batch["input_ids"].to(device), batch["attention_mask"].to(device),
                          batch["token_type_ids"].to(device)),
                    -1)
                 .to_vector())
            result.push_back(static_cast<std::int64_t>(guess));
    return result;
}

// Returns a table with a row for each class of the texts and a column for each predicted class.
std::string confusion_matrix(const Settings& s, const Texts& texts,
                             const std::vector<std::int64_t>& guesses) {
    const std::size_t classes = texts.classes.size();
    std::vector<std::int64_t> counts(classes * classes);
    for (std::size_t i = 0; i < guesses.size(); ++i) {
        const Tree row = texts.validation.get(static_cast<std::int64_t>(i));
        const auto label = static_cast<std::size_t>(row[s.label].integer());
        ++counts[label * classes + static_cast<std::size_t>(guesses[i])];
    }
    std::ostringstream out;
    out << "rows: the class of the text; columns: the predicted class\n";
    const auto cell = [&](const auto& value) { out << std::setw(14) << value; };
    cell("");
    for (const std::string& name : texts.classes) cell(printable(name, 12));
    for (std::size_t label = 0; label < classes; ++label) {
        out << '\n';
        cell(printable(texts.classes[label], 12));
        for (std::size_t guess = 0; guess < classes; ++guess) cell(counts[label * classes + guess]);
    }
    out << '\n';
    return out.str();
}

std::string sample_predictions(const Settings& s, const Texts& texts,
                               const std::vector<std::int64_t>& guesses) {
    std::string out;
    for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(s.sample), guesses.size()); ++i) {
        const Tree row = texts.validation.get(static_cast<std::int64_t>(i));
        const std::string& guess = texts.classes[static_cast<std::size_t>(guesses[i])];
        const std::string& label = texts.classes[static_cast<std::size_t>(row[s.label].integer())];
        out += str(guess, guess == label ? "" : str(" (", label, ")"), ": ",
                   printable(trainer::text_of(row, s.text), 100), "\n");
    }
    return out;
}

int run(Settings s) {
    // --init-from names the base model, which is not the model to evaluate.
    if (s.eval_only && s.resume.empty()) s.resume = "latest";
    std::error_code missing;
    if (fs::equivalent(s.out, s.init_from, missing))
        throw UsageError(
            "--out must be another folder than --init-from, whose model it would replace");
    s.divides_rows = s.validation.empty();
    s.apply();
    const Texts texts = load_texts(s);
    if (s.eval_only) check_classes(s, texts);
    if (texts.classes.size() < 2)
        throw ValueError(str("--label: the column ", in_quotes(s.label),
                             " must have at least two classes: it has ", texts.classes.size()));
    auto model = s.lora.load_base(
        [&] { return Classifier::from_pretrained(s.init_from, std::ssize(texts.classes)); });
    model.config.labels = texts.classes;
    if (s.max_length > model.config.max_position_embeddings)
        s.max_length = model.config.max_position_embeddings;
    std::int64_t quantized = 0;  // the number of weights that are not parameters any more
    if (s.lora.is_used()) {
        quantized = s.lora.quantize_base(model, {"pooler", "classifier"});
        nn::LoraConfig config = s.lora.config(s.init_from, "SEQ_CLS");
        // Files of a masked language model have no pooler.
        config.modules_to_save = {"pooler"};
        nn::add_lora(model, config);
    }
    const std::int64_t parameters = model.num_parameters() + quantized;
    s.identity = {{"model", str(parameters, " parameters, LoRA rank ", s.lora.identity())},
                  {"data", trainer::fingerprint(s.data)}};
    std::cout << "model: " << parameters << " parameters; texts: " << texts.train.size()
              << " to train, " << texts.validation.size() << " to validate, "
              << texts.classes.size() << " classes\n"
              << std::flush;

    const trainer::Outcome outcome = (s.eval_only ? only_evaluate : train)(s, texts, model);
    const std::vector<std::int64_t> guesses = predictions(s, texts, model);
    const std::string samples = sample_predictions(s, texts, guesses);
    const std::string text = confusion_matrix(s, texts, guesses) + "\n" + samples;
    if (!s.eval_only)
        std::cout << "report: "
                  << trainer::write_report(s, outcome, {.title = "train_text", .text = text})
                  << '\n';
    std::cout << text << "accuracy " << outcome.summary["accuracy"].number() << " on "
              << texts.validation.size() << " texts\n"
              << to_json(outcome.summary, -1) << std::endl;
    return 0;
}

int main(int argc, char** argv) {
    try {
        const auto settings = parse({argv + 1, argv + argc});
        return settings ? run(*settings) : 0;
    } catch (const trainer::Stopped& stopped) {
        std::cerr << "train_text: stopped by a signal; resume with --resume " << stopped.checkpoint
                  << '\n';
        return trainer::kStopped;
    } catch (const std::exception& error) {
        std::cerr << "train_text: " << error.what() << '\n';
        return 1;
    }
}
