#include "nn/files/weight_files.h"

#include <filesystem>
#include <set>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/linear.h"
#include "tests/close.h"
#include "tests/full_disk.h"
#include "tests/nn/golden.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::set<std::string> files_in(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        names.insert(entry.path().filename().string());
    return names;
}

// Returns the floats 0, 1, 2, ...
Tensor counted(std::int64_t bytes) { return arange(bytes / 4).to(f32); }

nn::StateDict three() { return {{"b", counted(48)}, {"a", counted(16)}, {"c", counted(80)}}; }

}  // namespace

// Weights that share memory are one weight with several names.
// Covers 10.save_model.
TEST(ShardPlan, MatchesHuggingFaceHub) {
    const nlohmann::json recorded = vectors("save_model_shards.json");
    for (const nlohmann::json& c : recorded["cases"]) {
        SCOPED_TRACE(c.dump());
        std::vector<nn::WeightSize> weights;
        for (const nlohmann::json& weight : c["state_dict"])
            weights.push_back({weight[0], weight[1].get<std::int64_t>()});
        for (const nlohmann::json& group : c["shared_storage"])
            for (nn::WeightSize& weight : weights)
                for (const nlohmann::json& name : group)
                    if (name.get<std::string>() == weight.name) weight.memory = &group;
        const nlohmann::json& size = c["max_shard_size"];
        const nn::ShardSize limit = size.is_string() ? nn::ShardSize(size.get<std::string>())
                                                     : nn::ShardSize(size.get<std::int64_t>());
        const nn::ShardPlan plan = nn::plan_shards(weights, limit, c["pattern"].get<std::string>());
        EXPECT_EQ(plan.is_sharded(), c["is_sharded"].get<bool>());
        nlohmann::json files = nlohmann::json::object();
        for (const auto& file : plan.files) files[file.name] = file.weights;
        EXPECT_EQ(files, c["files"]);
        if (plan.is_sharded()) {
            EXPECT_EQ(plan.index(), c["index_text"].get<std::string>());
        }
    }
}

TEST(ShardPlan, PlansOneEmptyFileForNoWeights) {
    const nn::ShardPlan plan = nn::plan_shards({}, "10GB");
    ASSERT_EQ(plan.files.size(), 1u);
    EXPECT_EQ(plan.files[0].name, "model.safetensors");
    EXPECT_TRUE(plan.files[0].weights.empty());
    EXPECT_EQ(plan.total_size, 0);
}

TEST(ShardPlan, RejectsInvalidSizesAndPatterns) {
    expect_error<ValueError>({"max_shard_size", "-1"}, [] { return nn::ShardSize(-1); });
    expect_error<ValueError>({"parse_size_to_int", "'much'"}, [] { return nn::ShardSize("much"); });
    expect_error<ValueError>({"plan_shards", "'model.safetensors'"},
                             [] { return nn::plan_shards({}, 1, "model.safetensors"); });
}

// Covers 10.safetensors.
TEST(SaveWeights, ReplacesOnlyItsOwnFilesAndShards) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    write_file_atomically(folder / "notes.txt", "mine");
    write_file_atomically(folder / "model-00001-of-00002.safetensors.bak", "mine");
    write_file_atomically(folder / "pytorch_model.bin", "mine");
    const std::set<std::string> others = files_in(folder.path());
    const auto expect_files = [&](std::set<std::string> own) {
        own.insert(others.begin(), others.end());
        EXPECT_EQ(files_in(folder.path()), own);
    };
    nn::save_weights(three(), folder.path(), 50);
    expect_files({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                  "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
    nn::save_weights(three(), folder.path(), 70);
    expect_files({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "model.safetensors.index.json"});
    const nn::WeightFiles shards(folder / "model.safetensors.index.json");
    EXPECT_EQ(shards.weights().size(), 3u);
    for (const auto& [name, tensor] : three()) {
        expect_same_bits(shards.weights().at(name).read(), tensor);
        expect_same_bits(shards.weights().at(name).mapped(), tensor);
    }
    nn::save_weights(three(), folder.path(), "1KB");
    expect_files({"model.safetensors"});
    EXPECT_EQ(SafetensorsFile(folder / "model.safetensors").metadata(),
              (Metadata{{"format", "pt"}}));
    nn::save_weights(three(), folder.path(), 70);
    expect_files({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "model.safetensors.index.json"});
    EXPECT_EQ(read_file(folder / "notes.txt"), "mine");
}

TEST(SaveWeights, RejectsMetaTensorsAndAFileAsFolder) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    write_file_atomically(folder / "file", "mine");
    expect_error<FileError>({(folder / "file").c_str(), "is a file"},
                            [&] { nn::save_weights(three(), folder / "file", 50); });
    const nn::init::EmptyWeights without_memory;
    const nn::Linear layer(2, 3);
    expect_error<DeviceError>({"save_weights: weights on the meta device", "weight"},
                              [&] { nn::save_weights(layer.saved_state(), folder / "new", 50); });
    EXPECT_EQ(files_in(folder.path()), (std::set<std::string>{"file"}));
}

TEST(SaveWeights, KeepsOldWeightsWhenAShardCannotBeWritten) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto filled = [](double value) {
        return nn::StateDict{{"small", full({10}, value)}, {"large", full({10'000}, value)}};
    };
    nn::save_weights(filled(1), folder.path(), 40'000);
    const std::set<std::string> before = files_in(folder.path());
    EXPECT_EQ(before.size(), 3u);
    {
        const FullDisk disk(4096);
        expect_error<FileError>(
            {(folder / "model-00002-of-00002.safetensors").c_str(), "File too large"},
            [&] { nn::save_weights(filled(2), folder.path(), 40'000); });
    }
    EXPECT_EQ(files_in(folder.path()), before);
    const nn::WeightFiles files(folder / "model.safetensors.index.json");
    for (const auto& [name, tensor] : filled(1))
        expect_same_bits(files.weights().at(name).read(), tensor);
}

TEST(SaveWeights, RejectsAnUndefinedTensor) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    expect_error<UsageError>({"save_weights: the tensor is undefined: bias"}, [&] {
        nn::save_weights({{"weight", counted(16)}, {"bias", Tensor()}}, folder / "new", 50);
    });
    EXPECT_EQ(folder.count(), 0u);
}

// Covers 10.save_model.
TEST(WeightFiles, ReadFilesAndShardsWrittenByAccelerate) {
    const nn::WeightFiles expected(golden_path("torch_files/safetensors_whole/model.safetensors"));
    EXPECT_EQ(expected.weights().size(), 9u);
    for (const char* file :
         {"safetensors_shards/model.safetensors.index.json", "bin_whole/pytorch_model.bin",
          "bin_shards/pytorch_model.bin.index.json"}) {
        const nn::WeightFiles files(golden_path(str("torch_files/", file)));
        ASSERT_EQ(files.weights().size(), 9u) << file;
        for (const auto& [name, weight] : expected.weights()) {
            expect_same_bits(files.weights().at(name).read(), weight.read());
            expect_same_bits(files.weights().at(name).mapped(), weight.read());
        }
    }
}

TEST(WeightFiles, RejectInvalidFiles) {
    const auto recorded = [](const char* name) {
        return str(AXLE_TESTS_DIR "/fuzz/corpus/torch_file/", name);
    };
    expect_error<FileError>({recorded("plain").c_str(), "'none' is not a weight"},
                            [&] { return nn::WeightFiles(recorded("plain")); });
    const TemporaryFolder folder(FolderStorage::in_memory);
    save_safetensors(folder / "tf.safetensors", three(), {{"format", "tf"}});
    expect_error<FileError>({(folder / "tf.safetensors").c_str(), "expected 'pt': 'tf'"},
                            [&] { return nn::WeightFiles(folder / "tf.safetensors"); });
    const auto refuse_index = [&](const std::string& text, const char* reason) {
        write_file_atomically(folder / "an.index.json", text);
        expect_error<FileError>({(folder / "an.index.json").c_str(), reason},
                                [&] { return nn::WeightFiles(folder / "an.index.json"); });
    };
    refuse_index("{", "line 1");
    refuse_index("{}", "weight_map is missing or not a map");
    refuse_index(R"({"weight_map": {"a": "../model.safetensors"}})", "weight_map: a must name");
    refuse_index(R"({"weight_map": {"a": "model.exe"}})", "weight_map: a must name");
    refuse_index(R"({"weight_map": {"a": 3}})", "weight_map: a must name");
    save_safetensors(folder / "part.safetensors", three(), {{"format", "pt"}});
    refuse_index(R"({"weight_map": {"d": "part.safetensors"}})",
                 "part.safetensors does not contain d");
}

}  // namespace axle::tests
