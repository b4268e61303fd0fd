// Fuzzes PretrainedTokenizer. An input is a tokenizer.json, a byte 0xFF and a text.
#include <algorithm>

#include "data/tokenizers/pretrained_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

constexpr std::size_t kMaxText = 128;  // keeps the time of one input short

void check_encoding(const data::Encoding& encoding, std::int64_t vocab_size) {
    const std::size_t n = encoding.ids.size();
    require(encoding.type_ids.size() == n && encoding.attention_mask.size() == n &&
                encoding.special_tokens_mask.size() == n && encoding.tokens.size() == n &&
                encoding.offsets.size() == n && encoding.word_ids.size() == n,
            "all vectors have one element per token");
    for (const std::int64_t id : encoding.ids)
        require(id >= 0 && id < vocab_size, "ids are in the vocabulary");
    for (const data::Encoding& part : encoding.overflow) check_encoding(part, vocab_size);
}

void check_text(const data::PretrainedTokenizer& tokenizer, std::string_view text) {
    data::Encoding encoding;
    if (!accepts([&] { encoding = tokenizer.encode(text, data::EncodeOptions{}); })) return;
    check_encoding(encoding, tokenizer.vocab_size());
    require(tokenizer.encode(text) == encoding.ids, "both functions return the same ids");
    accepts([&] {
        const std::string whole = tokenizer.decode(encoding.ids, false);
        data::DecodeStream stream(tokenizer, false);
        for (const std::int64_t id : encoding.ids) (void)stream.next(id);
        (void)stream.finish();
    });
    data::EncodeOptions options;
    options.truncation = data::Truncation{.max_length = 8, .stride = 2};
    options.padding = data::Padding{.multiple_of = 4};
    accepts([&] {
        check_encoding(tokenizer.encode(text, text.substr(0, text.size() / 2), options),
                       tokenizer.vocab_size());
    });
}

}  // namespace

void fuzz(Bytes input) {
    const std::string_view text = text_of(input);
    const std::size_t end = std::min(text.find('\xff'), text.size());
    accepts([&] {
        const auto tokenizer = data::PretrainedTokenizer::from_json(text.substr(0, end));
        check_text(tokenizer, text.substr(std::min(end + 1, text.size())).substr(0, kMaxText));
    });
}

}  // namespace axle::tests
