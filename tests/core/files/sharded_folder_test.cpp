#include "core/files/sharded_folder.h"

#include <filesystem>

#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::TemporaryFolder;

// Writes the parts of a rank and returns the rank's entries of the index.
Tree write_parts(const std::string& folder, int rank, const std::vector<TensorPart>& parts) {
    write_tensor_parts(folder, rank, parts);
    return entries_of(rank, parts);
}

// Writes a tensor of shape [3, 4] and an empty tensor. Cuts the first tensor into one part for each
// rank; sizes[rank] is its number of elements. Returns the first tensor.
Tensor write_cut(const std::string& folder, const std::vector<std::int64_t>& sizes) {
    const Tensor whole = arange(12, {.dtype = f32}).reshape({3, 4});
    std::vector<Tree> entries;
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
        const Tensor values = whole.reshape({-1}).narrow(0, begin, sizes[rank]);
        entries.push_back(
            write_parts(folder, static_cast<int>(rank),
                        {{.name = "weight", .shape = {3, 4}, .begin = begin, .values = values},
                         {.name = "none", .shape = {0}, .values = zeros({0}, {i64})}}));
        begin += sizes[rank];
    }
    write_sharded_index(folder, entries, {{"step", 7}});
    return whole;
}

void write_index(const std::string& folder, const std::string& text) {
    AtomicFile file(folder + "/index.json");
    file.write(text);
    file.commit();
}

TEST(ShardedFolder, ReadsAnyRangeOfATensor) {
    const TemporaryFolder folder;
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{12}, {5, 7}, {5, 0, 6, 1}}) {
        const Tensor whole = write_cut(folder.path(), sizes);
        const ShardedFolder state(folder.path());
        expect_same_bits(state.read("weight"), whole);
        for (std::int64_t begin = 0; begin <= 12; ++begin)
            for (std::int64_t count = 0; begin + count <= 12; ++count)
                expect_same_bits(state.read("weight", begin, count),
                                 whole.reshape({-1}).narrow(0, begin, count));
        EXPECT_EQ(state.read("none").dtype(), i64);
        EXPECT_EQ(state.extra()["step"].integer(), 7);
    }
}

TEST(ShardedFolder, RejectsRangesOutsideOfATensorAndUnknownTensors) {
    const TemporaryFolder folder;
    write_cut(folder.path(), {5, 7});
    const ShardedFolder state(folder.path());
    expect_error<IndexError>(
        {"ShardedFolder: the range [10, 10 + 3) must be within [0, 12), the elements of "
         "weight [3, 4]"},
        [&] { state.read("weight", 10, 3); });
    expect_error<FileError>({"", "contains no tensor 'bias'"}, [&] { state.read("bias"); });
}

TEST(WriteShardedIndex, RejectsMissingElementsAndDifferentShapes) {
    const TemporaryFolder folder;
    const Tree first = write_parts(folder.path(), 0,
                                   {{.name = "w", .shape = {6}, .begin = 0, .values = ones({2})}});
    const Tree last = write_parts(folder.path(), 1,
                                  {{.name = "w", .shape = {6}, .begin = 4, .values = ones({2})}});
    expect_error<ValueError>({"write_sharded_index: element 2 of w [6] is in no file"}, [&] {
        write_sharded_index(folder.path(), {first, last});
    });
    const Tree other = write_parts(folder.path(), 1,
                                   {{.name = "w", .shape = {7}, .begin = 2, .values = ones({5})}});
    expect_error<ValueError>(
        {"write_sharded_index: the ranks must have the same dtype and shape: rank 1 has w float32 "
         "[7], another rank has float32 [6]"},
        [&] {
            write_sharded_index(folder.path(), {first, other});
        });
    EXPECT_FALSE(ShardedFolder::is_one(folder.path()));
}

TEST(WriteShardedIndex, ReportsTheTensorWhoseEntryHasNoDType) {
    const TemporaryFolder folder;
    const Tree entries{{"w", Tree{{"shape", Tree::list({6})}, {"parts", Tree::list()}}}};
    expect_error<IndexError>({"write_sharded_index: w: ", "dtype"},
                             [&] { write_sharded_index(folder.path(), {entries}); });
}

TEST(ShardedFolder, RejectsInvalidIndices) {
    const TemporaryFolder folder;
    const auto expect_rejected = [&](const std::string& text, const char* reason) {
        SCOPED_TRACE(text);
        write_index(folder.path(), text);
        expect_error<FileError>({folder.path().c_str(), "index.json: ", reason},
                                [&] { const ShardedFolder state(folder.path()); });
    };
    const auto with = [](const std::string& tensor) {
        return R"({"format": "axle.sharded", "version": 1, "extra": null, "tensors": {"w": )" +
               tensor + "}}";
    };
    expect_rejected("[]", "");
    expect_rejected(R"({"format": "other"})", "the format is 'other' instead of 'axle.sharded'");
    expect_rejected(R"({"format": "axle.sharded", "version": 2})",
                    "the version 2 is newer than this library's 1");
    expect_rejected(with(R"({"dtype": "X", "shape": [1], "parts": []})"),
                    "the dtype must be one of safetensors, such as F32: 'X'");
    expect_rejected(with(R"({"dtype": "F32", "shape": [-1], "parts": []})"), "a negative size");
    expect_rejected(with(R"({"dtype": "F32", "shape": [9223372036854775807, 8], "parts": []})"),
                    "the shape must have less than 2^63 bytes: ");
    expect_rejected(with(R"({"dtype": "F32", "shape": [4], "parts": [["../a", 0, 4]]})"),
                    "a file name must be rank_<number>.safetensors: '../a'");
    for (const char* range : {"-1, 4", "0, 5", "3, 2"})
        expect_rejected(with(std::string(R"({"dtype": "F32", "shape": [4], "parts": )") +
                             R"([["rank_00000.safetensors", )" + range + "]]}"),
                        ") must be within [0, 4), the elements of the shape [4]");
    expect_rejected(with(R"({"dtype": "F32", "shape": [4], "parts": )"
                         R"([["rank_00000.safetensors", 1, 4]]})"),
                    "element 0 of w [4] is in no file");
    expect_rejected(
        with(R"({"dtype": "F32", "shape": [8], "parts": )"
             R"([["rank_00000.safetensors", 0, 4], ["rank_00000.safetensors", 4, 8]]})"),
        "w: a file must have at most one part: two parts are in rank_00000.safetensors");
}

TEST(ShardedFolder, RejectsTensorsThatAreLargerThanTheirFiles) {
    const TemporaryFolder folder;
    write_cut(folder.path(), {12});
    write_index(folder.path(), R"({"format": "axle.sharded", "version": 1, "extra": null,
        "tensors": {"weight": {"dtype": "F32", "shape": [1152921504606846976],
        "parts": [["rank_00000.safetensors", 0, 1152921504606846976]]}}})");
    const ShardedFolder state(folder.path());
    expect_error<FileError>({"", "weight is float32 [12] instead of float32 [1152921504606846976]"},
                            [&] { state.read("weight"); });
}

TEST(ShardedFolder, RejectsFilesThatDoNotMatchTheIndex) {
    const TemporaryFolder folder;
    write_cut(folder.path(), {5, 7});
    {
        const TemporaryFolder other;
        write_cut(other.path(), {6, 6});
        std::filesystem::copy_file(other / "rank_00001.safetensors",
                                   folder / "rank_00001.safetensors",
                                   std::filesystem::copy_options::overwrite_existing);
    }
    const ShardedFolder state(folder.path());
    expect_error<FileError>(
        {"", "rank_00001.safetensors: weight is float32 [6] instead of float32 [7]"},
        [&] { state.read("weight"); });
    EXPECT_EQ(state.read("weight", 0, 5).numel(), 5);
}

TEST(ShardedFolder, DoesNotFollowSymbolicLinks) {
    const TemporaryFolder folder, other;
    write_cut(other.path(), {12});
    std::filesystem::create_symlink(other / "index.json", folder / "index.json");
    EXPECT_FALSE(ShardedFolder::is_one(folder.path()));
    EXPECT_THROW(ShardedFolder{folder.path()}, FileError);
    write_cut(folder.path(), {12});
    std::filesystem::remove(folder / "rank_00000.safetensors");
    std::filesystem::create_symlink(other / "rank_00000.safetensors",
                                    folder / "rank_00000.safetensors");
    EXPECT_THROW(ShardedFolder(folder.path()).read("weight"), FileError);
}

}  // namespace
}  // namespace axle
