#include "data/tables/csv_record.h"

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

std::size_t position(char c) { return static_cast<unsigned char>(c); }

void check_character(const char* name, char c) {
    if (c == '\n' || c == '\r' || position(c) >= 0x80)
        throw ValueError(str("CsvOptions: the ", name, " must be an ASCII character other than a ",
                             "line end: ", in_quotes(std::string_view(&c, 1))));
}

// Returns the length of the line end at a byte, or 0. A CR at the end of the text is a line end.
std::size_t line_end_at(std::string_view text, std::size_t at) {
    if (at == text.size()) return 0;
    if (text[at] == '\n') return 1;
    if (text[at] != '\r') return 0;
    if (at + 1 == text.size()) return 1;
    return text[at + 1] == '\n' ? 2 : 0;
}

}  // namespace

CsvParser::CsvParser(char delimiter, char quote) : delimiter_(delimiter), quote_(quote) {
    check_character("delimiter", delimiter);
    check_character("quote", quote);
    if (delimiter == '\0' || delimiter == quote)
        throw ValueError(str("CsvOptions: the delimiter must not be the quote or a zero byte: ",
                             in_quotes(std::string_view(&delimiter, 1))));
    ends_field_[position(delimiter)] = ends_field_[position('\n')] = true;
}

bool CsvParser::next(std::string_view text, std::size_t& begin, std::size_t& end,
                     std::vector<CsvField>& fields, const Fail& fail) const {
    std::size_t at = end;
    while (const std::size_t n = line_end_at(text, at)) at += n;
    if (at == text.size()) return false;
    begin = at;
    fields.clear();
    while (true) {
        if (quote_ != '\0' && at < text.size() && text[at] == quote_) {
            const std::size_t open = at++;
            bool has_quotes = false;
            while (true) {
                at = text.find(quote_, at);
                if (at == std::string_view::npos)
                    fail(open, "a field begins with a quote that is not closed");
                if (at + 1 == text.size() || text[at + 1] != quote_) break;
                has_quotes = true;
                at += 2;
            }
            fields.push_back({text.substr(open + 1, at - open - 1), has_quotes});
            ++at;
            if (at < text.size() && text[at] != delimiter_ && line_end_at(text, at) == 0)
                fail(at, "expected a delimiter or the end of the line after a closing quote");
        } else {
            const std::size_t start = at;
            while (at < text.size() && !ends_field_[position(text[at])]) ++at;
            const bool ends_line = at == text.size() || text[at] == '\n';
            if (ends_line && at > start && text[at - 1] == '\r') --at;
            fields.push_back({text.substr(start, at - start), false});
        }
        if (at < text.size() && text[at] == delimiter_) {
            ++at;
            continue;
        }
        end = at + line_end_at(text, at);
        return true;
    }
}

std::string_view CsvParser::unquoted(const CsvField& field, std::string& buffer) const {
    if (!field.has_quotes) return field.text;
    buffer.clear();
    for (std::size_t at = 0; at < field.text.size();) {
        // Every quote in the text is followed by another one.
        const std::size_t quote = field.text.find(quote_, at);
        if (quote == std::string_view::npos) {
            buffer += field.text.substr(at);
            break;
        }
        buffer += field.text.substr(at, quote + 1 - at);
        at = quote + 2;
    }
    return buffer;
}

}  // namespace axle::data
