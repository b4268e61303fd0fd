#include <algorithm>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

constexpr std::size_t kMaxDecoded = std::size_t{1} << 30;  // bytes after replacements

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    if (from.empty()) return;
    std::size_t at = text.find(from);
    if (at == std::string::npos) return;
    std::string out;
    std::size_t end = 0;
    for (; at != std::string::npos; at = text.find(from, end)) {
        out.append(text, end, at - end);
        out.append(to);
        end = at + from.size();
    }
    out.append(text, end);
    text = std::move(out);
}

// Removes the spaces before punctuation and English contractions, and contracts "do not" to
// "don't".
void clean_up(std::string& text) {
    static constexpr std::pair<const char*, const char*> kReplacements[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (const auto& [from, to] : kReplacements) replace_all(text, from, to);
}

std::string joined(const std::vector<std::string>& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
}

class WordPieceDecoder : public Decoder {
  public:
    explicit WordPieceDecoder(const Fields& fields)
        : prefix_(fields.text("prefix", "##")), cleanup_(fields.flag("cleanup", true)) {
        fields.allow_only({"prefix", "cleanup"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            std::string& token = tokens[i];
            if (i > 0 && token.starts_with(prefix_)) {
                token.erase(0, prefix_.size());
            } else if (i > 0) {
                token.insert(0, 1, ' ');
            }
            if (cleanup_) clean_up(token);
        }
    }

  private:
    std::string prefix_;
    bool cleanup_;
};

class ByteLevelDecoder : public Decoder {
  public:
    explicit ByteLevelDecoder(const Fields& fields) {
        fields.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        std::string bytes;
        for (const std::string& token : tokens) {
            const std::size_t before = bytes.size();
            for (std::size_t at = 0; at < token.size();) {
                const Character c = character_in(token, at);
                const int byte = byte_of_character(c.code);
                if (byte < 0) {  // the token is not a byte-level token
                    bytes.resize(before);
                    bytes += token;
                    break;
                }
                bytes += static_cast<char>(byte);
                at += c.size;
            }
        }
        tokens = {replace_broken_utf8(bytes)};
    }
};

class MetaspaceDecoder : public Decoder {
  public:
    explicit MetaspaceDecoder(const Fields& fields) : code_(fields.character("replacement")) {
        const std::string scheme = fields.text("prepend_scheme", "always");
        if (scheme != "always" && scheme != "first" && scheme != "never")
            fields.fail("prepend_scheme", str("unknown scheme ", in_quotes(scheme),
                                              "; expected always, first or never"));
        drops_first_ = scheme != "never" && fields.flag("add_prefix_space", true);
        fields.allow_only(
            {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            std::string text;
            for (std::size_t at = 0; at < tokens[i].size();) {
                const Character c = character_in(tokens[i], at);
                if (c.code != code_) {
                    append_utf8(text, c.code);
                } else if (i > 0 || !drops_first_) {
                    text += ' ';
                }
                at += c.size;
            }
            tokens[i] = std::move(text);
        }
    }

  private:
    std::uint32_t code_;
    bool drops_first_;
};

class BpeDecoder : public Decoder {
  public:
    explicit BpeDecoder(const Fields& fields) : suffix_(fields.text("suffix", "</w>")) {
        fields.allow_only({"suffix"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        for (std::string& token : tokens)
            replace_all(token, suffix_, &token == &tokens.back() ? "" : " ");
    }

  private:
    std::string suffix_;
};

// Joins the tokens <0xNN> of bytes. Each byte of a text that is not UTF-8 becomes U+FFFD.
class ByteFallback : public Decoder {
  public:
    void decode(std::vector<std::string>& tokens) const override {
        std::vector<std::string> out;
        std::string bytes;
        const auto add_bytes = [&] {
            if (bytes.empty()) return;
            if (find_invalid_utf8(bytes) == std::string_view::npos) {
                out.push_back(bytes);
            } else {
                out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
            }
            bytes.clear();
        };
        for (std::string& token : tokens) {
            const int byte = byte_of(token);
            if (byte >= 0) {
                bytes += static_cast<char>(byte);
            } else {
                add_bytes();
                out.push_back(std::move(token));
            }
        }
        add_bytes();
        tokens = std::move(out);
    }

  private:
    static int digit(char c) {
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'A' && c <= 'F') return c - 'A' + 10;
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    }
    static int byte_of(const std::string& token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
        const int high = digit(token[3]), low = digit(token[4]);
        return high < 0 || low < 0 ? -1 : high * 16 + low;
    }
};

class Fuse : public Decoder {
  public:
    void decode(std::vector<std::string>& tokens) const override { tokens = {joined(tokens)}; }
};

// Removes up to `start` and `stop` copies of a character at the two ends of each token.
class StripDecoder : public Decoder {
  public:
    explicit StripDecoder(const Fields& fields)
        : start_(fields.integer("start", 0, INT32_MAX)),
          stop_(fields.integer("stop", 0, INT32_MAX)) {
        append_utf8(content_, fields.character("content"));
        fields.allow_only({"content", "start", "stop"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        for (std::string& token : tokens) {
            std::string_view rest = token;
            for (auto i = start_; i > 0 && rest.starts_with(content_); --i)
                rest.remove_prefix(content_.size());
            for (auto i = stop_; i > 0 && rest.ends_with(content_); --i)
                rest.remove_suffix(content_.size());
            token = std::string(rest);
        }
    }

  private:
    std::string content_;
    std::int64_t start_, stop_;
};

class ReplaceDecoder : public Decoder {
  public:
    explicit ReplaceDecoder(const Fields& fields)
        : pattern_(make_pattern(fields)), content_(fields.text("content")) {
        fields.allow_only({"pattern", "content"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        Matches matches;
        std::size_t total = 0;
        for (std::string& token : tokens) {
            matches.clear();
            pattern_.find(token, matches);
            std::string text;
            for (const Match& match : matches) {
                if (match.is_match) {
                    text += content_;
                } else {
                    text.append(token, match.range.begin, match.range.end - match.range.begin);
                }
                if (total + text.size() > kMaxDecoded)
                    throw ValueError(str("decode: the text has more than ", kMaxDecoded, " bytes"));
            }
            total += text.size();
            token = std::move(text);
        }
    }

  private:
    Regex pattern_;
    std::string content_;
};

// Merges repeated tokens, and then removes the padding. With cleanup, also replaces the delimiters
// of words by spaces.
class Ctc : public Decoder {
  public:
    explicit Ctc(const Fields& fields)
        : pad_(fields.text("pad_token", "<pad>")),
          delimiter_(fields.text("word_delimiter_token", "|")),
          cleanup_(fields.flag("cleanup", true)) {
        fields.allow_only({"pad_token", "word_delimiter_token", "cleanup"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
        for (std::string& token : tokens) {
            replace_all(token, pad_, "");
            if (!cleanup_) continue;
            clean_up(token);
            replace_all(token, delimiter_, " ");
        }
        std::erase(tokens, "");
    }

  private:
    std::string pad_, delimiter_;
    bool cleanup_;
};

class DecoderSequence : public Decoder {
  public:
    explicit DecoderSequence(const Fields& fields) {
        for (const Fields& part : fields.objects("decoders")) parts_.push_back(make_decoder(part));
        fields.allow_only({"decoders"});
    }
    void decode(std::vector<std::string>& tokens) const override {
        for (const auto& part : parts_) part->decode(tokens);
    }

  private:
    std::vector<std::unique_ptr<Decoder>> parts_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Fields& fields) {
    const std::string& type = fields.text("type");
    if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(fields);
    if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>(fields);
    if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(fields);
    if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(fields);
    if (type == "Strip") return std::make_unique<StripDecoder>(fields);
    if (type == "Replace") return std::make_unique<ReplaceDecoder>(fields);
    if (type == "CTC") return std::make_unique<Ctc>(fields);
    if (type == "Sequence") return std::make_unique<DecoderSequence>(fields);
    if (type != "ByteFallback" && type != "Fuse") fields.fail("unknown decoder " + in_quotes(type));
    fields.allow_only({});
    if (type == "Fuse") return std::make_unique<Fuse>();
    return std::make_unique<ByteFallback>();
}

}  // namespace axle::data::tokenizers
