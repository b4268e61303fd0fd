// Implements the command `axle generate`, which continues a text with a language model.
#include "nn/generation/generate.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "data/files/text.h"
#include "data/instructions/documents.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "nn/adapters/lora.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/models/text/mixtral.h"
#include "tools/axle/commands.h"
#include "tools/options/options.h"
#include "tools/trainer/language_model.h"

namespace axle::launcher {
namespace {

struct GenerateSettings {
    std::string model, prompt, chat, adapter, tokenizer, dtype = "float32";
    std::vector<std::string> stop;
    std::int64_t max_new_tokens = 100;
    std::uint64_t seed = 0;
    nn::GenerateOptions options{.temperature = 0.8};
};

// Removes the text that ends an answer, and all text after it, if the text is several tokens.
class AnswerEnd {
  public:
    // Sets the text to remove. "" removes nothing.
    void set(std::string end) { end_ = std::move(end); }
    // Returns the text that can be written after the next part of the answer. Keeps back text that
    // may be the beginning of the end.
    std::string next(const std::string& part) {
        if (is_found_) return "";
        kept_ += part;
        std::size_t written = kept_.size();
        if (const std::size_t at = end_.empty() ? std::string::npos : kept_.find(end_);
            at != std::string::npos) {
            is_found_ = true;
            written = at;
        } else {
            std::size_t length = std::min(end_.size(), kept_.size());
            while (!kept_.ends_with(end_.substr(0, length))) --length;
            written -= length;
        }
        const std::string text = kept_.substr(0, written);
        kept_.erase(0, written);
        return text;
    }
    // Returns the text that was kept back.
    std::string finish() { return is_found_ ? "" : std::exchange(kept_, {}); }
    bool is_found() const { return is_found_; }

  private:
    std::string end_, kept_;
    bool is_found_ = false;
};

// The tokenizer of the model, which also converts generated tokens to text one by one.
class Text {
  public:
    Text(const GenerateSettings& s, std::int64_t vocab_size) {
        if (s.tokenizer == "byte")
            tokenizer_ = std::make_unique<data::ByteTokenizer>();
        else
            tokenizer_ = trainer::model_tokenizer(s.model, vocab_size);
        using Pretrained = const data::PretrainedTokenizer*;
        if (const auto* pretrained = dynamic_cast<Pretrained>(tokenizer_.get()))
            stream_.emplace(*pretrained);
    }

    // Returns the ids of the prompt, and passes them to next(). Called once, before the generated
    // tokens.
    std::vector<std::int64_t> encode(const std::string& prompt) {
        return begin(tokenizer_->encode(prompt));
    }
    // Returns the ids of a chat in which the prompt is a message of the user, and passes them to
    // next(). Adds the token that ends the answer to `ends`, or sets its text in `end` if it is
    // several tokens.
    std::vector<std::int64_t> encode_chat(const std::string& prompt, const std::string& name,
                                          std::vector<std::int64_t>& ends, AnswerEnd& end) {
        const auto format = data::chat_template_for(*tokenizer_, name);
        const std::vector<std::int64_t> tokens =
            data::encode_parts(*tokenizer_, {{{format.end_token(), true}}}, false).ids;
        if (tokens.size() == 1)
            ends.push_back(tokens[0]);
        else
            end.set(format.end_token());
        const data::ChatMessage message{"user", prompt};
        return begin(
            data::encode_parts(*tokenizer_, format.render({&message, 1}, true), false).ids);
    }
    // Returns the text that a token completes.
    // Ids without a token, which padded vocabularies have, complete no text.
    std::string next(std::int64_t id) {
        if (id >= tokenizer_->vocab_size()) return "";
        return stream_ ? stream_->next(id) : tokenizer_->decode(std::vector<std::int64_t>{id});
    }
    std::string finish() { return stream_ ? stream_->finish() : ""; }

  private:
    std::vector<std::int64_t> begin(std::vector<std::int64_t> ids) {
        for (const std::int64_t id : ids) next(id);
        return ids;
    }

    std::unique_ptr<data::Tokenizer> tokenizer_;
    std::optional<data::DecodeStream> stream_;
};

// Writes text to stdout until it contains one of the stop texts.
class Output {
  public:
    // `prompt` is written before the first part.
    Output(const std::vector<std::string>& stops, std::string prompt)
        : stops_(stops), prompt_(std::move(prompt)) {
        for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
    }

    // Writes a part of the text, but nothing after a stop text. Returns whether there was none.
    bool write(const std::string& part) {
        if (is_stopped_) return false;
        std::cout << std::exchange(prompt_, {});
        const std::string text = tail_ + part;
        std::size_t end = text.size();
        for (const std::string& stop : stops_)
            if (const std::size_t at = text.find(stop); at != std::string::npos)
                end = std::min(end, at + stop.size()), is_stopped_ = true;
        std::cout << text.substr(tail_.size(), std::max(end, tail_.size()) - tail_.size())
                  << std::flush;
        tail_ = text.substr(text.size() - std::min(text.size(), longest_));
        return !is_stopped_;
    }

  private:
    const std::vector<std::string>& stops_;
    std::string prompt_;
    std::size_t longest_ = 0;
    std::string tail_;  // the last characters of the text, in which a stop text can begin
    bool is_stopped_ = false;
};

// Returns the ids that end a text, from generation_config.json or else from config.json.
template <class Model>
std::vector<std::int64_t> end_ids(const Model& model) {
    const Tree* const ids =
        model.generation_config.is_map() ? model.generation_config.find("eos_token_id") : nullptr;
    if (ids == nullptr || ids->is_null()) return model.config.eos_token_id;
    if (ids->is_integer()) return {ids->integer()};
    std::vector<std::int64_t> result;
    for (const Tree& id : ids->is_list() ? ids->elements() : Tree::List{*ids}) {
        if (!id.is_integer())
            throw ValueError(
                str("generation_config.json: eos_token_id must be an integer or a list "
                    "of integers: ",
                    printable(str(*ids))));
        result.push_back(id.integer());
    }
    return result;
}

template <class Model>
int write_text(GenerateSettings s) {
    Model model = Model::from_pretrained(s.model);
    if (!s.adapter.empty()) {
        nn::load_adapter(model, s.adapter);
        nn::merge_and_unload(model);
    }
    if (s.dtype == "bfloat16") model.to(bf16);
    Text text(s, model.config.vocab_size);
    s.options.eos_token_id = end_ids(model);
    const bool is_chat = !s.chat.empty();
    AnswerEnd end;
    const std::vector<std::int64_t> prompt =
        is_chat ? text.encode_chat(s.prompt, s.chat, s.options.eos_token_id, end)
                : text.encode(s.prompt);
    if (prompt.empty())
        throw ValueError(
            str("--prompt: the text must have at least one token: ", in_quotes(s.prompt)));

    manual_seed(s.seed);
    Output output(s.stop, is_chat ? "" : s.prompt);
    if (s.options.num_beams == 1)
        s.options.on_token = [&](std::int64_t, std::int64_t token) {
            return output.write(end.next(text.next(token))) && !end.is_found();
        };
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<std::int64_t> ids = model.generate(prompt, s.max_new_tokens, s.options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto count = std::ssize(ids) - std::ssize(prompt);
    if (s.options.num_beams > 1)
        for (auto id = ids.begin() + std::ssize(prompt); id != ids.end(); ++id)
            output.write(end.next(text.next(*id)));
    output.write(end.next(text.finish()));
    output.write(end.finish());
    std::cout << std::endl;
    std::cerr << count << " tokens, "
              << static_cast<double>(count) / std::max(seconds.count(), 1e-9) << " a second\n";
    return 0;
}

}  // namespace

int run_generate(std::vector<std::string> arguments) {
    tools::Options options(
        "Continues a text with a language model. MODEL is a folder in the layout of Hugging Face, "
        "with config.json (gpt2, llama or mixtral), the weights and tokenizer.json, or a "
        ".safetensors file in such a folder. The text goes to stdout while it is generated.",
        "axle generate");
    options.show_defaults();
    GenerateSettings s;
    options.add("model", s.model, "The folder of the model, or its file").required();
    options.add("--prompt", s.prompt, "The text to continue").required();
    options.add("--max-new-tokens", s.max_new_tokens, "The largest number of tokens to add")
        .range(std::int64_t{1}, std::int64_t{1} << 31);
    const tools::Option temperature =
        options.add("--temperature", s.options.temperature, "Divides the logits; 0 is greedy")
            .range(0.0, 1e6);
    options.add("--top-k", s.options.top_k, "Sample from this many tokens; 0: all")
        .range(std::int64_t{0}, std::int64_t{1} << 31);
    options.add("--top-p", s.options.top_p, "Sample from tokens with this total probability")
        .range(0.0, 1.0);
    options.add("--min-p", s.options.min_p, "Least probability, relative to the best token")
        .range(0.0, 1.0);
    options.add("--repetition-penalty", s.options.repetition_penalty, "Above 1: repeat less")
        .range(0.01, 100.0);
    options.add("--num-beams", s.options.num_beams, "Above 1: beam search, without a temperature")
        .range(std::int64_t{1}, std::int64_t{1024});
    options.add("--stop", s.stop, "End after this text; can be repeated").repeatable();
    options
        .add("--chat", s.chat,
             "The prompt is a message of the user in this format: chatml or llama3")
        .one_of({"", "chatml", "llama3"});
    options.add("--seed", s.seed, "Seed of the random numbers");
    options.add("--adapter", s.adapter, "A LoRA adapter to apply, a folder in PEFT's format");
    options.add("--tokenizer", s.tokenizer, "byte: the tokens are bytes").one_of({"", "byte"});
    options.add("--dtype", s.dtype, "The dtype of the weights").one_of({"float32", "bfloat16"});
    if (!options.parse(std::move(arguments))) return 0;

    if (s.options.num_beams > 1 && !temperature.was_given()) s.options.temperature = 0;
    for (const std::string& stop : s.stop)
        if (stop.empty()) throw UsageError("--stop: the text must not be empty");

    const std::string type = trainer::model_type(s.model);
    if (type == "gpt2") return write_text<nn::Gpt>(std::move(s));
    if (type == "llama") return write_text<nn::Llama>(std::move(s));
    if (type == "mixtral") return write_text<nn::Mixtral>(std::move(s));
    throw ValueError(str("generate: the model_type in config.json must be gpt2, llama or mixtral: ",
                         in_quotes(type)));
}

}  // namespace axle::launcher
