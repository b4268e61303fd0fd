// The program train_gpt: trains a GPT-2 or Llama on a text, on questions with answers, or on chats.
// Training starts with random weights, with a checkpoint, or with published weights, of which it
// trains all or a LoRA adapter.
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
#include "data/loading/loader.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "optim/adam.h"
#include "optim/algorithms/muon.h"
#include "optim/schedules/schedules.h"
#include "tools/trainer/fingerprint.h"
#include "tools/trainer/gpt_settings.h"
#include "tools/trainer/language_data.h"
#include "tools/trainer/language_model.h"
#include "tools/trainer/run.h"

namespace fs = std::filesystem;
using namespace axle;

using Settings = trainer::GptSettings;

// --- training

// Returns the loss of a batch.
Tensor loss_of(nn::Gpt& model, const Tree& batch) {
    const Tree* const positions = batch.find("position_ids");
    return model.loss(batch["input_ids"], batch["labels"],
                      positions == nullptr ? Tensor() : Tensor(*positions));
}
Tensor loss_of(nn::Llama& model, const Tree& batch) {
    const Tree* const positions = batch.find("position_ids");
    return model.loss(batch["input_ids"], batch["labels"], {},
                      positions == nullptr ? Tensor() : Tensor(*positions));
}

// Returns the mean loss in nats over all trained tokens of a split, and the perplexity. The loader
// is prepared after --resume, because its position is not part of a checkpoint. The model returns
// one loss per batch, so repeated samples are removed from the batch before the model is called.
template <class Model>
Tree evaluate(Accelerator& accelerator, Model& model, data::DataLoader& samples) {
    const NoGrad no_grad;
    model.eval();
    accel::Mean loss(accelerator);
    for (auto& batch : accelerator.prepare(samples)) {
        const Tensor& ids = batch["input_ids"];
        const std::int64_t rows = accelerator.valid_rows(ids.size(0));
        // Keeps at least one row, so that all ranks call the model. Ranks that divide the model
        // need the same rows, although only one rank has valid rows.
        const data::DataLoader& loader = *accelerator.active_dataloader();
        const std::int64_t kept = std::max<std::int64_t>(
            1, loader.batch_samples() == ids.size(0) ? loader.valid_samples() : ids.size(0));
        Tree part = Tree::map();
        for (const auto& [name, value] : batch.entries())
            part.set(name, Tensor(value).narrow(0, 0, kept));
        const Tensor labels = Tensor(batch["labels"]).narrow(0, 0, rows);
        loss.update(loss_of(model, part), rows == 0 ? 0.0 : (labels != -100).sum().item());
    }
    model.train();
    const double mean = loss.compute();
    return Tree{{"val_loss", mean}, {"perplexity", std::exp(mean)}};
}

template <class Model>
trainer::Run::Plan plan_for(const Settings& s, const trainer::LanguageData& data,
                            Accelerator& accelerator, Model& model) {
    const auto samples =
        std::make_shared<data::DataLoader>(data.validation_loader(4 * s.batch_size));
    return {.steps = s.updates(data.train_samples()),
            .unit = "tokens",
            .per_update = static_cast<double>(s.samples_per_update()) * data.train_tokens() /
                          data.train_samples(),
            .per_epoch = data.train_tokens(),
            .evaluate = [&accelerator, &model, samples] {
                return evaluate(accelerator, model, *samples);
            }};
}

// Evaluates a checkpoint. Loads only the model, so that the options of the training are not needed.
template <class Model>
trainer::Outcome only_evaluate(const Settings& s, const trainer::LanguageData& data, Model& model) {
    Accelerator accelerator(s.accelerator());
    accelerator.prepare(model);
    trainer::Run::Plan plan = plan_for(s, data, accelerator, model);
    plan.steps = 0;
    trainer::Outcome outcome = trainer::Run(s, accelerator, std::move(plan)).finish();
    dist::unshard(model);
    dist::join_slices(model);
    return outcome;
}

template <class Model>
trainer::Outcome train(const Settings& s, const trainer::LanguageData& data, Model& language) {
    Accelerator accelerator(s.accelerator());
    language.train();  // from_pretrained() returns a model in evaluation mode
    const trainer::Run::Plan plan = plan_for(s, data, accelerator, language);
    data::DataLoader train_loader = data.train_loader(s.batch_size, s.seed);

    // Muon trains the weights of the layers, if --muon-lr is given.
    std::vector<Tensor> matrices;
    if (s.muon_lr > 0) matrices = trainer::layer_weights(language);
    const std::vector<Tensor> others =
        trainer::without(nn::trainable_parameters(language), matrices);
    // A DeepSpeed configuration can select another optimizer and another schedule.
    accel::DummyOptim adamw(others, s.lr, s.weight_decay);
    adamw.optimizer_callable = [&] {
        return std::make_unique<optim::AdamW>(trainer::adamw(
            others, {.lr = s.lr, .betas = {0.9, s.beta2}, .weight_decay = s.weight_decay}));
    };
    const std::int64_t warmup = std::min(s.warmup, plan.steps - 1);
    const double min_lr = std::min(s.min_lr, s.lr);
    accel::DummyScheduler cosine{.total_num_steps = plan.steps * accelerator.num_processes(),
                                 .warmup_num_steps = warmup};
    cosine.lr_scheduler_callable = [&](optim::Optimizer& created) {
        return std::make_unique<optim::LambdaLR>(optim::get_cosine_with_min_lr_schedule_with_warmup(
            created, warmup, plan.steps, {.min_lr = min_lr}));
    };
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(language, adamw, train_loader, cosine);
    std::optional<optim::Muon> muon;
    std::optional<optim::LambdaLR> muon_cosine;
    if (!matrices.empty()) {
        muon.emplace(matrices, optim::MuonOptions{.lr = s.muon_lr,
                                                  .weight_decay = s.weight_decay,
                                                  .adjust_lr_fn = "match_rms_adamw"});
        muon_cosine.emplace(optim::get_cosine_with_min_lr_schedule_with_warmup(
            *muon, warmup, plan.steps, {.min_lr_rate = min_lr / s.lr}));
        accelerator.prepare(*muon, *muon_cosine);
    }
    trainer::Run run(s, accelerator, plan);
    while (!run.done()) {
        for (auto& batch : loader) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = loss_of(model, batch);
            accelerator.backward(loss);
            run.add_loss(loss);
            if (accelerator.sync_gradients())
                run.note("grad_norm", accelerator.clip_grad_norm_(model.parameters(), s.clip));
            run.note("lr", scheduler.get_last_lr()[0]);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
            if (muon) {
                muon->step();
                muon_cosine->step();
                muon->zero_grad();
            }
            if (accelerator.sync_gradients()) run.end_update();
            if (run.done()) break;
        }
    }
    trainer::Outcome outcome = run.finish();
    dist::unshard(model);
    dist::join_slices(model);
    accelerator.on_main_process([&] {
        if (s.lora.is_used())
            nn::save_adapter(model, s.out);
        else
            model.save_pretrained(s.out);
    });
    return outcome;
}

// --- samples

// Returns generated text or, without a tokenizer, generated token ids. Answers of documents follow
// their prompts.
template <class Model>
std::string sample(const Settings& s, const trainer::LanguageData& data, Model& model) {
    constexpr std::int64_t kAnswers = 3;
    std::string text;
    for (const std::vector<std::int64_t>& prompt : data.prompts(kAnswers)) {
        std::vector<std::int64_t> answer;
        const auto ids = model.generate(prompt, s.sample,
                                        {.temperature = 0.8,
                                         .eos_token_id = data.end_ids(),
                                         .on_token = [&](std::int64_t, std::int64_t token) {
                                             answer.push_back(token);
                                             return !data.is_end(answer);
                                         }});
        text += (text.empty() ? "" : "\n\n") + data.text_of(ids);
    }
    return text;
}

// --- the program

std::string description(const nn::GptConfig& c) {
    return str(c.vocab_size, " tokens, ", c.n_layer, " layers, ", c.n_head, " heads, ", c.n_embd,
               " wide");
}
std::string description(const nn::LlamaConfig& c) {
    return str(c.vocab_size, " tokens, ", c.num_hidden_layers, " layers, ", c.num_attention_heads,
               " heads, ", c.hidden_size, " wide");
}

// Trains or evaluates a model, and writes the report.
template <class Model>
int run(Settings& s, const trainer::LanguageData& data, Model& model, std::int64_t block) {
    std::string adapter;
    std::int64_t quantized = 0;  // the number of weights that are not parameters any more
    if (s.lora.is_used()) {
        quantized = s.lora.quantize_base(model);
        nn::add_lora(model, s.lora.config(s.init_from, "CAUSAL_LM"));
        adapter = ", LoRA rank " + s.lora.identity();
    }
    s.identity = {{"model", str(description(model.config), ", blocks of ", block, adapter)},
                  {"data", trainer::fingerprint(s.data)}};
    if (s.muon_lr > 0) s.identity.emplace_back("muon", str("learning rate ", s.muon_lr));
    s.divides_rows = data.has_documents();
    if (data.has_documents())  // the samples and their order depend on these options
        s.identity.emplace_back("documents",
                                str("column ", s.text.text, ", chat ", s.text.chat, ", train on ",
                                    s.text.train_on, ", packing ", s.text.packing));
    std::cout << "model: " << model.num_parameters() + quantized << " parameters; "
              << data.description() << '\n'
              << std::flush;

    const trainer::Outcome outcome =
        s.eval_only ? only_evaluate(s, data, model) : train(s, data, model);
    const double val_loss = outcome.summary["val_loss"].number();
    model.eval();
    const std::string text = s.sample > 0 ? sample(s, data, model) : "";
    if (!s.eval_only)
        std::cout << "report: "
                  << trainer::write_report(s, outcome, {.title = "train_gpt", .text = text})
                  << '\n';
    if (s.sample > 0) std::cout << text << '\n';
    std::cout << "validation loss " << val_loss << " nats a token, ";
    Tree summary = Tree::map();
    if (!data.has_documents()) {
        const double gain = data.unigram_entropy() - val_loss;
        std::cout << std::abs(gain) << (gain < 0 ? " above" : " below") << " the unigram entropy, ";
        summary.set("unigram_entropy", data.unigram_entropy());
    }
    std::cout << "perplexity " << outcome.summary["perplexity"].number() << '\n';
    for (const auto& [key, value] : outcome.summary.entries()) summary.set(key, value);
    std::cout << to_json(summary, -1) << std::endl;
    return 0;
}

int run_new(Settings s) {
    const std::int64_t block = s.model.block_size;
    const trainer::LanguageData data(s, s.text, {.vocab_size = s.model.vocab_size, .block = block});
    s.model.vocab_size = data.vocab_size();
    std::optional<nn::Gpt> model;
    {
        // With --use_fsdp or ZeRO stage 3, no process needs memory for the whole model.
        const nn::init::DeferredWeights scope;
        model.emplace(s.model);
    }
    return run(s, data, *model, block);
}

std::int64_t longest(const nn::GptConfig& c) { return c.block_size; }
std::int64_t longest(const nn::LlamaConfig& c) { return c.max_position_embeddings; }

template <class Model>
int run_pretrained(Settings s) {
    constexpr std::int64_t kLargestDefault = 1024;
    Model model = s.lora.load_base([&] { return Model::from_pretrained(s.init_from); });
    const std::int64_t vocab_size = model.config.vocab_size, limit = longest(model.config);
    const std::int64_t block = s.has_block ? s.model.block_size : std::min(limit, kLargestDefault);
    if (block > limit)
        throw UsageError(str("--block-size must be at most ", limit,
                             ", the longest sequence of the model: it is ", block));
    std::vector<std::int64_t> eos = model.config.eos_token_id;
    std::erase_if(eos, [&](std::int64_t id) { return id >= vocab_size; });
    const trainer::LanguageData data(s, s.text,
                                     {.vocab_size = vocab_size, .block = block, .eos = eos});
    if (data.vocab_size() > vocab_size)
        throw ValueError(str("--init-from: the model's vocabulary is smaller than the text's: the ",
                             "model has ", vocab_size, " tokens, the text has ",
                             data.vocab_size()));
    return run(s, data, model, block);
}

int start(Settings s) {
    // Without a checkpoint, the model of --init-from is evaluated. It has no adapter.
    if (s.eval_only && s.resume.empty() && !s.init_from.empty() &&
        (s.lora.is_used() || fs::exists(s.path_of("checkpoints"))))
        s.resume = "latest";
    std::error_code missing;
    if (!s.init_from.empty() && fs::equivalent(s.out, s.init_from, missing))
        throw UsageError(
            "--out must be another folder than --init-from, whose model it would replace");
    s.apply();
    if (s.init_from.empty()) return run_new(std::move(s));
    const std::string type = trainer::model_type(s.init_from);
    if (type == "llama") return run_pretrained<nn::Llama>(std::move(s));
    if (type == "gpt2") return run_pretrained<nn::Gpt>(std::move(s));
    throw ValueError(
        str("--init-from: the model_type in config.json must be gpt2 or llama: ", in_quotes(type)));
}

int main(int argc, char** argv) {
    try {
        const auto settings = trainer::parse_gpt_settings({argv + 1, argv + argc});
        return settings ? start(*settings) : 0;
    } catch (const trainer::Stopped& stopped) {
        std::cerr << "train_gpt: stopped by a signal; resume with --resume " << stopped.checkpoint
                  << '\n';
        return trainer::kStopped;
    } catch (const std::exception& error) {
        std::cerr << "train_gpt: " << error.what() << '\n';
        return 1;
    }
}
