#include <array>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

Behavior behavior_of(const Fields& fields) {
    static constexpr std::array<const char*, 5> kNames = {
        "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const std::string name = fields.text("behavior", "Isolated");
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (name == kNames[i]) return static_cast<Behavior>(i);
    fields.fail("behavior", str("unknown behavior ", in_quotes(name),
                                "; expected Removed, Isolated, MergedWithPrevious, MergedWithNext "
                                "or Contiguous"));
}

template <bool (*is_delimiter)(std::uint32_t)>
void divide_at(Pieces& pieces, Behavior behavior) {
    pieces.divide(behavior, [](std::string_view text, Matches& out) {
        find_characters(text, out, is_delimiter);
    });
}

class BertPreTokenizer : public PreTokenizer {
  public:
    void divide(Pieces& pieces) const override {
        divide_at<is_white_space>(pieces, Behavior::removed);
        divide_at<is_punctuation>(pieces, Behavior::isolated);
    }
};

// Divides a text into words, and into runs of characters that are neither words nor white space.
class Whitespace : public PreTokenizer {
  public:
    void divide(Pieces& pieces) const override {
        pieces.divide(Behavior::removed, [](std::string_view text, Matches& out) {
            int last = -1;  // the kind of the character before
            for (std::uint32_t at = 0; at < text.size();) {
                const Character c = character_in(text, at);
                const int kind = is_word(c.code) ? 1 : is_white_space(c.code) ? 0 : 2;
                const std::uint32_t end = at + c.size;
                if (kind == last) {
                    out.back().range.end = end;
                } else {
                    out.push_back({{at, end}, kind == 0});
                }
                last = kind;
                at = end;
            }
        });
    }
};

class WhitespaceSplit : public PreTokenizer {
  public:
    void divide(Pieces& pieces) const override {
        divide_at<is_white_space>(pieces, Behavior::removed);
    }
};

class Punctuation : public PreTokenizer {
  public:
    explicit Punctuation(const Fields& fields) : behavior_(behavior_of(fields)) {
        fields.allow_only({"behavior"});
    }
    void divide(Pieces& pieces) const override { divide_at<is_punctuation>(pieces, behavior_); }

  private:
    Behavior behavior_;
};

class Digits : public PreTokenizer {
  public:
    explicit Digits(const Fields& fields)
        : behavior_(fields.flag("individual_digits", false) ? Behavior::isolated
                                                            : Behavior::contiguous) {
        fields.allow_only({"individual_digits"});
    }
    void divide(Pieces& pieces) const override { divide_at<is_numeric>(pieces, behavior_); }

  private:
    Behavior behavior_;
};

class CharDelimiterSplit : public PreTokenizer {
  public:
    explicit CharDelimiterSplit(const Fields& fields) : delimiter_(fields.character("delimiter")) {
        fields.allow_only({"delimiter"});
    }
    void divide(Pieces& pieces) const override {
        pieces.divide(Behavior::removed, [this](std::string_view text, Matches& out) {
            find_characters(text, out, [this](std::uint32_t code) { return code == delimiter_; });
        });
    }

  private:
    std::uint32_t delimiter_;
};

class FixedLength : public PreTokenizer {
  public:
    explicit FixedLength(const Fields& fields) : length_(fields.integer("length", 1, INT32_MAX)) {
        fields.allow_only({"length"});
    }
    void divide(Pieces& pieces) const override {
        pieces.divide(Behavior::isolated, [this](std::string_view text, Matches& out) {
            std::int64_t length = length_;
            for (std::uint32_t at = 0; at < text.size();) {
                const std::uint32_t end = at + character_in(text, at).size;
                if (length++ == length_) {
                    out.push_back({{at, end}, false});
                    length = 1;
                } else {
                    out.back().range.end = end;
                }
                at = end;
            }
        });
    }

  private:
    std::int64_t length_;
};

class Split : public PreTokenizer {
  public:
    explicit Split(const Fields& fields)
        : pattern_(make_pattern(fields)),
          behavior_(behavior_of(fields)),
          invert_(fields.flag("invert", false)) {
        fields.allow_only({"pattern", "behavior", "invert"});
    }
    void divide(Pieces& pieces) const override {
        pieces.divide(behavior_, [this](std::string_view text, Matches& out) {
            pattern_.find(text, out);
            if (!invert_) return;
            for (Match& match : out) match.is_match = !match.is_match;
        });
    }

  private:
    Regex pattern_;
    Behavior behavior_;
    bool invert_;
};

class ByteLevel : public PreTokenizer {
  public:
    explicit ByteLevel(const Fields& fields)
        : add_prefix_space_(fields.flag("add_prefix_space", true)), pattern_(kWordPattern) {
        use_regex_ = fields.flag("use_regex", true);
        (void)fields.flag("trim_offsets", true);  // used by the post-processor
        fields.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
    }
    void divide(Pieces& pieces) const override {
        if (add_prefix_space_)
            pieces.change([](AlignedText& text, const Piece&) {
                if (!text.text().starts_with(' ')) text.prepend(" ");
            });
        if (use_regex_)
            pieces.divide(Behavior::isolated, [this](std::string_view text, Matches& out) {
                pattern_.find(text, out);
            });
        pieces.map_bytes();
    }

  private:
    bool add_prefix_space_, use_regex_;
    Regex pattern_;
};

class Metaspace : public PreTokenizer {
  public:
    explicit Metaspace(const Fields& fields)
        : code_(fields.character("replacement")),
          scheme_(fields.text("prepend_scheme", "always")),
          split_(fields.flag("split", true)) {
        append_utf8(replacement_, code_);
        if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
            fields.fail("prepend_scheme", str("unknown scheme ", in_quotes(scheme_),
                                              "; expected always, first or never"));
        if (!fields.flag("add_prefix_space", true)) {
            if (fields.has("prepend_scheme") && scheme_ != "never")
                fields.fail("add_prefix_space", "contradicts prepend_scheme");
            scheme_ = "never";
        }
        fields.allow_only(
            {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    }
    void divide(Pieces& pieces) const override {
        pieces.change([this](AlignedText& text, const Piece& piece) {
            Matches matches;
            find_characters(text.text(), matches, [](std::uint32_t code) { return code == ' '; });
            text.replace(matches, replacement_);
            if (text.text().starts_with(replacement_)) return;
            if (scheme_ == "always" || (scheme_ == "first" && piece.original.begin == 0))
                text.prepend(replacement_);
        });
        if (split_)
            pieces.divide(Behavior::merged_with_next, [this](std::string_view text, Matches& out) {
                find_characters(text, out, [this](std::uint32_t code) { return code == code_; });
            });
    }

  private:
    std::uint32_t code_;
    std::string replacement_, scheme_;
    bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
  public:
    explicit PreTokenizerSequence(const Fields& fields) {
        for (const Fields& part : fields.objects("pretokenizers"))
            parts_.push_back(make_pre_tokenizer(part));
        fields.allow_only({"pretokenizers"});
    }
    void divide(Pieces& pieces) const override {
        for (const auto& part : parts_) part->divide(pieces);
    }

  private:
    std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

template <class T>
std::unique_ptr<PreTokenizer> make_plain(const Fields& fields) {
    fields.allow_only({});
    return std::make_unique<T>();
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Fields& fields) {
    const std::string& type = fields.text("type");
    if (type == "BertPreTokenizer") return make_plain<BertPreTokenizer>(fields);
    if (type == "Whitespace") return make_plain<Whitespace>(fields);
    if (type == "WhitespaceSplit") return make_plain<WhitespaceSplit>(fields);
    if (type == "Punctuation") return std::make_unique<Punctuation>(fields);
    if (type == "Digits") return std::make_unique<Digits>(fields);
    if (type == "CharDelimiterSplit") return std::make_unique<CharDelimiterSplit>(fields);
    if (type == "FixedLength") return std::make_unique<FixedLength>(fields);
    if (type == "Split") return std::make_unique<Split>(fields);
    if (type == "ByteLevel") return std::make_unique<ByteLevel>(fields);
    if (type == "Metaspace") return std::make_unique<Metaspace>(fields);
    if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(fields);
    fields.fail("unknown pre-tokenizer " + in_quotes(type));
}

}  // namespace axle::data::tokenizers
