#include "data/instructions/chat_template.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "data/files/characters.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

// Returns whether str.strip() of Python, which is the filter trim of Jinja, removes a character.
bool is_stripped(std::uint32_t code) {
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// Returns the text without white space at its ends. The text must be UTF-8.
std::string_view stripped(std::string_view text) {
    std::size_t begin = text.size(), end = 0;
    for_each_character("ChatTemplate", text, 0,
                       [&](std::string_view character, std::int64_t offset) {
                           if (is_stripped(code_point(character))) return;
                           begin = std::min(begin, static_cast<std::size_t>(offset));
                           end = static_cast<std::size_t>(offset) + character.size();
                       });
    return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

}  // namespace

struct ChatTemplate::Format {
    const char* name;
    const char* before_role;
    const char* after_role;
    const char* end;        // the token that ends a message
    const char* after_end;  // follows `end`, and is not part of an answer
    bool has_bos;
    bool strips_content;
};

ChatTemplate::ChatTemplate(const Format& format, std::string bos_token)
    : format_(&format), bos_token_(std::move(bos_token)) {}

ChatTemplate ChatTemplate::named(const std::string& name, std::string bos_token) {
    static constexpr Format kFormats[] = {
        {"chatml", "<|im_start|>", "\n", "<|im_end|>", "\n", false, false},
        {"llama3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", true, true},
    };
    for (const Format& format : kFormats)
        if (name == format.name) return ChatTemplate(format, std::move(bos_token));
    throw ValueError(str("ChatTemplate: the name must be chatml or llama3: ", in_quotes(name)));
}

std::vector<std::string> ChatTemplate::names() { return {"chatml", "llama3"}; }

std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt) const {
    std::vector<TextPart> parts(1);
    const auto add = [&](bool is_answer, std::string_view text) {
        if (parts.back().is_answer != is_answer) parts.push_back({"", is_answer});
        parts.back().text += text;
    };
    if (format_->has_bos) add(false, bos_token_);
    for (const auto& [role, content] : messages) {
        if (std::ranges::find(kRoles, role) == kRoles.end())
            throw ValueError(
                str("ChatTemplate: the role of a message must be system, user, assistant or tool: ",
                    in_quotes(role)));
        const bool is_answer = role == "assistant";
        add(false, str(format_->before_role, role, format_->after_role));
        add(is_answer, format_->strips_content ? stripped(content) : std::string_view(content));
        add(is_answer, format_->end);
        add(false, format_->after_end);
    }
    if (add_generation_prompt)
        add(false, str(format_->before_role, "assistant", format_->after_role));
    std::erase_if(parts, [](const TextPart& part) { return part.text.empty(); });
    return parts;
}

std::string ChatTemplate::end_token() const { return format_->end; }

std::string joined(std::span<const TextPart> parts) {
    std::string text;
    for (const TextPart& part : parts) text += part.text;
    return text;
}

}  // namespace axle::data
