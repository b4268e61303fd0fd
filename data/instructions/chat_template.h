// ChatTemplate: the text of a chat, in the format with which a model was trained.
//
// A template has a name and a fixed format. The Jinja templates of tokenizer_config.json are not
// read.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace axle::data {

struct ChatMessage {
    std::string role;  // system, user, assistant or tool
    std::string content;
};

// A part of a text. Only the parts that are answers are trained.
struct TextPart {
    std::string text;
    bool is_answer = false;
};

// Formats chats as Transformers does with the Jinja templates of ChatML and of Llama 3:
//
//     chatml  <|im_start|>user\nHi<|im_end|>\n
//     llama3  <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>
//
// llama3 removes white space around the content of messages. Several threads may use a template.
class ChatTemplate {
  public:
    // Returns the template with a name. `bos_token` is the first text of a chat with llama3; chatml
    // does not use it. Throws ValueError, which lists names(), for other names.
    static ChatTemplate named(const std::string& name, std::string bos_token = "<|begin_of_text|>");
    // Returns the names of all templates.
    static std::vector<std::string> names();

    // Returns the text of a chat. An answer is the content of an assistant message with the token
    // that ends it, as in TRL's template for training Llama 3. With add_generation_prompt, the text
    // ends with the beginning of an assistant message. Throws ValueError for other roles than
    // system, user, assistant and tool.
    std::vector<TextPart> render(std::span<const ChatMessage> messages,
                                 bool add_generation_prompt = false) const;
    // Returns the text of the token that ends a message.
    std::string end_token() const;

  private:
    struct Format;
    ChatTemplate(const Format& format, std::string bos_token);

    const Format* format_;
    std::string bos_token_;
};

// Returns the text of all parts.
std::string joined(std::span<const TextPart> parts);

}  // namespace axle::data
