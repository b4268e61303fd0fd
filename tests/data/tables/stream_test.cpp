// Tests streams of the rows of files.
#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "data/tables/formats.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/tables/written.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using tests::written;
using Strings = std::vector<std::string>;

Strings rows_of(const IterableDataset& rows) {
    const auto stream = rows.stream(0);
    Strings texts;
    while (const auto row = stream->next()) texts.push_back(to_json(*row, -1));
    return texts;
}

TEST(StreamCsv, ReadsSeveralFilesWithTheColumnsOfTheFirstFileAndRejectsOtherColumnsAndTypes) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto rows = stream_csv(
        {written(folder, "a,b\n1,\"x\n\"\n", "1"), written(folder, "a,b\n2,3\n,y\n", "2")});
    EXPECT_EQ(rows.num_shards(), 2);
    EXPECT_EQ(rows_of(rows), (Strings{R"({"a": 1, "b": "x\n"})", R"({"a": 2, "b": "3"})",
                                      R"({"a": null, "b": "y"})"}));
    EXPECT_EQ(rows_of(*rows.shard(2, 1)),
              (Strings{R"({"a": 2, "b": "3"})", R"({"a": null, "b": "y"})"}));
    const std::string other = written(folder, "a,c\n2,3\n", "3");
    expect_error<FileError>({other.c_str(), "the columns differ"}, [&] {
        rows_of(stream_csv({folder / "1", other}));
    });
    const std::string wrong = written(folder, "a,b\n2,3\nx,3\n", "4");
    expect_error<FileError>({wrong.c_str(), "line 3: column 'a': expected integer, found 'x'"},
                            [&] {
                                rows_of(stream_csv({folder / "1", wrong}));
                            });
    expect_error<ValueError>({"stream_csv: needs at least one path"}, [] { stream_csv({}); });
}

TEST(StreamJson, ReadsSeveralFilesWithTheColumnsOfTheFirstFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto rows = stream_json({written(folder, "{\"a\":1}\n{\"b\":0.5}\n", "1"),
                                   written(folder, "{\"b\":2,\"a\":null}\n", "2")});
    EXPECT_EQ(rows_of(rows), (Strings{R"({"a": 1, "b": null})", R"({"a": null, "b": 0.5})",
                                      R"({"a": null, "b": 2.0})"}));
}

TEST(StreamText, ReadsLinesOfSeveralFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto rows = stream_text({written(folder, "a\nb", "1"), written(folder, "\n", "2")});
    EXPECT_EQ(rows_of(rows), (Strings{R"({"text": "a"})", R"({"text": "b"})", R"({"text": ""})"}));
}

TEST(StreamCsv, IsShardedAndResumedByLoaders) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Strings paths;
    for (int file = 0; file < 4; ++file) {
        std::string text = "text\n";
        for (int i = 0; i < 6; ++i) text += str("\"", file, ", ", i, "\"\n");
        paths.push_back(written(folder, text, str(file)));
    }
    for (int process = 0; process < 2; ++process)
        for (const int workers : {0, 2}) {
            const auto loader_of = [&] {
                DataLoader loader(stream_csv(paths), {.batch_size = 4, .num_workers = workers});
                loader.shard(ShardOptions{.num_processes = 2, .process_index = process});
                return loader;
            };
            DataLoader whole = loader_of();
            EXPECT_TRUE(whole.reads_own_shards());
            Strings expected, begin;
            for (auto& batch : whole) expected.push_back(to_json(batch["text"], -1));
            ASSERT_EQ(expected.size(), 3u);
            EXPECT_EQ(expected[1], str("[\"", process, ", 4\", \"", process, ", 5\", \"",
                                       process + 2, ", 0\", \"", process + 2, ", 1\"]"));
            DataLoader stopped = loader_of(), resumed = loader_of();
            Tree state;
            for (auto& batch : stopped) {
                begin.push_back(to_json(batch["text"], -1));
                state = stopped.state_dict();
                if (begin.size() == 2) break;
            }
            resumed.load_state_dict(state);
            for (auto& batch : resumed) begin.push_back(to_json(batch["text"], -1));
            EXPECT_EQ(begin, expected);
        }
}

}  // namespace
}  // namespace axle::data
