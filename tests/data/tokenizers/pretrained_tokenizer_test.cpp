#include "data/tokenizers/pretrained_tokenizer.h"

#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

template <class E, class F>
std::string error_message(F&& f) {
    try {
        f();
    } catch (const E& error) {
        return error.what();
    }
    return "no error";
}

// Returns a tokenizer.json with a WordLevel model. `fields` and `more_words` are JSON text that is
// added to the object and to the vocabulary.
std::string words_json(const std::string& fields = "", const std::string& more_words = "") {
    return R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2)" +
           more_words + R"(}}, "added_tokens": [{"id": 9, "content": "<s>", "special": true}])" +
           fields + "}";
}

PretrainedTokenizer words(const std::string& fields = "", const std::string& more_words = "") {
    return PretrainedTokenizer::from_json(words_json(fields, more_words));
}

std::string split(const std::string& pattern) {
    return R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" + pattern +
           R"("}, "behavior": "Isolated"})";
}

constexpr const char* kBySpaces = R"(, "pre_tokenizer": {"type": "WhitespaceSplit"})";

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(PretrainedTokenizer, ReadsAFolderWithNamesOfSpecialTokensAndConvertsTokensToIds) {
    const tests::TemporaryFolder folder;
    write_file(folder / "tokenizer.json", words_json(kBySpaces));
    EXPECT_TRUE(PretrainedTokenizer::from_pretrained(folder.path()).special_tokens().empty());
    write_file(folder / "tokenizer_config.json",
               R"({"bos_token": "<s>", "pad_token": {"content": "?"}, "sep_token": null,
                   "model_max_length": 1000000000000000019884624838656})");
    const auto tokenizer = PretrainedTokenizer::from_pretrained(folder.path());
    EXPECT_THAT(tokenizer.special_tokens(),
                ElementsAre(std::pair("bos_token", "<s>"), std::pair("pad_token", "?")));
    EXPECT_EQ(tokenizer.encode("b <s>a"), (Ids{2, 9, 1}));
    EXPECT_EQ(tokenizer.vocab_size(), 10);
    EXPECT_EQ(tokenizer.token_to_id("<s>"), 9);
    EXPECT_EQ(tokenizer.token_to_id("c"), std::nullopt);
    EXPECT_EQ(tokenizer.id_to_token(2), "b");
    EXPECT_EQ(tokenizer.id_to_token(5), std::nullopt);
    EXPECT_TRUE(tokenizer.is_special(9));
    EXPECT_FALSE(tokenizer.is_special(1));
}

TEST(PretrainedTokenizer, ReportsTheFileComponentAndReasonOfErrors) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "tokenizer.json";
    EXPECT_THAT(error_message<FileError>([&] { PretrainedTokenizer::from_file(path); }),
                HasSubstr("tokenizer.json"));
    write_file(path, words_json(R"(, "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Rot13"}]})"));
    EXPECT_EQ(error_message<FileError>([&] { PretrainedTokenizer::from_file(path); }),
              path + ": normalizer.normalizers[1]: unknown normalizer 'Rot13'");
    EXPECT_THROW(PretrainedTokenizer::from_pretrained(folder.path()), FileError);
}

TEST(PretrainedTokenizer, RejectsInvalidFiles) {
    const auto error = [](const std::string& json) {
        return error_message<ValueError>([&] { PretrainedTokenizer::from_json(json); });
    };
    const auto field_error = [&](const std::string& fields) {
        return error(words_json(", " + fields));
    };
    EXPECT_THAT(error("["), HasSubstr("from_json"));
    EXPECT_EQ(error("{}"), "model: the field is missing");
    EXPECT_EQ(error(R"({"model": {"type": "GPT"}})"), "model: unknown model 'GPT'");
    EXPECT_EQ(error(words_json("", R"(, "c": 2)")),
              "model.vocab: the tokens 'b' and 'c' have the same id, 2");
    EXPECT_THAT(error(words_json("", R"(, "c": -1)")), HasSubstr("'c' must be an integer in [0, "));
    EXPECT_THAT(error(words_json("", R"(, "c": 1000000)")), HasSubstr("largest id is 1000000"));
    EXPECT_EQ(error(words_json("", R"(, "c": 9)")),
              "added_tokens[0]: the token '<s>' has the id 9 of the token 'c'");
    EXPECT_EQ(error(words_json("", R"(, "<s>": 3)")),
              "added_tokens[0]: the token '<s>' has the id 9, but its id in the model is 3");
    EXPECT_EQ(field_error(R"("pre_tokenizer": {"type": "Digits", "individual_digits": 1})"),
              "pre_tokenizer.individual_digits: expected true or false, not an integer");
    EXPECT_EQ(field_error(R"("pre_tokenizer": {"type": "Whitespace", "mode": 1})"),
              "pre_tokenizer: unknown field 'mode'");
    EXPECT_EQ(field_error(R"("decoder": {"type": "Metaspace", "replacement": "__"})"),
              "decoder.replacement: expected one character, not '__'");
    EXPECT_EQ(
        field_error(R"("post_processor": {"type": "BertProcessing", "cls": ["x", 10],
        "sep": ["x", 1]})"),
        "post_processor.cls: expected a list of a token and its id in [0, 9], not [\"x\", 10]");
    EXPECT_EQ(error(R"({"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}})"),
              "model.dropout: only 0 and null are supported, not 0.1");
    EXPECT_EQ(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"),
              "model.merges: merge 0: the vocabulary lacks the token 'b'");
    EXPECT_EQ(error(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})"),
              "model.unk_id: expected an integer in [0, 0], not 1");
    EXPECT_THAT(error(words_json(split("("))), HasSubstr("pre_tokenizer.pattern: the regular"));
    EXPECT_THAT(error(words_json(split("[a&&b]"))), HasSubstr("intersection"));
    EXPECT_EQ(field_error(R"("version": "2.0")"),
              "version: only version '1.0' is supported, not '2.0'");
}

TEST(PretrainedTokenizer, RejectsInvalidUtf8AndAcceptsZeroBytes) {
    const auto tokenizer = words(kBySpaces, R"(, "a\u0000b": 3)");
    for (const char* bad : {"\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"})
        EXPECT_EQ(error_message<ValueError>([&] { tokenizer.encode(std::string("a ") + bad); }),
                  "encode: the text must be UTF-8: invalid at byte 2");
    EXPECT_EQ(tokenizer.encode(std::string_view("a\0b a", 5)), (Ids{3, 1}));
}

TEST(PretrainedTokenizer, DecodesWithoutSpecialTokensByDefaultAndRejectsUnknownIds) {
    const auto tokenizer = words();
    for (const std::int64_t id : {-1, 5, 10})
        EXPECT_THROW(tokenizer.decode(Ids{1, id}), IndexError);
    EXPECT_EQ(tokenizer.decode(Ids{1, 9, 2}), "a b");
    EXPECT_EQ(tokenizer.decode(Ids{1, 9, 2}, false), "a <s> b");
}

TEST(PretrainedTokenizer, StopsHostileRegularExpressions) {
    const auto tokenizer = words(split("(a+)+$"));
    EXPECT_THAT(error_message<ValueError>([&] { tokenizer.encode(std::string(5000, 'a') + "b"); }),
                HasSubstr("failed: match limit exceeded"));
}

TEST(PretrainedTokenizer, LimitsTheLengthOfNormalizedText) {
    std::string steps;
    for (int i = 0; i < 12; ++i)
        steps += std::string(i > 0 ? "," : "") +
                 R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})";
    const auto tokenizer =
        words(R"(, "normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}");
    EXPECT_THAT(error_message<ValueError>([&] { tokenizer.encode("a"); }),
                HasSubstr("normalized text has more than"));
}

// Returns the words into which a pattern divides a text.
std::vector<std::string> divide(const std::string& pattern, const std::string& text) {
    const auto tokenizer = words(split(pattern));
    std::vector<std::string> parts;
    for (const auto& [begin, end] : tokenizer.encode(text, EncodeOptions{}).offsets)
        parts.push_back(
            text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    return parts;
}

TEST(PretrainedTokenizer, ReadsRegularExpressionsAsOnigurumaDoes) {
    EXPECT_THAT(divide(R"(\\h+)", "xyCAFEz"), ElementsAre("xy", "CAFE", "z"));
    EXPECT_THAT(divide("a{1,2}+", "aaaab"), ElementsAre("aaaa", "b"));
    EXPECT_THAT(divide("a{,2}b", "aaab"), ElementsAre("a", "aab"));
    EXPECT_THAT(divide("[x[yz]]+", "axyzb"), ElementsAre("a", "xyz", "b"));
    EXPECT_THAT(divide("(?m:x.)", "ax\nb"), ElementsAre("a", "x\n", "b"));
    EXPECT_THAT(divide("x.", "ax\nb"), ElementsAre("ax\nb"));
    EXPECT_THAT(divide("^b", "a\nb"), ElementsAre("a\n", "b"));
    EXPECT_EQ(divide(R"(\\w)", "\xc2\xb2\xc2\xb2").size(), 2u);  // U+00B2
}

TEST(PretrainedTokenizer, PadsBatchesToTheLongestText) {
    const auto tokenizer = words(kBySpaces);
    const std::vector<TextPair> texts = {"a", {"a b", "b"}, ""};
    const auto batch = tokenizer.encode_batch(texts, {.padding = Padding{.id = 7}});
    ASSERT_EQ(batch.size(), 3u);
    EXPECT_EQ(batch[0].ids, (Ids{1, 7, 7}));
    EXPECT_EQ(batch[0].attention_mask, (Ids{1, 0, 0}));
    EXPECT_EQ(batch[1].ids, (Ids{1, 2, 2}));
    EXPECT_EQ(batch[1].type_ids, (Ids{0, 0, 1}));
    EXPECT_EQ(batch[2].word_ids, (Ids{-1, -1, -1}));
    EXPECT_EQ(batch[2].tokens, (std::vector<std::string>{"[PAD]", "[PAD]", "[PAD]"}));
}

TEST(PretrainedTokenizer, ReadsTruncationAndPaddingOfTheFile) {
    const auto tokenizer = words(R"(, "truncation": {"direction": "Left", "max_length": 4,
        "strategy": "OnlyFirst", "stride": 1}, "padding": {"strategy": {"Fixed": 6},
        "direction": "Left", "pad_to_multiple_of": 8, "pad_id": 2, "pad_type_id": 3,
        "pad_token": "b"})");
    ASSERT_TRUE(tokenizer.truncation().has_value());
    EXPECT_EQ(tokenizer.truncation()->max_length, 4);
    EXPECT_EQ(tokenizer.truncation()->strategy, TruncationStrategy::only_first);
    EXPECT_EQ(tokenizer.truncation()->side, Side::left);
    ASSERT_TRUE(tokenizer.padding().has_value());
    EXPECT_EQ(tokenizer.padding()->length, 6);
    EXPECT_EQ(tokenizer.padding()->multiple_of, 8);
    EXPECT_EQ(tokenizer.encode("a", EncodeOptions{}).ids, Ids{1});
    EXPECT_EQ(tokenizer.encode("a", {.padding = tokenizer.padding()}).ids,
              (Ids{2, 2, 2, 2, 2, 2, 2, 1}));
}

TEST(PretrainedTokenizer, LimitsTheCombinationsOfTruncatedParts) {
    const auto tokenizer = words(kBySpaces);
    const auto text = [](int n) {
        std::string words;
        for (int i = 0; i < n; ++i) words += "a ";
        return words;
    };
    EncodeOptions options;
    options.truncation = Truncation{.max_length = 2};  // one token of each text
    EXPECT_EQ(tokenizer.encode(text(64), text(64), options).overflow.size(), 4095);
    EXPECT_THAT(error_message<ValueError>(
                    [&] { static_cast<void>(tokenizer.encode(text(64), text(65), options)); }),
                HasSubstr("truncation divides the texts into 64 and 65 parts"));
}

TEST(PretrainedTokenizer, MatchesAddedTokensByTheirOptions) {
    const auto tokenizer = PretrainedTokenizer::from_json(R"({
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "x": 1}},
        "normalizer": {"type": "Lowercase"},
        "added_tokens": [
            {"id": 2, "content": "<L>", "lstrip": true, "normalized": false},
            {"id": 3, "content": "<R>", "rstrip": true, "normalized": false},
            {"id": 4, "content": "one", "single_word": true, "normalized": false},
            {"id": 5, "content": "Low", "normalized": true},
            {"id": 6, "content": "<L>>", "normalized": false}]})");
    const auto encode = [&](const char* text) {
        return tokenizer.encode(text, EncodeOptions{}).tokens;
    };
    EXPECT_THAT(encode("x <L>x"), ElementsAre("x", " <L>", "x"));
    EXPECT_THAT(encode("x<R> \nx"), ElementsAre("x", "<R> \n", "x"));
    EXPECT_EQ(tokenizer.encode("one"), Ids{4});
    EXPECT_EQ(tokenizer.encode("ones"), Ids{0});
    EXPECT_EQ(tokenizer.encode("LOW"), Ids{5});
    EXPECT_EQ(tokenizer.encode("<L>>"), Ids{6});
    EXPECT_EQ(tokenizer.encode("<l>"), Ids{0});
}

TEST(PretrainedTokenizer, DropsAddedTokensOfSpacesThatTheTokenBeforeStrips) {
    for (const char* normalized : {"false", "true"}) {
        const std::string kind = std::string(R"(, "normalized": )") + normalized + "}";
        const auto tokenizer = PretrainedTokenizer::from_json(
            R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "x": 1}},
                "normalizer": {"type": "NFC"},
                "added_tokens": [{"id": 2, "content": "<R>", "rstrip": true)" +
            kind + R"(, {"id": 3, "content": " ", "lstrip": true)" + kind + "]}");
        EXPECT_EQ(tokenizer.encode("<R>  x"), (Ids{2, 1})) << normalized;
        EXPECT_EQ(tokenizer.encode("x x"), (Ids{1, 3, 1})) << normalized;
    }
}

TEST(PretrainedTokenizer, AppliesCompiledCharacterMapsAndRejectsTruncatedMaps) {
    // The map has the entry "a" -> "xy": a trie of 256 units, then the replacements.
    const auto tokenizer = [] {
        std::vector<std::uint32_t> units(256);
        units[0] = 128u << 10;                        // the root: children at offset 128
        units[128 ^ 'a'] = 'a' | 1u << 8 | 2u << 10;  // has a leaf at this position ^ 2
        units[128 ^ 'a' ^ 2] = 0x80000000u;           // the leaf: the replacement at byte 0
        std::string bytes(4, '\0');
        bytes[1] = 4;  // 1024 bytes
        bytes.append(reinterpret_cast<const char*>(units.data()), 1024);
        bytes.append("xy", 3);
        constexpr char kDigits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        std::string base64;
        bytes.resize((bytes.size() + 2) / 3 * 3);
        for (std::size_t i = 0; i < bytes.size(); i += 3) {
            std::uint32_t bits = 0;
            for (std::size_t j = 0; j < 3; ++j)
                bits = bits << 8 | static_cast<unsigned char>(bytes[i + j]);
            for (int shift = 18; shift >= 0; shift -= 6) base64 += kDigits[bits >> shift & 63];
        }
        return words(
            R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + base64 + "\"}",
            R"(, "xy": 3, "bxyb": 4)");
    }();
    EXPECT_EQ(tokenizer.encode("a"), Ids{3});
    EXPECT_EQ(tokenizer.encode("bab"), Ids{4});
    EXPECT_EQ(tokenizer.encode("b"), Ids{2});
    EXPECT_THROW(
        words(R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AQ=="})"),
        ValueError);
}

TEST(PretrainedTokenizer, EncodesTheSameInSeveralThreads) {
    const auto tokenizer = PretrainedTokenizer::from_json(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3},
            "merges": ["a b", ["ab", "ab"]]}, "pre_tokenizer": {"type": "WhitespaceSplit"}})");
    const std::string text = "abab ab aab bb ababab";
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, (Ids{3, 2, 0, 2, 1, 1, 3, 2}));
    std::vector<std::thread> threads;
    std::vector<int> equal(4);
    for (std::size_t i = 0; i < equal.size(); ++i)
        threads.emplace_back([&, i] {
            for (int n = 0; n < 200; ++n) equal[i] += tokenizer.encode(text) == ids;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(equal, ElementsAre(200, 200, 200, 200));
}

TEST(PretrainedTokenizer, MergesLongWordsInOrder) {
    // Words of 24 symbols or more are merged with a heap.
    const auto tokenizer = PretrainedTokenizer::from_json(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2, "ab": 3, "aaaa": 4},
            "merges": ["a b", "a a", "aa aa"]}})");
    EXPECT_EQ(tokenizer.encode(std::string(40, 'a') + "b"),
              (Ids{4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 0, 3}));
}

TEST(DecodeStream, ReturnsWholeCharactersAndRejectsUnknownIds) {
    const auto tokenizer = PretrainedTokenizer::from_json(
        R"({"model": {"type": "BPE", "vocab": {"Ã": 0, "©": 1, "a": 2, "Ġa": 3}, "merges": []},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": 4, "content": "<s>", "special": true}]})");
    DecodeStream stream(tokenizer);
    std::vector<std::string> parts;
    for (const std::int64_t id : {2, 0, 1, 4, 3, 0}) parts.push_back(stream.next(id));
    EXPECT_THAT(parts, ElementsAre("a", "", "\xc3\xa9", "", " a", ""));
    EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
    EXPECT_EQ(stream.next(2), "a");
    EXPECT_THROW(stream.next(7), IndexError);
    EXPECT_EQ(stream.next(3), " a");
}

TEST(Decoder, DecodesWordPieceCtcByteFallbackBpeStripAndReplace) {
    const auto decode = [](const std::string& decoder, const std::string& vocab) {
        const auto tokenizer = PretrainedTokenizer::from_json(
            R"({"model": {"type": "WordLevel", "unk_token": "", "vocab": {)" + vocab +
            R"(}}, "decoder": )" + decoder + "}");
        return tokenizer.decode(Ids{0, 1, 2});
    };
    EXPECT_EQ(decode(R"({"type": "WordPiece", "cleanup": true})", R"("do": 0, "##n": 1, "'t": 2)"),
              "don 't");
    EXPECT_EQ(decode(R"({"type": "CTC", "pad_token": "_", "cleanup": true})",
                     R"("a": 0, "_": 1, "|": 2)"),
              "a ");
    EXPECT_EQ(decode(R"({"type": "ByteFallback"})", R"("<0xC3>": 0, "<0xA9>": 1, "x": 2)"),
              "\xc3\xa9x");
    EXPECT_EQ(decode(R"({"type": "BPEDecoder"})", R"("a</w>": 0, "b": 1, "c</w>": 2)"), "a bc");
    EXPECT_EQ(decode(R"({"type": "Strip", "content": "_", "start": 1, "stop": 1})",
                     R"("__a": 0, "b_": 1, "_": 2)"),
              "_ab");
    EXPECT_EQ(decode(R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "-"})",
                     R"("abx": 0, "y": 1, "a": 2)"),
              "-xy-");
}

}  // namespace
}  // namespace axle::data
