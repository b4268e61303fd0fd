#include "core/text/pattern.h"

#include <regex>

#include "kernels/error.h"

namespace axle {

struct Pattern::Compiled {
    std::regex expression;
};

Pattern::Pattern(const std::string& expression) try
    : compiled_(std::make_shared<Compiled>(std::regex(expression))) {
} catch (const std::regex_error& error) {
    throw ValueError(error.what());
}

bool Pattern::matches(const std::string& text) const {
    return std::regex_match(text, compiled_->expression);
}

bool Pattern::is_found_in(const std::string& text) const {
    return std::regex_search(text, compiled_->expression);
}

}  // namespace axle
