// Private to data/tables: splits CSV text into records and fields.
//
// The parser of libcsv is not used: it copies every byte and reports neither the offset of a row,
// which random access needs, nor the place of an error, such as the start of an open quote.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace axle::data {

// A field, without its quotes. If `has_quotes` is true, the text contains doubled quotes.
struct CsvField {
    std::string_view text;
    bool has_quotes = false;
};

class CsvParser {
  public:
    // Throws ValueError if the delimiter or the quote is invalid.
    CsvParser(char delimiter, char quote);

    // Called with the offset of an error and its description; must throw.
    using Fail = std::function<void(std::size_t offset, const char* what)>;

    // Finds the first record at or after byte `end`, without empty lines. Sets `begin` and `end` to
    // its first byte and the byte after its line end. Returns false if there is no record.
    bool next(std::string_view text, std::size_t& begin, std::size_t& end,
              std::vector<CsvField>& fields, const Fail& fail) const;
    // Returns the text of a field, in which doubled quotes are single quotes. The result refers to
    // the text of the field or to `buffer`.
    std::string_view unquoted(const CsvField& field, std::string& buffer) const;

  private:
    char delimiter_, quote_;
    std::array<bool, 256> ends_field_ = {};  // whether a byte ends a field without quotes
};

}  // namespace axle::data
