// Private to data/tokenizers: reads the fields of a component in tokenizer.json.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"

namespace axle::data::tokenizers {

// The fields of a JSON object. `path` is its place in the file, for example "normalizer.pattern".
// All functions throw ValueError, with the path, if a field has a wrong type, or if a field without
// a default value is missing or null. The object and the Tree must outlive the Fields.
class Fields {
  public:
    Fields(const Tree& object, std::string path);

    const std::string& path() const { return path_; }
    bool has(std::string_view key) const;
    // Returns the path of a field.
    std::string path_of(std::string_view key) const;

    const std::string& text(std::string_view key) const;
    std::string text(std::string_view key, std::string_view otherwise) const;
    bool flag(std::string_view key) const;
    bool flag(std::string_view key, bool otherwise) const;
    // Returns an integer in [low, high].
    std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
    // Returns the only character of a text.
    std::uint32_t character(std::string_view key) const;
    const Tree& list(std::string_view key) const;
    // Returns a field of any type, which can be null.
    const Tree& value(std::string_view key) const;
    Fields object(std::string_view key) const;
    // Returns the objects of a list.
    std::vector<Fields> objects(std::string_view key) const;

    // Throws ValueError, which names the object, for a field that is not in the list and not
    // "type".
    void allow_only(std::initializer_list<std::string_view> keys) const;
    // Throws ValueError with the path of the object.
    [[noreturn]] void fail(const std::string& reason) const;
    [[noreturn]] void fail(std::string_view key, const std::string& reason) const;

  private:
    const Tree* object_;
    std::string path_;
};

// Throws ValueError("path: reason").
[[noreturn]] void fail_at(const std::string& path, const std::string& reason);
// Returns the name of the kind of a JSON value, for example "a list".
std::string kind_name(const Tree& value);

}  // namespace axle::data::tokenizers
