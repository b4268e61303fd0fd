// Token sources that encode parts of a text file when their tokens are read, and the functions
// encode_file() of the tokenizers.
#include <algorithm>
#include <memory>
#include <utility>

#include "data/files/characters.h"
#include "data/files/text.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

// A file whose bytes are the tokens.
class ByteFile : public TokenSource {
  public:
    explicit ByteFile(const std::string& path) : file_(path) {}

    std::int64_t size() const override { return file_.size(); }
    void copy(std::int64_t start, std::span<std::int64_t> out) const override {
        std::string bytes(out.size(), '\0');
        file_.read(start, bytes);
        std::ranges::transform(bytes, out.begin(),
                               [](char c) { return std::int64_t{static_cast<unsigned char>(c)}; });
    }

  private:
    TextFile file_;
};

}  // namespace

// A file whose characters are the tokens. If all characters have one byte, the position of a token
// is its offset in the file. Otherwise, the offset of every kStride-th token is kept.
class CharacterFile : public TokenSource {
  public:
    // Throws FileError if the file is not valid UTF-8 or a character is not in the vocabulary.
    CharacterFile(const std::string& path, CharTokenizer tokenizer)
        : file_(path), tokenizer_(std::move(tokenizer)) {
        bool is_wide = false;
        file_.for_each_character(0, [&](std::string_view character, std::int64_t at) {
            static_cast<void>(tokenizer_.known_id(character, at));
            is_wide = is_wide || character.size() > 1;
            if (size_++ % kStride == 0) offsets_.push_back(at);
            return true;
        });
        if (!is_wide) offsets_ = {};
    }

    std::int64_t size() const override { return size_; }
    void copy(std::int64_t start, std::span<std::int64_t> out) const override {
        // The token at `start` follows `skipped` other tokens that begin at the offset `at`.
        std::int64_t at = start, skipped = 0;
        if (!offsets_.empty()) {
            at = offsets_[static_cast<std::size_t>(start / kStride)];
            skipped = start % kStride;
        }
        // A part is decoded without its last three bytes, which may be an incomplete character, so
        // three more bytes than needed are read.
        const std::size_t part = static_cast<std::size_t>(skipped) + out.size() + 3;
        auto to = out.begin();
        file_.for_each_character(
            at,
            [&](std::string_view character, std::int64_t offset) {
                if (skipped-- <= 0) *to++ = tokenizer_.known_id(character, offset);
                return to != out.end();
            },
            std::min(part, std::size_t{1} << 20));
        if (to != out.end())
            throw FileError(
                str(printable(file_.path()), ": the file was changed while it was read"));
    }

  private:
    static constexpr std::int64_t kStride = 2048;

    TextFile file_;
    CharTokenizer tokenizer_;
    std::int64_t size_ = 0;
    std::vector<std::int64_t> offsets_;
};

Tokens Tokenizer::encode_file(const std::string& path) const {
    const std::string text = read_text(path);
    try {
        return Tokens(encode(text));
    } catch (const ValueError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

Tokens ByteTokenizer::encode_file(const std::string& path) const {
    return Tokens(std::make_shared<const ByteFile>(path));
}

Tokens CharTokenizer::encode_file(const std::string& path) const {
    return Tokens(std::make_shared<const CharacterFile>(path, *this));
}

}  // namespace axle::data
