// Fuzzes CharTokenizer::from_text() and from_json(), and Tokens::open().
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

void check_file(const MemoryFile& file, std::size_t size, data::TokenFileOptions options) {
    data::Tokens tokens(std::span<const std::int64_t>{});
    if (!accepts([&] { tokens = data::Tokens::open(file.path(), options); })) return;
    require(static_cast<std::size_t>(tokens.size() * options.bytes) == size,
            "files are read completely");
    require(options.vocab_size == 0 || tokens.max() < options.vocab_size,
            "all tokens are in the vocabulary");
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, ids);
    require(data::Tokens(ids).max() == tokens.max(), "copied ids equal the tokens");
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
    for (const int bytes : {2, 4})
        for (const std::int64_t vocab_size : {0, 300})
            check_file(file, input.size(), {.bytes = bytes, .vocab_size = vocab_size});
}

}  // namespace axle::tests
