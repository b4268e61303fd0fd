// Tests DistributedCheckpoint with checkpoints written by tests/golden/record_dcp.py, and with
// valid and damaged checkpoints that the tests write.
#include "core/files/distributed_checkpoint.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/core/files/distributed_files.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::string recorded(const std::string& name) { return AXLE_TESTS_DIR "/golden/dcp/" + name; }

// A checkpoint folder with one f32 tensor 'w', whose elements are 0, 1, 2 and so on. The tensor is
// divided into chunks of rows, and each chunk has its own file.
class Rows {
  public:
    explicit Rows(const Shape& shape = {3, 4}, const std::vector<std::int64_t>& rows = {2, 1})
        : whole(arange(numel(shape), {.dtype = f32}).reshape(shape)),
          tensor{"w", {shape.begin(), shape.end()}, {}} {
        std::int64_t first = 0;
        for (const std::int64_t count : rows) {
            Sizes offsets(tensor.shape.size()), sizes = tensor.shape;
            offsets[0] = first, sizes[0] = count;
            const std::string bytes = saved_tensor(contiguous(whole.narrow(0, first, count)));
            add({offsets, sizes, str("__", tensor.chunks.size(), "_0.distcp"), 0,
                 std::ssize(bytes)},
                bytes);
            first += count;
        }
        write();
    }
    void add(const DescribedChunk& chunk, const std::string& bytes) {
        tensor.chunks.push_back(chunk);
        write_bytes(*this / chunk.file, bytes);
    }
    void write() const { write({tensor}); }
    void write(const std::vector<DescribedTensor>& tensors) const {
        write_bytes(*this / ".metadata", metadata_of(tensors));
    }
    const std::string& path() const { return folder_.path(); }
    std::string operator/(const std::string& name) const { return folder_ / name; }
    // Expects that the constructor throws an error with these words after the name of the file.
    void expect_refused(const std::string& file, const std::string& words) const {
        expect_error<FileError>({(*this / file).c_str(), words.c_str()},
                                [&] { const DistributedCheckpoint checkpoint(path()); });
    }
    // Expects that the checkpoint can be opened, but that reading the tensor throws.
    void expect_unreadable(const std::string& file, const std::string& words) const {
        expect_unreadable(DistributedCheckpoint(path()), file, words);
    }
    void expect_unreadable(const DistributedCheckpoint& checkpoint, const std::string& file,
                           const std::string& words) const {
        expect_error<FileError>({(*this / file).c_str(), "'w'", words.c_str()},
                                [&] { checkpoint.read("w"); });
    }

  private:
    TemporaryFolder folder_{FolderStorage::in_memory};

  public:
    Tensor whole;
    DescribedTensor tensor;
};

}  // namespace

TEST(DistributedCheckpoint, ReadsCheckpointsOfPyTorch) {
    for (const char* name : {"model", "optimizer", "plain"}) {
        SCOPED_TRACE(name);
        const auto expected = load_safetensors(recorded(name) + ".safetensors").tensors;
        const NamedTensors tensors = read_distributed_checkpoint(recorded(name));
        EXPECT_EQ(tensors.size(), expected.size());
        for (const auto& [key, tensor] : tensors) {
            SCOPED_TRACE(key);
            expect_same_bits(tensor, expected.at(key));
        }
    }
}

TEST(DistributedCheckpoint, ReadsMetadataOfOldVersionsOfPyTorch) {
    const DistributedCheckpoint checkpoint(recorded("old"));
    EXPECT_EQ(checkpoint.read("weight").to_vector(),
              (std::vector<double>{0, 1 / 8., 2 / 8., 3 / 8., 4 / 8., 5 / 8.}));
}

TEST(DistributedCheckpoint, ListsTheChunksAndFilesOfTwoProcesses) {
    const DistributedCheckpoint checkpoint(recorded("model"));
    EXPECT_EQ(checkpoint.tensors().at("model.linear.weight").chunks.size(), 2u);
    EXPECT_EQ(checkpoint.tensors().at("model.linear.bias").chunks.size(), 1u);
    EXPECT_EQ(checkpoint.tensors().at("model.columns").dtype, bf16);
    EXPECT_THAT(checkpoint.files(), ElementsAre(".metadata", "__0_0.distcp", "__1_0.distcp"));
}

TEST(DistributedCheckpoint, ReadsAnyRangeOfATensorAndRejectsRangesOutsideOfIt) {
    const DistributedCheckpoint checkpoint(recorded("model"));
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        SCOPED_TRACE(name);
        const Tensor whole = checkpoint.read(name).reshape({-1});
        for (std::int64_t begin = 0; begin <= whole.numel(); ++begin)
            for (std::int64_t count = 0; begin + count <= whole.numel(); ++count)
                expect_same_bits(checkpoint.read(name, begin, count),
                                 contiguous(whole.narrow(0, begin, count)));
    }
    expect_error<IndexError>({"DistributedCheckpoint::read: the range [10, 10 + 6) must be within "
                              "[0, 15), the elements of model.linear.weight [5, 3]"},
                             [&] { checkpoint.read("model.linear.weight", 10, 6); });
    EXPECT_THROW(checkpoint.read("model.steps", -1, 1), IndexError);
    expect_error<FileError>({recorded("model").c_str(), "contains no tensor 'weight'"},
                            [&] { checkpoint.read("weight"); });
}

TEST(DistributedCheckpoint, ReturnsValuesFromReadValueAndRejectsTensors) {
    const DistributedCheckpoint checkpoint(recorded("plain"));
    EXPECT_EQ(checkpoint.read_value("epoch").integer(), 3);
    EXPECT_EQ(checkpoint.read_value("name").string(), "text");
    EXPECT_EQ(checkpoint.read_value("nested.rate").number(), 0.5);
    EXPECT_THROW(checkpoint.read_value("weight"), FileError);
}

TEST(DistributedCheckpoint, RemovesTheCommonPrefixFromNames) {
    const DistributedCheckpoint model(recorded("model")), plain(recorded("plain"));
    EXPECT_EQ(model.names_in_state().at("linear.weight"), "model.linear.weight");
    EXPECT_EQ(plain.names_in_state().at("nested.tensors.0"), "nested.tensors.0");
    EXPECT_THAT(DistributedCheckpoint(recorded("old")).names_in_state(),
                ElementsAre(Pair("weight", "weight")));
    // If the metadata contain no paths, names are unchanged.
    EXPECT_THAT(DistributedCheckpoint(Rows().path()).names_in_state(), ElementsAre(Pair("w", "w")));
}

TEST(DistributedCheckpoint, ReadsATensorOfOneOrMoreChunks) {
    for (const std::vector<std::int64_t>& rows :
         {std::vector<std::int64_t>{3}, {2, 1}, {1, 1, 1}}) {
        const Rows files({3, 4}, rows);
        expect_same_bits(DistributedCheckpoint(files.path()).read("w"), files.whole);
    }
}

TEST(DistributedCheckpoint, RejectsChunksThatOverlapOrDoNotFillTheTensor) {
    const auto with = [](const std::vector<DescribedChunk>& chunks, const std::string& words) {
        Rows files;
        const std::int64_t length = std::ssize(saved_tensor(zeros({3, 4})));
        files.tensor.chunks.clear();
        for (DescribedChunk chunk : chunks) {
            chunk.file = str("__", files.tensor.chunks.size(), "_0.distcp");
            chunk.length = length;
            files.add(chunk, std::string(static_cast<std::size_t>(length), ' '));
        }
        files.write();
        files.expect_refused(".metadata: tensor 'w': ", words);
    };
    with({{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}, "the chunks at [0, 0] and [1, 0] overlap");
    with({{{0, 0}, {3, 2}}, {{0, 1}, {3, 2}}}, "the chunks at [0, 0] and [0, 1] overlap");
    with({{{0, 0}, {2, 4}}},
         "the chunks must have the 12 elements of the shape [3, 4]: they have 8");
    with({}, "the chunks must have the 12 elements of the shape [3, 4]: they have 0");
    with({{{0, 0}, {2, 4}}, {{2, 0}, {2, 4}}},
         "the chunk [2, 4] at [2, 0] must be within the shape [3, 4]");
    with({{{INT64_MAX, 0}, {2, 4}}}, "must be within the shape [3, 4]");
    with({{{0}, {12}}}, "the chunk [12] at [0] must be within the shape [3, 4]");
    with({{{0, 0}, {-1, 4}}}, "the metadata does not have the structure");
}

TEST(DistributedCheckpoint, RejectsTensorsThatAreLargerThanTheirFiles) {
    Rows files;
    constexpr std::int64_t kMany = std::int64_t{1} << 40;
    files.tensor.shape = {kMany, 4};
    files.tensor.chunks[1].sizes = {kMany - 2, 4};
    files.write();
    files.expect_refused(".metadata: tensor 'w': the chunk", "needs 17592186044384 bytes, but has");
    files.tensor.shape = {kMany, kMany};
    files.write();
    files.expect_refused(".metadata: tensor 'w': the shape", "must have less than 2^63 bytes: ");
}

TEST(DistributedCheckpoint, RejectsMissingAndTruncatedFiles) {
    Rows files;
    const std::string file = files / "__1_0.distcp", bytes = read_file(file);
    fs::resize_file(file, bytes.size() - 1);
    files.expect_refused("__1_0.distcp: the data of 'w': bytes [0, ",
                         "are beyond the end of the file, which has ");
    fs::remove(file);
    files.expect_refused("__1_0.distcp: can't open: ",
                         "No such file or directory; the file must contain 'w'");
    write_bytes(file, bytes);
    for (const std::int64_t length : {std::ssize(bytes) + 1, INT64_MAX}) {
        files.tensor.chunks[1].length = length;
        files.write();
        files.expect_refused("__1_0.distcp: the data of 'w': bytes [0, ", "are beyond the end");
    }
    fs::remove(files / ".metadata");
    EXPECT_FALSE(DistributedCheckpoint::is_one(files.path()));
    files.expect_refused(".metadata: can't open: ", "No such file or directory");
}

TEST(DistributedCheckpoint, ThrowsWhenAFileIsTruncatedOrRemovedAfterOpening) {
    const Rows files;
    const DistributedCheckpoint checkpoint(files.path());
    fs::resize_file(files / "__1_0.distcp", 10);
    files.expect_unreadable(checkpoint, "__1_0.distcp", "the file ends after 10 of");
    fs::remove(files / "__1_0.distcp");
    files.expect_unreadable(checkpoint, "__1_0.distcp", "No such file or directory");
}

TEST(DistributedCheckpoint, RejectsChunksThatShareBytes) {
    Rows files;
    DescribedTensor other = files.tensor;
    other.name = "v";
    files.write({files.tensor, other});
    files.expect_refused("__0_0.distcp: the data of '", "': its bytes overlap the bytes of '");
}

TEST(DistributedCheckpoint, RejectsInvalidItemsAndItemsThatDoNotMatchTheMetadata) {
    Rows files({3, 4}, {3});
    const std::string file = "__0_0.distcp", bytes = read_file(files / file);
    const auto with = [&](const std::string& other, const std::string& words) {
        write_bytes(files / file, other);
        files.tensor.chunks[0].length = std::ssize(other);
        files.write();
        files.expect_unreadable(file, words);
    };
    with(saved_tensor(zeros({4, 1})), "the chunk is float32 [4, 1] instead of float32 [3, 4]");
    std::string damaged = bytes;
    damaged[damaged.find("\x80\x3f") + 1] ^= 1;
    with(damaged, "the checksum does not match");
    with(std::string(100, ' '), "not a complete zip file");
    with(zip_of({{"archive/data.pkl", "\x80\x02N."}}), "the item is not a tensor");
    with(zip_of({{"archive/data.pkl",
                  "\x80\x02" + pickled_call(pickled_name("os", "system"), {pickled_text("true")}) +
                      "."}}),
         "contains os.system");
    files.tensor.dtype = "bfloat16";
    with(bytes, "instead of bfloat16 [");
}

TEST(DistributedCheckpoint, RejectsUnexpectedContentsOfMetadata) {
    using namespace std::string_literals;
    Rows files;
    const auto with = [&](const std::string& words) {
        files.write();
        files.expect_refused(".metadata: ", words);
        files.tensor = Rows().tensor;
    };
    files.tensor.dtype = "complex128";
    with("contains torch.complex128");
    files.tensor.dtype = "Size";
    with("tensor 'w': torch.Size is not a supported dtype");
    files.tensor.layout = "torch.sparse_coo";
    with("tensor 'w': has the layout torch.sparse_coo");
    for (const char* name : {"", ".distcp", "../a.distcp", "a/b.distcp", "/a.distcp", ".a.distcp",
                             "a.bin", "..", "a\n.distcp", "__0_0.distcp.bin"}) {
        files.tensor.chunks[0].file = name;
        with("tensor 'w': a file name must be <name>.distcp, without folders");
    }
    files.tensor.chunks[0].file = std::string(249, 'a') + ".distcp";
    with("tensor 'w': a file name must be <name>.distcp, without folders");
    files.tensor.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    files.tensor.chunks.clear();
    with("tensor 'w': has more than 8 dimensions");
    const std::string valid = metadata_of({files.tensor});
    const auto with_bytes = [&](const std::string& bytes, const std::string& words) {
        write_bytes(files / ".metadata", bytes);
        files.expect_refused(".metadata: ", words);
    };
    with_bytes(
        "\x80\x02" + pickled_call(pickled_name("os", "system"), {pickled_text("true")}) + ".",
        "contains os.system");
    with_bytes(
        pickled_object(pickled_name("torch.distributed.checkpoint.planner", "SavePlan"), {}) + ".",
        "contains torch.distributed.checkpoint.planner.SavePlan");
    with_bytes("N.", "the metadata has no Metadata where it is expected");
    with_bytes("", "unexpected end");
    for (std::size_t length = 0; length < valid.size(); length += 7) {
        write_bytes(files / ".metadata", valid.substr(0, length));
        EXPECT_THROW(DistributedCheckpoint{files.path()}, FileError);
    }
}

TEST(DistributedCheckpoint, DoesNotFollowSymbolicLinks) {
    const Rows files;
    const std::string chunk = files / "__1_0.distcp", metadata = files / ".metadata";
    fs::rename(chunk, files / "elsewhere");
    fs::create_symlink("elsewhere", chunk);
    files.expect_refused("__1_0.distcp: can't open: ", "a symbolic link is not followed here");
    fs::remove(chunk);
    fs::rename(files / "elsewhere", chunk);
    fs::rename(metadata, files / "elsewhere");
    fs::create_symlink("elsewhere", metadata);
    EXPECT_FALSE(DistributedCheckpoint::is_one(files.path()));
    files.expect_refused(".metadata: can't open: ", "a symbolic link is not followed here");
}

// The chunks form a grid with 5 chunks along each of 6 dimensions. In any dimension, each chunk has
// the same range as 3124 other chunks.
TEST(DistributedCheckpoint, LimitsComparisonsOfChunks) {
    DescribedTensor tensor{"w", {5, 5, 5, 5, 5, 5}, {}};
    for (std::int64_t i = 0; i < 15625; ++i) {
        Sizes offsets;
        for (std::int64_t rest = i; offsets.size() < 6; rest /= 5) offsets.push_back(rest % 5);
        tensor.chunks.push_back({offsets, {1, 1, 1, 1, 1, 1}, "__0_0.distcp", 4 * i, 4});
    }
    const Rows files;
    files.write({tensor});
    files.expect_refused(".metadata: tensor 'w': ", "there are too many chunks to compare them");
}

// An entry of a few bytes can refer to a long name. Each use of the name counts toward the memory
// limit, which also limits the work.
TEST(ReadDistributedMetadata, CountsEachUseOfALongNameTowardTheMemoryLimit) {
    using namespace std::string_literals;
    const std::string module = "torch.distributed.checkpoint.metadata";
    std::string items = "}(";
    for (std::int64_t i = 0; i < 300; ++i)
        items += pickled_object(pickled_name(module, "MetadataIndex"),
                                {pickled_text("fqn"),
                                 i == 0 ? pickled_text(std::string(1 << 20, 'a')) + "q\0"s : "h\0"s,
                                 pickled_text("offset"), pickled_shape({i})}) +
                 "N";
    const std::string pickle = pickled_object(pickled_name(module, "Metadata"),
                                              {pickled_text("state_dict_metadata"), "}",
                                               pickled_text("storage_data"), items + "u"}) +
                               ".";
    expect_error<FileError>({"the values need more memory than "},
                            [&] { read_distributed_metadata(std::as_bytes(std::span(pickle))); });
}

TEST(ReadDistributedMetadata, ReadsPathsAndSkipsEmptyChunks) {
    const std::string bytes = read_file(recorded("model/.metadata"));
    const DistributedMetadata metadata = read_distributed_metadata(std::as_bytes(std::span(bytes)));
    EXPECT_THAT(metadata.tensors.at("model.linear.weight").path,
                ElementsAre("model", "linear.weight"));
    EXPECT_EQ(metadata.tensors.at("model.linear.weight").shape, (Shape{5, 3}));
    EXPECT_THAT(metadata.tensors.at("model.empty").chunks, IsEmpty());
    EXPECT_EQ(metadata.tensors.at("model.linear.bias").chunks.at(0).sizes, Shape{1});
    EXPECT_THAT(metadata.values, IsEmpty());
}

}  // namespace axle::tests
