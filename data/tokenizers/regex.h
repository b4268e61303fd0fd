// Private to data/tokenizers: regular expressions of tokenizer.json, which have the syntax of
// Oniguruma and are run by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizers/aligned_text.h"

namespace axle::data::tokenizers {

// The pattern that divides text in GPT-2: contractions, words, numbers, other characters and white
// space.
inline constexpr const char* kWordPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Returns the pattern with the constructs that PCRE2 reads in another way than Oniguruma replaced
// by constructs with the same meaning: \s, \S, \w, \W, \h, \H, \u, \Q, \E, \C, (?m), {n,m}+, {,n}
// and nested character classes. Throws ValueError for constructs that have no replacement.
std::string to_pcre(std::string_view pattern);

// A compiled regular expression. Several threads can use the same object.
class Regex {
  public:
    // Throws ValueError if the pattern is invalid.
    explicit Regex(const std::string& pattern);
    ~Regex();
    Regex(Regex&&) noexcept;
    Regex& operator=(Regex&&) noexcept;
    // Returns an expression that matches the text itself.
    static Regex literal(std::string_view text);

    // Appends the matches and the parts between them. The text must be valid UTF-8. Throws
    // ValueError if the search needs too much time or memory.
    void find(std::string_view text, Matches& out) const;

  private:
    struct Code;
    Regex() = default;
    std::unique_ptr<Code> code_;
};

}  // namespace axle::data::tokenizers
