#include <algorithm>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

// Returns whether the normalizer of BERT removes a character.
bool is_removed_by_bert(std::uint32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    return code == 0 || code == 0xFFFD || is_other(code);
}

void to_lower_case(AlignedText& text) {
    if (is_ascii(text.text())) {
        text.map_ascii([](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        return;
    }
    std::vector<Change> changes;
    lower_case(text.text(), changes);
    text.transform(changes);
}

void to_form(AlignedText& text, Form form) {
    if (is_ascii(text.text())) return;
    std::vector<Change> changes;
    normalize(text.text(), form, changes);
    text.transform(changes);
}

class BertNormalizer : public Normalizer {
  public:
    explicit BertNormalizer(const Fields& fields)
        : clean_text_(fields.flag("clean_text", true)),
          handle_chinese_chars_(fields.flag("handle_chinese_chars", true)),
          lowercase_(fields.flag("lowercase", true)),
          strip_accents_(fields.flag("strip_accents", lowercase_)) {
        fields.allow_only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    }

    void normalize(AlignedText& text) const override {
        if (clean_text_) clean(text);
        if (handle_chinese_chars_ && !is_ascii(text.text())) separate_chinese(text);
        if (strip_accents_ && !is_ascii(text.text())) {
            to_form(text, Form::nfd);
            text.filter([](std::uint32_t code) { return !is_nonspacing_mark(code); });
        }
        if (lowercase_) to_lower_case(text);
    }

  private:
    static void clean(AlignedText& text) {
        text.filter([](std::uint32_t code) { return !is_removed_by_bert(code); });
        if (is_ascii(text.text())) {
            text.map_ascii([](char c) { return c < ' ' ? ' ' : c; });
            return;
        }
        std::vector<Change> changes;
        const std::string& old = text.text();
        for (std::size_t at = 0; at < old.size();) {
            const Character c = character_in(old, at);
            changes.push_back({is_white_space(c.code) ? ' ' : c.code, 0});
            at += c.size;
        }
        text.transform(changes);
    }
    static void separate_chinese(AlignedText& text) {
        std::vector<Change> changes;
        bool has_chinese = false;
        const std::string& old = text.text();
        for (std::size_t at = 0; at < old.size();) {
            const Character c = character_in(old, at);
            at += c.size;
            if (is_chinese(c.code)) {
                changes.insert(changes.end(), {{' ', 0}, {c.code, 1}, {' ', 1}});
                has_chinese = true;
            } else {
                changes.push_back({c.code, 0});
            }
        }
        if (has_chinese) text.transform(changes);
    }

    bool clean_text_, handle_chinese_chars_, lowercase_, strip_accents_;
};

class FormNormalizer : public Normalizer {
  public:
    explicit FormNormalizer(Form form) : form_(form) {}
    void normalize(AlignedText& text) const override { to_form(text, form_); }

  private:
    Form form_;
};

class Lowercase : public Normalizer {
  public:
    void normalize(AlignedText& text) const override { to_lower_case(text); }
};

class Strip : public Normalizer {
  public:
    explicit Strip(const Fields& fields)
        : left_(fields.flag("strip_left", true)), right_(fields.flag("strip_right", true)) {
        fields.allow_only({"strip_left", "strip_right"});
    }
    void normalize(AlignedText& text) const override { text.strip(left_, right_); }

  private:
    bool left_, right_;
};

class StripAccents : public Normalizer {
  public:
    void normalize(AlignedText& text) const override {
        text.filter([](std::uint32_t code) { return !is_mark(code); });
    }
};

class Replace : public Normalizer {
  public:
    explicit Replace(const Fields& fields)
        : pattern_(make_pattern(fields)), content_(fields.text("content")) {
        fields.allow_only({"pattern", "content"});
    }
    void normalize(AlignedText& text) const override {
        Matches matches;
        pattern_.find(text.text(), matches);
        text.replace(matches, content_);
    }

  private:
    Regex pattern_;
    std::string content_;
};

class Prepend : public Normalizer {
  public:
    explicit Prepend(const Fields& fields) : text_(fields.text("prepend")) {
        fields.allow_only({"prepend"});
    }
    void normalize(AlignedText& text) const override { text.prepend(text_); }

  private:
    std::string text_;
};

// The rules of the SentencePiece normalizer "nmt": removes control characters and replaces
// separators by spaces.
class Nmt : public Normalizer {
  public:
    void normalize(AlignedText& text) const override {
        text.filter([](std::uint32_t code) {
            return !((code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
                     code == 0x7F || code == 0x8F || code == 0x9F);
        });
        std::vector<Change> changes;
        const std::string& old = text.text();
        for (std::size_t at = 0; at < old.size();) {
            const Character c = character_in(old, at);
            changes.push_back({is_separator(c.code) ? ' ' : c.code, 0});
            at += c.size;
        }
        text.transform(changes);
    }

  private:
    static bool is_separator(std::uint32_t code) {
        return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
               (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
               code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
    }
};

class ByteLevelNormalizer : public Normalizer {
  public:
    void normalize(AlignedText& text) const override {
        std::vector<Change> changes;
        const std::string& old = text.text();
        for (std::size_t at = 0; at < old.size(); ++at) {
            const auto byte = static_cast<unsigned char>(old[at]);
            changes.push_back({character_of_byte(byte), (byte & 0xC0u) == 0x80u});
        }
        text.transform(changes);
    }
};

class NormalizerSequence : public Normalizer {
  public:
    explicit NormalizerSequence(const Fields& fields) {
        for (const Fields& part : fields.objects("normalizers"))
            parts_.push_back(make_normalizer(part));
        fields.allow_only({"normalizers"});
    }
    void normalize(AlignedText& text) const override {
        for (const auto& part : parts_) part->normalize(text);
    }

  private:
    std::vector<std::unique_ptr<Normalizer>> parts_;
};

template <class T, class... Arguments>
std::unique_ptr<Normalizer> without_fields(const Fields& fields, Arguments... arguments) {
    fields.allow_only({});
    return std::make_unique<T>(arguments...);
}

}  // namespace

Regex make_pattern(const Fields& fields) {
    const Fields pattern = fields.object("pattern");
    pattern.allow_only({"String", "Regex"});
    if (pattern.has("String") == pattern.has("Regex"))
        pattern.fail("expected one of the fields 'String' and 'Regex'");
    try {
        return pattern.has("String") ? Regex::literal(pattern.text("String"))
                                     : Regex(pattern.text("Regex"));
    } catch (const ValueError& error) {
        pattern.fail(error.what());
    }
}

std::unique_ptr<Normalizer> make_normalizer(const Fields& fields) {
    const std::string& type = fields.text("type");
    if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(fields);
    if (type == "NFC") return without_fields<FormNormalizer>(fields, Form::nfc);
    if (type == "NFD") return without_fields<FormNormalizer>(fields, Form::nfd);
    if (type == "NFKC") return without_fields<FormNormalizer>(fields, Form::nfkc);
    if (type == "NFKD") return without_fields<FormNormalizer>(fields, Form::nfkd);
    if (type == "Lowercase") return without_fields<Lowercase>(fields);
    if (type == "Strip") return std::make_unique<Strip>(fields);
    if (type == "StripAccents") return without_fields<StripAccents>(fields);
    if (type == "Replace") return std::make_unique<Replace>(fields);
    if (type == "Prepend") return std::make_unique<Prepend>(fields);
    if (type == "Nmt") return without_fields<Nmt>(fields);
    if (type == "Precompiled") return make_character_map(fields);
    if (type == "ByteLevel") return without_fields<ByteLevelNormalizer>(fields);
    if (type == "Sequence") return std::make_unique<NormalizerSequence>(fields);
    fields.fail("unknown normalizer " + in_quotes(type));
}

}  // namespace axle::data::tokenizers
