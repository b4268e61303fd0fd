#include "data/tokenizers/unicode.h"

#include <algorithm>
#include <array>
#include <optional>

#include <utf8proc.h>

#include "data/files/characters.h"

namespace axle::data::tokenizers {
namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;

unsigned byte_at(std::string_view text, std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
}

utf8proc_category_t category(std::uint32_t code) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

int combining_class(std::uint32_t code) {
    return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

// Returns the character that is the canonical composition of two characters, if there is one.
std::optional<std::uint32_t> compose(std::uint32_t first, std::uint32_t second) {
    if (second < 0x300) return std::nullopt;
    std::array<utf8proc_int32_t, 3> pair{static_cast<utf8proc_int32_t>(first),
                                         static_cast<utf8proc_int32_t>(second), 0};
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (utf8proc_normalize_utf32(pair.data(), 2, options) != 1) return std::nullopt;
    return static_cast<std::uint32_t>(pair[0]);
}

// Appends the decomposition of a text. Marks are sorted by combining class.
void decompose(std::string_view text, bool compatible, std::vector<Change>& out) {
    auto options = static_cast<unsigned>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
    if (compatible) options |= UTF8PROC_COMPAT;
    std::size_t sorted = out.size();  // the characters after this one are marks in any order
    const auto sort_marks = [&] {
        std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(sorted), out.end(),
                         [](const Change& a, const Change& b) {
                             return combining_class(a.code) < combining_class(b.code);
                         });
    };
    for (std::size_t at = 0; at < text.size();) {
        const Character c = character_in(text, at);
        at += c.size;
        std::array<utf8proc_int32_t, 32> parts{static_cast<utf8proc_int32_t>(c.code)};
        utf8proc_ssize_t count = 1;
        int boundary = UTF8PROC_BOUNDCLASS_START;
        if (c.code >= 0xA0)
            count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts.data(),
                                            std::ssize(parts),
                                            static_cast<utf8proc_option_t>(options), &boundary);
        for (utf8proc_ssize_t i = 0; i < count; ++i) {
            const auto code = static_cast<std::uint32_t>(parts[static_cast<std::size_t>(i)]);
            if (code < 0x300 || combining_class(code) == 0) {
                if (out.size() - sorted > 1) sort_marks();
                out.push_back({code, i > 0});
                sorted = out.size();
            } else {
                out.push_back({code, i > 0});
            }
        }
    }
    sort_marks();
}

// Composes characters from position `begin` on: the canonical composition algorithm. A composed
// character takes the place of all characters that it is made of.
void compose_all(std::vector<Change>& text, std::size_t begin) {
    std::optional<std::size_t> starter;  // the last character with combining class 0
    std::size_t end = begin;
    int last_class = 0;  // the class of the character before, or 0 if that is the starter
    for (std::size_t i = begin; i < text.size(); ++i) {
        const Change c = text[i];
        const int own_class = c.code < 0x300 ? 0 : combining_class(c.code);
        const bool is_blocked = end != starter.value_or(end) + 1 && last_class >= own_class;
        if (starter && !is_blocked) {
            if (const auto composed = compose(text[*starter].code, c.code)) {
                text[*starter].code = *composed;
                text[*starter].change += c.change - 1;
                continue;
            }
        }
        if (own_class == 0) starter = end;
        last_class = own_class;
        text[end++] = c;
    }
    text.resize(end);
}

}  // namespace

Character character_in(std::string_view text, std::size_t at) {
    const unsigned first = byte_at(text, at);
    const auto next = [&](std::size_t i) { return byte_at(text, at + i) & 0x3Fu; };
    if (first < 0x80) return {first, 1};
    if (first < 0xE0) return {(first & 0x1Fu) << 6 | next(1), 2};
    if (first < 0xF0) return {(first & 0x0Fu) << 12 | next(1) << 6 | next(2), 3};
    return {(first & 0x07u) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4};
}

std::size_t count_characters(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

void append_utf8(std::string& text, std::uint32_t code) {
    if (code < 0x80) {
        text += static_cast<char>(code);
    } else {
        text += utf8(code);
    }
}

std::uint32_t utf8_size(std::uint32_t code) {
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

std::size_t find_invalid_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = byte_at(text, at) < 0x80 ? 1 : character_length(text, at);
        if (length == 0) return at;
        at += length;
    }
    return std::string_view::npos;
}

std::string replace_broken_utf8(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size());
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = character_length(bytes, at);
        if (length > 0) {
            text.append(bytes.substr(at, length));
            at += length;
            continue;
        }
        // A prefix of a character is one that some continuation makes valid.
        const unsigned first = byte_at(bytes, at);
        const std::size_t full = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        std::size_t prefix = 1;
        for (std::size_t n = 2; n < full && at + n <= bytes.size(); ++n) {
            std::string completed(bytes.substr(at, n));
            completed.resize(full, '\x80');
            if (character_length(completed, 0) == 0) break;
            prefix = n;
        }
        append_utf8(text, kReplacement);
        at += prefix;
    }
    return text;
}

bool is_ascii(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_white_space(std::uint32_t code) {
    if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_other(std::uint32_t code) {
    if (code < 0x80) return code < 0x20 || code == 0x7F;
    const auto c = category(code);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO ||
           c == UTF8PROC_CATEGORY_CS;
}

bool is_punctuation(std::uint32_t code) {
    if (code < 0x80)
        return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) ||
               (code >= 91 && code <= 96) || (code >= 123 && code <= 126);
    if (code == 0x166D) return true;  // a symbol since Unicode 12
    const auto c = category(code);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_nonspacing_mark(std::uint32_t code) {
    if (code == 0x1734) return true;                     // a spacing mark since Unicode 14
    if (code == 0x1885 || code == 0x1886) return false;  // marks since Unicode 9
    return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(std::uint32_t code) {
    if (code < 0x300) return false;
    const auto c = category(code);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_numeric(std::uint32_t code) {
    if (code < 0x80) return code >= '0' && code <= '9';
    const auto c = category(code);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_word(std::uint32_t code) {
    if (code < 0x80)
        return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || code == '_' ||
               (code >= 'a' && code <= 'z');
    const auto c = category(code);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
           code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
           (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
           (code >= 0x1F170 && code <= 0x1F189);
}

bool is_chinese(std::uint32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
           (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
           (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

void normalize(std::string_view text, Form form, std::vector<Change>& out) {
    const std::size_t begin = out.size();
    decompose(text, form == Form::nfkc || form == Form::nfkd, out);
    if (form == Form::nfc || form == Form::nfkc) compose_all(out, begin);
}

void lower_case(std::string_view text, std::vector<Change>& out) {
    for (std::size_t at = 0; at < text.size();) {
        const Character c = character_in(text, at);
        at += c.size;
        if (c.code == 0x130) {  // the only character with two characters in lower case
            out.push_back({'i', 0});
            out.push_back({0x307, 1});
        } else {
            const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code));
            out.push_back({static_cast<std::uint32_t>(lower), 0});
        }
    }
}

std::size_t grapheme_size(std::string_view text) {
    if (text.empty()) return 0;
    Character c = character_in(text, 0);
    utf8proc_int32_t state = 0;
    std::size_t size = c.size;
    while (size < text.size()) {
        const Character next = character_in(text, size);
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                             static_cast<utf8proc_int32_t>(next.code), &state))
            break;
        size += next.size;
        c = next;
    }
    return size;
}

}  // namespace axle::data::tokenizers
