#include "core/text/pattern.h"

#include <array>
#include <cstdint>

#include "core/files/file.h"
#include "kernels/error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace axle {
namespace {

constexpr std::size_t kMaxPattern = std::size_t{64} << 10;
constexpr std::uint32_t kMaxDepth = 250, kMaxSteps = 1'000'000, kMaxHeapKb = 16 << 10;

std::string message_of(int error) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Compiled {
    explicit Compiled(const std::string& expression_) : expression(expression_) {
        pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
        pcre2_set_max_pattern_length(context, kMaxPattern);
        pcre2_set_parens_nest_limit(context, kMaxDepth);
        int error = 0;
        PCRE2_SIZE at = 0;
        code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                             PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF | PCRE2_DOLLAR_ENDONLY,
                             &error, &at, context);
        pcre2_compile_context_free(context);
        if (code == nullptr) throw ValueError(str(message_of(error), " (at character ", at, ")"));
        limits = pcre2_match_context_create(nullptr);
        pcre2_set_match_limit(limits, kMaxSteps);
        pcre2_set_heap_limit(limits, kMaxHeapKb);
    }
    ~Compiled() {
        pcre2_match_context_free(limits);
        pcre2_code_free(code);
    }
    Compiled(const Compiled&) = delete;
    Compiled& operator=(const Compiled&) = delete;

    std::string expression;  // for messages
    pcre2_code* code;
    pcre2_match_context* limits;
};

Pattern::Pattern(const std::string& expression)
    : compiled_(std::make_shared<const Compiled>(expression)) {}

bool Pattern::search(const std::string& text, bool whole) const {
    pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
    const int result =
        pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                    whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0, data, compiled_->limits);
    pcre2_match_data_free(data);
    if (result >= 0) return true;
    if (result == PCRE2_ERROR_NOMATCH) return false;
    throw ValueError(str("the search for the regular expression ", in_quotes(compiled_->expression),
                         " failed: ", message_of(result)));
}

bool Pattern::matches(const std::string& text) const { return search(text, true); }

bool Pattern::is_found_in(const std::string& text) const { return search(text, false); }

}  // namespace axle
