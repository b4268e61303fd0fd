// Fuzzes SentencePieceTokenizer. An input is the length of a text in a byte, the text and a model
// file.
#include <algorithm>

#include "data/sentencepiece/sentencepiece.h"
#include "data/tokenizers/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {

void fuzz(Bytes input) {
    const std::string_view all = text_of(input);
    if (all.empty()) return;
    const std::size_t length =
        std::min<std::size_t>(static_cast<unsigned char>(all[0]), all.size() - 1);
    accepts([&] {
        const auto tokenizer = data::SentencePieceTokenizer::from_bytes(all.substr(1 + length));
        std::vector<std::int64_t> ids;
        for (std::int64_t id = 0; id < std::min<std::int64_t>(tokenizer.vocab_size(), 300); ++id)
            ids.push_back(id);
        (void)tokenizer.decode(ids);
        if (!accepts([&] { ids = tokenizer.encode(all.substr(1, length)); })) return;
        for (const std::int64_t id : ids)
            require(id >= 0 && id < tokenizer.vocab_size(), "ids are in the vocabulary");
        const std::string text = tokenizer.decode(ids);
        require(data::tokenizers::find_invalid_utf8(text) == std::string_view::npos,
                "decoded text is UTF-8");
    });
}

}  // namespace axle::tests
