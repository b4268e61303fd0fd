#include "data/tokenizers/regex.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

constexpr std::uint32_t kMatchLimit = 20'000'000;  // steps of one search
constexpr std::uint32_t kHeapLimit = 64 << 10;     // KiB of one search
constexpr std::size_t kMaxPattern = 1 << 16;

// Members of character classes. \s of PCRE2 contains U+180E, and \w lacks marks.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})"
                                   R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
                                   R"(\x{1f170}-\x{1f189})";

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

// Translates a pattern from left to right.
class Translator {
  public:
    explicit Translator(std::string_view pattern) : in_(pattern) {}

    std::string run() {
        while (at_ < in_.size()) {
            switch (in_[at_]) {
                case '\\':
                    begin_atom();
                    escape(false);
                    break;
                case '[':
                    begin_atom();
                    character_class();
                    break;
                case '(':
                    open_group();
                    break;
                case ')':
                    if (!groups_.empty()) {
                        atom_ = groups_.back();
                        groups_.pop_back();
                    }
                    out_ += in_[at_++];
                    break;
                case '{':
                    interval();
                    break;
                case '*':
                case '+':
                case '?':
                case '|':
                    out_ += in_[at_++];
                    break;
                default:
                    begin_atom();
                    do {
                        out_ += in_[at_++];
                    } while (at_ < in_.size() && (in_[at_] & 0xC0) == 0x80);
            }
        }
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(const char* what) const {
        throw ValueError(str("the regular expression ", in_quotes(in_), " contains ", what,
                             ", which is not supported"));
    }
    char peek(std::size_t n = 0) const { return at_ + n < in_.size() ? in_[at_ + n] : '\0'; }
    void begin_atom() { atom_ = out_.size(); }

    // Copies an escape sequence, or appends its replacement.
    void escape(bool in_class) {
        const char letter = peek(1);
        const auto add = [&](std::string_view members, const char* open = "[") {
            if (!in_class) out_ += open;
            out_ += members;
            if (!in_class) out_ += ']';
        };
        at_ += 2;
        if (letter == 's') {
            add(kSpaces);
        } else if (letter == 'S') {
            add(kNotSpaces);
        } else if (letter == 'w') {
            add(kWord);
        } else if (letter == 'W' && in_class) {
            refuse("\\W in a character class");
        } else if (letter == 'W') {
            add(kWord, "[^");
        } else if (letter == 'h') {
            add("0-9A-Fa-f");
        } else if (letter == 'H' && in_class) {
            refuse("\\H in a character class");
        } else if (letter == 'H') {
            add("0-9A-Fa-f", "[^");
        } else if (letter == 'u') {
            out_ += "\\x{";
            for (int i = 0; i < 4 && at_ < in_.size(); ++i) out_ += in_[at_++];
            out_ += '}';
        } else if (letter == 'Q' || letter == 'E' || letter == 'C') {
            out_ += letter;
        } else {
            out_ += '\\';
            if (at_ <= in_.size()) out_ += letter;
            // The braces of \p{L} and \x{20} are not an interval.
            if (is_one_of(letter, "pPxko") && peek() == '{')
                while (at_ < in_.size() && out_.back() != '}') out_ += in_[at_++];
        }
        at_ = std::min(at_, in_.size());
    }

    // Copies a character class. The members of a class in the class become members of the outer
    // one.
    void character_class() {
        out_ += in_[at_++];
        if (peek() == '^') out_ += in_[at_++];
        if (peek() == ']') {
            out_ += "\\]";
            ++at_;
        }
        int depth = 1;
        while (depth > 0) {
            if (at_ >= in_.size()) refuse("an open character class");
            if (in_[at_] == '[' && peek(1) == ':') {
                const std::size_t end = in_.find(":]", at_);
                if (end == std::string_view::npos) refuse("'[:' without ':]'");
                out_ += in_.substr(at_, end + 2 - at_);
                at_ = end + 2;
            } else if (in_[at_] == '[') {
                if (peek(1) == '^') refuse("a negated character class in a character class");
                ++depth;
                ++at_;
            } else if (in_[at_] == '&' && peek(1) == '&') {
                refuse("an intersection of character classes");
            } else if (in_[at_] == '\\') {
                escape(true);
            } else if (in_[at_] == ']') {
                if (--depth == 0) out_ += ']';
                ++at_;
            } else {
                out_ += in_[at_++];
            }
        }
    }

    void open_group() {
        if (peek(1) == '*') refuse("'(*'");
        if (peek(1) == '?' && (peek(2) == 'C' || peek(2) == '#')) refuse("'(?C' or '(?#'");
        groups_.push_back(out_.size());
        out_ += in_[at_++];
        if (peek() != '?') return;
        out_ += in_[at_++];
        const std::size_t end = in_.find_first_not_of("imx-", at_);
        if (end == std::string_view::npos || (in_[end] != ')' && in_[end] != ':')) {
            // Copies the rest of the opening, such as "<=", but not the name of a named group,
            // which is then copied like text.
            while (at_ < in_.size() && is_one_of(in_[at_], "<>=!:|P")) out_ += in_[at_++];
            return;
        }
        for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
        if (in_[end] == ':') out_ += in_[at_++];
    }

    // Copies an interval {n,m}, or escapes a '{' that begins none. An interval before a '+' becomes
    // a group, because PCRE2 would read the '+' as possessive.
    void interval() {
        std::size_t end = in_.find('}', at_);
        const std::string_view inside =
            end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
        if (inside.empty() || inside == "," ||
            inside.find_first_not_of("0123456789,") != std::string_view::npos) {
            begin_atom();
            out_ += "\\{";
            ++at_;
            return;
        }
        out_ += inside[0] == ',' ? "{0" : "{";
        out_ += inside;
        out_ += '}';
        at_ = end + 1;
        if (peek() != '+') return;
        out_.insert(atom_, "(?:");
        out_ += ")";
    }

    std::string_view in_;
    std::string out_;
    std::size_t at_ = 0;
    std::size_t atom_ = 0;             // the start of the last atom in the output
    std::vector<std::size_t> groups_;  // the starts of the open groups in the output
};

std::string message_of(int error) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

}  // namespace

std::string to_pcre(std::string_view pattern) { return Translator(pattern).run(); }

struct Regex::Code {
    // The limits of each search.
    struct Limits {
        pcre2_match_context* context = pcre2_match_context_create(nullptr);

        Limits() {
            pcre2_set_match_limit(context, kMatchLimit);
            pcre2_set_heap_limit(context, kHeapLimit);
        }
        ~Limits() { pcre2_match_context_free(context); }
        Limits(const Limits&) = delete;
        Limits& operator=(const Limits&) = delete;
    };

    std::string pattern;  // for messages
    pcre2_code* code = nullptr;
    Limits limits;

    Code(std::string shown, const std::string& translated) : pattern(std::move(shown)) {
        pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(context, kMaxPattern);
        int error = 0;
        PCRE2_SIZE at = 0;
        code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &at, context);
        pcre2_compile_context_free(context);
        if (code == nullptr)
            throw ValueError(str("the regular expression ", in_quotes(pattern),
                                 " is invalid: ", message_of(error)));
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT, the interpreter is used
    }
    ~Code() { pcre2_code_free(code); }
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
};

Regex::Regex(const std::string& pattern)
    : code_(std::make_unique<Code>(pattern, to_pcre(pattern))) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex Regex::literal(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (is_one_of(c, "\\^$.|?*+()[]{}#-")) escaped += '\\';
        if (c == '\0') {
            escaped += "\\x{0}";
        } else {
            escaped += c;
        }
    }
    Regex regex;
    regex.code_ = std::make_unique<Code>(std::string(text), escaped);
    return regex;
}

void Regex::find(std::string_view text, Matches& out) const {
    if (text.empty()) return;
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> owner(
        data, pcre2_match_data_free);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::uint32_t last = 0;  // the end of the last match
    bool has_match = false;  // whether there was a match
    std::size_t from = 0;
    while (from <= text.size()) {
        int result = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data,
                                 code_->limits.context);
        if (result == PCRE2_ERROR_JIT_STACKLIMIT)
            result = pcre2_match(code_->code, subject, text.size(), from,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, code_->limits.context);
        if (result == PCRE2_ERROR_NOMATCH) break;
        if (result < 0)
            throw ValueError(str("encode: the search for the regular expression ",
                                 in_quotes(code_->pattern), " failed: ", message_of(result)));
        const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data);
        const auto begin = static_cast<std::uint32_t>(found[0]);
        const auto end = static_cast<std::uint32_t>(found[1]);
        if (begin > end || begin < last)
            throw ValueError(str("encode: the regular expression ", in_quotes(code_->pattern),
                                 " has a match that ends before it begins"));
        if (begin == end && has_match && end == last && end == from) {
            // An empty match right after a match is ignored.
            if (from == text.size()) break;
            from += character_in(text, from).size;
            continue;
        }
        if (last != begin) out.push_back({{last, begin}, false});
        out.push_back({{begin, end}, true});
        last = end;
        has_match = true;
        from = end;
    }
    if (last != text.size())
        out.push_back({{last, static_cast<std::uint32_t>(text.size())}, false});
}

}  // namespace axle::data::tokenizers
