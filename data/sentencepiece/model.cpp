#include "data/sentencepiece/model.h"

#include <array>
#include <cmath>
#include <unordered_set>

#include <protozero/pbf_reader.hpp>

#include "core/files/file.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

[[noreturn]] void fail_at_piece(std::size_t id, const std::string& what) {
    throw ValueError(str("piece ", id, ": ", what));
}

// The fields of a message. The functions throw ValueError if the field that next() found has
// another type; protozero would only check this in debug builds.
class Message {
  public:
    Message(std::string_view bytes, const char* name)
        : reader_(bytes.data(), bytes.size()), name_(name) {}

    bool next() { return reader_.next(); }
    std::uint32_t field() const { return reader_.tag(); }
    void skip() { reader_.skip(); }
    std::string_view text() {
        expect(pbf_wire_type::length_delimited);
        const protozero::data_view view = reader_.get_view();
        return {view.data(), view.size()};
    }
    bool flag() {
        expect(pbf_wire_type::varint);
        return reader_.get_uint64() != 0;  // get_bool() may read beyond the end
    }
    std::int32_t number() {
        expect(pbf_wire_type::varint);
        return reader_.get_enum();
    }
    float real() {
        expect(pbf_wire_type::fixed32);
        return reader_.get_float();
    }

  private:
    void expect(pbf_wire_type type) const {
        if (!reader_.has_wire_type(type))
            throw ValueError(str("field ", field(), " of ", name_, " has the wire type ",
                                 static_cast<int>(reader_.wire_type()), ", not ",
                                 static_cast<int>(type)));
    }

    pbf_reader reader_;
    const char* name_;
};

SentencePiece read_piece(std::string_view bytes, std::size_t id) {
    SentencePiece piece;
    std::int32_t type = 1;
    for (Message message(bytes, "SentencePiece"); message.next();) {
        if (message.field() == 1)
            piece.text = message.text();
        else if (message.field() == 2)
            piece.score = message.real();
        else if (message.field() == 3)
            type = message.number();
        else
            message.skip();
    }
    if (piece.text.empty()) fail_at_piece(id, "the text must not be empty");
    if (find_invalid_utf8(piece.text) != std::string_view::npos)
        fail_at_piece(id, "the text must be UTF-8: " + in_quotes(piece.text));
    if (!std::isfinite(piece.score)) fail_at_piece(id, "the score must be finite");
    if (type < 1 || type > 6) fail_at_piece(id, str("the type must be from 1 to 6: it is ", type));
    piece.type = static_cast<PieceType>(type);
    return piece;
}

void read_normalization(std::string_view bytes, SentenceNormalization& out) {
    for (Message message(bytes, "NormalizerSpec"); message.next();) {
        switch (message.field()) {
            case 2: {
                const std::string_view map = message.text();
                out.has_map = !map.empty();
                const char* const error = map.empty() ? nullptr : out.map.set(map);
                if (error != nullptr) throw ValueError(error);
                break;
            }
            case 3:
                out.add_dummy_prefix = message.flag();
                break;
            case 4:
                out.remove_extra_whitespaces = message.flag();
                break;
            case 5:
                out.escape_whitespaces = message.flag();
                break;
            default:
                message.skip();
        }
    }
}

void read_training(std::string_view bytes, SentencePieceModel& out) {
    constexpr std::int32_t kUnigram = 1, kBpe = 2;
    for (Message message(bytes, "TrainerSpec"); message.next();) {
        switch (message.field()) {
            case 3: {
                const std::int32_t type = message.number();
                if (type != kUnigram && type != kBpe)
                    throw ValueError(
                        str("model_type must be 1 (unigram) or 2 (BPE): it is ", type));
                out.is_bpe = type == kBpe;
                break;
            }
            case 24:
                out.treat_whitespace_as_suffix = message.flag();
                break;
            case 35:
                out.byte_fallback = message.flag();
                break;
            case 44:
                out.unknown_text = message.text();
                break;
            case 46:
                out.bos = message.text();
                break;
            case 47:
                out.eos = message.text();
                break;
            case 48:
                out.pad = message.text();
                break;
            default:
                message.skip();
        }
    }
}

void check(const SentencePieceModel& model) {
    std::unordered_set<std::string_view> matched, reserved;
    std::array<bool, 256> has_byte = {};
    std::int64_t unknown = 0;
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
        const SentencePiece& piece = model.pieces[id];
        const bool is_reserved = piece.type == PieceType::unknown ||
                                 piece.type == PieceType::control || piece.type == PieceType::byte;
        if (!(is_reserved ? reserved : matched).insert(piece.text).second)
            fail_at_piece(id, "the text is that of another piece: " + in_quotes(piece.text));
        if (piece.type == PieceType::unknown) ++unknown;
        if (piece.type != PieceType::byte) continue;
        const int byte = byte_of_piece(piece.text);
        if (byte < 0) fail_at_piece(id, "the text must be <0xNN>: " + in_quotes(piece.text));
        if (!model.byte_fallback) fail_at_piece(id, "byte_fallback is false, but this is a byte");
        has_byte[static_cast<std::size_t>(byte)] = true;
    }
    if (unknown != 1) throw ValueError(str("must have one unknown piece: it has ", unknown));
    for (std::size_t byte = 0; model.byte_fallback && byte < has_byte.size(); ++byte)
        if (!has_byte[byte]) throw ValueError(str("byte_fallback: byte ", byte, " has no piece"));
    if (find_invalid_utf8(model.unknown_text) != std::string_view::npos)
        throw ValueError("unk_surface must be UTF-8");
}

}  // namespace

int byte_of_piece(std::string_view piece) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const std::size_t high = kHex.find(piece[3]), low = kHex.find(piece[4]);
    if (high == std::string_view::npos || low == std::string_view::npos) return -1;
    return static_cast<int>(16 * high + low);
}

SentencePieceModel SentencePieceModel::read(std::string_view bytes) {
    SentencePieceModel model;
    try {
        for (Message message(bytes, "ModelProto"); message.next();) {
            switch (message.field()) {
                case 1:
                    model.pieces.push_back(read_piece(message.text(), model.pieces.size()));
                    break;
                case 2:
                    read_training(message.text(), model);
                    break;
                case 3:
                    read_normalization(message.text(), model.normalization);
                    break;
                case 5:
                    read_normalization(message.text(), model.denormalization);
                    break;
                default:
                    message.skip();
            }
        }
        check(model);
    } catch (const protozero::exception& error) {
        throw ValueError(str("not a SentencePiece model: ", error.what()));
    } catch (const ValueError& error) {
        throw ValueError(str("not a supported SentencePiece model: ", error.what()));
    }
    return model;
}

}  // namespace axle::data::tokenizers
