// Fuzzes CharTokenizer, encode_file() and Tokens::open().
#include <vector>

#include "data/files/text.h"
#include "data/files/tokens.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

void check_tokenizer(const data::CharTokenizer& tokenizer, std::string_view text) {
    const std::string json = tokenizer.to_json();
    require(data::CharTokenizer::from_json(json).to_json() == json, "JSON restores a tokenizer");
    std::vector<std::int64_t> ids;
    if (accepts([&] { ids = tokenizer.encode(text); }))
        require(tokenizer.decode(ids) == text, "decode() inverts encode()");
}

std::vector<std::int64_t> ids_of(const data::Tokens& tokens) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, ids);
    return ids;
}

// Checks that reading a file in parts gives the same tokens as encoding the whole text.
void check_text_file(const MemoryFile& file, std::string_view text) {
    data::CharTokenizer in_memory = data::CharTokenizer::from_text(""), in_file = in_memory;
    const bool valid = accepts([&] { in_memory = data::CharTokenizer::from_text(text); });
    require((valid && !text.empty()) ==
                accepts([&] { in_file = data::CharTokenizer::from_file(file.path()); }),
            "files and text are accepted alike");
    if (!valid || text.empty()) return;
    require(in_file.to_json() == in_memory.to_json(), "files and text have the same vocabulary");
    require(ids_of(in_file.encode_file(file.path())) == in_memory.encode(text),
            "files and text have the same tokens");
    require(ids_of(data::ByteTokenizer().encode_file(file.path())) ==
                data::ByteTokenizer().encode(text),
            "files and text have the same bytes");
}

void check_file(const MemoryFile& file, std::size_t size, data::TokenFileOptions options) {
    data::Tokens tokens(std::span<const std::int64_t>{});
    if (!accepts([&] { tokens = data::Tokens::open(file.path(), options); })) return;
    require(static_cast<std::size_t>(tokens.size() * options.bytes) == size,
            "files are read completely");
    require(options.vocab_size == 0 || tokens.max() < options.vocab_size,
            "all tokens are in the vocabulary");
    require(data::Tokens(ids_of(tokens)).max() == tokens.max(), "copied ids equal the tokens");
}

}  // namespace

void fuzz(Bytes input) {
    const std::string_view text = text_of(input);
    data::CharTokenizer tokenizer = data::CharTokenizer::from_text("");
    if (accepts([&] { tokenizer = data::CharTokenizer::from_json(text); }))
        check_tokenizer(tokenizer, text);
    if (accepts([&] { tokenizer = data::CharTokenizer::from_text(text); }))
        check_tokenizer(tokenizer, text);
    const MemoryFile file(input);
    check_text_file(file, text);
    for (const int bytes : {2, 4})
        for (const std::int64_t vocab_size : {0, 300})
            check_file(file, input.size(), {.bytes = bytes, .vocab_size = vocab_size});
}

}  // namespace axle::tests
