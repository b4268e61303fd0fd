// Tests Checkpoint on directories with valid, damaged and foreign contents.
#include "accel/state/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "core/files/file.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using accel::CheckpointReader;
using accel::CheckpointWriter;
using accel::latest_checkpoint;
using accel::rotate_checkpoints;
using tests::expect_error;
using tests::TemporaryFolder;

std::string write(const std::string& path, std::int64_t iteration) {
    CheckpointWriter writer(path);
    writer.write("state", Tree{{"iteration", iteration}});
    writer.commit(iteration);
    return path;
}

void put(const std::string& path, const std::string& text) {
    create_directories(fs::path(path).parent_path().string());
    std::ofstream(path) << text;
}

// A manifest.json that another program has written.
constexpr const char* kForeign = R"({"name": "a web page", "icons": []})";

TEST(Checkpoint, RestoresTreesWithTensors) {
    const TemporaryFolder folder;
    const Tree tree{{"step", 3},
                    {"lr", 0.1},
                    {"list", Tree::list({Tree(ones({2})), Tree("text"), Tree()})},
                    {"map", {{"0", zeros({1, 2}, {.dtype = f64})}, {"on", true}}},
                    {"tensor", "not one"}};
    {
        CheckpointWriter writer(folder / "c");
        writer.write("state", tree);
        writer.commit(4);
    }
    const CheckpointReader reader(folder / "c");
    EXPECT_EQ(reader.iteration(), 4);
    EXPECT_TRUE(reader.contains("state.safetensors"));
    const Tree back = reader.read("state");
    EXPECT_EQ(back["step"].integer(), 3);
    EXPECT_EQ(back["lr"].number(), 0.1);
    tests::expect_same_bits(back["list"][0].tensor(), ones({2}));
    EXPECT_EQ(back["list"][1].string(), "text");
    EXPECT_TRUE(back["list"][2].is_null());
    tests::expect_same_bits(back["map"]["0"].tensor(), zeros({1, 2}, {.dtype = f64}));
    EXPECT_EQ(back["tensor"].string(), "not one");
    expect_error<FileError>({(folder / "c").c_str(), "does not contain other.json"},
                            [&] { reader.read("other"); });
}

// Covers 30.11.
TEST(Checkpoint, IsAbsentUntilCommitted) {
    const TemporaryFolder folder;
    {
        CheckpointWriter writer(folder / "c");
        writer.write("state", Tree{{"a", 1}});
        EXPECT_FALSE(fs::exists(folder / "c"));
    }
    EXPECT_EQ(folder.count(), 0u);
}

TEST(Checkpoint, DetectsBitFlipsInTheManifest) {
    const TemporaryFolder folder;
    const std::string file = write(folder / "c", 12) + "/manifest.json";
    const std::string whole = read_file(file);
    for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 3) {
        std::string changed = whole;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        std::ofstream(file, std::ios::trunc) << changed;
        expect_error<FileError>({file.c_str()}, [&] { CheckpointReader reader(folder / "c"); });
        if (HasFailure()) FAIL() << "bit " << bit << " of\n" << whole;
    }
}

// Covers 31.save_state.
TEST(Checkpoint, DoesNotReplaceFilesOrFoldersThatAreNotCheckpoints) {
    const TemporaryFolder folder;
    put(folder / "file", "text");
    put(folder / "thesis/chapter", "text");
    put(folder / "site/manifest.json", kForeign);
    fs::create_symlink("nowhere", folder / "link");
    for (const char* name : {"file", "thesis", "site", "link"})
        expect_error<FileError>(
            {(folder / name).c_str(),
             "can't be replaced by a checkpoint: it exists and is not a checkpoint"},
            [&] { CheckpointWriter writer(folder / name); });
    EXPECT_EQ(folder.count(), 4u);
    EXPECT_EQ(read_file(folder / "site/manifest.json"), kForeign);
    EXPECT_EQ(read_file(folder / "thesis/chapter"), "text");
}

TEST(Checkpoint, ReplacesEmptyFoldersAndDamagedCheckpoints) {
    const TemporaryFolder folder;
    fs::create_directory(folder / "c");
    write(folder / "c", 1);
    put(folder / "c/extra", "text");
    put(folder / "c/manifest.json", read_file(folder / "c/manifest.json").substr(0, 60));
    write(folder / "c/", 2);
    EXPECT_EQ(CheckpointReader(folder / "c").iteration(), 2);
    EXPECT_FALSE(fs::exists(folder / "c/extra"));
    EXPECT_EQ(folder.count(), 1u);
}

TEST(Checkpoint, CreatesParentFolders) {
    const TemporaryFolder folder;
    EXPECT_EQ(CheckpointReader(write(folder / "a/b/c", 0)).iteration(), 0);
}

TEST(LatestCheckpoint, HasTheHighestIteration) {
    const TemporaryFolder folder;
    EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
    EXPECT_EQ(latest_checkpoint(folder / "missing"), std::nullopt);
    write(folder / "step_9", 1);
    write(folder / "step_10", 2);
    write(folder / "best", 3);
    write(folder / "zz", 0);
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "best");
}

TEST(LatestCheckpoint, IgnoresSymlinksUnfinishedCheckpointsAndUnrelatedFolders) {
    const TemporaryFolder folder;
    const TemporaryFolder elsewhere;
    write(folder / "c", 1);
    fs::create_directory_symlink(write(elsewhere / "d", 9), folder / "link");
    put(folder / "site/manifest.json", kForeign);
    put(folder / "broken/manifest.json", "{");
    put(folder / "notes/text", "text");
    put(folder / "file", "text");
    fs::rename(write(folder / "e", 8), folder / ".checkpoint-1-0");
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "c");
}

TEST(LatestCheckpoint, ThrowsForADamagedManifest) {
    const TemporaryFolder folder;
    write(folder / "a", 1);
    const std::string file = write(folder / "b", 2) + "/manifest.json";
    put(file, read_file(file).substr(0, 60));
    expect_error<FileError>({file.c_str()}, [&] { latest_checkpoint(folder.path()); });
    EXPECT_NO_THROW(rotate_checkpoints(folder.path(), 1));
    EXPECT_EQ(folder.count(), 2u);
}

// Covers 10.total_limit, 30.11.
TEST(CheckpointRotation, KeepsTheNewestCheckpointsAndUnrelatedFiles) {
    const TemporaryFolder folder;
    const TemporaryFolder elsewhere;
    for (int i = 0; i < 5; ++i) write(folder / str("c", 9 - i), i);
    fs::create_directory_symlink(write(elsewhere / "d", -1), folder / "link");
    put(folder / "site/manifest.json", kForeign);
    put(folder / "notes/text", "text");
    put(folder / "file", "text");
    put(folder / ".hidden/text", "text");
    rotate_checkpoints(folder.path(), 2);
    for (const char* kept :
         {"c5", "c6", "link", "site/manifest.json", "notes/text", "file", ".hidden/text"})
        EXPECT_TRUE(fs::exists(folder / kept)) << kept;
    EXPECT_EQ(folder.count(), 7u);
    EXPECT_TRUE(fs::exists(elsewhere / "d/manifest.json"));
    rotate_checkpoints(folder.path(), 0);  // one checkpoint is always kept
    EXPECT_EQ(latest_checkpoint(folder.path()), folder / "c5");
    EXPECT_NO_THROW(rotate_checkpoints(folder / "missing", 1));
}

TEST(CheckpointRotation, RemovesTemporaryFilesOfKilledWriters) {
    const TemporaryFolder folder;
    const TemporaryFolder elsewhere;
    write(folder / "c", 1);
    put(folder / ".checkpoint-4242-0/model.safetensors", "half");
    put(folder / ".checkpoint-4242-0.old/manifest.json", "{");
    fs::create_directory_symlink(elsewhere.path(), folder / ".checkpoint-link");
    put(elsewhere / "text", "text");
    rotate_checkpoints(folder.path(), 1);
    EXPECT_TRUE(fs::exists(folder / "c"));
    EXPECT_FALSE(fs::exists(folder / ".checkpoint-4242-0"));
    EXPECT_FALSE(fs::exists(folder / ".checkpoint-4242-0.old"));
    EXPECT_TRUE(fs::exists(elsewhere / "text"));
}

TEST(Checkpoint, RejectsManifestsWithPathsOutsideTheFolder) {
    const TemporaryFolder folder;
    const std::string file = write(folder / "c", 1) + "/manifest.json";
    std::string text = read_file(file);
    text.replace(text.find("state.json"), 10, "../st.json");
    put(file, text);
    expect_error<FileError>({(folder / "c").c_str()},
                            [&] { CheckpointReader reader(folder / "c"); });
}

}  // namespace
}  // namespace axle
