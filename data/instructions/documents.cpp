#include "data/instructions/documents.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/ops.h"
#include "data/files/characters.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::int64_t kIgnored = -100;  // the label that the loss ignores

std::int64_t characters_in(std::string_view text) {
    std::int64_t count = 0;
    for_each_character("DocumentDataset", text, 0,
                       [&](std::string_view, std::int64_t) { ++count; });
    return count;
}

// Returns the text of a value. Throws ValueError if it is not text.
const std::string& text_of(const Tree& value, const std::string& name) {
    if (!value.is_string())
        throw ValueError(str(in_quotes(name), " must be text: ", printable(str(value), 80)));
    return value.string();
}

std::vector<ChatMessage> messages_of(const Tree& value) {
    if (!value.is_list() || value.elements().empty())
        throw ValueError(str("'messages' must be a list of messages: ", printable(str(value), 80)));
    std::vector<ChatMessage> messages;
    for (const Tree& one : value.elements()) {
        const Tree* const role = one.is_map() ? one.find("role") : nullptr;
        const Tree* const content = one.is_map() ? one.find("content") : nullptr;
        if (role == nullptr || content == nullptr)
            throw ValueError(str("a message must be an object with 'role' and 'content': ",
                                 printable(str(one), 80)));
        const Tree* const calls = one.find("tool_calls");
        if (calls != nullptr && !calls->is_null())
            throw ValueError("'tool_calls' of a message are not supported: they must be null");
        messages.push_back({text_of(*role, "role"), text_of(*content, "content")});
    }
    return messages;
}

// Converts rows of a table to token ids.
class Encoder {
  public:
    Encoder(const Table& table, const Tokenizer& tokenizer, const DocumentOptions& options)
        : tokenizer_(tokenizer),
          options_(options),
          template_(chat_template_for(tokenizer, options.chat_template)) {
        const auto names = table.column_names();
        const auto has = [&](const std::string& name) {
            return std::ranges::find(names, name) != names.end();
        };
        if (has("messages")) {
            kind_ = Kind::chat;
        } else if (has("prompt") && has("completion")) {
            kind_ = Kind::answer;
        } else if (has(options.text_column)) {
            kind_ = Kind::text;
        } else {
            std::string all;
            for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
            throw ValueError(
                str("DocumentDataset: the rows must have the column messages, the "
                    "columns prompt and completion, or the text column ",
                    in_quotes(options.text_column), ": they have ", printable(all, 200)));
        }
    }

    TokenizedDocument operator()(const Tree& row) const {
        TokenizedDocument document = encode_parts(tokenizer_, parts_of(row), kind_ != Kind::chat);
        const auto eos = options_.eos_token_id;
        if (kind_ != Kind::chat && eos && (document.ids.empty() || document.ids.back() != *eos)) {
            document.ids.push_back(*eos);
            document.is_answer.push_back(true);
        }
        return document;
    }

  private:
    enum class Kind { text, answer, chat };

    std::vector<TextPart> parts_of(const Tree& row) const {
        if (kind_ == Kind::text)
            return {{text_of(row[options_.text_column], options_.text_column), true}};
        if (kind_ == Kind::answer)
            return {{text_of(row["prompt"], "prompt"), false},
                    {text_of(row["completion"], "completion"), true}};
        std::vector<TextPart> parts = template_.render(messages_of(row["messages"]));
        if (options_.answers_only && std::ranges::none_of(parts, &TextPart::is_answer))
            throw ValueError("the chat must have a message with the role assistant");
        return parts;
    }

    const Tokenizer& tokenizer_;
    const DocumentOptions& options_;
    ChatTemplate template_;
    Kind kind_ = Kind::text;
};

}  // namespace

ChatTemplate chat_template_for(const Tokenizer& tokenizer, const std::string& name) {
    constexpr const char* kDefault = "<|begin_of_text|>";
    const auto* const pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
    if (pretrained == nullptr) return ChatTemplate::named(name, "");
    const auto bos = pretrained->special_tokens().find("bos_token");
    if (bos != pretrained->special_tokens().end()) return ChatTemplate::named(name, bos->second);
    return ChatTemplate::named(name, pretrained->token_to_id(kDefault) ? kDefault : "");
}

TokenizedDocument encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts,
                               bool add_special_tokens) {
    TokenizedDocument document;
    const auto* const pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
    if (pretrained == nullptr) {
        for (const TextPart& part : parts) {
            const auto ids = tokenizer.encode(part.text);
            document.ids.insert(document.ids.end(), ids.begin(), ids.end());
            document.is_answer.resize(document.ids.size(), part.is_answer);
        }
        return document;
    }
    Encoding encoding =
        pretrained->encode(joined(parts), {.add_special_tokens = add_special_tokens});
    std::vector<std::int64_t> ends;  // the characters up to the end of each part
    for (const TextPart& part : parts)
        ends.push_back((ends.empty() ? 0 : ends.back()) + characters_in(part.text));
    // Tokens are in the order of the text, so that the first part of a token only grows.
    std::size_t at = 0;
    bool is_answer = std::ranges::all_of(parts, &TextPart::is_answer);
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
        // A token that the post-processor adds belongs to the token before it.
        if (encoding.special_tokens_mask[i] == 0) {
            const auto [begin, end] = encoding.offsets[i];
            while (at + 1 < parts.size() && ends[at] <= begin) ++at;
            is_answer = false;
            for (std::size_t part = at; part < parts.size(); ++part) {
                is_answer = is_answer || parts[part].is_answer;
                if (ends[part] >= end) break;
            }
        }
        document.is_answer.push_back(is_answer);
    }
    document.ids = std::move(encoding.ids);
    return document;
}

// --- DocumentDataset

struct DocumentDataset::Content {
    DocumentOptions options;
    std::vector<std::uint32_t> ids;  // the tokens of all documents, one after another
    std::vector<bool> is_answer;
    std::vector<std::size_t> ends;  // the end of each document in `ids`
    std::int64_t left_out = 0;
    // The samples: with best_fit, the documents of each; with wrapped, the first token of each.
    std::vector<std::vector<std::int64_t>> packed;
    std::vector<std::size_t> starts;

    std::size_t begin(std::int64_t document) const {
        return document == 0 ? 0 : ends[static_cast<std::size_t>(document) - 1];
    }
    std::size_t end(std::int64_t document) const {
        return ends[static_cast<std::size_t>(document)];
    }
    // Returns whether the token at a position of `ids` is trained.
    bool is_trained(std::size_t at) const { return !options.answers_only || is_answer[at]; }
    void add(const TokenizedDocument& document);
    void pack();
    // Writes the tokens [begin, end) and their labels at position `at` of a sample. The label of
    // the last token is the token after it if `continues` is true.
    void copy(std::size_t begin, std::size_t end, bool continues, std::size_t at,
              std::vector<std::int64_t>& input, std::vector<std::int64_t>& labels) const;
};

void DocumentDataset::Content::add(const TokenizedDocument& document) {
    const bool wraps = options.packing == Packing::wrapped;
    const std::size_t count =
        wraps ? document.ids.size()
              : std::min(document.ids.size(), static_cast<std::size_t>(options.max_length));
    // The first token of a document is not predicted, except from the document before it.
    bool has_trained = false;
    for (std::size_t i = 1; i < count; ++i)
        has_trained = has_trained || !options.answers_only || document.is_answer[i];
    if (!has_trained) {
        ++left_out;
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t id = document.ids[i];
        if (id < 0 || id > UINT32_MAX)
            throw ValueError(str("the tokenizer must return ids in [0, 2^32): ", id));
        ids.push_back(static_cast<std::uint32_t>(id));
        is_answer.push_back(document.is_answer[i]);
    }
    ends.push_back(ids.size());
}

void DocumentDataset::Content::pack() {
    const auto length = static_cast<std::size_t>(options.max_length);
    if (options.packing == Packing::best_fit) {
        std::vector<std::int64_t> lengths;
        for (std::int64_t i = 0; i < std::ssize(ends); ++i)
            lengths.push_back(static_cast<std::int64_t>(end(i) - begin(i)));
        packed = pack_best_fit(lengths, options.max_length);
    }
    if (options.packing == Packing::wrapped)
        for (std::size_t start = 0; start + 1 < ids.size(); start += length) {
            // The samples without a trained label are left out.
            const std::size_t last = std::min(start + length, ids.size() - 1);
            std::size_t label = start + 1;
            while (label <= last && !is_trained(label)) ++label;
            if (label <= last) starts.push_back(start);
        }
}

void DocumentDataset::Content::copy(std::size_t begin, std::size_t end, bool continues,
                                    std::size_t at, std::vector<std::int64_t>& input,
                                    std::vector<std::int64_t>& labels) const {
    for (std::size_t i = begin; i < end; ++i, ++at) {
        input[at] = ids[i];
        const bool has_next = i + 1 < end || (continues && i + 1 < ids.size());
        if (has_next && is_trained(i + 1)) labels[at] = ids[i + 1];
    }
}

DocumentDataset::DocumentDataset(const Table& table, const Tokenizer& tokenizer,
                                 const DocumentOptions& options) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 30;
    if (options.max_length < 2 || options.max_length > kLargest)
        throw ValueError(
            str("DocumentDataset: max_length must be in [2, 2^30]: it is ", options.max_length));
    const auto check_id = [](const char* name, std::int64_t id) {
        if (id < 0 || id > UINT32_MAX)
            throw ValueError(str("DocumentDataset: ", name, " must be in [0, 2^32): it is ", id));
    };
    check_id("pad_token_id", options.pad_token_id);
    if (options.eos_token_id) check_id("eos_token_id", *options.eos_token_id);
    auto content = std::make_shared<Content>();
    content->options = options;
    const Encoder encode(table, tokenizer, options);
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const Tree row = table.get(i);
        try {
            content->add(encode(row));
        } catch (const ValueError& error) {
            throw FileError(str(table.location(i), ": ", error.what()));
        }
    }
    if (content->ends.empty())
        throw ValueError(str("DocumentDataset: none of the ", table.size(), " documents has a ",
                             options.answers_only ? "token of an answer" : "second token",
                             " in its first ", options.max_length, " tokens"));
    content->pack();
    content_ = std::move(content);
}

std::int64_t DocumentDataset::size() const {
    if (content_->options.packing == Packing::best_fit) return std::ssize(content_->packed);
    if (content_->options.packing == Packing::wrapped) return std::ssize(content_->starts);
    return num_documents();
}

Tree DocumentDataset::get(std::int64_t index) const {
    if (index < 0 || index >= size())
        throw IndexError(
            str("DocumentDataset: index ", index, " is out of range for ", size(), " samples"));
    const Content& c = *content_;
    const auto i = static_cast<std::size_t>(index);
    const auto row = static_cast<std::size_t>(c.options.max_length);
    const bool is_packed = c.options.packing != Packing::none;
    const std::size_t length = is_packed ? row : c.end(index) - c.begin(index);
    std::vector<std::int64_t> input(length, is_packed ? c.options.pad_token_id : 0);
    std::vector<std::int64_t> labels(length, kIgnored), positions;
    if (c.options.packing == Packing::none) {
        c.copy(c.begin(index), c.end(index), false, 0, input, labels);
    } else if (c.options.packing == Packing::wrapped) {
        c.copy(c.starts[i], std::min(c.starts[i] + row, c.ids.size()), true, 0, input, labels);
    } else {
        positions.resize(length);
        std::size_t at = 0;
        for (const std::int64_t document : c.packed[i]) {
            const std::size_t begin = c.begin(document), end = c.end(document);
            c.copy(begin, end, false, at, input, labels);
            const auto first = positions.begin() + std::ptrdiff_t(at);
            std::iota(first, first + std::ptrdiff_t(end - begin), 0);
            at += end - begin;
        }
        std::iota(positions.begin() + std::ptrdiff_t(at), positions.end(), 0);
    }
    Tree sample{{"input_ids", tensor(input)}, {"labels", tensor(labels)}};
    if (!positions.empty()) sample.set("position_ids", tensor(positions));
    return sample;
}

std::shared_ptr<const Dataset> DocumentDataset::share() const {
    return std::make_shared<DocumentDataset>(*this);
}

std::int64_t DocumentDataset::num_documents() const { return std::ssize(content_->ends); }
std::int64_t DocumentDataset::num_tokens() const { return std::ssize(content_->ids); }
std::int64_t DocumentDataset::left_out() const { return content_->left_out; }

std::vector<std::int64_t> DocumentDataset::prompt(std::int64_t index) const {
    if (index < 0 || index >= num_documents())
        throw IndexError(str("DocumentDataset: document ", index, " is out of range for ",
                             num_documents(), " documents"));
    const std::size_t begin = content_->begin(index);
    std::size_t end = begin + 1;
    while (end < content_->end(index) && !content_->is_answer[end]) ++end;
    return {content_->ids.begin() + std::ptrdiff_t(begin),
            content_->ids.begin() + std::ptrdiff_t(end)};
}

std::vector<std::vector<std::int64_t>> pack_best_fit(std::span<const std::int64_t> lengths,
                                                     std::int64_t row_length) {
    for (const std::int64_t length : lengths)
        if (length < 1 || length > row_length)
            throw ValueError(str("pack_best_fit: lengths must be in [1, ", row_length,
                                 "], the length of a row: ", length));
    std::vector<std::int64_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; });
    std::vector<std::vector<std::int64_t>> rows;
    std::map<std::int64_t, std::deque<std::size_t>> rows_with_space;
    for (const std::int64_t i : order) {
        const std::int64_t length = lengths[static_cast<std::size_t>(i)];
        auto best = rows_with_space.lower_bound(length);
        std::size_t row = rows.size();
        std::int64_t space = row_length;
        if (best == rows_with_space.end()) {
            rows.emplace_back();
        } else {
            space = best->first;
            row = best->second.front();
            best->second.pop_front();
            if (best->second.empty()) rows_with_space.erase(best);
        }
        rows[row].push_back(i);
        if (space > length) rows_with_space[space - length].push_back(row);
    }
    return rows;
}

}  // namespace axle::data
