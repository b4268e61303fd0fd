// Private to data/tokenizers: text that is normalized and divided into pieces, with the position of
// each byte in the original text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/unicode.h"

namespace axle::data::tokenizers {

// Bytes [begin, end) of a text.
struct Range {
    std::uint32_t begin, end;
};

// A part of a text: a match of a pattern if is_match is true, otherwise the text before, between or
// after matches.
struct Match {
    Range range;
    bool is_match;
};
using Matches = std::vector<Match>;

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Changes the matches of a pattern to the pieces into which they divide the text. Elements of the
// result whose is_match is true are not pieces.
void apply_behavior(Behavior behavior, Matches& matches);

// A text that normalizers change. The functions throw ValueError if it becomes longer than `limit`
// bytes.
class AlignedText {
  public:
    // `begin` is the position of the text in the original text.
    AlignedText(std::string_view text, std::uint32_t begin, std::size_t limit)
        : text_(text), begin_(begin), limit_(limit) {}
    // The alignment has the range of each byte of the text in the original text.
    AlignedText(std::string_view text, std::span<const Range> alignment, std::size_t limit)
        : text_(text),
          alignment_(alignment.begin(), alignment.end()),
          is_aligned_(true),
          limit_(limit) {}

    const std::string& text() const { return text_; }
    // Returns whether the bytes of the text are consecutive bytes of the original text.
    bool is_original() const { return !is_aligned_; }
    std::uint32_t begin() const { return begin_; }
    const std::vector<Range>& alignment() const { return alignment_; }

    // Replaces single bytes of an ASCII text by f(byte).
    void map_ascii(char (*f)(char));
    // Removes the first `removed` characters, and replaces the other characters as `changes`
    // (unicode.h) describes.
    void transform(std::span<const Change> changes, std::size_t removed = 0);
    // Removes the characters for which keep() returns false.
    void filter(bool (*keep)(std::uint32_t));
    // Inserts text before the first character. Does nothing if the text is empty.
    void prepend(std::string_view inserted);
    // Replaces each match by `content`. `matches` must cover the text in order. Bytes of the
    // replacement have the position of the last byte that they replace.
    void replace(const Matches& matches, std::string_view content);
    // Removes white space at the beginning and at the end.
    void strip(bool left, bool right);

  private:
    void align();
    void check_size(std::size_t size) const;

    std::string text_;
    std::vector<Range> alignment_;
    bool is_aligned_ = false;
    std::uint32_t begin_ = 0;
    std::size_t limit_;
};

// A piece of a text. `original` is its range in the original text.
struct Piece {
    Range range, original;
    std::int64_t id = -1;  // the id of the added token that the piece is, or -1
};

// A part of a text: an added token, or text with the id -1.
struct Part {
    Range range;
    std::int64_t id;
};

// A normalized text and its pieces.
class Pieces {
  public:
    // Without `offsets`, the positions of the bytes of byte-level tokens are not kept.
    Pieces(std::size_t limit, bool offsets) : limit_(limit), offsets_(offsets) {}

    std::string_view text() const { return text_; }
    std::string_view text(const Piece& piece) const {
        return std::string_view(text_).substr(piece.range.begin,
                                              piece.range.end - piece.range.begin);
    }
    const std::vector<Piece>& all() const { return pieces_; }
    std::size_t limit() const { return limit_; }
    bool has_offsets() const { return offsets_; }
    // Returns the range in the original text of the bytes `range` of text().
    Range original(Range range) const;

    // Adds a text as one piece, unless it is empty.
    void append(const AlignedText& text, Range original, std::int64_t id = -1);
    // Divides the piece that append() added last into parts.
    void divide_last(std::span<const Part> parts);
    // Divides each piece that is not an added token: find(text, matches) adds the matches of a
    // pattern in the text of a piece. Empty parts are ignored.
    void divide(Behavior behavior, const std::function<void(std::string_view, Matches&)>& find);
    // Calls f(text, piece), which changes the text, for each piece that is not an added token.
    void change(const std::function<void(AlignedText&, const Piece&)>& f);
    // Replaces each byte by a printable character, as GPT-2 does, except in added tokens.
    void map_bytes();

  private:
    void begin_alignment();

    std::string text_;
    std::vector<Range> alignment_;  // empty if the text is the original text
    bool is_aligned_ = false;
    std::vector<Piece> pieces_;
    std::size_t limit_;
    bool offsets_;
};

// Returns the printable character that stands for a byte in byte-level tokens.
std::uint32_t character_of_byte(unsigned char byte);
// Returns the byte of a printable character, or -1.
int byte_of_character(std::uint32_t code);

// Appends the characters for which f returns true, and the parts between them, to `out`.
template <class F>
void find_characters(std::string_view text, Matches& out, F&& f) {
    std::uint32_t last = 0;
    const auto size = static_cast<std::uint32_t>(text.size());
    for (std::uint32_t at = 0; at < size;) {
        const Character c = character_in(text, at);
        if (f(c.code)) {
            if (last < at) out.push_back({{last, at}, false});
            last = at + c.size;
            out.push_back({{at, last}, true});
        }
        at += c.size;
    }
    if (last < size) out.push_back({{last, size}, false});
}

}  // namespace axle::data::tokenizers
