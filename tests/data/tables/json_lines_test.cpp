// Tests tables of JSON lines.
#include <gtest/gtest.h>

#include "data/tables/table.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/tables/written.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::rows_of;
using tests::TemporaryFolder;
using tests::written;
using Strings = std::vector<std::string>;

class TableFromJson : public testing::Test {
  protected:
    Table read(std::string_view text, const JsonLinesOptions& options = {}) const {
        return Table::from_json(written(folder_, text), options);
    }
    void expect_rejected(std::string_view text, const std::string& what,
                         const JsonLinesOptions& options = {}) const {
        const std::string path = folder_ / "rows";
        expect_error<FileError>({path.c_str(), what.c_str()}, [&] { read(text, options); });
    }

    TemporaryFolder folder_{FolderStorage::in_memory};
};

TEST_F(TableFromJson, HasTheUnionOfKeys) {
    const Table table =
        read("\xef\xbb\xbf{\"a\": 1, \"b\": \"x\"}\r\n\n  \n{\"c\": [1, {\"d\": null}], \"a\": 2}");
    EXPECT_EQ(table.column_names(), (Strings{"a", "b", "c"}));
    EXPECT_EQ(table.schema()[2].type, ColumnType::nested);
    EXPECT_EQ(rows_of(table), (Strings{R"({"a": 1, "b": "x", "c": null})",
                                       R"({"a": 2, "b": null, "c": [1, {"d": null}]})"}));
}

TEST_F(TableFromJson, ConvertsIntegersOfColumnsWithNumbers) {
    const Table table = read("{\"a\": null}\n{\"a\": 1}\n{\"a\": 0.5}\n{\"a\": 2}\n");
    EXPECT_EQ(table.schema()[0].type, ColumnType::number);
    EXPECT_EQ(rows_of(table),
              (Strings{R"({"a": null})", R"({"a": 1.0})", R"({"a": 0.5})", R"({"a": 2.0})"}));
}

TEST_F(TableFromJson, RequiresEqualKeysIfStrict) {
    const JsonLinesOptions strict{.strict = true};
    EXPECT_EQ(read("{\"a\":1,\"b\":2}\n{\"b\":2,\"a\":1}", strict).size(), 2);
    expect_rejected("{\"a\":1}\n{\"b\":1}", "line 2: the first object does not have the key 'b'",
                    strict);
    expect_rejected("{\"a\":1,\"b\":2}\n{\"a\":1}",
                    "line 2: expected the 2 keys of the first object, found 1", strict);
}

TEST_F(TableFromJson, HasTheGivenColumnsAndRejectsOtherTypesAndRepeatedNames) {
    const Table table = read("{\"a\": 1, \"b\": \"x\"}\n{\"b\": \"y\"}\n{\"a\": \"z\"}\n",
                             {.columns = {{"a", ColumnType::number}}});
    EXPECT_EQ(table.column_names(), Strings{"a"});
    EXPECT_EQ(to_json(table.get(0), -1), R"({"a": 1.0})");
    EXPECT_EQ(to_json(table.get(1), -1), R"({"a": null})");
    expect_error<FileError>(
        {(folder_ / "rows").c_str(), "line 3: column 'a': expected number, found text"},
        [&] { table.get(2); });
    expect_error<ValueError>({"JsonLinesOptions: two columns have the name 'a'"}, [&] {
        read("{}", {.columns = {{"a", ColumnType::text}, {"a", ColumnType::text}}});
    });
}

TEST_F(TableFromJson, InfersColumnsFromTheFirstRowsAndRejectsOtherKeysInLaterRows) {
    const Table table = read("{\"a\": 1}\n{\"a\": 2, \"b\": 3}\n", {.infer_rows = 1});
    EXPECT_EQ(table.size(), 2);
    expect_error<FileError>({(folder_ / "rows").c_str(), "line 2: the key 'b'"},
                            [&] { table.get(1); });
}

TEST_F(TableFromJson, ReportsTheLineOrByteOfErrorsIfThereIsOne) {
    expect_rejected("{\"a\": 1}\n\n{\"a\": }\n", "line 3: parse error at column 7");
    expect_rejected("{\"a\": 1}\n[1]\n", "line 2: expected a JSON object, found nested");
    expect_rejected("{\"a\": 1}\n{\"a\": \"x\"}\n",
                    "line 2: column 'a': expected integer, found text");
    expect_rejected("{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n", "line 2: ");
    expect_rejected("{\"a\": \"\xff\"}\n", "byte 7: the text is not valid UTF-8");
    expect_rejected("", "the file is empty");
}

}  // namespace
}  // namespace axle::data
