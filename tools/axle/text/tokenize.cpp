// Implements the commands `axle tokenize encode` and `axle tokenize train`.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/utils/progress.h"
#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/text/text.h"
#include "data/corpora/encode_files.h"
#include "data/corpora/train_bpe.h"
#include "data/sentencepiece/sentencepiece.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"
#include "kernels/thread_pool.h"
#include "tools/axle/commands.h"
#include "tools/options/options.h"

namespace axle::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataHelp =
    "Files, or folders, which stand for their files: JSON lines (.jsonl, .json, .ndjson), .csv, "
    ".tsv, or text";
constexpr const char* kTextHelp = "The column with the texts of JSON lines and CSV; default: text";
constexpr const char* kThreadsHelp =
    "Number of threads, which does not change the result; default: all CPUs";

// Creates the folder of an output, so that a missing folder is not noticed at the end.
void prepare_output(const std::string& path, bool overwrite) {
    std::error_code ignored;
    if (!overwrite && fs::exists(fs::symlink_status(path, ignored)))
        throw FileError(printable(path) +
                        ": the file exists and was not changed; pass --overwrite to replace it");
    create_directories(folder_of(absolute_path(path)));
}

// A progress bar over the bytes of files.
class FileProgress {
  public:
    explicit FileProgress(std::string title) : title_(std::move(title)) {}
    void update(std::int64_t read_bytes, std::int64_t total_bytes, const std::string& note) {
        constexpr std::int64_t kUnit = 1000;
        const auto units = [](std::int64_t bytes) { return (bytes + kUnit - 1) / kUnit; };
        if (!bar_)
            bar_.emplace(units(total_bytes), accel::ProgressOptions{.title = title_, .unit = "kB"});
        bar_->update(units(read_bytes), note);
    }

  private:
    std::string title_;
    std::optional<accel::ProgressBar> bar_;
};

// The tokenizer of --tokenizer: a tokenizer.json or a SentencePiece model.
class LoadedTokenizer {
  public:
    explicit LoadedTokenizer(const std::string& path) {
        std::error_code ignored;
        const bool is_folder = fs::is_directory(path, ignored);
        const fs::path model = fs::path(path) / "tokenizer.model";
        if (is_folder && (fs::exists(fs::path(path) / "tokenizer.json") || !fs::exists(model)))
            pretrained_.emplace(data::PretrainedTokenizer::from_pretrained(path));
        else if (is_folder || path.ends_with(".model"))
            pieces_.emplace(
                data::SentencePieceTokenizer::from_file(is_folder ? model.string() : path));
        else
            pretrained_.emplace(data::PretrainedTokenizer::from_file(path));
    }

    const data::Tokenizer& get() const {
        if (pretrained_) return *pretrained_;
        return *pieces_;
    }
    // Returns the id of the token that ends a text.
    std::int64_t eos_id() const {
        if (pieces_ && pieces_->eos_id()) return *pieces_->eos_id();
        if (pretrained_) {
            const auto named = pretrained_->special_tokens().find("eos_token");
            if (named != pretrained_->special_tokens().end()) return id(named->second);
        }
        throw UsageError(
            "--append-eos: --tokenizer must be a folder whose tokenizer_config.json has an "
            "eos_token, or a SentencePiece model that has one; use --append TOKEN");
    }
    std::int64_t id(const std::string& token) const {
        const auto found =
            pretrained_ ? pretrained_->token_to_id(token) : pieces_->piece_to_id(token);
        if (!found)
            throw ValueError(str("the tokenizer does not have the token ", in_quotes(token)));
        return *found;
    }

  private:
    std::optional<data::PretrainedTokenizer> pretrained_;
    std::optional<data::SentencePieceTokenizer> pieces_;
};

int run_encode(std::vector<std::string> arguments) {
    tools::Options options(
        "Encodes texts to the token files that train_gpt and data::Tokens::open read: integers of "
        "2 bytes, or of 4 if the name ends in .u32.bin. The texts of all files are written in "
        "sequence.\n\n"
        "  axle tokenize encode --tokenizer gpt2/ --data books/ --out train.bin --append-eos\n"
        "  axle tokenize encode --tokenizer tokenizer.json --data web.jsonl --out shards "
        "--shard-tokens 100000000\n",
        "axle tokenize encode");
    std::string tokenizer_path, out, sample_by = "part", append;
    std::vector<std::string> data;
    bool append_eos = false, overwrite = false;
    data::EncodeFilesOptions encode{.num_threads = kernels::num_threads()};
    options
        .add("--tokenizer", tokenizer_path,
             "A folder with tokenizer.json or tokenizer.model, or such a file")
        .required();
    options.add("--data", data, kDataHelp).required();
    options.add("--out", out, "The file, or with --shard-tokens the folder, to write").required();
    options.add("--text", encode.texts.column, kTextHelp);
    options
        .add("--sample-by", sample_by,
             "How text files are divided: part (the complete text, encoded in parts of 64 KiB; the "
             "default), document, paragraph or line (without the line ends)")
        .one_of({"part", "document", "paragraph", "line"});
    options.add("--threads", encode.num_threads, kThreadsHelp).range(1, 1024);
    options
        .add("--shard-tokens", encode.shard_tokens,
             "Write a folder of files with this number of tokens")
        .range(std::int64_t{1}, INT64_MAX);
    options.add_flag("--append-eos", append_eos,
                     "Append the eos_token of tokenizer_config.json, or of a SentencePiece model, "
                     "to each document: a row, a "
                     "text file, or a paragraph or line of it");
    options.add("--append", append, "Append this token to each document");
    options.add_flag("--add-special-tokens", encode.add_special_tokens,
                     "Add the special tokens of the tokenizer, such as <s>, to each text");
    options.add_flag("--overwrite", overwrite, "Replace the output if it exists");
    if (!options.parse(std::move(arguments))) return 0;

    if (append_eos && !append.empty())
        throw UsageError("--append-eos and --append exclude each other");
    if (encode.shard_tokens == 0 && !out.ends_with(".bin"))
        throw UsageError(
            "--out: the name of the file must end in .bin, or --shard-tokens must be "
            "given: " +
            in_quotes(out));
    prepare_output(out, overwrite);
    encode.texts.sample_by = sample_by == "part"        ? data::SampleBy::part
                             : sample_by == "document"  ? data::SampleBy::document
                             : sample_by == "paragraph" ? data::SampleBy::paragraph
                                                        : data::SampleBy::line;
    const LoadedTokenizer tokenizer(tokenizer_path);
    if (append_eos) encode.end_id = tokenizer.eos_id();
    if (!append.empty()) encode.end_id = tokenizer.id(append);
    data::EncodedFiles result;
    {
        FileProgress progress("encode");
        encode.on_progress = [&](const data::EncodeProgress& now) {
            progress.update(now.read_bytes, now.total_bytes, str(now.tokens, " tokens"));
        };
        result = data::encode_files(tokenizer.get(), data, out, encode);
    }
    std::cout << "Wrote " << result.tokens << " tokens of " << result.documents << " documents to "
              << out << ".\n";
    return 0;
}

int run_train(std::vector<std::string> arguments) {
    tools::Options options(
        "Trains a byte-level BPE tokenizer, such as that of GPT-2, and writes it as "
        "tokenizer.json. The merges are those of BpeTrainer of the tokenizers library.\n\n"
        "  axle tokenize train --data books/ --vocab-size 8192 --special '<|endoftext|>' --out "
        "tokenizer.json\n",
        "axle tokenize train");
    std::string out, type = "byte-bpe";
    std::vector<std::string> data;
    bool overwrite = false;
    data::TrainBpeOptions train{.num_threads = kernels::num_threads()};
    data::BpeTrainerOptions& trainer = train.trainer;
    options.add("--data", data, kDataHelp).required();
    options
        .add("--vocab-size", trainer.vocab_size,
             "Number of tokens, with the special tokens and 256 bytes")
        .range(std::int64_t{256}, std::int64_t{INT32_MAX} - 1)
        .required();
    options.add("--out", out, "The file to write").required();
    options.add("--special", trainer.special_tokens, "A special token; can be repeated")
        .repeatable();
    options
        .add("--min-frequency", trainer.min_frequency,
             "Number of times that a merged pair must occur; default: 0")
        .at_least_zero();
    options.add("--type", type, "The type of the tokenizer: byte-bpe").one_of({"byte-bpe"});
    options.add("--text", train.column, kTextHelp);
    options.add("--threads", train.num_threads, kThreadsHelp).range(1, 1024);
    options.add_flag("--overwrite", overwrite, "Replace the output if it exists");
    if (!options.parse(std::move(arguments))) return 0;

    prepare_output(out, overwrite);
    std::string file;
    {
        std::optional<FileProgress> reading("read");
        std::optional<accel::ProgressBar> merging;
        train.on_read = [&](std::int64_t read, std::int64_t total) {
            reading->update(read, total, "");
        };
        train.on_token = [&](std::int64_t tokens) {
            reading.reset();
            if (!merging)
                merging.emplace(
                    trainer.vocab_size,
                    accel::ProgressOptions{.title = "merge", .unit = "token", .start = tokens - 1});
            merging->update(tokens);
        };
        file = data::train_bpe(data, train);
    }
    write_file_atomically(out, file);
    std::cout << "Wrote a tokenizer with "
              << data::PretrainedTokenizer::from_json(file).vocab_size() << " tokens to " << out
              << ".\n";
    return 0;
}

}  // namespace

int run_tokenize(std::vector<std::string> arguments) {
    const std::string name = arguments.empty() ? "" : arguments[0];
    if (!arguments.empty()) arguments.erase(arguments.begin());
    if (name == "encode") return run_encode(std::move(arguments));
    if (name == "train") return run_train(std::move(arguments));
    if (!name.empty() && name != "--help" && name != "-h")
        throw UsageError("tokenize: unknown command " + in_quotes(name) +
                         "; expected encode or train");
    (name.empty() ? std::cerr : std::cout)
        << "Usage: axle tokenize <command> [options]; `axle tokenize <command> --help` shows its "
           "options.\n\n"
           "  encode   Encode texts to token files\n"
           "  train    Train a byte-level BPE tokenizer\n";
    return name.empty() ? 2 : 0;
}

}  // namespace axle::launcher
