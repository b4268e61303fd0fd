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

template <class T, void (*free)(T*)>
struct Free {
    void operator()(T* object) const { free(object); }
};
template <class T, void (*free)(T*)>
using Owner = std::unique_ptr<T, Free<T, free>>;

}  // namespace

struct Pattern::Compiled {
    std::string expression;  // for messages
    Owner<pcre2_code, pcre2_code_free> code;
    Owner<pcre2_match_context, pcre2_match_context_free> limits;
};

Pattern::Pattern(const std::string& expression) {
    const Owner<pcre2_compile_context, pcre2_compile_context_free> context(
        pcre2_compile_context_create(nullptr));
    pcre2_set_max_pattern_length(context.get(), kMaxPattern);
    pcre2_set_parens_nest_limit(context.get(), kMaxDepth);
    int error = 0;
    PCRE2_SIZE at = 0;
    auto compiled = std::make_shared<Compiled>();
    compiled->expression = expression;
    compiled->code.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                      PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF | PCRE2_DOLLAR_ENDONLY, &error, &at,
                      context.get()));
    if (compiled->code == nullptr)
        throw ValueError(str(message_of(error), " (at character ", at, ")"));
    compiled->limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(compiled->limits.get(), kMaxSteps);
    pcre2_set_heap_limit(compiled->limits.get(), kMaxHeapKb);
    compiled_ = std::move(compiled);
}

bool Pattern::search(const std::string& text, bool whole) const {
    const Owner<pcre2_match_data, pcre2_match_data_free> data(pcre2_match_data_create(1, nullptr));
    const int result = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), 0, whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0,
                                   data.get(), compiled_->limits.get());
    if (result >= 0) return true;
    if (result == PCRE2_ERROR_NOMATCH) return false;
    throw ValueError(str("the search for the regular expression ", in_quotes(compiled_->expression),
                         " failed: ", message_of(result)));
}

bool Pattern::matches(const std::string& text) const { return search(text, true); }

bool Pattern::is_found_in(const std::string& text) const { return search(text, false); }

}  // namespace axle
