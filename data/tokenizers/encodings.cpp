#include "data/tokenizers/encodings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/aligned_text.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Calls f(column of `to`, column of `from`) for each vector that has one element per token.
template <class F>
void for_each_column(Encoding& to, const Encoding& from, F&& f) {
    f(to.ids, from.ids);
    f(to.type_ids, from.type_ids);
    f(to.attention_mask, from.attention_mask);
    f(to.special_tokens_mask, from.special_tokens_mask);
    f(to.tokens, from.tokens);
    f(to.offsets, from.offsets);
    f(to.word_ids, from.word_ids);
}

// The maximum number of combinations of the parts of two texts, which are copies of their tokens.
constexpr std::size_t kMaxCombinations = 4096;

// Adds the tokens of an encoding. The overflow becomes all combinations of the parts.
void append(Encoding& to, const Encoding& from) {
    const std::size_t combinations = (to.overflow.size() + 1) * (from.overflow.size() + 1);
    if (!to.overflow.empty() && !from.overflow.empty() && combinations > kMaxCombinations)
        throw ValueError(str("encode: truncation divides the texts into ", to.overflow.size() + 1,
                             " and ", from.overflow.size() + 1, " parts, which have more than ",
                             kMaxCombinations,
                             " combinations: use only_first or only_second, a larger max_length or "
                             "a smaller stride"));
    std::vector<Encoding> overflow;
    const auto add = [&](const Encoding& first, const Encoding& second) {
        Encoding& combined = overflow.emplace_back();
        for_each_column(combined, first, [](auto& a, const auto& b) { a = b; });
        append(combined, second);
    };
    for (const Encoding& part : to.overflow) {
        add(part, from);
        for (const Encoding& other : from.overflow) add(part, other);
    }
    for (const Encoding& other : from.overflow) add(to, other);
    for_each_column(to, from,
                    [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); });
    to.overflow = std::move(overflow);
}

Encoding slice(const Encoding& encoding, std::size_t begin, std::size_t end) {
    Encoding part;
    for_each_column(part, encoding, [&](auto& a, const auto& b) {
        a.assign(b.begin() + static_cast<std::ptrdiff_t>(begin),
                 b.begin() + static_cast<std::ptrdiff_t>(end));
    });
    return part;
}

void set_type(Encoding& encoding, std::int64_t type_id) {
    std::ranges::fill(encoding.type_ids, type_id);
    for (Encoding& part : encoding.overflow) set_type(part, type_id);
}

bool is_space(std::uint32_t code) { return code == character_of_byte(' ') || is_white_space(code); }

// Removes the white space of byte-level tokens from their offsets.
void trim_offsets(Encoding& encoding, bool add_prefix_space) {
    for (std::size_t i = 0; i < encoding.tokens.size(); ++i) {
        std::int64_t leading = 0, trailing = 0;
        bool is_leading = true;
        const std::string& token = encoding.tokens[i];
        for (std::size_t at = 0; at < token.size();) {
            const Character c = character_in(token, at);
            at += c.size;
            is_leading = is_leading && is_space(c.code);
            leading += is_leading;
            trailing = is_space(c.code) ? trailing + 1 : 0;
        }
        auto& [begin, end] = encoding.offsets[i];
        if (leading > 0) {
            // A single space at the start is the one that was added, which has no characters.
            if ((i == 0 || begin == 0) && add_prefix_space && leading == 1) leading = 0;
            begin = std::min(begin + leading, end);
        }
        if (trailing > 0 && end >= trailing) end = std::max(end - trailing, begin);
    }
    for (Encoding& part : encoding.overflow) trim_offsets(part, add_prefix_space);
}

void add_padding(Encoding& encoding, std::size_t length, const Padding& options) {
    for (Encoding& part : encoding.overflow) add_padding(part, length, options);
    if (encoding.ids.size() >= length) return;
    const std::size_t count = length - encoding.ids.size();
    const auto add = [&](auto& column, const auto& value) {
        column.insert(options.side == Side::left ? column.begin() : column.end(), count, value);
    };
    add(encoding.ids, options.id);
    add(encoding.type_ids, options.type_id);
    add(encoding.attention_mask, 0);
    add(encoding.special_tokens_mask, 1);
    add(encoding.tokens, options.token);
    add(encoding.offsets, CharacterRange{});
    add(encoding.word_ids, -1);
}

}  // namespace

PostProcessor::PostProcessor(const Fields& fields, std::int64_t max_id) { read(fields, max_id); }

void PostProcessor::read(const Fields& fields, std::int64_t max_id) {
    const std::string& type = fields.text("type");
    if (type == "BertProcessing" || type == "RobertaProcessing") {
        read_bert(fields, max_id, type == "RobertaProcessing");
    } else if (type == "TemplateProcessing") {
        read_template(fields, max_id);
    } else if (type == "ByteLevel") {
        fields.allow_only({"add_prefix_space", "trim_offsets", "use_regex"});
        if (fields.flag("trim_offsets", true))
            trims_.push_back(fields.flag("add_prefix_space", true));
    } else if (type == "Sequence") {
        fields.allow_only({"processors"});
        for (const Fields& part : fields.objects("processors")) read(part, max_id);
    } else {
        fields.fail("unknown post-processor " + in_quotes(type));
    }
}

void PostProcessor::set_templates(const Fields& fields, Template single, Template pair) {
    if (single_) fields.fail("a second component that adds special tokens is not supported");
    single_ = std::move(single);
    pair_ = std::move(pair);
}

void PostProcessor::read_bert(const Fields& fields, std::int64_t max_id, bool is_roberta) {
    const auto special = [&](std::string_view key, std::int64_t type_id) {
        const Tree& entry = fields.list(key);
        if (entry.size() != 2 || !entry[0].is_string() || !entry[1].is_integer() ||
            entry[1].integer() < 0 || entry[1].integer() > max_id)
            fields.fail(key, str("expected a list of a token and its id in [0, ", max_id, "], not ",
                                 printable(str(entry))));
        return Part{-1, type_id, {entry[1].integer()}, {entry[0].string()}};
    };
    const std::int64_t second = is_roberta ? 0 : 1;
    is_roberta_ = is_roberta;
    Template single = {special("cls", 0), Part{0, 0, {}, {}}, special("sep", 0)};
    Template pair = single;
    if (is_roberta) pair.push_back(special("sep", 0));
    pair.push_back(Part{1, second, {}, {}});
    pair.push_back(special("sep", second));
    set_templates(fields, std::move(single), std::move(pair));
    if (!is_roberta) return fields.allow_only({"sep", "cls"});
    fields.allow_only({"sep", "cls", "trim_offsets", "add_prefix_space"});
    if (fields.flag("trim_offsets", true)) trims_.push_back(fields.flag("add_prefix_space", true));
}

void PostProcessor::read_template(const Fields& fields, std::int64_t max_id) {
    fields.allow_only({"single", "pair", "special_tokens"});
    const Fields specials = fields.object("special_tokens");
    const auto special = [&](const Fields& token) {
        Part part;
        const Fields found = specials.object(token.text("id"));
        found.allow_only({"id", "ids", "tokens"});
        for (const Tree& id : found.list("ids").elements()) {
            if (!id.is_integer() || id.integer() < 0 || id.integer() > max_id)
                found.fail("ids",
                           str("expected integers in [0, ", max_id, "], not ", printable(str(id))));
            part.ids.push_back(id.integer());
        }
        for (const Tree& name : found.list("tokens").elements()) {
            if (!name.is_string()) found.fail("tokens", "expected strings, not " + kind_name(name));
            part.tokens.push_back(name.string());
        }
        if (part.ids.size() != part.tokens.size())
            found.fail(
                str("there are ", part.ids.size(), " ids and ", part.tokens.size(), " tokens"));
        return part;
    };
    const auto read_parts = [&](std::string_view key, int texts) {
        Template parts;
        for (const Fields& piece : fields.objects(key)) {
            piece.allow_only({"Sequence", "SpecialToken"});
            const bool is_text = piece.has("Sequence");
            const Fields inner = piece.object(is_text ? "Sequence" : "SpecialToken");
            inner.allow_only({"id", "type_id"});
            Part part = is_text ? Part{} : special(inner);
            part.type_id = inner.integer("type_id", 0, UINT32_MAX);
            if (is_text) {
                const std::string& name = inner.text("id");
                if (name != "A" && (name != "B" || texts == 1))
                    inner.fail("id", "unknown text " + in_quotes(name));
                part.text = name == "B";
            }
            parts.push_back(std::move(part));
        }
        return parts;
    };
    Template single = read_parts("single", 1);
    set_templates(fields, std::move(single), read_parts("pair", 2));
}

std::int64_t PostProcessor::count(bool is_pair) const {
    std::int64_t total = 0;
    if (!single_) return 0;
    for (const Part& part : is_pair ? *pair_ : *single_)
        total += static_cast<std::int64_t>(part.ids.size());
    return total;
}

Encoding PostProcessor::process(Encoding first, std::optional<Encoding> second,
                                bool add_special_tokens) const {
    for (const bool add_prefix_space : trims_) {
        trim_offsets(first, add_prefix_space);
        if (second) trim_offsets(*second, add_prefix_space);
    }
    if (second) set_type(*second, 1);
    if (!single_) {
        if (!second) return first;
        append(first, *second);
        return first;
    }
    Encoding result;
    for (const Part& part : second ? *pair_ : *single_) {
        if (part.text >= 0) {
            Encoding& text = part.text == 0 ? first : *second;
            // The tokenizers library leaves the type ids of the overflow unchanged, except in
            // RobertaProcessing with special tokens.
            std::ranges::fill(text.type_ids, part.type_id);
            if (is_roberta_ && add_special_tokens) set_type(text, part.type_id);
            append(result, text);
        } else if (add_special_tokens) {
            Encoding special;
            const std::size_t size = part.ids.size();
            special.ids = part.ids;
            special.type_ids.assign(size, part.type_id);
            special.attention_mask.assign(size, 1);
            special.special_tokens_mask.assign(size, 1);
            special.tokens = part.tokens;
            special.offsets.resize(size);
            special.word_ids.assign(size, -1);
            append(result, special);
        }
    }
    return result;
}

void truncate(Encoding& encoding, std::int64_t max_length, const Truncation& options) {
    const auto length = std::ssize(encoding.ids);
    if (max_length >= length) return;
    if (max_length == 0) {
        Encoding all = std::move(encoding);
        encoding = {};
        encoding.overflow.push_back(std::move(all));
        return;
    }
    if (options.stride >= max_length)
        throw ValueError(str(
            "encode: the stride must be below the length of the truncated text: ", "the stride is ",
            options.stride, ", the length without special ", "tokens is ", max_length));
    const std::int64_t step = max_length - options.stride;
    std::vector<Encoding> parts;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
        parts.push_back(
            slice(encoding, static_cast<std::size_t>(begin), static_cast<std::size_t>(end)));
    };
    if (options.side == Side::right) {
        for (std::int64_t begin = 0; begin < length; begin += step) {
            add(begin, std::min(begin + max_length, length));
            if (begin + max_length >= length) break;
        }
    } else {
        for (std::int64_t end = length; end > 0; end -= step) {
            add(std::max(end - max_length, std::int64_t{0}), end);
            if (end <= max_length) break;
        }
    }
    encoding = std::move(parts.front());
    encoding.overflow.assign(std::make_move_iterator(parts.begin() + 1),
                             std::make_move_iterator(parts.end()));
}

void truncate(Encoding& first, std::optional<Encoding>& second, std::int64_t max_length,
              const Truncation& options) {
    if (max_length == 0) {
        truncate(first, 0, options);
        if (second) truncate(*second, 0, options);
        return;
    }
    const auto n = std::ssize(first.ids);
    const auto m = second ? std::ssize(second->ids) : 0;
    if (n + m <= max_length) return;
    if (options.strategy == TruncationStrategy::longest_first) {
        if (!second) return truncate(first, max_length, options);
        std::int64_t shorter = std::min(n, m);
        std::int64_t longer =
            shorter > max_length ? shorter : std::max(shorter, max_length - shorter);
        if (shorter + longer > max_length) {
            shorter = max_length / 2;
            longer = shorter + max_length % 2;
        }
        truncate(first, n > m ? longer : shorter, options);
        return truncate(*second, n > m ? shorter : longer, options);
    }
    const bool is_first = options.strategy == TruncationStrategy::only_first;
    if (!is_first && !second)
        throw ValueError(
            "encode: truncation only_second needs a second text: only one text is given");
    Encoding& target = is_first ? first : *second;
    const std::int64_t length = is_first ? n : m, excess = n + m - max_length;
    if (length <= excess)
        throw ValueError(str("encode: ", excess, " tokens must be truncated, but the ",
                             is_first ? "first" : "second", " text has only ", length));
    truncate(target, length - excess, options);
}

void pad(std::span<Encoding> encodings, const Padding& options) {
    if (options.length < 0 || options.multiple_of < 0)
        throw ValueError(str("encode: length and multiple_of of padding must not be negative: ",
                             options.length, " and ", options.multiple_of));
    std::int64_t length = options.length;
    if (length == 0)
        for (const Encoding& encoding : encodings)
            length = std::max(length, std::ssize(encoding.ids));
    if (options.multiple_of > 0 && length % options.multiple_of != 0)
        length += options.multiple_of - length % options.multiple_of;
    for (Encoding& encoding : encodings)
        add_padding(encoding, static_cast<std::size_t>(length), options);
}

Truncation read_truncation(const Fields& fields) {
    static constexpr std::array<const char*, 3> kStrategies = {"LongestFirst", "OnlyFirst",
                                                               "OnlySecond"};
    fields.allow_only({"direction", "max_length", "strategy", "stride"});
    Truncation options;
    options.max_length = fields.integer("max_length", 0, kMax);
    options.stride = fields.integer("stride", 0, kMax);
    const std::string name = fields.text("strategy", "LongestFirst");
    const auto strategy = std::ranges::find(kStrategies, name);
    if (strategy == kStrategies.end())
        fields.fail("strategy", str("unknown strategy ", in_quotes(name),
                                    "; expected LongestFirst, OnlyFirst or OnlySecond"));
    options.strategy = static_cast<TruncationStrategy>(strategy - kStrategies.begin());
    options.side = fields.text("direction", "Right") == "Left" ? Side::left : Side::right;
    return options;
}

Padding read_padding(const Fields& fields) {
    fields.allow_only(
        {"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
    Padding options;
    const Tree& strategy = fields.value("strategy");
    if (strategy.is_map()) {
        options.length = fields.object("strategy").integer("Fixed", 0, kMax);
    } else if (!strategy.is_string() || strategy.string() != "BatchLongest") {
        fields.fail("strategy", str("expected 'BatchLongest' or {'Fixed': length}, not ",
                                    printable(str(strategy))));
    }
    if (fields.has("pad_to_multiple_of"))
        options.multiple_of = fields.integer("pad_to_multiple_of", 0, kMax);
    options.side = fields.text("direction", "Right") == "Left" ? Side::left : Side::right;
    options.id = fields.integer("pad_id", 0, kMax);
    options.type_id = fields.integer("pad_type_id", 0, kMax);
    options.token = fields.text("pad_token");
    return options;
}

}  // namespace axle::data::tokenizers
