// Compares tokenizers with the results that tests/golden/record_sentencepiece.py has recorded.
#include "data/sentencepiece/sentencepiece.h"

#include <filesystem>
#include <limits>

#include <gtest/gtest.h>
#include <protozero/pbf_writer.hpp>

#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/corpora/text_file.h"
#include "tests/data/tokenizers/golden.h"

namespace axle::data {
namespace {

using nlohmann::json;
using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

std::string decode_base64(std::string_view text) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0, count = 0;
    for (const char c : text.substr(0, text.find('='))) {
        bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
        if ((count += 6) < 8) continue;
        bytes += static_cast<char>(bits >> (count -= 8));
    }
    return bytes;
}

void expect_recorded_pieces(const std::string& name, std::size_t lines = 700) {
    const json recorded = tests::golden_tokenizer("sentencepiece_" + name);
    const auto tokenizer =
        SentencePieceTokenizer::from_bytes(decode_base64(recorded["model"].get<std::string>()));
    const auto or_minus_1 = [](std::optional<std::int64_t> id) { return id.value_or(-1); };
    EXPECT_EQ(json({tokenizer.unk_id(), or_minus_1(tokenizer.bos_id()),
                    or_minus_1(tokenizer.eos_id()), or_minus_1(tokenizer.pad_id())}),
              recorded["ids"]);
    EXPECT_GE(recorded["lines"].size(), lines);
    for (const json& line : recorded["lines"]) {
        const Ids ids = line[1];
        // A comparison with EXPECT_EQ would print all ids of long texts.
        EXPECT_TRUE(tokenizer.encode(line[0].get<std::string>()) == ids)
            << printable(line[0].get<std::string>());
        EXPECT_TRUE(tokenizer.decode(ids) == line[2].get<std::string>())
            << printable(line[2].get<std::string>());
    }
    for (const json& row : recorded["decoded"])
        EXPECT_EQ(tokenizer.decode(row[0].get<Ids>()), row[1].get<std::string>()) << row[0];
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForAUnigramModel) {
    expect_recorded_pieces("unigram");
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForUnigramModelsWithBytesAndUserDefinedPieces) {
    expect_recorded_pieces("unigram_bytes");
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForModelsThatNormalizeDecodedTexts) {
    expect_recorded_pieces("unigram_plain");
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForBpeModelsWithBytesAndUserDefinedPieces) {
    expect_recorded_pieces("bpe_bytes");
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForBpeModelsWithSpacesAtTheEndOfWords) {
    expect_recorded_pieces("bpe_suffix");
}

TEST(SentencePieceTokenizer, EqualsSentencePieceForLongTextsWithNearTies) {
    expect_recorded_pieces("sums", 1);
}

// The fields of a piece in a model file.
struct PieceFields {
    std::string text;
    float score = 0;
    int type = 1;
};

// Returns a model file. `training` and `normalization` are the fields of the messages.
std::string model_of(const std::vector<PieceFields>& pieces, const std::string& training = "",
                     const std::string& normalization = "") {
    std::string model;
    protozero::pbf_writer out(model);
    for (const PieceFields& piece : pieces) {
        protozero::pbf_writer fields(out, 1);
        fields.add_string(1, piece.text);
        fields.add_float(2, piece.score);
        fields.add_enum(3, piece.type);
    }
    out.add_message(2, training);
    out.add_message(3, normalization);
    return model;
}

template <class F>
std::string message_of(F&& write) {
    std::string message;
    protozero::pbf_writer out(message);
    write(out);
    return message;
}

TEST(SentencePieceTokenizer, FindsPiecesAndReportsErrorsOfIdsAndTexts) {
    const auto tokenizer = SentencePieceTokenizer::from_bytes(model_of({{"<unk>", 0, 2},
                                                                        {"</s>", 0, 3},
                                                                        {"\xe2\x96\x81"
                                                                         "a",
                                                                         -1},
                                                                        {"b", -2}}));
    EXPECT_EQ(tokenizer.vocab_size(), 4);
    EXPECT_EQ(tokenizer.encode("ab xyb"), (Ids{2, 3, 0, 3}));
    EXPECT_EQ(tokenizer.decode(Ids{2, 3, 1, 0}), "ab \xe2\x81\x87 ");
    EXPECT_EQ(tokenizer.piece_to_id("b"), 3);
    EXPECT_EQ(tokenizer.piece_to_id("</s>"), 1);
    EXPECT_EQ(tokenizer.piece_to_id("c"), std::nullopt);
    EXPECT_EQ(tokenizer.id_to_piece(3), "b");
    EXPECT_EQ(tokenizer.eos_id(), 1);
    EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
    expect_error<IndexError>({"decode: token 4 is out of range for a vocabulary of 4"},
                             [&] { (void)tokenizer.decode(Ids{4}); });
    expect_error<IndexError>({"decode: token -1 is out of range"},
                             [&] { (void)tokenizer.id_to_piece(-1); });
    expect_error<ValueError>({"encode: the text must be UTF-8: invalid at byte 1"},
                             [&] { (void)tokenizer.encode("a\xff"); });
}

TEST(SentencePieceTokenizer, DoesNotMergeUserDefinedPieces) {
    const std::string model = model_of(
        {{"<unk>", 0, 2}, {"ab", 0, 4}, {"a", -1}, {"b", -1}, {"c", -1}, {"abc", -1}, {"ca", -2}},
        message_of([](auto& out) { out.add_enum(3, 2); }),
        message_of([](auto& out) { out.add_bool(3, false); }));
    const auto tokenizer = SentencePieceTokenizer::from_bytes(model);
    EXPECT_EQ(tokenizer.encode("abcab"), (Ids{1, 4, 1}));
    EXPECT_EQ(tokenizer.encode("abca"), (Ids{1, 6}));
}

TEST(SentencePieceTokenizer, RejectsInvalidModels) {
    const auto expect_rejected = [](const std::string& model, const char* message) {
        expect_error<ValueError>({"not a ", message},
                                 [&] { SentencePieceTokenizer::from_bytes(model); });
    };
    const PieceFields unknown = {"<unk>", 0, 2};
    const std::string valid = model_of({unknown, {"a"}});
    EXPECT_EQ(SentencePieceTokenizer::from_bytes(valid).vocab_size(), 2);
    expect_rejected("", "must have one unknown piece: it has 0");
    expect_rejected("plain text", "SentencePiece model: ");
    // The messages of fields 2 and 3 at the end are empty, and the first piece is a valid model.
    const std::size_t one_piece = model_of({unknown}).size() - 4;
    for (std::size_t size = 0; size + 4 < valid.size(); ++size) {
        if (size == one_piece) continue;
        EXPECT_THROW(SentencePieceTokenizer::from_bytes(valid.substr(0, size)), ValueError) << size;
    }
    expect_rejected(model_of({unknown, unknown}), "piece 1: the text is that of another piece");
    expect_rejected(model_of({unknown, {"a"}, {"a", 1, 4}}),
                    "piece 2: the text is that of another");
    expect_rejected(model_of({unknown, {""}}), "piece 1: the text must not be empty");
    expect_rejected(model_of({unknown, {"\xff"}}), "piece 1: the text must be UTF-8: '\\xff'");
    expect_rejected(model_of({unknown, {"a", std::numeric_limits<float>::quiet_NaN()}}),
                    "piece 1: the score must be finite");
    expect_rejected(model_of({unknown, {"a", 0, 7}}), "the type must be from 1 to 6: it is 7");
    expect_rejected(model_of({unknown, {"<0x41>", 0, 6}}), "byte_fallback is false");
    expect_rejected(model_of({unknown, {"<0x4>", 0, 6}}), "the text must be <0xNN>: '<0x4>'");
    expect_rejected(model_of({unknown}, message_of([](auto& out) { out.add_bool(35, true); })),
                    "byte_fallback: byte 0 has no piece");
    expect_rejected(model_of({unknown}, message_of([](auto& out) { out.add_enum(3, 4); })),
                    "model_type must be 1 (unigram) or 2 (BPE): it is 4");
    expect_rejected(
        model_of({unknown}, message_of([](auto& out) { out.add_bool(3, true); }) + "\x1a"),
        "SentencePiece model: ");
    expect_rejected(model_of({unknown}, message_of([](auto& out) { out.add_string(3, "1"); })),
                    "field 3 of TrainerSpec has the wire type 2, not 0");
    expect_rejected(
        model_of({unknown}, "", message_of([](auto& out) { out.add_string(2, "\x08"); })),
        "the character map is truncated");
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = tests::text_file(folder, "text", "tokenizer.model");
    expect_error<FileError>({path.c_str(), ": not a "},
                            [&] { SentencePieceTokenizer::from_file(path); });
    std::filesystem::resize_file(path, (std::size_t{64} << 20) + 1);
    expect_error<FileError>({path.c_str(), "67108864"},
                            [&] { SentencePieceTokenizer::from_file(path); });
    expect_error<FileError>({(folder / "missing").c_str()},
                            [&] { SentencePieceTokenizer::from_file(folder / "missing"); });
}

}  // namespace
}  // namespace axle::data
