#include "data/tokenizers/aligned_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

// Returns the ranges of the bytes of a text that begins at `begin` of the original text. All bytes
// of a character have the range of the character.
std::vector<Range> ranges_of(std::string_view text, std::uint32_t begin) {
    std::vector<Range> ranges;
    ranges.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const std::uint32_t size = character_in(text, at).size;
        const auto start = begin + static_cast<std::uint32_t>(at);
        ranges.insert(ranges.end(), size, {start, start + size});
        at += size;
    }
    return ranges;
}

// The characters of bytes: printable characters of Latin-1 stand for themselves, and the other
// bytes are numbered from U+0100 on.
constexpr auto kByteCharacters = [] {
    std::array<std::uint16_t, 256> characters{};
    std::uint16_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool is_printable =
            (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        characters[byte] = is_printable ? static_cast<std::uint16_t>(byte) : next++;
    }
    return characters;
}();

constexpr auto kCharacterBytes = [] {
    std::array<std::int16_t, 0x180> bytes{};
    bytes.fill(-1);
    for (std::int16_t byte = 0; byte < 256; ++byte)
        bytes[kByteCharacters[static_cast<std::size_t>(byte)]] = byte;
    return bytes;
}();

bool is_mergeable(Behavior behavior, const Match& match, bool was_match) {
    return behavior == Behavior::contiguous ? match.is_match == was_match
                                            : match.is_match && !was_match;
}

}  // namespace

std::uint32_t character_of_byte(unsigned char byte) { return kByteCharacters[byte]; }

int byte_of_character(std::uint32_t code) {
    return code < kCharacterBytes.size() ? kCharacterBytes[code] : -1;
}

void apply_behavior(Behavior behavior, Matches& matches) {
    if (behavior == Behavior::removed) return;
    const bool backwards = behavior == Behavior::merged_with_next;
    if (backwards) std::ranges::reverse(matches);
    std::size_t end = 0;
    bool was_match = false;
    for (const Match match : matches) {
        const bool merges =
            behavior != Behavior::isolated && end > 0 && is_mergeable(behavior, match, was_match);
        was_match = match.is_match;
        if (merges && backwards) {
            matches[end - 1].range.begin = match.range.begin;
        } else if (merges) {
            matches[end - 1].range.end = match.range.end;
        } else {
            matches[end++] = {match.range, false};
        }
    }
    matches.resize(end);
    if (backwards) std::ranges::reverse(matches);
}

void AlignedText::align() {
    if (is_aligned_) return;
    alignment_ = ranges_of(text_, begin_);
    is_aligned_ = true;
}

void AlignedText::check_size(std::size_t size) const {
    if (size > limit_)
        throw ValueError(str("encode: the normalized text has more than ", limit_,
                             " bytes, which is much longer than the text"));
}

void AlignedText::map_ascii(char (*f)(char)) { std::ranges::transform(text_, text_.begin(), f); }

void AlignedText::transform(std::span<const Change> changes, std::size_t removed) {
    align();
    std::string text;
    std::vector<Range> alignment;
    text.reserve(text_.size());
    alignment.reserve(text_.size());
    std::size_t at = 0;  // the position in the old text
    const auto skip = [&] { at += at < text_.size() ? character_in(text_, at).size : 0; };
    for (; removed > 0; --removed) skip();
    for (const Change c : changes) {
        Range range{0, 0};
        if (c.change > 0) {
            if (at > 0) range = alignment_[at - 1];
        } else if (!alignment_.empty()) {
            range = alignment_[std::min(at, alignment_.size() - 1)];
        }
        for (std::int32_t i = c.change; i <= 0; ++i) skip();
        append_utf8(text, c.code);
        alignment.resize(text.size(), range);
        check_size(text.size());
    }
    text_ = std::move(text);
    alignment_ = std::move(alignment);
}

void AlignedText::filter(bool (*keep)(std::uint32_t)) {
    std::size_t end = 0;
    for (std::size_t at = 0; at < text_.size();) {
        const Character c = character_in(text_, at);
        if (keep(c.code)) {
            if (end != at) {
                align();
                for (std::size_t i = 0; i < c.size; ++i) {
                    text_[end + i] = text_[at + i];
                    alignment_[end + i] = alignment_[at + i];
                }
            }
            end += c.size;
        } else {
            align();
        }
        at += c.size;
    }
    text_.resize(end);
    if (is_aligned_) alignment_.resize(end);
}

void AlignedText::prepend(std::string_view inserted) {
    if (text_.empty() || inserted.empty()) return;
    align();
    check_size(text_.size() + inserted.size());
    text_.insert(0, inserted);
    alignment_.insert(alignment_.begin(), inserted.size(), Range(alignment_.front()));
}

void AlignedText::replace(const Matches& matches, std::string_view content) {
    if (std::ranges::none_of(matches, &Match::is_match)) return;
    align();
    std::string text;
    std::vector<Range> alignment;
    text.reserve(text_.size());
    alignment.reserve(text_.size());
    for (const Match& match : matches) {
        const auto begin = match.range.begin, end = match.range.end;
        if (match.is_match) {
            text.append(content);
            alignment.resize(text.size(), end > 0 ? alignment_[end - 1] : Range{0, 0});
        } else {
            text.append(text_, begin, end - begin);
            alignment.insert(alignment.end(), alignment_.begin() + begin, alignment_.begin() + end);
        }
        check_size(text.size());
    }
    text_ = std::move(text);
    alignment_ = std::move(alignment);
}

void AlignedText::strip(bool left, bool right) {
    std::size_t begin = 0, end = text_.size();
    while (left && begin < end) {
        const Character c = character_in(text_, begin);
        if (!is_white_space(c.code)) break;
        begin += c.size;
    }
    while (right && begin < end) {
        std::size_t last = end - 1;
        while ((static_cast<unsigned char>(text_[last]) & 0xC0u) == 0x80u) --last;
        if (!is_white_space(character_in(text_, last).code)) break;
        end = last;
    }
    if (begin == 0 && end == text_.size()) return;
    align();
    text_ = text_.substr(begin, end - begin);
    alignment_ = std::vector<Range>(alignment_.begin() + static_cast<std::ptrdiff_t>(begin),
                                    alignment_.begin() + static_cast<std::ptrdiff_t>(end));
}

Range Pieces::original(Range range) const {
    if (!is_aligned_) return range;
    if (range.begin == range.end) return {range.begin, range.begin};
    return {alignment_[range.begin].begin, alignment_[range.end - 1].end};
}

void Pieces::begin_alignment() {
    if (is_aligned_) return;
    alignment_ = ranges_of(text_, 0);
    is_aligned_ = true;
}

void Pieces::append(const AlignedText& text, Range original, std::int64_t id) {
    if (text.text().empty()) return;
    const auto begin = static_cast<std::uint32_t>(text_.size());
    if (!text.is_original() || text.begin() != begin) begin_alignment();
    text_ += text.text();
    const auto end = static_cast<std::uint32_t>(text_.size());
    if (is_aligned_ && text.is_original()) {
        const std::vector<Range> ranges = ranges_of(text.text(), text.begin());
        alignment_.insert(alignment_.end(), ranges.begin(), ranges.end());
    } else if (is_aligned_) {
        alignment_.insert(alignment_.end(), text.alignment().begin(), text.alignment().end());
    }
    pieces_.push_back({{begin, end}, original, id});
}

void Pieces::divide_last(std::span<const Part> parts) {
    const std::uint32_t begin = pieces_.back().range.begin;
    pieces_.pop_back();
    for (const Part& part : parts) {
        const Range range{begin + part.range.begin, begin + part.range.end};
        pieces_.push_back({range, original(range), part.id});
    }
}

void Pieces::divide(Behavior behavior,
                    const std::function<void(std::string_view, Matches&)>& find) {
    std::vector<Piece> pieces;
    pieces.reserve(pieces_.size());
    Matches matches;
    for (const Piece& piece : pieces_) {
        if (piece.id >= 0) {
            pieces.push_back(piece);
            continue;
        }
        matches.clear();
        find(text(piece), matches);
        apply_behavior(behavior, matches);
        for (const Match& match : matches) {
            if (match.is_match || match.range.begin >= match.range.end) continue;
            const Range range{piece.range.begin + match.range.begin,
                              piece.range.begin + match.range.end};
            pieces.push_back({range, original(range), -1});
        }
    }
    pieces_ = std::move(pieces);
}

void Pieces::change(const std::function<void(AlignedText&, const Piece&)>& f) {
    Pieces changed(limit_, offsets_);
    changed.pieces_.reserve(pieces_.size());
    for (const Piece& piece : pieces_) {
        const std::string_view old = text(piece);
        AlignedText text =
            is_aligned_
                ? AlignedText(old, std::span(alignment_).subspan(piece.range.begin, old.size()),
                              limit_)
                : AlignedText(old, piece.range.begin, limit_);
        if (piece.id < 0) f(text, piece);
        changed.append(text, piece.original, piece.id);
    }
    if (changed.text_.size() > limit_)
        throw ValueError(str("encode: the normalized text has more than ", limit_, " bytes"));
    *this = std::move(changed);
}

void Pieces::map_bytes() {
    if (offsets_) begin_alignment();
    std::string mapped;
    std::vector<Range> alignment;
    mapped.reserve(text_.size() * 5 / 4);
    if (offsets_) alignment.reserve(text_.size() * 5 / 4);
    for (Piece& piece : pieces_) {
        const auto begin = static_cast<std::uint32_t>(mapped.size());
        for (std::uint32_t i = piece.range.begin; i < piece.range.end; ++i) {
            const auto byte = static_cast<unsigned char>(text_[i]);
            if (piece.id >= 0) {
                mapped += text_[i];
            } else {
                append_utf8(mapped, character_of_byte(byte));
            }
            if (offsets_) alignment.resize(mapped.size(), alignment_[i]);
        }
        piece.range = {begin, static_cast<std::uint32_t>(mapped.size())};
    }
    text_ = std::move(mapped);
    alignment_ = std::move(alignment);
    is_aligned_ = offsets_;
}

}  // namespace axle::data::tokenizers
