// Reads a tokenizer.json, encodes texts and pairs, and decodes tokens as a model generates them.
// Then trains a tokenizer and encodes files for training.
#include <fstream>
#include <stdexcept>

#include <axle/axle.h>
#include <axle/data/corpora/encode_files.h>
#include <axle/data/corpora/train_bpe.h>
#include <axle/data/tokenizers/pretrained_tokenizer.h>

namespace {

void check(bool holds) {
    if (!holds) throw std::logic_error("check failed");
}

// Writes a small file, so that the program runs without a model.
void write_tokenizer() {
    std::ofstream("tokenizer.json") << R"({
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {
            "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3,
            "token": 4, "##izer": 5, "##s": 6, "read": 7, "text": 8, "?": 9}},
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": true},
                         {"id": 2, "content": "[CLS]", "special": true},
                         {"id": 3, "content": "[SEP]", "special": true}],
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": {"type": "WordPiece"}})";
}

}  // namespace

int main() {
    write_tokenizer();
    // [encode]
    auto tokenizer = axle::data::PretrainedTokenizer::from_pretrained(".");
    std::vector<std::int64_t> ids = tokenizer.encode("Tokenizers read text");
    std::string text = tokenizer.decode(ids);  // "tokenizers read text"
    // [/encode]
    check(ids == std::vector<std::int64_t>{2, 4, 5, 6, 7, 8, 3});
    check(text == "tokenizers read text");

    // [batch]
    std::vector<axle::data::TextPair> pairs = {{"Tokenizers?", "Tokenizers read text"},
                                               {"Text?", "Text"}};
    auto batch = tokenizer.encode_batch(
        pairs, {.truncation = axle::data::Truncation{.max_length = 10},
                .padding = axle::data::Padding{.id = *tokenizer.token_to_id("[PAD]")}});
    for (const axle::data::Encoding& encoding : batch) {
        check(encoding.ids.size() == batch[0].ids.size());
        auto [begin, end] = encoding.offsets[1];  // the characters of the second token
        check(begin == 0 && end > 0);
    }
    // [/batch]

    std::string shown;
    // [stream]
    axle::data::DecodeStream stream(tokenizer);
    for (std::int64_t id : ids) shown += stream.next(id);
    shown += stream.finish();
    // [/stream]
    check(shown == text);

    std::ofstream("books.txt") << "A tokenizer reads texts.\nThe tokenizers read a text.\n";
    // [train]
    std::ofstream("tokenizer.json") << axle::data::train_bpe(
        {"books.txt"}, {.trainer = {.vocab_size = 270, .special_tokens = {"<|endoftext|>"}}});
    auto trained = axle::data::PretrainedTokenizer::from_file("tokenizer.json");
    axle::data::encode_files(trained, {"books.txt"}, "train.bin",
                             {.end_id = trained.token_to_id("<|endoftext|>"), .num_threads = 2});
    axle::data::RandomBlockDataset train_set(axle::data::Tokens::open("train.bin"), 8, 1000);
    // [/train]
    check(trained.vocab_size() == 270);
    check(train_set.get(0)["input_ids"].tensor().size(0) == 8);
}
