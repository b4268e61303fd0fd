// DocumentDataset: tokenized documents, answers and chats for the training of language models, from
// the rows of a table.
//
//     const auto tokenizer = data::PretrainedTokenizer::from_pretrained("llama");
//     const auto table = data::Table::from_json("chats.jsonl");
//     const data::DocumentDataset rows(table, tokenizer,
//                                      {.chat_template = "llama3",
//                                       .max_length = 1024,
//                                       .packing = data::Packing::best_fit});
//     data::DataLoader loader(rows, {.batch_size = 4, .shuffle = true});
//     for (auto& batch : loader)
//         model.loss(batch["input_ids"], batch["labels"], {}, batch["position_ids"]);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/files/text.h"
#include "data/instructions/chat_template.h"
#include "data/tables/table.h"

namespace axle::data {

// Returns the template with a name for a tokenizer: the first text of a chat is the bos_token of
// the tokenizer's special_tokens(), or else <|begin_of_text|> if this is a token. Throws the
// ValueError of ChatTemplate::named().
ChatTemplate chat_template_for(const Tokenizer& tokenizer, const std::string& name);

// How documents become the samples of a dataset.
enum class Packing : std::uint8_t {
    // A sample is a document. Batches need padding_collate({.padding_values = {{"labels", -100}}}).
    none,
    // A sample has max_length tokens of whole documents. The longest documents are placed first,
    // each in the sample with the least space in which it fits, as with the strategy "bfd" of TRL.
    // The samples have position_ids, with which the GPT, Llama and Mixtral models keep attention
    // within a document.
    best_fit,
    // A sample has max_length tokens of all documents one after another, as with the strategy
    // "wrapped" of TRL and in nanoGPT. Documents are split, and tokens attend to the documents
    // before their own.
    wrapped,
};

struct DocumentOptions {
    // The column with the text of documents, for tables without the columns "messages", or "prompt"
    // and "completion".
    std::string text_column = "text";
    std::string chat_template = "chatml";  // for the column "messages"; see ChatTemplate::named()
    // If true, the labels of prompts and of messages that are not from the assistant are -100. In
    // TRL, this is completion_only_loss and assistant_only_loss.
    bool answers_only = true;
    // The token that is added to texts and completions that do not end with it. Chats end with the
    // token of their template.
    std::optional<std::int64_t> eos_token_id = {};
    // The number of tokens of a packed sample. Longer documents are truncated, except with
    // Packing::wrapped.
    std::int64_t max_length = 1024;
    Packing packing = Packing::none;
    std::int64_t pad_token_id = 0;  // fills packed samples; the label of padding is -100
};

// A document as token ids.
struct TokenizedDocument {
    std::vector<std::int64_t> ids;
    std::vector<bool> is_answer;  // for each token, whether it is a token of an answer
};

// Returns the tokens of a text. A token is an answer if a character of it is in an answer.
// Pretrained tokenizers encode the whole text, with the special tokens of the post-processor if
// add_special_tokens is true. Other tokenizers encode each part alone. Throws the errors of
// Tokenizer::encode().
TokenizedDocument encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts,
                               bool add_special_tokens);

// The tokens of all documents in memory: 4 bytes and a bit for each token. Copies share the tokens.
// Several threads may call the functions.
//
// A sample is a map of i64 tensors [T]: "input_ids", "labels" and, with Packing::best_fit,
// "position_ids". The label of a position is the next token of the document, or -100 if this token
// is not trained. Padding is a document of its own.
class DocumentDataset : public Dataset {
  public:
    // Encodes all rows. A row is one of:
    //
    //     {"messages": [{"role": "user", "content": "Hi"}, ...]}   a chat, without the BOS token of
    //                                                              the tokenizer's post-processor
    //     {"prompt": "2 + 2 =", "completion": " 4"}
    //     {"text": "..."}                                          the column text_column
    //
    // The columns of the table decide which; other columns are ignored. Documents without a trained
    // token in the first max_length tokens are left out (left_out()). Throws ValueError if the
    // table has none of these columns, if no document is left, for an unknown chat_template, and
    // unless max_length is in [2, 2^30] and the ids of the options are in [0, 2^32). Throws
    // FileError, which names the place of the row (Table::location()), if a value has another type,
    // a message has an unknown role or a chat has no message of the assistant although answers_only
    // is true, and if the tokenizer refuses the text.
    DocumentDataset(const Table& table, const Tokenizer& tokenizer,
                    const DocumentOptions& options = {});

    std::int64_t size() const override;
    // Returns a sample. Throws IndexError unless 0 <= index < size().
    Tree get(std::int64_t index) const override;
    std::shared_ptr<const Dataset> share() const override;

    std::int64_t num_documents() const;  // without those left out
    std::int64_t num_tokens() const;     // of these documents, without padding
    std::int64_t left_out() const;       // the number of documents without a trained token
    // Returns the tokens of a document before its first answer, with which a model can generate the
    // answer: for texts only the first token, and for chats without an answer all tokens. Throws
    // IndexError unless 0 <= index < num_documents().
    std::vector<std::int64_t> prompt(std::int64_t index) const;

  private:
    struct Content;
    std::shared_ptr<const Content> content_;
};

// Returns the places of documents in rows of at most `row_length` tokens, for each row the
// positions of its documents in `lengths`: best-fit decreasing, as Packing::best_fit describes.
// Throws ValueError if a length is not in [1, row_length].
std::vector<std::vector<std::int64_t>> pack_best_fit(std::span<const std::int64_t> lengths,
                                                     std::int64_t row_length);

}  // namespace axle::data
