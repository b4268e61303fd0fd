// Regular expressions.
#pragma once

#include <memory>
#include <string>

namespace axle {

// A regular expression of ECMAScript, as std::regex reads it. This class hides std::regex, because
// each source that includes <regex> takes two seconds longer to compile. Matching recurses for each
// character of the text, so the text must be short, for example the name of a module.
class Pattern {
  public:
    // Throws ValueError with a reason if the expression is invalid.
    explicit Pattern(const std::string& expression);

    // Returns whether the expression matches the whole text.
    bool matches(const std::string& text) const;
    // Returns whether the expression matches a part of the text.
    bool is_found_in(const std::string& text) const;

  private:
    struct Compiled;
    std::shared_ptr<const Compiled> compiled_;
};

}  // namespace axle
