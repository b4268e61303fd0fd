#include "dist/sharding/deepspeed_checkpoint.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/files/torch_file.h"
#include "core/files/zip.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/core/files/distributed_files.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using dist::DeepSpeedCheckpoint;
using testing::IsEmpty;

constexpr const char* kRank0 = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
constexpr const char* kRank1 = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
constexpr const char* kModel = "mp_rank_00_model_states.pt";

// Returns a folder that DeepSpeed's save_checkpoint() has written.
std::string recorded(const std::string& name) { return AXLE_TESTS_DIR "/golden/deepspeed/" + name; }
std::string tag_of(const std::string& name) { return recorded(name) + "/global_step3"; }

std::string copy_of(const std::string& name, const TemporaryFolder& folder) {
    const std::string copy = folder / name;
    fs::remove_all(copy);
    fs::copy(tag_of(name), copy);
    return copy;
}

// Replaces each `from` in the pickle of a file of torch.save, and updates the checksums. If `next`
// is not empty, replaces only texts that are followed by `next`, directly or after an opcode that
// stores the value in the memo.
void replace_in(const std::string& path, const std::string& from, const std::string& to,
                const std::string& next = "") {
    std::string bytes = read_file(path);
    std::vector<ZipEntry> entries;
    bool found = false;
    for (const ZipMember& entry :
         read_stored_zip(std::as_writable_bytes(std::span(bytes.data(), bytes.size())))) {
        std::string contents(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
        if (entry.name.ends_with("/data.pkl"))
            for (std::size_t at = 0; (at = contents.find(from, at)) != std::string::npos; ++at) {
                const std::size_t end = at + from.size();
                const std::size_t memo = contents[end] == 'q' ? 2 : contents[end] == 'r' ? 5 : 0;
                if (!next.empty() && contents.compare(end + memo, next.size(), next) != 0) continue;
                contents.replace(at, from.size(), to);
                found = true;
            }
        entries.push_back({std::string(entry.name), contents});
    }
    ASSERT_TRUE(found) << from;
    write_bytes(path, zip_of(entries));
}

void expect_rejected(const std::string& folder, const std::string& file, const char* reason) {
    expect_error<FileError>({(folder + "/" + file).c_str(), reason},
                            [&] { const DeepSpeedCheckpoint checkpoint(folder); });
}

// Returns the pickled tuple of a shape with two sizes below 256.
std::string shape_of(char rows, char columns) {
    return std::string("K") + rows + "K" + columns + "\x86";
}

}  // namespace

// The expected weights are recorded from DeepSpeed's zero_to_fp32. It omits the frozen weights of
// stage 1, but the states of the model contain them.
// Covers 10.merge_fsdp_weights.
TEST(DeepSpeedCheckpoint, HasTheWeightsOfZeroToFp32) {
    for (const char* name : {"stage0", "stage1", "stage2", "stage3", "stage3_bf16"}) {
        SCOPED_TRACE(name);
        const DeepSpeedCheckpoint checkpoint(tag_of(name));
        const auto expected = load_safetensors(recorded(name) + ".safetensors").tensors;
        EXPECT_THAT(checkpoint.missing(), IsEmpty());
        EXPECT_EQ(checkpoint.weights().size(), 10u);
        EXPECT_EQ(expected.size(), name == std::string("stage1") ? 8u : 10u);
        for (const auto& [key, tensor] : expected) {
            SCOPED_TRACE(key);
            ASSERT_TRUE(checkpoint.weights().contains(key));
            EXPECT_EQ(checkpoint.weights().at(key).dtype(), tensor.dtype());
            EXPECT_EQ(checkpoint.weights().at(key).shape(), tensor.shape());
            expect_same_bits(checkpoint.read(key), tensor);
        }
    }
    const DeepSpeedCheckpoint stage1(tag_of("stage1"));
    const Tree model = load_torch_file(tag_of("stage1") + "/" + kModel)["module"];
    for (const char* key : {"frozen.weight", "frozen.bias"})
        expect_same_bits(stage1.read(key), contiguous(model[key].tensor()));
}

TEST(DeepSpeedCheckpoint, IsFoundThroughTheFileLatestUnlessItsTagIsInvalid) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    EXPECT_TRUE(DeepSpeedCheckpoint::is_one(recorded("stage2")));
    EXPECT_EQ(DeepSpeedCheckpoint(recorded("stage2")).path(), tag_of("stage2"));
    EXPECT_THAT(DeepSpeedCheckpoint(recorded("stage2")).files(),
                testing::ElementsAre(kModel, kRank0, kRank1));
    fs::create_directory(folder / "root");
    fs::copy(tag_of("stage2"), folder / "other");
    for (const std::string tag : {"../other", "", ".", "..", "missing", "a/b"}) {
        write_bytes(folder / "root/latest", tag);
        EXPECT_FALSE(DeepSpeedCheckpoint::is_one(folder / "root")) << tag;
    }
    expect_error<FileError>({(folder / "root").c_str(), "contains no checkpoint of DeepSpeed"},
                            [&] { const DeepSpeedCheckpoint checkpoint(folder / "root"); });
    EXPECT_FALSE(DeepSpeedCheckpoint::is_one(folder / "none"));
}

// Without the names of shared weights, the elements of a tied weight of stage 3 are in no file.
TEST(DeepSpeedCheckpoint, ListsWeightsWhoseElementsAreInNoFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string copy = copy_of("stage3", folder);
    replace_in(copy + "/zero_pp_rank_0_mp_rank_00_model_states.pt", "shared_params",
               "shared_paramz");
    const DeepSpeedCheckpoint checkpoint(copy);
    EXPECT_THAT(checkpoint.missing(), testing::ElementsAre("head.weight"));
    EXPECT_EQ(checkpoint.weights().size(), 9u);
    expect_error<FileError>({copy.c_str(), "contains no weight 'head.weight'"},
                            [&] { checkpoint.read("head.weight"); });
}

TEST(DeepSpeedCheckpoint, RejectsFoldersWithMissingSurplusOrUnsupportedFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto with_copy = [&](const char* name, auto&& change, const std::string& file,
                               const char* reason) {
        const std::string copy = copy_of(name, folder);
        change(copy);
        if (file.empty())
            expect_error<FileError>({copy.c_str(), reason},
                                    [&] { const DeepSpeedCheckpoint checkpoint(copy); });
        else
            expect_rejected(copy, file, reason);
    };
    const auto remove = [](const char* file) {
        return [file](const std::string& copy) { fs::remove(copy + "/" + file); };
    };
    const auto rename = [](const char* from, const char* to) {
        return [=](const std::string& copy) { fs::rename(copy + "/" + from, copy + "/" + to); };
    };
    with_copy("stage2", remove(kModel), "", "mp_rank_00_model_states.pt is missing");
    with_copy("stage2", remove(kRank0), "",
              "the file of process 0 is missing: found zero_pp_rank_1");
    with_copy("stage2", remove(kRank1), kRank0,
              "partition_count is 2, but the number of files *_optim_states.pt in the folder is 1");
    with_copy(
        "stage2",
        [](const std::string& copy) {
            fs::remove(copy + "/" + kRank0);
            fs::remove(copy + "/" + kRank1);
        },
        kModel, "the folder has no files *_optim_states.pt");
    with_copy(
        "stage3", remove("zero_pp_rank_2_mp_rank_00_model_states.pt"),
        "zero_pp_rank_0_mp_rank_00_model_states.pt",
        "stage 3 needs a file with the states of the model for each of 3 processes, but there "
        "are 2");
    with_copy("stage2", rename(kRank1, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"), kRank0,
              "the folder has two files for the same process");
    with_copy("stage2", rename(kModel, "mp_rank_01_model_states.pt"), "mp_rank_01_model_states.pt",
              "checkpoints of tensor or pipeline parallel training are not supported");
    with_copy("stage2", rename(kRank1, "expp_rank_0_mp_rank_00_optim_states.pt"),
              "expp_rank_0_mp_rank_00_optim_states.pt",
              "mixtures of experts of DeepSpeed are not supported");
    with_copy(
        "stage2",
        [](const std::string& copy) {
            fs::remove(copy + "/" + kRank1);
            fs::create_symlink(tag_of("stage2") + "/" + kRank1, copy + "/" + kRank1);
        },
        kRank1, "symbolic link");
}

TEST(DeepSpeedCheckpoint, RejectsShapesThatDoNotMatchElementsAndMissingKeys) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto with_model = [&](const char* name, const std::string& from, const std::string& to,
                                const char* reason) {
        const std::string copy = copy_of(name, folder);
        const std::string file =
            name == std::string("stage3") ? "zero_pp_rank_0_mp_rank_00_model_states.pt" : kModel;
        // Only the argument of torch.Size is followed by the opcode for a tuple of one item.
        replace_in(copy + "/" + file, from, to, from[0] == 'K' ? "\x85" : "");
        expect_rejected(copy, file, reason);
    };
    with_model("stage2", shape_of(5, 3), shape_of(7, 3),
               "group 0 has 36 elements, too few for body.weight [7, 3] at element 21");
    with_model("stage2", shape_of(7, 3), shape_of(1, 3),
               "group 0 has 36 elements, but the shapes of its weights have 18");
    with_model("stage3", shape_of(7, 3), shape_of(99, 3),
               "each process has 18 elements, too few for embed.weight [99, 3] at element 0");
    with_model("stage3", shape_of(7, 3), shape_of(1, 3),
               "each process has 18 elements, but the shapes of the weights need 12");
    with_model("stage2", shape_of(7, 3), pickled_integer(std::int64_t{1} << 62) + "K\x03\x86",
               "the shape of embed.weight is too large");
    with_model("stage2", "param_shapes", "param_shapez", "param_shapes is missing");
    with_model("stage2", "buffer_names", "buffer_namez", "buffer_names");
    with_model("stage3", "frozen_param_fragments", "frozen_param_fragmentz",
               "frozen_param_fragments");

    for (const char* name : {"stage2", "stage3"}) {
        const std::string copy = copy_of(name, folder);
        const bool is_2 = name == std::string("stage2");
        replace_in(copy + "/" + kRank1,
                   is_2 ? "single_partition_of_fp32_groups" : "fp32_flat_groups",
                   is_2 ? "single_partition_of_fp32_groupz" : "fp32_flat_groupz");
        expect_rejected(copy, kRank1,
                        is_2 ? "single_partition_of_fp32_groups" : "fp32_flat_groups");
    }
}

// The pickle contains one vector ten times, so the vectors together are larger than the file.
TEST(DeepSpeedCheckpoint, RejectsVectorsThatAreLargerThanTheirFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string copy = copy_of("stage2", folder);
    const std::string vector = pickled_name("torch._utils", "_rebuild_tensor_v2") + "((" +
                               pickled_text("storage") + pickled_name("torch", "FloatStorage") +
                               pickled_text("0") + pickled_text("cpu") + pickled_integer(1000) +
                               "tQ" + pickled_integer(0) + "(" + pickled_integer(1000) +
                               "t(K\x01t\x89}tRq\x01";
    std::string groups = "](" + vector;
    for (int i = 0; i < 9; ++i) groups += "h\x01";
    const std::string state = "}(" + pickled_text("single_partition_of_fp32_groups") + groups +
                              "e" + pickled_text("partition_count") + "K\x01u";
    const std::string pickle = "\x80\x02}(" + pickled_text("optimizer_state_dict") + state + "u.";
    fs::remove(copy + "/" + kRank1);
    write_bytes(copy + "/" + kRank0, zip_of({{"archive/data.pkl", pickle},
                                             {"archive/data/0", std::string(4000, '\0')}}));
    std::string shapes = "](";
    for (int i = 0; i < 10; ++i) shapes += "}" + pickled_text(str("w", i)) + "K\x01\x85s";
    write_bytes(copy + "/" + kModel,
                zip_of({{"archive/data.pkl", "\x80\x02}(" + pickled_text("module") + "}" +
                                                 pickled_text("buffer_names") + "]" +
                                                 pickled_text("param_shapes") + shapes + "eu."}}));
    expect_rejected(copy, kRank0, "the vectors of weights must not be larger than the file");
}

TEST(DeepSpeedCheckpoint, RejectsTruncatedFilesAndNamesDamagedFilesInErrors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const char* name : {"stage2", "stage3"})
        for (const auto& entry : fs::directory_iterator(tag_of(name))) {
            const std::string file = entry.path().filename().string();
            SCOPED_TRACE(file);
            const std::string copy = copy_of(name, folder);
            const std::string bytes = read_file(copy + "/" + file);
            for (std::size_t size : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
                write_bytes(copy + "/" + file, bytes.substr(0, size));
                expect_rejected(copy, file, "");
            }
            for (std::size_t at = 70; at < bytes.size(); at += 211) {
                std::string changed = bytes;
                changed[at] = static_cast<char>(changed[at] ^ 16);
                write_bytes(copy + "/" + file, changed);
                try {  // padding between the entries is not covered by checksums
                    const DeepSpeedCheckpoint checkpoint(copy);
                    for (const auto& [key, weight] : checkpoint.weights()) checkpoint.read(key);
                } catch (const FileError& error) {
                    EXPECT_THAT(error.what(), testing::HasSubstr(file));
                }
            }
        }
}

}  // namespace axle::tests
