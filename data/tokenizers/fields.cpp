#include "data/tokenizers/fields.h"

#include <algorithm>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {

void fail_at(const std::string& path, const std::string& reason) {
    throw ValueError(path.empty() ? reason : str(path, ": ", reason));
}

std::string kind_name(const Tree& value) {
    switch (value.kind()) {
        case Tree::Kind::null:
            return "null";
        case Tree::Kind::integer:
            return "an integer";
        case Tree::Kind::number:
            return "a number";
        case Tree::Kind::flag:
            return "true or false";
        case Tree::Kind::string:
            return "a string";
        case Tree::Kind::list:
            return "a list";
        case Tree::Kind::map:
            return "an object";
        case Tree::Kind::tensor:
            break;
    }
    return "a tensor";
}

Fields::Fields(const Tree& object, std::string path) : object_(&object), path_(std::move(path)) {
    if (!object.is_map()) fail("expected an object, not " + kind_name(object));
}

void Fields::fail(const std::string& reason) const { fail_at(path_, reason); }

void Fields::fail(std::string_view key, const std::string& reason) const {
    fail_at(path_of(key), reason);
}

std::string Fields::path_of(std::string_view key) const {
    return path_.empty() ? printable(key) : str(path_, ".", printable(key));
}

bool Fields::has(std::string_view key) const {
    const Tree* found = object_->find(key);
    return found != nullptr && !found->is_null();
}

const Tree& Fields::value(std::string_view key) const {
    const Tree* found = object_->find(key);
    if (found == nullptr) fail(key, "the field is missing");
    return *found;
}

const std::string& Fields::text(std::string_view key) const {
    const Tree& found = value(key);
    if (!found.is_string()) fail(key, "expected a string, not " + kind_name(found));
    return found.string();
}

std::string Fields::text(std::string_view key, std::string_view otherwise) const {
    return has(key) ? text(key) : std::string(otherwise);
}

bool Fields::flag(std::string_view key) const {
    const Tree& found = value(key);
    if (!found.is_boolean()) fail(key, "expected true or false, not " + kind_name(found));
    return found.boolean();
}

bool Fields::flag(std::string_view key, bool otherwise) const {
    return has(key) ? flag(key) : otherwise;
}

std::int64_t Fields::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    const Tree& found = value(key);
    if (!found.is_integer()) fail(key, "expected an integer, not " + kind_name(found));
    if (found.integer() < low || found.integer() > high)
        fail(key, str("expected an integer in [", low, ", ", high, "], not ", found.integer()));
    return found.integer();
}

std::uint32_t Fields::character(std::string_view key) const {
    const std::string& found = text(key);
    if (count_characters(found) != 1) fail(key, "expected one character, not " + in_quotes(found));
    return character_in(found, 0).code;
}

const Tree& Fields::list(std::string_view key) const {
    const Tree& found = value(key);
    if (!found.is_list()) fail(key, "expected a list, not " + kind_name(found));
    return found;
}

Fields Fields::object(std::string_view key) const { return {value(key), path_of(key)}; }

std::vector<Fields> Fields::objects(std::string_view key) const {
    std::vector<Fields> found;
    std::size_t index = 0;
    for (const Tree& element : list(key).elements())
        found.emplace_back(element, str(path_of(key), "[", index++, "]"));
    return found;
}

void Fields::allow_only(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : object_->entries())
        if (key != "type" && std::ranges::find(keys, key) == keys.end())
            fail("unknown field " + in_quotes(key));
}

}  // namespace axle::data::tokenizers
