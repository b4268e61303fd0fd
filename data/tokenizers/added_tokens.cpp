#include "data/tokenizers/added_tokens.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

// Returns the offset of the last character of a text that is not empty.
std::size_t last_character(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u) --at;
    return at;
}

bool ends_with_word(std::string_view text) {
    return !text.empty() && is_word(character_in(text, last_character(text)).code);
}

bool starts_with_word(std::string_view text) {
    return !text.empty() && is_word(character_in(text, 0).code);
}

// Returns the number of bytes of white space at the end of a text.
std::size_t spaces_at_end(std::string_view text) {
    std::size_t end = text.size();
    while (end > 0) {
        const std::size_t last = last_character(text.substr(0, end));
        if (!is_white_space(character_in(text, last).code)) break;
        end = last;
    }
    return text.size() - end;
}

std::size_t spaces_at_start(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const Character c = character_in(text, at);
        if (!is_white_space(c.code)) break;
        at += c.size;
    }
    return at;
}

}  // namespace

AddedTokens::AddedTokens(const Fields& file, const Vocabulary& vocabulary,
                         const Normalizer* normalizer) {
    if (!file.has("added_tokens")) return;
    std::vector<const AddedToken*> tokens;
    for (const Fields& fields : file.objects("added_tokens")) {
        AddedToken token{fields.integer("id", 0, Vocabulary::kMaxId), fields.text("content")};
        token.single_word = fields.flag("single_word", false);
        token.lstrip = fields.flag("lstrip", false);
        token.rstrip = fields.flag("rstrip", false);
        token.special = fields.flag("special", false);
        token.normalized = fields.flag("normalized", !token.special);
        fields.allow_only(
            {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
        const std::string name = "the token " + in_quotes(token.content);
        if (token.content.empty()) fields.fail("the content is empty");
        const auto known = vocabulary.id(token.content);
        if (known && *known != token.id)
            fields.fail(
                str(name, " has the id ", token.id, ", but its id in the model is ", *known));
        if (const std::string* other = vocabulary.token(token.id); other != nullptr && !known)
            fields.fail(str(name, " has the id ", token.id, " of the token ", in_quotes(*other)));
        if (by_content_.contains(token.content)) fields.fail(name + " is listed twice");
        const auto [entry, is_new] = by_id_.emplace(token.id, token);
        if (!is_new) fields.fail(str(name, " has the id ", token.id, " of another added token"));
        by_content_.emplace(entry->second.content, &entry->second);
        tokens.push_back(&entry->second);
    }
    // If several tokens have the same normalized form, special tokens are found first.
    std::ranges::stable_partition(tokens, [](const AddedToken* token) { return token->special; });
    for (const AddedToken* token : tokens) {
        if (!token->normalized) {
            raw_.add(token->content, *token);
            continue;
        }
        AlignedText text(token->content, 0, (std::size_t{1} << 20) + 256 * token->content.size());
        if (normalizer != nullptr) normalizer->normalize(text);
        normalized_.add(text.text(), *token);
    }
}

void AddedTokens::Patterns::add(const std::string& text, const AddedToken& token) {
    if (text.empty() || !tokens.emplace(text, &token).second) return;
    std::vector<std::size_t>& list = lengths[static_cast<unsigned char>(text[0])];
    if (std::ranges::find(list, text.size()) == list.end()) list.push_back(text.size());
    std::ranges::sort(list, std::greater());
}

const AddedToken* AddedTokens::Patterns::find(std::string_view text, std::size_t& length) const {
    for (const std::size_t size : lengths[static_cast<unsigned char>(text[0])]) {
        if (size > text.size()) continue;
        const auto found = tokens.find(std::string(text.substr(0, size)));
        if (found == tokens.end()) continue;
        length = size;
        return found->second;
    }
    return nullptr;
}

std::vector<Part> AddedTokens::find_all(std::string_view text, const Patterns& patterns) {
    std::vector<Part> parts;
    const auto range = [](std::size_t begin, std::size_t end) {
        return Range{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
    };
    std::size_t last = 0;  // the end of the last token
    for (std::size_t at = 0; at < text.size() && !patterns.tokens.empty();) {
        std::size_t length = 0;
        const AddedToken* token = patterns.find(text.substr(at), length);
        if (token == nullptr) {
            ++at;
            continue;
        }
        std::size_t begin = at, end = at + length;
        at = end;
        if (token->single_word &&
            (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
            continue;
        if (token->lstrip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), last);
        if (token->rstrip) end += spaces_at_start(text.substr(end));
        if (begin >= end) continue;  // the last token has stripped all of it
        if (last < begin) parts.push_back({range(last, begin), -1});
        parts.push_back({range(begin, end), token->id});
        last = end;
    }
    if (last < text.size()) parts.push_back({range(last, text.size()), -1});
    return parts;
}

Pieces AddedTokens::divide(std::string_view text, const Normalizer* normalizer, std::size_t limit,
                           bool offsets) const {
    Pieces pieces(limit, offsets);
    for (const Part& part : find_all(text, raw_)) {
        const std::string_view raw =
            text.substr(part.range.begin, part.range.end - part.range.begin);
        AlignedText section(raw, part.range.begin, limit);
        if (part.id >= 0) {
            pieces.append(section, part.range, part.id);
            continue;
        }
        if (normalizer != nullptr) normalizer->normalize(section);
        if (section.text().empty()) continue;
        pieces.append(section, part.range);
        pieces.divide_last(find_all(section.text(), normalized_));
    }
    return pieces;
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
    const auto found = by_content_.find(content);
    return found == by_content_.end() ? nullptr : found->second;
}

}  // namespace axle::data::tokenizers
