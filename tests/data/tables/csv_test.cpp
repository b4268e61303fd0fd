// Tests tables of CSV files. The rows and types are compared with recordings of Python's csv module
// and of pandas (tests/golden/record_tables.py).
#include <cmath>
#include <fstream>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "data/tables/table.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/tables/written.h"
#include "tests/peak_memory.h"
#include "tests/sanitized.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::rows_of;
using tests::TemporaryFolder;
using tests::written;
using Strings = std::vector<std::string>;

class TableFromCsv : public testing::Test {
  protected:
    Table read(std::string_view text, const CsvOptions& options = {}) const {
        return Table::from_csv(written(folder_, text), options);
    }
    template <class E = FileError>
    void expect_rejected(std::string_view text, std::initializer_list<const char*> parts,
                         const CsvOptions& options = {}) const {
        expect_error<E>(parts, [&] { read(text, options); });
    }

    TemporaryFolder folder_{FolderStorage::in_memory};
};

TEST_F(TableFromCsv, ReadsTheRowsOfTheCsvModule) {
    const auto file = tests::golden_json("tables.json");
    for (const auto& recorded : file["csv"]) {
        const auto text = recorded["text"].get<std::string>();
        const auto rows = recorded["rows"].get<std::vector<Strings>>();
        CsvOptions options{.delimiter = recorded["delimiter"].get<std::string>()[0],
                           .missing_values = {}};
        for (const std::string& name : rows[0]) options.types.emplace_back(name, ColumnType::text);
        for (const std::string bom : {"", "\xef\xbb\xbf"}) {
            const Table table = read(bom + text, options);
            ASSERT_EQ(table.column_names(), rows[0]) << text;
            ASSERT_EQ(table.size(), std::ssize(rows) - 1) << text;
            for (std::size_t i = 1; i < rows.size(); ++i)
                for (std::size_t c = 0; c < rows[0].size(); ++c)
                    EXPECT_EQ(table.get(static_cast<std::int64_t>(i) - 1)[rows[0][c]].string(),
                              rows[i][c])
                        << text;
        }
    }
}

TEST_F(TableFromCsv, InfersTheTypesAndValuesOfPandas) {
    const auto file = tests::golden_json("tables.json");
    for (const auto& recorded : file["types"]) {
        const auto name = recorded["name"].get<std::string>();
        const Table table = read(recorded["text"].get<std::string>());
        EXPECT_EQ(str(table.column_schema("x").type), recorded["type"].get<std::string>()) << name;
        const std::vector<Tree> values = table.column("x");
        ASSERT_EQ(values.size(), recorded["values"].size()) << name;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto& expected = recorded["values"][i];
            if (values[i].kind() == Tree::Kind::number)
                EXPECT_EQ(values[i].number(), std::stod(expected.get<std::string>())) << name;
            else
                EXPECT_EQ(to_json(values[i]), expected.dump(-1, ' ', false)) << name;
        }
    }
}

TEST_F(TableFromCsv, HasTheGivenNamesTypesDelimiterAndQuoteOrDefaults) {
    const Table table = read("1,2\n3,x\n", {.header = false});
    EXPECT_EQ(table.column_names(), (Strings{"0", "1"}));
    EXPECT_EQ(rows_of(table), (Strings{R"({"0": 1, "1": "2"})", R"({"0": 3, "1": "x"})"}));
    const Table named =
        read("a,b\n1,2\n", {.column_names = {"x", "y"},
                            .types = {{"x", ColumnType::text}, {"y", ColumnType::number}}});
    EXPECT_EQ(rows_of(named), Strings{R"({"x": "1", "y": 2.0})"});
    EXPECT_EQ(read(",b\n1,2\n").column_names(), (Strings{"Unnamed: 0", "b"}));
    EXPECT_EQ(read("a\n").schema()[0].type, ColumnType::null);
    EXPECT_EQ(rows_of(read("a;b\n'x;';\"\n", {.delimiter = ';', .quote = '\''})),
              Strings{R"({"a": "x;", "b": "\""})"});
    EXPECT_EQ(rows_of(read("a,b\n\"x,y\"\n", {.quote = '\0'})),
              Strings{R"({"a": "\"x", "b": "y\""})"});
}

TEST_F(TableFromCsv, ReadsTheGivenOrDefaultMissingValuesAsNull) {
    const Strings missing = {"?", "-1"};
    EXPECT_EQ(
        rows_of(read("a,b\n?,NA\n\"-1\",\n7,x\n", {.missing_values = missing})),
        (Strings{R"({"a": null, "b": "NA"})", R"({"a": null, "b": ""})", R"({"a": 7, "b": "x"})"}));
    EXPECT_EQ(rows_of(read("a,b\n1,NA\n,\"\"\n")),
              (Strings{R"({"a": 1, "b": null})", R"({"a": null, "b": null})"}));
}

TEST_F(TableFromCsv, ReportsTheLineOrByteOfErrorsIfThereIsOne) {
    const std::string path = folder_ / "rows";
    const auto at = [&](const char* text) { return path + ": " + text; };
    expect_rejected("a,b\n\"x\ny\",1\n2,\"open\n3,4\n",
                    {at("line 4: a field begins with a quote that is not closed").c_str()});
    expect_rejected("a,b\n\"x\ny\",1\n1,2,3\n", {at("line 4: expected 2 fields, found 3").c_str()});
    expect_rejected("a,b\r\n1,2\r\n\r\n1\r\n", {at("line 4: expected 2 fields, found 1").c_str()});
    expect_rejected("a,b\n\"x\"y,1\n", {at("line 2: expected a delimiter").c_str()});
    expect_rejected("a,b\n1,\xc3(\n", {at("line 2: byte 6: the text is not valid UTF-8").c_str()});
    expect_rejected("a,b\nlong enough text \xed\xa0\x80,\n",
                    {at("line 2: byte 21: the text").c_str()});
    expect_rejected("a,b,a\n", {at("line 1: two columns have the name 'a'").c_str()});
    expect_rejected("a,b\n1,2\n\n1.5,2\n",
                    {at("line 4: column 'a': expected integer, found '1.5'").c_str()},
                    {.types = {{"a", ColumnType::integer}}});
    expect_rejected("", {at("the file is empty").c_str()});
    expect_rejected("a,b\n1,\xc3", {at("line 2: byte 6: the text is not valid UTF-8").c_str()});
    expect_rejected("\n\r\n", {at("the file has no rows").c_str()});
    expect_error<FileError>({}, [&] { Table::from_csv(folder_ / "missing"); });
}

TEST_F(TableFromCsv, RejectsInvalidOptions) {
    const auto rejects = [&](std::initializer_list<const char*> parts, const CsvOptions& options) {
        expect_rejected<ValueError>("a,b\n1,2\n", parts, options);
    };
    rejects({"CsvOptions: the delimiter"}, {.delimiter = '\n'});
    rejects({"CsvOptions: the delimiter"}, {.delimiter = '"'});
    rejects({"CsvOptions: the quote"}, {.quote = '\r'});
    rejects({"CsvOptions: types has the column 'c'"}, {.types = {{"c", ColumnType::text}}});
    rejects({"CsvOptions: the type of 'a'"}, {.types = {{"a", ColumnType::nested}}});
    rejects({"CsvOptions: infer_rows must be at least 1"}, {.infer_rows = 0});
    expect_rejected("a,b\n1,2\n", {folder_.path().c_str(), "column_names has 1 names"},
                    {.column_names = {"a"}});
}

// A row that does not fit the inferred types is found when it is read.
TEST_F(TableFromCsv, InfersTypesFromTheFirstRowsAndRejectsOtherTypesInLaterRows) {
    const Table table = read("a\n1\n2\nx\n", {.infer_rows = 2});
    EXPECT_EQ(table.schema()[0].type, ColumnType::integer);
    EXPECT_EQ(table.get(1)["a"].integer(), 2);
    expect_error<FileError>({(folder_ / "rows").c_str(), "line 4: column 'a': expected integer"},
                            [&] { table.get(2); });
}

TEST_F(TableFromCsv, ReadsBackRandomRowsThatWereWritten) {
    const Strings parts = {"a", "\"", ",", "\n", "\r\n", "\r", " ", "é", "漢", "\"\"", "1", "."};
    std::mt19937 random(1);
    const auto below = [&](std::size_t n) { return random() % n; };
    for (int repetition = 0; repetition < 200; ++repetition) {
        const std::size_t columns = 1 + below(4), rows = below(6);
        const char delimiter = below(2) == 0 ? ',' : '\t';
        const std::string line_end = below(2) == 0 ? "\n" : "\r\n";
        std::vector<Strings> values(rows + 1, Strings(columns));
        std::string text;
        for (std::size_t r = 0; r <= rows; ++r) {
            for (std::size_t c = 0; c < columns; ++c) {
                std::string& value = values[r][c];
                if (r == 0) value = str("column ", c);
                for (std::size_t n = below(6); r > 0 && n > 0; --n) value += parts[below(12)];
                std::string quoted = "\"";
                for (const char byte : value) quoted += byte == '"' ? "\"\"" : std::string(1, byte);
                text += (c == 0 ? "" : std::string(1, delimiter)) + quoted + "\"";
            }
            text += line_end;
        }
        CsvOptions options{.delimiter = delimiter, .missing_values = {}};
        for (const std::string& name : values[0])
            options.types.emplace_back(name, ColumnType::text);
        const Table table = read(text, options);
        ASSERT_EQ(table.size(), std::ssize(values) - 1) << text;
        for (std::size_t r = 1; r <= rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
                ASSERT_EQ(table.get(static_cast<std::int64_t>(r) - 1)[values[0][c]].string(),
                          values[r][c])
                    << text;
    }
}

TEST_F(TableFromCsv, CanBeReadByThreads) {
    std::string text = "a,b\n";
    for (int i = 0; i < 1000; ++i) text += str(i, ",\"text \"\"", i, "\"\"\"\n");
    const Table table = read(text);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::int64_t i = t; i < table.size(); i += 2) {
                const Tree row = table.get(i);
                EXPECT_EQ(row["a"].integer(), i);
                EXPECT_EQ(row["b"].string(), str("text \"", i, "\""));
            }
        });
    for (std::thread& thread : threads) thread.join();
}

// The pages of the mapped file count as resident memory.
TEST_F(TableFromCsv, KeepsOnlyTheOffsetsOfRowsInMemory) {
    constexpr std::int64_t kRows = 200'000;
    std::string text = "id,text\n";
    for (std::int64_t i = 0; i < kRows; ++i) text += str(i, ",some text of a row\n");
    const std::string path = written(folder_, text);
    const std::int64_t grown = tests::peak_memory([&] {
        const Table table = Table::from_csv(path);
        if (table.get(kRows - 1)["id"].integer() != kRows - 1) throw std::runtime_error("row");
    });
    // A vector of offsets that grows has up to three times their size. Rows as strings would need
    // more than 20 MB. Memory that earlier tests have freed may be touched again.
    EXPECT_LT(grown, std::ssize(text) + 3 * 8 * kRows + (4 << 20));
}

}  // namespace
}  // namespace axle::data
