#include "tools/trainer/language_model.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <span>

#include "core/files/file.h"
#include "core/tree/tree.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"

namespace axle::trainer {

namespace fs = std::filesystem;

namespace {

// Returns whether the file has the vocabulary of a CharTokenizer. Reads only the beginning of the
// file, because tokenizer.json can have megabytes.
bool has_characters(const std::string& path) {
    constexpr std::int64_t kStart = 64;
    const InputFile file(path);
    std::string start(static_cast<std::size_t>(std::min(file.size(), kStart)), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(start)));
    std::erase_if(start, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
    return start.starts_with(R"({"type":"char")");
}

}  // namespace

std::string model_folder(const std::string& path) {
    if (!path.ends_with(".safetensors")) return path;
    const fs::path parent = fs::path(path).parent_path();
    return parent.empty() ? "." : parent.string();
}

std::string model_type(const std::string& path) {
    constexpr std::int64_t kLargestConfig = std::int64_t{2} << 20;
    const std::string config = (fs::path(model_folder(path)) / "config.json").string();
    try {
        const Tree fields = from_json(read_file(config, kLargestConfig));
        const Tree* const type = fields.is_map() ? fields.find("model_type") : nullptr;
        return type != nullptr && type->is_string() ? type->string() : "";
    } catch (const ValueError& error) {
        throw FileError(str(printable(config), ": ", error.what()));
    }
}

std::unique_ptr<data::Tokenizer> read_characters(const std::string& path) {
    constexpr std::int64_t kMaxBytes = std::int64_t{16} << 20;  // all characters of Unicode fit
    const std::string text = read_file(path, kMaxBytes);
    try {
        return std::make_unique<data::CharTokenizer>(data::CharTokenizer::from_json(text));
    } catch (const ValueError& error) {
        throw FileError(printable(path) + ": " + error.what());
    }
}

std::unique_ptr<data::Tokenizer> model_tokenizer(const std::string& path, std::int64_t vocab_size) {
    constexpr std::int64_t kBytes = 256;
    const std::string folder = model_folder(path);
    const std::string file = (fs::path(folder) / "tokenizer.json").string();
    if (vocab_size == kBytes && !fs::exists(file)) return std::make_unique<data::ByteTokenizer>();
    if (has_characters(file)) return read_characters(file);
    return std::make_unique<data::PretrainedTokenizer>(
        data::PretrainedTokenizer::from_pretrained(folder));
}

void copy_tokenizer(const std::string& path, const std::string& folder) {
    constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
        if (const fs::path from = fs::path(model_folder(path)) / name; fs::exists(from))
            write_file_atomically((fs::path(folder) / name).string(),
                                  read_file(from.string(), kMaxBytes));
}

}  // namespace axle::trainer
