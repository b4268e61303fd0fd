#include "accel/state/merge_weights.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "accel/process/partial_state.h"
#include "accel/state/checkpoint.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/files/sharded_folder.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "nn/files/weight_files.h"
#include "tests/close.h"
#include "tests/core/files/distributed_files.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/peak_memory.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using accel::merge_fsdp_weights;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string recorded(const std::string& name) { return AXLE_TESTS_DIR "/golden/dcp/" + name; }

// Writes a SHARDED_STATE_DICT folder, in which each of two ranks has a part of the tensor "weight".
// Returns the tensor.
Tensor write_sharded(const std::string& folder) {
    fs::create_directories(folder);
    const Tensor whole = arange(12, {.dtype = f32}).reshape({3, 4});
    std::vector<Tree> entries;
    for (const int rank : {0, 1}) {
        const std::vector<TensorPart> parts = {
            {.name = "weight",
             .shape = {3, 4},
             .begin = 5 * rank,
             .values = whole.reshape({-1}).narrow(0, 5 * rank, rank == 0 ? 5 : 7)}};
        write_tensor_parts(folder, rank, parts);
        entries.push_back(entries_of(rank, parts));
    }
    write_sharded_index(folder, entries);
    return whole;
}

// Writes a checkpoint of PyTorch with `count` tensors, each in two chunks of `rows` rows of 1024
// elements.
void write_distributed(const std::string& folder, int count, std::int64_t rows) {
    std::vector<DescribedTensor> tensors;
    std::string files[2];
    for (int i = 0; i < count; ++i) {
        DescribedTensor tensor{str("weight", i), {2 * rows, 1024}, {}};
        for (int rank = 0; rank < 2; ++rank) {
            const std::string chunk = saved_tensor(full({rows, 1024}, i + 0.5 * rank));
            tensor.chunks.push_back({{rank * rows, 0},
                                     {rows, 1024},
                                     str("__", rank, "_0.distcp"),
                                     std::ssize(files[rank]),
                                     std::ssize(chunk)});
            files[rank] += chunk;
        }
        tensors.push_back(tensor);
    }
    write_bytes(folder + "/.metadata", metadata_of(tensors));
    for (int rank = 0; rank < 2; ++rank)
        write_bytes(str(folder, "/__", rank, "_0.distcp"), files[rank]);
}

}  // namespace

// Covers 10.merge_fsdp_weights.
TEST(MergeFsdpWeights, WritesTheWeightsOfACheckpointOfPyTorch) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string output = folder / "merged";
    merge_fsdp_weights(recorded("model"), output);
    const auto expected = load_safetensors(recorded("model.safetensors")).tensors;
    const Safetensors merged = load_safetensors(output + "/model.safetensors");
    EXPECT_EQ(merged.metadata, (Metadata{{"format", "pt"}}));
    EXPECT_EQ(merged.tensors.size(), expected.size());
    for (const auto& [name, tensor] : merged.tensors) {
        SCOPED_TRACE(name);
        expect_same_bits(tensor, expected.at("model." + name));
    }
    EXPECT_TRUE(fs::exists(recorded("model/.metadata")));
}

// Covers 10.merge_fsdp_weights.
TEST(MergeFsdpWeights, WritesTheWeightsOfAShardedStateDict) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const Tensor whole = write_sharded(folder / "parts");
    merge_fsdp_weights(folder / "parts", folder / "merged");
    const auto tensors = load_safetensors(folder / "merged/model.safetensors").tensors;
    ASSERT_EQ(tensors.size(), 1u);
    expect_same_bits(tensors.at("weight"), whole);
}

// Covers 10.merge_fsdp_weights.
TEST(MergeFsdpWeights, WritesTheWeightsOfACheckpointOfDeepSpeed) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string deepspeed = AXLE_TESTS_DIR "/golden/deepspeed/";
    for (const char* name : {"stage2", "stage3", "stage3_bf16"}) {
        SCOPED_TRACE(name);
        LogCapture logged;
        const std::string copy = folder / name, output = folder / "merged";
        fs::copy(deepspeed + name, copy, fs::copy_options::recursive);
        merge_fsdp_weights(copy, output, true, true);
        const auto expected = load_safetensors(deepspeed + name + ".safetensors").tensors;
        const auto merged = load_safetensors(output + "/model.safetensors").tensors;
        ASSERT_EQ(merged.size(), expected.size());
        for (const auto& [key, tensor] : expected) {
            SCOPED_TRACE(key);
            expect_same_bits(merged.at(key), tensor);
        }
        EXPECT_FALSE(fs::exists(copy + "/global_step3"));
        EXPECT_TRUE(fs::exists(copy + "/latest"));
        EXPECT_THAT(logged.lines(), IsEmpty());
    }
}

TEST(MergeFsdpWeights, VerifiesTheChecksumsOfTheCheckpoint) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "state", parts = path + "/pytorch_model_fsdp_0";
    const std::string file = parts + "/rank_00000.safetensors";
    const Tensor whole = arange(3 << 18, {.dtype = f32});  // 3 MiB
    {
        accel::CheckpointWriter writer(path);
        const std::string inside = writer.directory() + "/pytorch_model_fsdp_0";
        fs::create_directory(inside);
        const std::vector<TensorPart> all = {
            {.name = "weight", .shape = whole.shape(), .begin = 0, .values = whole}};
        write_tensor_parts(inside, 0, all);
        write_sharded_index(inside, {entries_of(0, all)});
        write_bytes(writer.directory() + "/removed_by_the_user", "text");
        writer.commit({});
    }
    fs::remove(path + "/removed_by_the_user");
    merge_fsdp_weights(parts, folder / "merged");
    expect_same_bits(load_safetensors(folder / "merged/model.safetensors").tensors.at("weight"),
                     whole);

    const std::string bytes = read_file(file), index = read_file(parts + "/index.json");
    for (const auto& [at, block] : {std::pair<std::size_t, int>{12, 0}, {5 << 19, 2}}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        write_bytes(file, damaged);
        expect_error<FileError>({file.c_str(), ": has changed since it was saved: the checksum of ",
                                 str("block ", block, " (bytes [").c_str()},
                                [&] { merge_fsdp_weights(parts, folder / "other", true, true); });
        EXPECT_TRUE(fs::exists(file));
    }
    write_bytes(file, bytes);
    std::string other_shape = index;
    other_shape.replace(other_shape.find("786432"), 6, "786431");
    write_bytes(parts + "/index.json", other_shape);
    expect_error<FileError>({(parts + "/index.json").c_str(), ": has changed since it was saved"},
                            [&] { merge_fsdp_weights(parts, folder / "other"); });
    EXPECT_FALSE(fs::exists(folder / "other/model.safetensors"));
}

TEST(MergeFsdpWeights, WritesShardsIfTheWeightsExceedTheGivenSize) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    fs::create_directory(folder / "parts");
    write_distributed(folder / "parts", 3, 1);
    merge_fsdp_weights(folder / "parts", folder / "merged", true, false, "10KB");
    EXPECT_FALSE(fs::exists(folder / "merged/model.safetensors"));
    const nn::WeightFiles files(folder / "merged/model.safetensors.index.json");
    ASSERT_EQ(files.weights().size(), 3u);
    for (int i = 0; i < 3; ++i) {
        const Tensor weight = files.weights().at(str("weight", i)).read();
        expect_same_bits(weight.narrow(0, 0, 1), full({1, 1024}, i + 0.0));
        expect_same_bits(weight.narrow(0, 1, 1), full({1, 1024}, i + 0.5));
    }
}

TEST(MergeFsdpWeights, HoldsOnlyAFewTensorsInMemory) {
    const TemporaryFolder folder;
    write_distributed(folder.path(), 16, 512);  // tensors of 4 MiB
    const std::int64_t peak =
        peak_memory([&] { merge_fsdp_weights(folder.path(), folder / "merged"); });
    EXPECT_LT(peak, 24 << 20);
}

TEST(MergeFsdpWeights, WarnsAboutAndSkipsValuesThatAreNotTensors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    LogCapture logged;
    merge_fsdp_weights(recorded("plain"), folder / "merged");
    EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("values that are not tensors are left out")));
    EXPECT_EQ(load_safetensors(folder / "merged/model.safetensors").tensors.size(), 4u);
}

TEST(MergeFsdpWeights, RemovesOnlyTheFilesOfTheCheckpoint) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    LogCapture logged;
    const std::string distributed = folder / "distributed", sharded = folder / "sharded";
    fs::copy(recorded("model"), distributed);
    merge_fsdp_weights(distributed, folder / "first", true, true);
    EXPECT_FALSE(fs::exists(distributed));
    write_sharded(sharded);
    merge_fsdp_weights(sharded + "/", folder / "second", true, true);
    EXPECT_FALSE(fs::exists(sharded));
    EXPECT_THAT(logged.lines(), IsEmpty());

    fs::copy(recorded("model"), distributed);
    write_bytes(distributed + "/notes.txt", "text");
    merge_fsdp_weights(distributed, distributed, true, true);
    EXPECT_FALSE(fs::exists(distributed + "/.metadata"));
    EXPECT_FALSE(fs::exists(distributed + "/__1_0.distcp"));
    EXPECT_TRUE(fs::exists(distributed + "/notes.txt"));
    EXPECT_TRUE(fs::exists(distributed + "/model.safetensors"));
    EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("contains other files and is kept")));
}

TEST(MergeFsdpWeights, ChangesNothingIfTheCheckpointIsDamaged) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string checkpoint = folder / "checkpoint", output = folder / "merged";
    fs::copy(recorded("model"), checkpoint);
    merge_fsdp_weights(checkpoint, output);
    const std::string before = read_file(output + "/model.safetensors");
    std::string bytes = read_file(checkpoint + "/__1_0.distcp");
    const std::size_t data = bytes.find("/data/0");
    ASSERT_NE(data, std::string::npos);
    bytes.replace(data, 7, "/data/x");
    write_bytes(checkpoint + "/__1_0.distcp", bytes);
    expect_error<FileError>({(checkpoint + "/__1_0.distcp: the data of 'model.").c_str()},
                            [&] { merge_fsdp_weights(checkpoint, output, true, true); });
    EXPECT_EQ(read_file(output + "/model.safetensors"), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(output), fs::directory_iterator()), 1);
    EXPECT_TRUE(fs::exists(checkpoint + "/.metadata"));
}

// Covers 10.merge_fsdp_weights.
TEST(MergeFsdpWeights, RejectsMissingAndParentFoldersAndUnsafeSerialization) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string output = folder / "merged";
    const std::string missing = folder / "missing";
    expect_error<FileError>(
        {str("merge_fsdp_weights: ", missing, ": the folder does not exist").c_str()},
        [&] { merge_fsdp_weights(missing, output); });
    expect_error<FileError>(
        {str("merge_fsdp_weights: ", recorded("state"), ": has neither .metadata").c_str(),
         str("; pass ", recorded("state/optimizer_0"), " or ",
             recorded("state/pytorch_model_fsdp_0"))
             .c_str()},
        [&] { merge_fsdp_weights(recorded("state"), output); });
    expect_error<UsageError>({"merge_fsdp_weights: safe_serialization = false is not supported"},
                             [&] { merge_fsdp_weights(recorded("model"), output, false); });
    EXPECT_FALSE(fs::exists(output));
}

// Covers 10.merge_fsdp_weights.
TEST(MergeFsdpWeights, ReturnsAfterTheWeightsAreWrittenAndThrowsOnAllProcessesIfTheInputIsMissing) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        const accel::PartialState state({.cpu = true, .process_group = group});
        merge_fsdp_weights(recorded("model"), folder / "merged");
        if (!fs::exists(folder / "merged/model.safetensors"))
            throw std::runtime_error("the weights are not written yet");
        expect_error<FileError>({"merge_fsdp_weights: "},
                                [&] { merge_fsdp_weights(folder / "missing", folder / "other"); });
    });
}

}  // namespace axle::tests
