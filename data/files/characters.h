// Private to data: the characters of UTF-8 text in memory and in files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::data {

// Returns the length in bytes of the character at byte `at`, or 0 if it is not valid UTF-8.
std::size_t character_length(std::string_view text, std::size_t at);
// Returns the bytes of the character at byte `at`. Throws ValueError if they are not valid UTF-8
// (RFC 3629), for example for an overlong form, a surrogate or a code point above U+10FFFF; the
// message contains `what`, which decodes the text, and the offset begin + at.
std::string_view character_at(const char* what, std::string_view text, std::size_t at,
                              std::int64_t begin);
// Returns the code point of a character.
std::uint32_t code_point(std::string_view character);
// Returns a character with this code point.
std::string utf8(std::uint32_t code);

// Calls f(character, offset) for each character of a text whose first byte has the offset `begin`.
template <class F>
void for_each_character(const char* what, std::string_view text, std::int64_t begin, F&& f) {
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view character = character_at(what, text, at, begin);
        f(character, begin + static_cast<std::int64_t>(at));
        at += character.size();
    }
}

// A text file that is read in parts. Several threads may call the functions.
class TextFile {
  public:
    // Throws FileError if the file is missing or empty.
    explicit TextFile(const std::string& path);

    const std::string& path() const { return file_.path(); }
    std::int64_t size() const { return file_.size(); }
    // Fills `bytes` with the contents of the file from the offset `at`. Throws FileError if the
    // file has become shorter.
    void read(std::int64_t at, std::span<char> bytes) const {
        file_.read_at(at, std::as_writable_bytes(bytes));
    }
    // Calls f(character, offset) for the characters from the offset `begin` until f returns false.
    // Reads `part` bytes at a time. Throws FileError, with the path, if the text is not UTF-8 or f
    // throws ValueError.
    template <class F>
    void for_each_character(std::int64_t begin, F&& f,
                            std::size_t part = std::size_t{1} << 20) const;

  private:
    static constexpr std::size_t kLongest = 4;  // bytes of a character

    InputFile file_;
};

template <class F>
void TextFile::for_each_character(std::int64_t begin, F&& f, std::size_t part) const {
    part = std::min(part, static_cast<std::size_t>(size()));
    std::string buffer(part + kLongest, '\0');
    std::size_t kept = 0;  // bytes at the beginning of the buffer that were read before
    try {
        for (std::int64_t at = begin; at < size();) {
            const auto n =
                static_cast<std::size_t>(std::min(static_cast<std::int64_t>(part), size() - at));
            read(at, std::span(buffer).subspan(kept, n));
            at += static_cast<std::int64_t>(n);
            const std::string_view text(buffer.data(), kept + n);
            const std::int64_t start = at - std::ssize(text);
            // The last bytes may be the beginning of a character.
            const std::size_t safe =
                at == size() ? text.size() : text.size() - std::min(text.size(), kLongest - 1);
            std::size_t next = 0;
            while (next < safe) {
                const bool is_ascii = static_cast<unsigned char>(text[next]) < 0x80;
                const std::string_view character =
                    is_ascii ? text.substr(next, 1)
                             : character_at("CharTokenizer", text, next, start);
                if (!f(character, start + static_cast<std::int64_t>(next))) return;
                next += character.size();
            }
            kept = text.size() - next;
            std::copy_n(text.data() + next, kept, buffer.data());
        }
    } catch (const ValueError& error) {
        throw FileError(str(printable(path()), ": ", error.what()));
    }
}

}  // namespace axle::data
