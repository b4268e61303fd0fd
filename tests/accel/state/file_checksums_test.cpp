#include "accel/state/file_checksums.h"

#include <limits>
#include <string>
#include <vector>

#include <zlib.h>

#include "accel/state/checkpoint.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using accel::block_checksums;
using accel::block_size_for;
using accel::describe_file;
using accel::FileBlocks;

constexpr std::int64_t kMiB = accel::kSmallestBlock, kTiB = std::int64_t{1} << 40;

// Returns a text of 3.5 MiB in which no two blocks are equal.
std::string large_text() {
    std::string text(static_cast<std::size_t>(7 * kMiB / 2), 'x');
    for (std::size_t i = 0; i < text.size(); i += 1000) text[i] = static_cast<char>(i / 1000);
    return text;
}

std::uint32_t crc_of(std::string_view text) {
    return static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// Returns the length of the checksums of all blocks in a manifest.
std::int64_t length_in_manifest(const std::vector<std::int64_t>& sizes) {
    const std::int64_t block_size = block_size_for(sizes);
    std::int64_t length = 0;
    for (const std::int64_t size : sizes)
        if (size > block_size) length += 8 * ((size - 1) / block_size + 1);
    return length;
}

}  // namespace

TEST(FileChecksums, UseBlocksOfOneMiBUpToOneTiB) {
    EXPECT_EQ(block_size_for({}), kMiB);
    EXPECT_EQ(block_size_for({0, 1, 5 * kMiB + 1}), kMiB);
    EXPECT_EQ(block_size_for({kTiB}), kMiB);
    EXPECT_EQ(block_size_for(std::vector<std::int64_t>(1024, kTiB / 1024)), kMiB);
}

TEST(FileChecksums, UseLargerBlocksSoThatTheManifestIsBounded) {
    EXPECT_EQ(block_size_for({kTiB + 1}), 2 * kMiB);
    EXPECT_EQ(block_size_for({3 * kTiB}), 4 * kMiB);
    EXPECT_EQ(block_size_for(std::vector<std::int64_t>(4096, kTiB / 512)), 8 * kMiB);
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{2 * kTiB}, std::vector<std::int64_t>{100 * kTiB, 1, kMiB},
          std::vector<std::int64_t>(1000, 3 * kTiB + 5),
          std::vector<std::int64_t>(50000, 99 * kMiB),
          std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max()}}) {
        const std::int64_t length = length_in_manifest(sizes);
        EXPECT_LE(length, 8 * kMiB) << sizes.front();
        EXPECT_GT(length, 4 * kMiB * 9 / 10) << sizes.front();
    }
}

TEST(FileChecksums, CoverEachBlockOfOneTwoOrFourMiB) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string text = large_text();
    put(folder / "file", text);
    const InputFile file(folder / "file");
    for (const std::int64_t block_size : {kMiB, 2 * kMiB, 4 * kMiB}) {
        SCOPED_TRACE(block_size);
        const Tree description = describe_file(file, block_size);
        EXPECT_EQ(description["crc32"].integer(), crc_of(text));
        EXPECT_EQ(description.contains("block_size"), block_size != kMiB);
        const auto [size, checksums] = block_checksums(description);
        std::vector<std::uint32_t> expected;
        const auto length = static_cast<std::size_t>(block_size);
        for (std::size_t at = 0; at < text.size(); at += length)
            expected.push_back(crc_of(text.substr(at, length)));
        EXPECT_EQ(checksums, expected);
        EXPECT_EQ(size, block_size);
    }
}

TEST(FileBlocks, VerifiesOnlyRequestedBlocksAndReportsTheDamagedBlock) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string text = large_text();
    put(folder / "file", text);
    const auto checksums = block_checksums(describe_file(InputFile(folder / "file"), 2 * kMiB));
    text[static_cast<std::size_t>(3 * kMiB)] = 'y';
    put(folder / "file", text);
    FileBlocks blocks(folder.path(), "file", checksums);
    EXPECT_NO_THROW(blocks.check(0, 2 * kMiB));
    for (const std::int64_t begin : {std::int64_t{0}, 2 * kMiB, 3 * kMiB})
        expect_error<FileError>({(folder / "file").c_str(),
                                 ": has changed since it was saved: the checksum of block 1 "
                                 "(bytes [2097152, 3670016)) differs"},
                                [&] { blocks.check(begin, begin + 3 * kMiB); });
}

TEST(FileChecksums, RejectInvalidBlockSizesAndMissingChecksums) {
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, kMiB - 1, kMiB + 1})
        expect_error<ValueError>({"block_size must be a positive multiple of 1048576: "}, [&] {
            block_checksums({{"size", 5}, {"crc32", 0}, {"block_size", size}, {"blocks", ""}});
        });
    expect_error<ValueError>({"blocks must have 2 checksums of 8 hexadecimal digits"}, [&] {
        block_checksums(
            {{"size", 3 * kMiB}, {"crc32", 0}, {"block_size", 2 * kMiB}, {"blocks", "00000000"}});
    });
}

// Covers 31.save_state.
TEST(Checkpoint, IsNotReplacedIfTheManifestWouldBeTooLongToBeRead) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = write(folder / "c", 1);
    accel::CheckpointWriter writer(path);
    expect_error<FileError>(
        {path.c_str(), "the manifest would have ", "bytes, but readers accept only 16777216"}, [&] {
            writer.commit({.identity = {{"text", std::string(17 << 20, 'x')}}});
        });
    EXPECT_EQ(accel::CheckpointReader(path).label().iteration, 1);
}

}  // namespace axle::tests
