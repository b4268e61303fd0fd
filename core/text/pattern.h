// Regular expressions.
#pragma once

#include <memory>
#include <string>

namespace axle {

// A regular expression of Perl, which PCRE2 runs. It can come from a file that is not trusted: its
// length and depth are limited, and so are the steps of a search.
class Pattern {
  public:
    // Throws ValueError with a reason if the expression is invalid, has more than 64 KiB or more
    // than 250 levels of parentheses.
    explicit Pattern(const std::string& expression);

    // Returns whether the expression matches the whole text. Throws ValueError if the search needs
    // more than a million steps.
    bool matches(const std::string& text) const;
    // Returns whether the expression matches a part of the text. Throws ValueError as matches()
    // does.
    bool is_found_in(const std::string& text) const;

  private:
    struct Compiled;
    bool search(const std::string& text, bool whole) const;

    std::shared_ptr<const Compiled> compiled_;
};

}  // namespace axle
