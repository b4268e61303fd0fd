// Tests token files that are written piece by piece, and folders of them.
#include "data/files/token_writer.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "data/files/tokens.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using testing::ElementsAre;
using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

Ids written_ids(const Tokens& tokens) {
    Ids ids(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, ids);
    return ids;
}

TEST(TokenWriter, WritesAFileWhenItIsCommitted) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    write_file_atomically(folder / "a.bin", "kept");
    {
        TokenWriter writer(folder / "a.bin");
        writer.write(Ids{1, 2});
    }
    EXPECT_EQ(read_file(folder / "a.bin"), "kept");
    EXPECT_EQ(folder.count(), 1u);
    TokenWriter writer(folder / "a.bin");
    writer.write(Ids{1, 2});
    writer.write(Ids{});
    writer.write(Ids{65535});
    EXPECT_EQ(writer.size(), 3);
    EXPECT_EQ(read_file(folder / "a.bin"), "kept");
    writer.commit();
    EXPECT_EQ(read_file(folder / "a.bin"), std::string("\1\0\2\0\xff\xff", 6));
}

TEST(TokenWriter, WritesShardsThatAreReadInSequence) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "shards";
    Ids all;
    {
        TokenWriter writer(path + "/", {.shard_tokens = 1000});
        for (std::int64_t i = 0; i < 4500; i += 90) {
            Ids part;
            for (std::int64_t j = i; j < i + 90; ++j) part.push_back(j * 13);
            writer.write(part);
            all.insert(all.end(), part.begin(), part.end());
        }
        EXPECT_FALSE(std::filesystem::exists(path));
        writer.commit();
    }
    EXPECT_EQ(folder.count(), 1u);
    EXPECT_THAT(list_folder(path),
                ElementsAre("00000.bin", "00001.bin", "00002.bin", "00003.bin", "00004.bin"));
    EXPECT_EQ(std::filesystem::file_size(path + "/00004.bin"), 1000u);
    const Tokens tokens = Tokens::open(path, {.vocab_size = 65536});
    EXPECT_EQ(written_ids(tokens), all);
    EXPECT_EQ(tokens[999], all[999]);
    EXPECT_EQ(tokens[1000], all[1000]);
    EXPECT_EQ(tokens.max(), all.back());
    // Parts that begin and end within shards.
    for (const auto& [begin, end] : {std::pair(0, 1000), {1000, 2000}, {999, 3001}, {4499, 4500}})
        EXPECT_EQ(written_ids(tokens.slice(begin, end)),
                  Ids(all.begin() + begin, all.begin() + end));
    const BlockDataset blocks(tokens, 8);
    EXPECT_EQ(blocks.get(124)["labels"].tensor().to_vector().back(), all[1000]);
    EXPECT_THROW(Tokens::open(path, {.vocab_size = 100}), FileError);
}

TEST(TokenWriter, ReplacesOnlyFoldersOfShards) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "shards";
    const auto write = [&](const Ids& ids) {
        TokenWriter writer(path, {.bytes = 4, .shard_tokens = 2});
        writer.write(ids);
        writer.commit();
    };
    write({1, 2, 3});
    write({4});
    EXPECT_THAT(list_folder(path), ElementsAre("00000.u32.bin"));
    EXPECT_THAT(written_ids(Tokens::open(path)), ElementsAre(4));
    EXPECT_EQ(folder.count(), 1u);
    write_file_atomically(path + "/notes.txt", "notes");
    expect_error<FileError>(
        {path.c_str(), "the folder has other contents than shards", "notes.txt"},
        [&] { write({5}); });
    EXPECT_THAT(written_ids(Tokens::open(path)), ElementsAre(4));
    std::filesystem::remove_all(path);
    write_file_atomically(path, "file");
    expect_error<FileError>({path.c_str(), "exists and is not a folder of shards"},
                            [&] { write({5}); });
    EXPECT_EQ(folder.count(), 1u);
}

TEST(TokenWriter, RejectsMoreThanAHundredThousandShardsInALongRun) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    TokenWriter writer(folder / "shards", {.shard_tokens = 1});
    writer.write(Ids(100'000));
    expect_error<ValueError>({"TokenWriter: more than 100000 shards of 1 tokens"},
                             [&] { writer.write(Ids(1)); });
}

TEST(TokenWriter, RejectsInvalidOptionsAndIds) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    EXPECT_THROW(TokenWriter(folder / "a.bin", {.bytes = 3}), ValueError);
    EXPECT_THROW(TokenWriter(folder / "a.bin", {.shard_tokens = -1}), ValueError);
    TokenWriter two(folder / "a.bin"), four(folder / "a.u32.bin");
    expect_error<ValueError>({"Tokens: token 65536 does not fit in 2 bytes: "}, [&] {
        two.write(Ids{0, 65536});
    });
    expect_error<ValueError>({"Tokens: token -1 does not fit in 4 bytes: "},
                             [&] { four.write(Ids{-1}); });
    std::filesystem::create_directory(folder / "empty");
    expect_error<FileError>({(folder / "empty").c_str(), "the folder must have a file *.bin"},
                            [&] { Tokens::open(folder / "empty"); });
}

}  // namespace
}  // namespace axle::data
