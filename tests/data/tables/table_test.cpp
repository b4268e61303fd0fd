// Tests the rows and columns of tables, functions that map and filter rows, and loaders of tables.
#include "data/tables/table.h"

#include <atomic>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/composed_datasets.h"
#include "data/loading/loader.h"
#include "data/transforms.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/tables/written.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::rows_of;
using tests::TemporaryFolder;
using tests::written;
using Strings = std::vector<std::string>;

Table reviews() {
    return Table::from_list({{{"id", 0}, {"text", "good"}, {"score", 0.5}, {"ok", true}},
                             {{"id", 1}, {"text", "bad"}, {"score", 1}, {"ok", false}},
                             {{"id", 2}, {"text", "good"}, {"score", 2.5}, {"ok", true}}});
}

std::vector<std::int64_t> ids(const Table& table) {
    std::vector<std::int64_t> ids;
    for (const Tree& id : table.column("id")) ids.push_back(id.integer());
    return ids;
}

TEST(Table, KeepsRowsInMemoryAndRejectsInvalidRowsAndIndices) {
    const Table table = Table::from_list({{{"a", 1}}, {{"b", "x"}, {"a", 0.5}}});
    EXPECT_EQ(rows_of(table), (Strings{R"({"a": 1.0, "b": null})", R"({"a": 0.5, "b": "x"})"}));
    EXPECT_EQ(table.schema(),
              (std::vector<TableColumn>{{"a", ColumnType::number}, {"b", ColumnType::text}}));
    expect_error<ValueError>({"Table::from_list: row 1: column 'a': expected text, found boolean"},
                             [] {
                                 Table::from_list({{{"a", "x"}}, {{"a", true}}});
                             });
    expect_error<ValueError>({"Table::from_list: row 0: expected a map, found integer"},
                             [] { Table::from_list({Tree(1)}); });
    expect_error<IndexError>({"Table: index 2 is out of range for 2 rows"}, [&] { table.get(2); });
    expect_error<IndexError>({"Table: index -1"}, [&] { table.get(-1); });
}

TEST(Table, SelectsRenamesAndRemovesColumnsAndRejectsInvalidNames) {
    const Table table = reviews();
    EXPECT_EQ(rows_of(table.select_columns({"text", "id"}))[1], R"({"text": "bad", "id": 1})");
    EXPECT_EQ(table.remove_columns({"id", "ok"}).column_names(), (Strings{"text", "score"}));
    const Table renamed = table.rename_column("ok", "label").select_columns({"label", "id"});
    EXPECT_EQ(rows_of(renamed)[0], R"({"label": true, "id": 0})");
    EXPECT_EQ(renamed.column("label")[1].boolean(), false);
    expect_error<IndexError>({"Table: no column 'x'", "'id', 'text', 'score', 'ok'"},
                             [&] { table.column("x"); });
    expect_error<ValueError>({"rename_column: another column already has the name 'id'"},
                             [&] { table.rename_column("ok", "id"); });
    expect_error<ValueError>({"select_columns: the column 'id' occurs twice"}, [&] {
        table.select_columns({"id", "id"});
    });
    expect_error<IndexError>({"Table: no column 'x'"}, [&] { table.remove_columns({"x"}); });
}

TEST(Table, ReturnsUniqueValuesInTheOrderOfRows) {
    const Table table =
        Table::from_list({{{"a", "1"}}, {{"a", "0"}}, Tree::map(), {{"a", "1"}}, {{"a", "null"}}});
    Strings values;
    for (const Tree& value : table.unique("a")) values.push_back(to_json(value));
    EXPECT_EQ(values, (Strings{"\"1\"", "\"0\"", "null", "\"null\""}));
}

TEST(Table, EncodesClassesLikeHuggingFaceDatasetsAndRejectsNumbers) {
    const auto file = tests::golden_json("tables.json");
    for (const auto& recorded : file["classes"]) {
        std::vector<Tree> rows;
        for (const auto& value : recorded["values"])
            rows.push_back({{"x", from_json(value.dump())}});
        const Table table = Table::from_list(rows).class_encode_column("x");
        EXPECT_EQ(table.schema()[0].class_names, recorded["names"].get<Strings>());
        EXPECT_EQ(table.schema()[0].type, ColumnType::integer);
        for (std::size_t i = 0; i < rows.size(); ++i)
            EXPECT_EQ(to_json(table.get(static_cast<std::int64_t>(i))["x"]),
                      recorded["ids"][i].dump());
    }
    expect_error<ValueError>({"class_encode_column: column 'score'", "number"},
                             [] { reviews().class_encode_column("score"); });
}

TEST(Table, MapsRowsWhenTheyAreRead) {
    std::atomic<int> calls = 0;
    const auto with_length = [&](const Tree& row) {
        ++calls;
        return Tree{{"length", row["text"].string().size()}, {"id", row["id"].integer() + 10}};
    };
    const Table table = reviews().map(with_length, {.remove_columns = {"text", "score", "ok"}});
    EXPECT_EQ(calls, 1);  // the columns are those of the first row
    EXPECT_EQ(table.column_names(), (Strings{"id", "length"}));
    EXPECT_EQ(table.column_schema("length").type, ColumnType::integer);
    EXPECT_EQ(rows_of(table.select({1, 0})),
              (Strings{R"({"id": 11, "length": 3})", R"({"id": 10, "length": 4})"}));
    EXPECT_EQ(calls, 3);
    const Table kept = reviews().map(with_length, {.keep_in_memory = true});
    calls = 0;
    EXPECT_EQ(rows_of(kept)[2],
              R"({"id": 12, "text": "good", "score": 2.5, "ok": true, "length": 4})");
    EXPECT_EQ(calls, 0);
}

TEST(Table, RejectsInvalidFunctionsAndColumnsOfMap) {
    const Table table = reviews();
    expect_error<UsageError>({"map: the function must not be empty"}, [&] { table.map({}); });
    expect_error<ValueError>({"map: the function must return a map"},
                             [&] { table.map([](Tree) { return Tree(1); }); });
    expect_error<IndexError>({"Table: no column 'x'"}, [&] {
        table.map([](Tree row) { return row; }, {.remove_columns = {"x"}});
    });
    const Table varying = table.map([](const Tree& row) {
        return row["id"].integer() == 1 ? Tree{{"y", 1}} : Tree{{"x", 1}};
    });
    EXPECT_NO_THROW(varying.get(2));
    expect_error<ValueError>({"map: row 1 does not have the column 'x'"}, [&] { varying.get(1); });
}

TEST(Table, MapsBatchesOfRowsAndRejectsEmptyBatches) {
    std::vector<std::size_t> sizes;
    const auto tokenize = [&](std::vector<Tree> rows) {
        sizes.push_back(rows.size());
        std::vector<Tree> results;
        for (const Tree& row : rows)
            results.push_back({{"n", row["text"].string().size() * rows.size()}});
        return results;
    };
    const Table table = reviews().map_batches(
        tokenize, {.batch_size = 2, .remove_columns = {"text", "score", "ok"}});
    EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1}));
    EXPECT_EQ(rows_of(table),
              (Strings{R"({"id": 0, "n": 8})", R"({"id": 1, "n": 6})", R"({"id": 2, "n": 4})"}));
    // The function may return another number of rows than it gets.
    const Table halves = reviews().map_batches([](const std::vector<Tree>& rows) {
        std::vector<Tree> results;
        for (const Tree& row : rows)
            for (int half = 0; half < 2; ++half)
                results.push_back({{"id", row["id"]}, {"half", half}});
        return results;
    });
    EXPECT_EQ(halves.size(), 6);
    EXPECT_EQ(to_json(halves.get(3), -1), R"({"id": 1, "half": 1})");
    expect_error<ValueError>({"map_batches: batch_size must be positive: it is 0"},
                             [&] { reviews().map_batches(tokenize, {.batch_size = 0}); });
}

TEST(Table, FiltersRowsAndRejectsMissingColumnsAndFunctions) {
    const Table table = reviews().filter([](const Tree& row) { return row["ok"].boolean(); });
    EXPECT_EQ(ids(table), (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(ids(table.filter([](const Tree& row) { return row["score"].number() > 1; })),
              std::vector<std::int64_t>{2});
    expect_error<IndexError>({"filter: row 0: "}, [&] {
        table.filter([](const Tree& row) { return row["x"].boolean(); });
    });
    expect_error<UsageError>({"filter: the function"}, [&] { table.filter({}); });
}

TEST(Table, StaysValidInALoaderAndADatasetThatOutliveIt) {
    auto loader = [] {
        const Table local = reviews().select_columns({"id"});
        return data::DataLoader(local, {.batch_size = 3});
    }();
    const auto subset = [] {
        const Table local = reviews().select_columns({"id"});
        return data::Subset(local, {2, 0});
    }();
    const auto transformed = [] {
        const Table local = reviews().with_tensors();
        return data::TransformedDataset(
            local, [](const Tensor& x, std::span<data::SampleRandom>) { return x + 1; },
            {.key = "id"});
    }();
    for (auto& batch : loader) EXPECT_EQ(batch["id"].size(0), 3);
    EXPECT_EQ(subset.get(0)["id"].integer(), 2);
    EXPECT_EQ(transformed.get(2)["id"].tensor().item(), 3);
}

TEST(Table, ConcatenatesTablesAndRejectsDifferentColumns) {
    const Table a = reviews().select_columns({"id", "text"});
    const Table b = Table::from_list({{{"text", Tree()}, {"id", 7}}});
    const Table both = Table::concatenate({a.select({2}), b, a});
    EXPECT_EQ(ids(both), (std::vector<std::int64_t>{2, 7, 0, 1, 2}));
    EXPECT_EQ(to_json(both.get(1), -1), R"({"id": 7, "text": null})");
    expect_error<ValueError>({"Table::concatenate: table 1: expected the 2 columns", "found 4"},
                             [&] {
                                 Table::concatenate({a, reviews()});
                             });
    expect_error<ValueError>({"Table::concatenate: table 1: there is no column 'text'"}, [&] {
        Table::concatenate({a, a.rename_column("text", "words")});
    });
    expect_error<ValueError>({"Table::concatenate: table 1: column 'id' has the type text"}, [&] {
        Table::concatenate({a, Table::from_list({{{"id", "x"}, {"text", "y"}}})});
    });
    expect_error<ValueError>({"Table::concatenate: needs at least one table"},
                             [] { Table::concatenate({}); });
}

TEST(Table, ReturnsTensorsOfNumbers) {
    const Table table =
        Table::from_list({{{"id", 1L << 40},
                           {"x", 0.5},
                           {"ok", true},
                           {"text", "a"},
                           {"ids", Tree::list({1, 2})},
                           {"box", Tree::list({Tree::list({1, 2.5}), Tree::list({3, 4})})},
                           {"ragged", Tree::list({Tree::list({1}), Tree::list({1, 2})})}}})
            .with_tensors();
    const Tree row = table.get(0);
    EXPECT_EQ(row["id"].dtype(), i64);
    EXPECT_EQ(row["id"].tensor().item_int(), 1L << 40);
    EXPECT_EQ(row["x"].dtype(), f32);
    EXPECT_EQ(row["x"].item(), 0.5);
    EXPECT_EQ(row["ok"].dtype(), DType::boolean);
    EXPECT_EQ(row["text"].string(), "a");
    EXPECT_EQ(row["ids"].dtype(), i64);
    EXPECT_EQ(row["ids"].tensor().to_vector(), (std::vector<double>{1, 2}));
    EXPECT_EQ(row["box"].shape(), (Shape{2, 2}));
    EXPECT_EQ(row["box"].dtype(), f32);
    EXPECT_TRUE(row["ragged"].is_list());
}

TEST(Table, IsCollatedAsInPyTorch) {
    const Tree plain = reviews().get_batch(std::vector<std::int64_t>{2, 0});
    EXPECT_EQ(plain["id"].tensor().to_vector(), (std::vector<double>{2, 0}));
    EXPECT_EQ(plain["id"].dtype(), i64);
    EXPECT_EQ(plain["score"].dtype(), f64);
    EXPECT_EQ(plain["ok"].dtype(), DType::boolean);
    EXPECT_EQ(to_json(plain["text"], -1), R"(["good", "good"])");
    const Tree tensors = reviews().with_tensors().get_batch(std::vector<std::int64_t>{1, 2});
    EXPECT_EQ(tensors["score"].dtype(), f32);
    EXPECT_EQ(tensors["score"].tensor().to_vector(), (std::vector<double>{1, 2.5}));
    EXPECT_EQ(to_json(tensors["text"], -1), R"(["bad", "good"])");
}

// Returns the column "text" of at most `steps` batches, each as JSON.
Strings texts_of(DataLoader& loader, std::int64_t steps) {
    Strings texts;
    for (auto& batch : loader) {
        texts.push_back(to_json(batch["text"], -1));
        if (--steps == 0) break;
    }
    return texts;
}

TEST(Table, IsShardedAndResumedByLoaders) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string text = "text,label\n";
    for (int i = 0; i < 20; ++i) text += str("\"text, ", i, "\",", i % 3, "\n");
    const Table table = Table::from_csv(written(folder, text)).shuffle(3);
    Strings all;
    for (int process = 0; process < 2; ++process) {
        const auto loader_of = [&](int workers) {
            DataLoader loader(
                table, {.batch_size = 2, .shuffle = true, .num_workers = workers, .seed = 5});
            loader.shard(ShardOptions{.num_processes = 2, .process_index = process});
            return loader;
        };
        DataLoader whole = loader_of(0), stopped = loader_of(2), resumed = loader_of(2);
        const Strings expected = texts_of(whole, 100);
        ASSERT_EQ(expected.size(), 5u);
        Tree state;
        Strings begin;
        for (auto& batch : stopped) {
            begin.push_back(to_json(batch["text"], -1));
            state = stopped.state_dict();
            if (begin.size() == 2) break;
        }
        resumed.load_state_dict(state);
        const Strings rest = texts_of(resumed, 100);
        begin.insert(begin.end(), rest.begin(), rest.end());
        EXPECT_EQ(begin, expected);
        all.insert(all.end(), expected.begin(), expected.end());
    }
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::unique(all).begin(), all.end());
}

TEST(Table, NamesThePlaceOfARow) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = written(folder, "id,text\n0,x\n\n1,\"y\nz\"\n2,w\n");
    const Table file = Table::from_csv(path);
    EXPECT_EQ(file.location(0), path + ": line 2");
    EXPECT_EQ(file.location(2), path + ": line 6");
    const Table memory = Table::from_list({{{"id", 3}, {"text", "v"}}});
    EXPECT_EQ(memory.location(0), "row 0");
    const Table view = Table::concatenate({file, memory})
                           .map([](const Tree&) {
                               return Tree{{"new", 1}};
                           })
                           .select({3, 1});
    EXPECT_EQ(view.location(0), "row 0");
    EXPECT_EQ(view.location(1), path + ": line 4");
    EXPECT_THROW((void)view.location(2), IndexError);
}

}  // namespace
}  // namespace axle::data
