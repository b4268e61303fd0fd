// SentencePiece models, read from the file that sentencepiece writes, often tokenizer.model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/text.h"

namespace axle::data {

// A unigram or BPE model of SentencePiece. Ids and texts equal those of the library sentencepiece.
// Copies share the model. Several threads can call the const functions of the same object.
class SentencePieceTokenizer : public Tokenizer {
  public:
    // Reads a model file. Throws FileError if the file is missing, larger than 64 MiB or invalid,
    // or if it is a model of words or characters.
    static SentencePieceTokenizer from_file(const std::string& path);
    // Creates a tokenizer from the contents of a file. Throws ValueError if they are invalid.
    static SentencePieceTokenizer from_bytes(std::string_view bytes);

    // Returns the number of pieces.
    std::int64_t vocab_size() const override;
    // Returns the ids of a text, without bos and eos. Unlike sentencepiece, throws ValueError if
    // the text is not UTF-8. Also throws ValueError if the text has 1 GiB or more, or if
    // normalization makes it longer than 1 MiB plus 256 times its size.
    std::vector<std::int64_t> encode(std::string_view text) const override;
    // Returns the text of ids. Control pieces have no text. Byte pieces that are not UTF-8 become
    // U+FFFD. Throws IndexError if an id is out of range.
    std::string decode(std::span<const std::int64_t> ids) const override;

    // Returns the text of a piece. Throws IndexError if the id is out of range.
    const std::string& id_to_piece(std::int64_t id) const;
    // Returns the id of a piece of any type, if it exists.
    std::optional<std::int64_t> piece_to_id(std::string_view piece) const;
    std::int64_t unk_id() const;
    // Return the ids of the control pieces that begin, end and pad a text, if the model has them.
    std::optional<std::int64_t> bos_id() const;
    std::optional<std::int64_t> eos_id() const;
    std::optional<std::int64_t> pad_id() const;

  private:
    struct State;
    explicit SentencePieceTokenizer(std::shared_ptr<const State> state);
    std::shared_ptr<const State> state_;
};

}  // namespace axle::data
