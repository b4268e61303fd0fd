// Tests checkpoints on directories with valid, damaged and foreign contents.
#include "accel/state/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <zlib.h>

#include "core/files/file.h"
#include "core/ops.h"
#include "gtest/gtest.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using accel::CheckpointReader;
using accel::CheckpointWriter;
using tests::expect_error;
using tests::kForeign;
using tests::put;
using tests::TemporaryFolder;
using tests::write;

TEST(Checkpoint, RestoresTreesWithTensorsAndRejectsMissingEntries) {
    const TemporaryFolder folder;
    const Tree tree{{"step", 3},
                    {"lr", 0.1},
                    {"list", Tree::list({Tree(ones({2})), Tree("text"), Tree()})},
                    {"map", {{"0", zeros({1, 2}, {.dtype = f64})}, {"on", true}}},
                    {"tensor", "not one"}};
    {
        CheckpointWriter writer(folder / "c");
        writer.write("state", tree);
        writer.commit({.iteration = 4});
    }
    const CheckpointReader reader(folder / "c");
    EXPECT_EQ(reader.label().iteration, 4);
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
TEST(Checkpoint, IsAbsentIfItsWriterDoesNotCommit) {
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

// Each block of 1 MiB has its own checksum.
TEST(Checkpoint, DetectsAChangedByteInEachBlockOfALargeFile) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    constexpr std::size_t kSize = 3'500'000;
    const std::string path = folder / "state";
    CheckpointWriter writer(path);
    put(writer.directory() + "/large", std::string(kSize, 'x'));
    writer.commit({});
    EXPECT_NO_THROW(CheckpointReader{path});
    for (std::size_t at = 0; at < kSize; at += 499'999) {
        std::string bytes(kSize, 'x');
        bytes[at] = 'y';
        put(path + "/large", bytes);
        expect_error<FileError>({path.c_str(), "large", "has changed since it was saved"},
                                [&] { const CheckpointReader reader(path); });
    }
}

// Covers 31.save_state.
TEST(Checkpoint, DoesNotReplaceFilesOrFoldersThatAreNotCheckpoints) {
    const TemporaryFolder folder;
    put(folder / "file", "text");
    put(folder / "thesis/chapter", "text");
    put(folder / "site/manifest.json", kForeign);
    for (const char* name : {"file", "thesis", "site"})
        expect_error<FileError>(
            {(folder / name).c_str(),
             "can't be replaced by a checkpoint: it exists and is not a checkpoint"},
            [&] { CheckpointWriter writer(folder / name); });
    EXPECT_EQ(folder.count(), 3u);
    EXPECT_EQ(read_file(folder / "site/manifest.json"), kForeign);
    EXPECT_EQ(read_file(folder / "thesis/chapter"), "text");
}

TEST(Checkpoint, DoesNotReplaceSymbolicLinks) {
    const TemporaryFolder folder;
    write(folder / "c", 1);
    fs::create_directory(folder / "empty");
    for (const char* target : {"nowhere", "c", "empty"}) {
        fs::create_symlink(target, folder / "link");
        expect_error<FileError>(
            {(folder / "link").c_str(), "it is a symbolic link, which is not followed"},
            [&] { CheckpointWriter writer(folder / "link"); });
        fs::remove(folder / "link");
    }
    EXPECT_EQ(folder.count(), 2u);
}

TEST(CheckpointWriter, ReportsTheCheckpointIfItsTemporaryFolderCannotBeCreated) {
    expect_error<FileError>(
        {"/proc/self/checkpoint: can't be written: ", "can't create the folder"},
        [] { CheckpointWriter writer("/proc/self/checkpoint"); });
}

TEST(Checkpoint, ReplacesEmptyFoldersAndDamagedCheckpoints) {
    const TemporaryFolder folder;
    fs::create_directory(folder / "c");
    write(folder / "c", 1);
    put(folder / "c/extra", "text");
    put(folder / "c/manifest.json", read_file(folder / "c/manifest.json").substr(0, 60));
    write(folder / "c/", 2);
    EXPECT_EQ(CheckpointReader(folder / "c").label().iteration, 2);
    EXPECT_FALSE(fs::exists(folder / "c/extra"));
    EXPECT_EQ(folder.count(), 1u);
}

TEST(Checkpoint, CreatesParentFolders) {
    const TemporaryFolder folder;
    EXPECT_EQ(CheckpointReader(write(folder / "a/b/c", 0)).label().iteration, 0);
}

TEST(Checkpoint, RejectsSymbolicLinksAmongItsFiles) {
    const TemporaryFolder folder, elsewhere;
    write(folder / "c", 1);
    fs::rename(folder / "c/state.json", elsewhere / "state.json");
    fs::create_symlink(elsewhere / "state.json", folder / "c/state.json");
    expect_error<FileError>({(folder / "c/state.json").c_str(), "a symbolic link is not followed"},
                            [&] { CheckpointReader reader(folder / "c"); });
    CheckpointWriter writer(folder / "d");
    fs::create_symlink(elsewhere / "state.json", writer.directory() + "/link");
    expect_error<FileError>(
        {writer.directory().c_str(), "link: can't be saved", "neither a regular file nor a folder"},
        [&] { writer.commit({.iteration = 1}); });
}

TEST(Checkpoint, RejectsAManifestOfThreeGibibytes) {
    const TemporaryFolder folder;
    const std::string file = write(folder / "c", 1) + "/manifest.json";
    fs::resize_file(file, std::uintmax_t{3} << 30);  // a sparse file needs no disk space
    expect_error<FileError>({file.c_str(), "has 3221225472 bytes", "at most 16777216"},
                            [&] { CheckpointReader reader(folder / "c"); });
    EXPECT_FALSE(accel::is_checkpoint(folder / "c"));
}

TEST(CheckpointWriter, RemovesTemporaryFoldersOnlyIfTheirWritersHaveEnded) {
    const TemporaryFolder folder, elsewhere;
    put(folder / ".axle-save-0123456789abcdef/model.safetensors", "half");
    put(folder / ".axle-trash-0123456789abcdef/manifest.json", "{");
    put(folder / ".axle-save-mine/text", "text");
    put(folder / ".checkpoint-mine/text", "text");
    fs::create_directory_symlink(elsewhere.path(), folder / ".axle-save-fedcba9876543210");
    const CheckpointWriter alive(folder / "alive");
    EXPECT_FALSE(fs::exists(folder / ".axle-save-0123456789abcdef"));
    EXPECT_FALSE(fs::exists(folder / ".axle-trash-0123456789abcdef"));
    const CheckpointWriter second(folder / "second");
    EXPECT_TRUE(fs::exists(alive.directory()));
    EXPECT_TRUE(fs::exists(folder / ".axle-save-mine/text"));
    EXPECT_TRUE(fs::exists(folder / ".checkpoint-mine/text"));
    EXPECT_TRUE(fs::is_symlink(folder / ".axle-save-fedcba9876543210"));
}

TEST(CheckpointWriter, ThrowsFileErrorIfTheDiskHasTooLittleSpace) {
    const TemporaryFolder folder;
    const CheckpointWriter writer(folder / "c");
    EXPECT_NO_THROW(writer.check_space(1));
    expect_error<FileError>(
        {(folder / "c").c_str(), "needs 9223372036854775806 bytes", "bytes free"},
        [&] { writer.check_space(INT64_MAX - 1); });
}

// Changes the name of the file state.json in the manifest of a checkpoint, and updates the checksum
// of the manifest.
void rename_in_manifest(const std::string& checkpoint, const std::string& name) {
    const std::string file = checkpoint + "/manifest.json";
    Tree manifest = from_json(read_file(file));
    std::erase_if(manifest.entries(), [](const auto& entry) { return entry.key == "crc32"; });
    for (auto& entry : manifest["files"].entries())
        if (entry.key == "state.json") entry.key = name;
    const std::string text = to_json(manifest);
    const auto* const bytes = reinterpret_cast<const Bytef*>(text.data());
    manifest.set("crc32",
                 static_cast<std::int64_t>(crc32(0, bytes, static_cast<uInt>(text.size()))));
    put(file, to_json(manifest) + "\n");
}

TEST(Checkpoint, RejectsManifestsWithAbsolutePathsOrPathsThroughParentFolders) {
    const TemporaryFolder folder;
    write(folder / "c", 1);
    fs::create_directory(folder / "c/inside");
    fs::copy_file(folder / "c/state.json", folder / "c/inside/state.json");
    fs::copy_file(folder / "c/state.json", folder / "state.json");
    rename_in_manifest(folder / "c", "inside/state.json");
    EXPECT_TRUE(CheckpointReader(folder / "c").contains("inside/state.json"));
    for (const std::string& name : {std::string("../state.json"), folder / "state.json",
                                    std::string("inside/../state.json")}) {
        write(folder / "other", 1);
        rename_in_manifest(folder / "other", name);
        expect_error<FileError>({(folder / "other").c_str(), name.c_str()},
                                [&] { CheckpointReader reader(folder / "other"); });
    }
}

}  // namespace
}  // namespace axle
