#include "data/files/characters.h"

namespace axle::data {

std::size_t character_length(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    unsigned low = 0x80, high = 0xBF;  // the valid range of the second byte
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    bool valid = first >= 0xC2 && first <= 0xF4 && byte(1) >= low && byte(1) <= high;
    for (std::size_t i = 2; i < length; ++i) valid = valid && (byte(i) & 0xC0u) == 0x80u;
    return valid ? length : 0;
}

std::string_view character_at(const char* what, std::string_view text, std::size_t at,
                              std::int64_t begin) {
    const std::size_t length = character_length(text, at);
    if (length == 0)
        throw ValueError(str(what, ": the text must be UTF-8: invalid at byte ",
                             begin + static_cast<std::int64_t>(at)));
    return text.substr(at, length);
}

std::uint32_t code_point(std::string_view character) {
    std::uint32_t code = static_cast<unsigned char>(character[0]);
    if (character.size() > 1) code &= 0x7Fu >> character.size();
    for (const char c : character.substr(1))
        code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
    return code;
}

std::string utf8(std::uint32_t code) {
    const auto byte = [](std::uint32_t bits) { return static_cast<char>(bits); };
    const auto next = [&](int shift) { return byte(0x80u | (code >> shift & 0x3Fu)); };
    if (code < 0x80) return {byte(code)};
    if (code < 0x800) return {byte(0xC0u | code >> 6), next(0)};
    if (code < 0x10000) return {byte(0xE0u | code >> 12), next(6), next(0)};
    return {byte(0xF0u | code >> 18), next(12), next(6), next(0)};
}

TextFile::TextFile(const std::string& path) : file_(path) {
    if (file_.size() == 0) throw FileError(str(printable(path), ": the file is empty"));
}

}  // namespace axle::data
