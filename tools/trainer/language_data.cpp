#include "tools/trainer/language_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/files/file.h"
#include "core/system/log.h"
#include "data/loading/padding.h"
#include "data/tables/table.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "tools/trainer/language_model.h"

namespace axle::trainer {

namespace fs = std::filesystem;

namespace {

// Returns whether a value of --tokenizer is a folder with a tokenizer.json.
bool is_folder(const std::string& kind) { return kind != "char" && kind != "byte"; }

// Returns the tokenizer of a run. Its files are in the folder of the run; a new run copies them
// from the folder of --init-from or --tokenizer, or gets the vocabulary of its text.
std::unique_ptr<data::Tokenizer> tokenizer_of(const Options& run, const std::string& kind,
                                              bool has_documents, std::int64_t vocab_size) {
    const std::string path = run.path_of("tokenizer.json");
    const bool resumes = !run.resume.empty() && fs::exists(path);
    const bool is_of_model = !run.init_from.empty() &&
                             fs::exists(fs::path(model_folder(run.init_from)) / "tokenizer.json");
    if (is_of_model && !resumes) {
        copy_tokenizer(run.init_from, run.out);
        return model_tokenizer(run.init_from, vocab_size);
    }
    if (resumes && (is_of_model || kind != "byte")) return model_tokenizer(run.out, vocab_size);
    if (is_folder(kind)) {
        copy_tokenizer(kind, run.out);
        return model_tokenizer(kind, vocab_size);
    }
    if (kind == "byte" || (has_documents && vocab_size == 256))
        return std::make_unique<data::ByteTokenizer>();
    if (has_documents)
        throw UsageError(
            "--data: JSON lines need --tokenizer byte, or --tokenizer or --init-from with a "
            "tokenizer.json");
    auto tokenizer = data::CharTokenizer::from_file(run.data);
    write_file_atomically(path, tokenizer.to_json() + "\n");
    return std::make_unique<data::CharTokenizer>(std::move(tokenizer));
}

data::Packing packing_of(const std::string& name) {
    if (name == "none") return data::Packing::none;
    if (name == "best-fit") return data::Packing::best_fit;
    if (name == "wrapped") return data::Packing::wrapped;
    throw_unknown("value of --packing", name, {"none", "best-fit", "wrapped"});
}

}  // namespace

void LanguageDataOptions::add_to(CommandLine& line) {
    line.add("text", text, "JSON lines: the column with the text");
    line.add("chat", chat, "JSON lines: the format of the column messages, chatml or llama3");
    line.add("train-on", train_on, "JSON lines: 'answers' only, or 'all' tokens");
    line.add("packing", packing,
             "JSON lines: 'none' pads documents, 'best-fit' puts several into a block, 'wrapped' "
             "cuts the concatenated documents into blocks");
}

LanguageData::LanguageData(const Options& run, const LanguageDataOptions& options,
                           const LanguageModelSizes& sizes)
    : sizes_(sizes) {
    const bool has_documents = run.data.ends_with(".jsonl") || run.data.ends_with(".json");
    std::error_code ignored;
    const bool has_tokens = run.data.ends_with(".bin") || fs::is_directory(run.data, ignored);
    if (!has_tokens || is_folder(options.tokenizer))
        tokenizer_ = tokenizer_of(run, options.tokenizer, has_documents, sizes.vocab_size);
    vocab_size_ = tokenizer_ ? tokenizer_->vocab_size() : sizes.vocab_size;
    if (has_documents) {
        open_documents(run, options);
        return;
    }
    const data::Tokens all = has_tokens ? data::Tokens::open(run.data, {.vocab_size = vocab_size_})
                                        : tokenizer_->encode_file(run.data);
    const std::int64_t cut = all.size() * 9 / 10;
    if (all.size() - cut <= sizes.block)
        throw FileError(str(printable(run.data), ": the file is too short: a tenth of its ",
                            all.size(), " tokens must be longer than a block, which has ",
                            sizes.block, " tokens"));
    train_ = all.slice(0, cut);
    validation_ = all.slice(cut, all.size());
    unigram_entropy_ = data::unigram_entropy(all);
}

void LanguageData::open_documents(const Options& run, const LanguageDataOptions& options) {
    if (options.train_on != "answers" && options.train_on != "all")
        throw_unknown("value of --train-on", options.train_on, {"answers", "all"});
    std::optional<std::int64_t> eos;
    if (!sizes_.eos.empty()) eos = sizes_.eos.front();
    if (const auto* named = dynamic_cast<const data::PretrainedTokenizer*>(tokenizer_.get())) {
        const auto token = named->special_tokens().find("eos_token");
        if (token != named->special_tokens().end()) eos = named->token_to_id(token->second);
    }
    const data::DocumentOptions documents{.text_column = options.text,
                                          .chat_template = options.chat,
                                          .answers_only = options.train_on == "answers",
                                          .eos_token_id = eos,
                                          .max_length = sizes_.block,
                                          .packing = packing_of(options.packing)};
    const data::Table table = data::Table::from_json(run.data);
    const auto names = table.column_names();
    if (std::ranges::find(names, "messages") != names.end()) chat_ = options.chat;
    const auto parts = table.train_test_split({.test_size = 0.1, .seed = run.split_seed});
    train_documents_.emplace(parts.train, *tokenizer_, documents);
    validation_documents_.emplace(parts.test, *tokenizer_, documents);
    const std::int64_t left_out = train_documents_->left_out() + validation_documents_->left_out();
    if (left_out > 0)
        log(LogLevel::warning, left_out, left_out == 1 ? " document has" : " documents have",
            " no trained token in the first ", sizes_.block, " tokens, and ",
            left_out == 1 ? "is" : "are", " left out: use a larger --block-size");
}

double LanguageData::train_tokens() const {
    return static_cast<double>(train_ ? train_->size() : train_documents_->num_tokens());
}

double LanguageData::train_samples() const {
    return train_ ? train_tokens() / static_cast<double>(sizes_.block)
                  : static_cast<double>(train_documents_->size());
}

std::string LanguageData::description() const {
    if (train_)
        return str("text: ", train_->size() + validation_->size(), " tokens of ", vocab_size_,
                   ", unigram entropy ", unigram_entropy_, " nats");
    return str("documents: ", train_documents_->num_documents(), " to train, ",
               validation_documents_->num_documents(), " to validate; ",
               train_documents_->num_tokens(), " tokens in ", train_documents_->size(), " samples");
}

data::DataLoader LanguageData::loader_of(const data::DocumentDataset& documents,
                                         data::LoaderOptions options) const {
    options.collate_fn = data::padding_collate({.padding_values = {{"labels", -100}}});
    return data::DataLoader(documents, options);
}

data::DataLoader LanguageData::train_loader(std::int64_t batch_size, std::uint64_t seed) const {
    if (train_documents_)
        return loader_of(*train_documents_,
                         {.batch_size = batch_size, .shuffle = true, .seed = seed});
    // The i-th block of the dataset depends only on i and the seed, so the number of steps may
    // change when a run is resumed.
    constexpr std::int64_t kSamples = std::int64_t{1} << 40;
    return data::DataLoader(data::RandomBlockDataset(*train_, sizes_.block, kSamples, seed),
                            {.batch_size = batch_size});
}

data::DataLoader LanguageData::validation_loader(std::int64_t batch_size) const {
    if (validation_documents_) return loader_of(*validation_documents_, {.batch_size = batch_size});
    return data::DataLoader(data::BlockDataset(*validation_, sizes_.block),
                            {.batch_size = batch_size});
}

std::vector<std::vector<std::int64_t>> LanguageData::prompts(std::int64_t count) const {
    std::vector<std::vector<std::int64_t>> prompts;
    if (validation_documents_) {
        const std::int64_t all = validation_documents_->num_documents();
        for (std::int64_t i = 0; i < std::min(count, all); ++i)
            prompts.push_back(validation_documents_->prompt(i));
        return prompts;
    }
    try {
        if (tokenizer_) prompts.push_back(tokenizer_->encode("\n"));
    } catch (const ValueError&) {
        // The vocabulary has no line break.
    }
    if (prompts.empty() || prompts[0].empty()) prompts = {{(*train_)[0]}};
    return prompts;
}

std::string LanguageData::text_of(const std::vector<std::int64_t>& ids) const {
    if (const auto* pretrained = dynamic_cast<const data::PretrainedTokenizer*>(tokenizer_.get()))
        return pretrained->decode(ids, false);
    if (tokenizer_) return tokenizer_->decode(ids);
    std::string text;
    for (const std::int64_t id : ids) text += std::to_string(id) + ' ';
    return text;
}

std::vector<std::int64_t> LanguageData::end_ids() const {
    return has_documents() ? sizes_.eos : std::vector<std::int64_t>();
}

bool LanguageData::is_end(const std::vector<std::int64_t>& ids) const {
    if (chat_.empty()) return false;
    return text_of(ids).ends_with(data::ChatTemplate::named(chat_).end_token());
}

}  // namespace axle::trainer
