// Private to data/sentencepiece: the contents of a SentencePiece model file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/charsmap.h"

namespace axle::data::tokenizers {

// The numbers are those of the file.
enum class PieceType : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct SentencePiece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
};

// How a text is changed before it is divided into pieces.
struct SentenceNormalization {
    CharacterTrie map;
    bool has_map = false;
    bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

struct SentencePieceModel {
    std::vector<SentencePiece> pieces;  // by id
    bool is_bpe = false;                // otherwise a unigram model
    bool byte_fallback = false;
    bool treat_whitespace_as_suffix = false;
    std::string unknown_text = " \xe2\x81\x87 ";  // the text of the unknown piece
    std::string bos = "<s>", eos = "</s>", pad = "<pad>";
    SentenceNormalization normalization, denormalization;

    // Reads a file, a message ModelProto of Protocol Buffers. Throws ValueError if it is invalid,
    // if pieces are empty, not UTF-8 or defined twice, if a score is not finite, if there is not
    // exactly one unknown piece, if byte_fallback is true and a byte has no piece, and for models
    // of words or characters.
    static SentencePieceModel read(std::string_view bytes);
};

// Returns the byte of a piece <0xNN>, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace axle::data::tokenizers
