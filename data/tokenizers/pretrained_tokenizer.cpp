#include "data/tokenizers/pretrained_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

#include "core/files/file.h"
#include "core/tree/large_integers.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/encodings.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data {

using tokenizers::Fields;
using tokenizers::Model;
using tokenizers::Piece;
using tokenizers::Pieces;
using tokenizers::Range;
using tokenizers::Scratch;
using tokenizers::Token;

namespace {

constexpr std::int64_t kMaxFile = std::int64_t{256} << 20;
constexpr std::int64_t kMaxConfig = std::int64_t{16} << 20;
constexpr std::size_t kMaxMemory = std::size_t{6} << 30;  // for the values of a file
constexpr std::size_t kMaxText = (std::size_t{1} << 30) - 1;
constexpr std::size_t kMaxPending = 16;  // tokens that DecodeStream keeps back
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns f(). Rethrows a ValueError as a FileError with the path.
template <class F>
auto with_path(const std::string& path, F&& f) {
    try {
        return f();
    } catch (const ValueError& error) {
        throw FileError(str(printable(path), ": ", error.what()));
    }
}

// Converts ranges of bytes to ranges of characters.
class CharacterIndex {
  public:
    explicit CharacterIndex(std::string_view text) {
        if (tokenizers::is_ascii(text)) return;
        numbers_.reserve(text.size());
        std::uint32_t number = 0;
        for (std::size_t at = 0; at < text.size(); ++number) {
            const std::uint32_t size = tokenizers::character_in(text, at).size;
            numbers_.insert(numbers_.end(), size, number);
            at += size;
        }
    }
    CharacterRange operator()(Range range) const {
        if (range.begin >= numbers_.size()) return {range.begin, range.end};
        if (range.end < numbers_.size()) return {numbers_[range.begin], numbers_[range.end]};
        return {numbers_[range.begin], numbers_.back() + 1};
    }

  private:
    std::vector<std::uint32_t> numbers_;  // the character of each byte; empty if all have one byte
};

}  // namespace

struct PretrainedTokenizer::State {
    std::unique_ptr<tokenizers::Normalizer> normalizer;
    std::unique_ptr<tokenizers::PreTokenizer> pre_tokenizer;
    std::unique_ptr<Model> model;
    std::unique_ptr<tokenizers::Decoder> decoder;
    std::unique_ptr<tokenizers::AddedTokens> added;
    tokenizers::PostProcessor post_processor;
    std::optional<Truncation> truncation;
    std::optional<Padding> padding;
    std::map<std::string, std::string> special_tokens;

    explicit State(const Tree& file);
    // Returns the encoding of a text without special tokens. Without `details`, it has only ids.
    Encoding encode(std::string_view text, bool details) const;
    // Returns the encoding of a text or of a pair, before padding.
    Encoding encode(std::string_view text, std::optional<std::string_view> pair,
                    const EncodeOptions& options) const;
    // Returns the encoding of a text or of a pair.
    Encoding encode_one(std::string_view text, std::optional<std::string_view> pair,
                        const EncodeOptions& options) const;
    const std::string* token(std::int64_t id) const;
    std::int64_t vocab_size() const {
        return std::max(model->vocabulary().max_id(), added->max_id()) + 1;
    }

  private:
    // Scratch memory of a thread, for one call.
    class Lease {
      public:
        explicit Lease(const State& state) : state_(state) {
            const std::lock_guard lock(state.mutex_);
            if (!state.free_.empty()) {
                scratch_ = std::move(state.free_.back());
                state.free_.pop_back();
            }
        }
        ~Lease() {
            const std::lock_guard lock(state_.mutex_);
            state_.free_.push_back(std::move(scratch_));
        }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        Scratch* get() {
            if (scratch_ == nullptr) scratch_ = state_.model->make_scratch();
            return scratch_.get();
        }

      private:
        const State& state_;
        std::unique_ptr<Scratch> scratch_;
    };

    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Scratch>> free_;
};

PretrainedTokenizer::State::State(const Tree& tree) {
    const Fields file(tree, "");
    if (file.has("version") && file.text("version") != "1.0")
        file.fail("version",
                  "only version '1.0' is supported, not " + in_quotes(file.text("version")));
    file.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                     "pre_tokenizer", "post_processor", "decoder", "model"});
    if (file.has("normalizer")) normalizer = tokenizers::make_normalizer(file.object("normalizer"));
    if (file.has("pre_tokenizer"))
        pre_tokenizer = tokenizers::make_pre_tokenizer(file.object("pre_tokenizer"));
    model = tokenizers::make_model(file.object("model"));
    if (file.has("decoder")) decoder = tokenizers::make_decoder(file.object("decoder"));
    added = std::make_unique<tokenizers::AddedTokens>(file, model->vocabulary(), normalizer.get());
    if (file.has("post_processor"))
        post_processor = tokenizers::PostProcessor(file.object("post_processor"), vocab_size() - 1);
    if (file.has("truncation")) truncation = tokenizers::read_truncation(file.object("truncation"));
    if (file.has("padding")) padding = tokenizers::read_padding(file.object("padding"));
}

const std::string* PretrainedTokenizer::State::token(std::int64_t id) const {
    if (const auto* added_token = added->find(id)) return &added_token->content;
    return model->vocabulary().token(id);
}

Encoding PretrainedTokenizer::State::encode(std::string_view text, bool details) const {
    if (text.size() > kMaxText)
        throw ValueError(str("encode: the text has ", text.size(), " bytes, more than ", kMaxText));
    if (const std::size_t invalid = tokenizers::find_invalid_utf8(text);
        invalid != std::string_view::npos)
        throw ValueError(str("encode: the text must be UTF-8: invalid at byte ", invalid));
    const std::size_t limit =
        std::min<std::size_t>(UINT32_MAX, (std::size_t{1} << 20) + 256 * text.size());
    Pieces pieces = added->divide(text, normalizer.get(), limit, details);
    if (pre_tokenizer != nullptr) pre_tokenizer->divide(pieces);

    Encoding encoding;
    Lease scratch(*this);
    const CharacterIndex characters(details ? text : "");
    std::vector<Token> tokens;
    std::int64_t word = 0;
    for (const Piece& piece : pieces.all()) {
        const std::string_view piece_text = pieces.text(piece);
        const auto size = static_cast<std::uint32_t>(piece_text.size());
        tokens.clear();
        if (piece.id >= 0) {
            tokens.push_back({piece.id, {0, size}, true});
        } else {
            model->encode(piece_text, tokens, scratch.get());
        }
        for (const Token& token : tokens) {
            encoding.ids.push_back(token.id);
            if (!details) continue;
            const std::uint32_t begin = std::min(token.range.begin, size);
            const std::uint32_t end = std::min(token.range.end, size);
            encoding.tokens.push_back(token.is_text
                                          ? std::string(piece_text.substr(begin, end - begin))
                                          : *model->vocabulary().token(token.id));
            encoding.offsets.push_back(
                characters(pieces.original({piece.range.begin + begin, piece.range.begin + end})));
            encoding.word_ids.push_back(word);
        }
        ++word;
    }
    if (!details) return encoding;
    encoding.type_ids.resize(encoding.ids.size());
    encoding.attention_mask.assign(encoding.ids.size(), 1);
    encoding.special_tokens_mask.resize(encoding.ids.size());
    return encoding;
}

Encoding PretrainedTokenizer::State::encode(std::string_view text,
                                            std::optional<std::string_view> pair,
                                            const EncodeOptions& options) const {
    Encoding first = encode(text, true);
    std::optional<Encoding> second;
    if (pair) second = encode(*pair, true);
    if (options.truncation) {
        const std::int64_t special =
            options.add_special_tokens ? post_processor.count(second.has_value()) : 0;
        const Truncation& truncation_options = *options.truncation;
        if (truncation_options.max_length < special || truncation_options.stride < 0)
            throw ValueError(str("encode: max_length of truncation must be at least ", special,
                                 ", the number of special tokens, and the stride must not be ",
                                 "negative: ", truncation_options.max_length, " and ",
                                 truncation_options.stride));
        tokenizers::truncate(first, second, truncation_options.max_length - special,
                             truncation_options);
    }
    return post_processor.process(std::move(first), std::move(second), options.add_special_tokens);
}

Encoding PretrainedTokenizer::State::encode_one(std::string_view text,
                                                std::optional<std::string_view> pair,
                                                const EncodeOptions& options) const {
    std::vector<Encoding> encodings = {encode(text, pair, options)};
    if (options.padding) tokenizers::pad(encodings, *options.padding);
    return std::move(encodings[0]);
}

PretrainedTokenizer::PretrainedTokenizer(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}

PretrainedTokenizer PretrainedTokenizer::from_json(std::string_view json) {
    return PretrainedTokenizer(std::make_shared<State>(axle::from_json(json, kMaxMemory)));
}

PretrainedTokenizer PretrainedTokenizer::from_file(const std::string& path) {
    return with_path(path, [&] { return from_json(read_file(path, kMaxFile)); });
}

PretrainedTokenizer PretrainedTokenizer::from_pretrained(const std::string& folder) {
    const std::filesystem::path root(folder);
    const std::string path = (root / "tokenizer.json").string();
    const std::string config_path = (root / "tokenizer_config.json").string();
    auto state = with_path(path, [&] {
        return std::make_shared<State>(axle::from_json(read_file(path, kMaxFile), kMaxMemory));
    });
    if (!std::filesystem::exists(config_path)) return PretrainedTokenizer(std::move(state));
    with_path(config_path, [&] {
        // Transformers writes 10^30 if model_max_length is unknown.
        const Tree tree =
            from_json_with_large_integers(read_file(config_path, kMaxConfig), kMaxMemory);
        const Fields config(tree, "");
        for (const auto& [key, value] : tree.entries()) {
            if (!key.ends_with("_token")) continue;
            if (value.is_string()) state->special_tokens[key] = value.string();
            if (value.is_map()) state->special_tokens[key] = config.object(key).text("content");
        }
    });
    return PretrainedTokenizer(std::move(state));
}

std::int64_t PretrainedTokenizer::vocab_size() const { return state_->vocab_size(); }

std::vector<std::int64_t> PretrainedTokenizer::encode(std::string_view text) const {
    return encode_ids(text, true);
}

std::vector<std::int64_t> PretrainedTokenizer::encode_ids(std::string_view text,
                                                          bool add_special_tokens) const {
    Encoding encoding = state_->encode(text, false);
    if (!add_special_tokens) return std::move(encoding.ids);
    return state_->post_processor.process(std::move(encoding), std::nullopt, true).ids;
}

Encoding PretrainedTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
    return state_->encode_one(text, std::nullopt, options);
}

Encoding PretrainedTokenizer::encode(std::string_view text, std::string_view pair,
                                     const EncodeOptions& options) const {
    return state_->encode_one(text, pair, options);
}

std::vector<Encoding> PretrainedTokenizer::encode_batch(std::span<const TextPair> texts,
                                                        const EncodeOptions& options) const {
    std::vector<Encoding> encodings;
    encodings.reserve(texts.size());
    for (const auto& [first, second] : texts)
        encodings.push_back(state_->encode(first, second, options));
    if (options.padding) tokenizers::pad(encodings, *options.padding);
    return encodings;
}

std::string PretrainedTokenizer::decode(std::span<const std::int64_t> ids) const {
    return decode(ids, true);
}

std::string PretrainedTokenizer::decode(std::span<const std::int64_t> ids,
                                        bool skip_special_tokens) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int64_t id : ids) {
        const std::string* token = state_->token(id);
        if (token == nullptr)
            throw IndexError(
                str("decode: no token has the id ", id, "; the largest id is ", vocab_size() - 1));
        if (!skip_special_tokens || !is_special(id)) tokens.push_back(*token);
    }
    if (state_->decoder != nullptr) state_->decoder->decode(tokens);
    std::string text;
    for (const std::string& token : tokens) {
        if (state_->decoder == nullptr && &token != tokens.data()) text += ' ';
        text += token;
    }
    return text;
}

std::optional<std::int64_t> PretrainedTokenizer::token_to_id(std::string_view token) const {
    if (const auto* added = state_->added->find(token)) return added->id;
    return state_->model->vocabulary().id(token);
}

std::optional<std::string> PretrainedTokenizer::id_to_token(std::int64_t id) const {
    const std::string* token = state_->token(id);
    if (token == nullptr) return std::nullopt;
    return *token;
}

bool PretrainedTokenizer::is_special(std::int64_t id) const {
    const std::string* text = state_->token(id);
    const auto* token = text == nullptr ? nullptr : state_->added->find(*text);
    return token != nullptr && token->special;
}

std::int64_t PretrainedTokenizer::num_special_tokens(bool is_pair) const {
    return state_->post_processor.count(is_pair);
}

const std::map<std::string, std::string>& PretrainedTokenizer::special_tokens() const {
    return state_->special_tokens;
}

const std::optional<Truncation>& PretrainedTokenizer::truncation() const {
    return state_->truncation;
}

const std::optional<Padding>& PretrainedTokenizer::padding() const { return state_->padding; }

DecodeStream::DecodeStream(PretrainedTokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string DecodeStream::next(std::int64_t id) {
    ids_.push_back(id);
    std::string text;
    try {
        text = tokenizer_.decode(ids_, skip_special_tokens_);
    } catch (const Error&) {
        ids_.pop_back();
        throw;
    }
    const bool is_complete = text.size() > prefix_.size() && !text.ends_with(kReplacement);
    if (!is_complete && ids_.size() - returned_ < kMaxPending) return "";
    std::string part = text.starts_with(prefix_) ? text.substr(prefix_.size()) : "";
    // The next text is decoded after the tokens of this part, which are its context.
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(returned_));
    returned_ = ids_.size();
    prefix_ = tokenizer_.decode(ids_, skip_special_tokens_);
    return part;
}

std::string DecodeStream::finish() {
    const std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
    std::string part = text.starts_with(prefix_) ? text.substr(prefix_.size()) : "";
    ids_.clear();
    returned_ = 0;
    prefix_.clear();
    return part;
}

}  // namespace axle::data
