#include "nn/files/weight_files.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/files/file_system.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/linear.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
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

// Returns the floats 0, 1, 2, ..., which take `bytes` bytes.
Tensor counted(std::int64_t bytes) { return arange(bytes / 4).to(f32); }

// Records the paths that are opened while the object exists.
class OpenedPaths : public FaultyFileSystem {
  public:
    OpenedPaths() : FaultyFileSystem(file_system(), SIZE_MAX, 0) { replace_file_system(this); }
    ~OpenedPaths() override { replace_file_system(nullptr); }
    OpenedPaths(const OpenedPaths&) = delete;
    OpenedPaths& operator=(const OpenedPaths&) = delete;

    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        paths.push_back(name);
        return FaultyFileSystem::open(folder, name, flags, mode);
    }
    std::vector<std::string> paths;
};

// Returns names of shards that must be rejected. They are not a single component of ASCII letters,
// digits, '.', '_' and '-' with a known suffix, or they are hidden or too long.
std::vector<std::string> invalid_shard_names() {
    using namespace std::string_literals;
    return {"",
            ".",
            "..",
            "...",
            "/",
            "model",
            "model.exe",
            "MODEL.SAFETENSORS",
            "model.safetensors.index.json",
            ".bin",
            ".safetensors",
            "..safetensors",
            ".hidden.safetensors",
            "/etc/model.safetensors",
            "//model.safetensors",
            "../model.safetensors",
            "../../model.bin",
            "a/../part.safetensors",
            "a/part.safetensors",
            "./part.safetensors",
            "a//part.safetensors",
            "part.safetensors/",
            "part.safetensors/.",
            "part.safetensors/..",
            "~/part.safetensors",
            "..\\part.safetensors",
            "a\\part.safetensors",
            "C:\\part.safetensors",
            "C:part.safetensors",
            "\\\\host\\share\\part.safetensors",
            "file:///tmp/part.safetensors",
            "https://host/part.safetensors",
            "https:part.safetensors",
            "host:80.safetensors",
            "%2e%2e%2fpart.safetensors",
            "part%00.safetensors",
            "part.exe?x=.safetensors",
            "part#1.safetensors",
            "part\0.safetensors"s,
            "part.safetensors\0"s,
            "part.exe\0.safetensors"s,
            "part\n.safetensors",
            "part\r.safetensors",
            "part\t.safetensors",
            "part\b.bin",
            "part\x1b[31m.safetensors",
            "part\x7f.safetensors",
            " part.safetensors",
            "part .safetensors",
            "part.safetensors ",
            std::string(244, 'a') + ".safetensors",
            std::string(100'000, 'a') + ".safetensors",
            "poid\xc3\xa9.safetensors",                  // the composed form of an accent
            "poide\xcc\x81.safetensors",                 // the decomposed form of the accent
            "\xef\xbc\x8e\xef\xbc\x8fpart.safetensors",  // full-width forms of '.' and '/'
            "part\xe2\x80\x8b.safetensors",              // a zero-width space
            "\xe2\x80\xaepart.safetensors",              // reverses the direction of text
            "$HOME.safetensors",
            "$(id).safetensors",
            "`id`.bin",
            "part;x.bin",
            "part|x.bin",
            "part*.safetensors",
            "'part'.safetensors",
            "{part}.safetensors"};
}

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
    expect_error<FileError>({(folder / "tf.safetensors").c_str(), "must be 'pt': it is 'tf'"},
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

TEST(WeightFiles, RejectInvalidShardNamesBeforeTheyOpenAShard) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string index = folder / "model.safetensors.index.json";
    save_safetensors(folder / "part.safetensors", three(), {{"format", "pt"}});
    std::vector<nlohmann::json> values = {3, nullptr, true, nlohmann::json::array({"a.bin"}),
                                          nlohmann::json::object()};
    for (const std::string& name : invalid_shard_names()) values.emplace_back(name);
    EXPECT_GE(values.size(), 40u);
    for (const nlohmann::json& value : values) {
        SCOPED_TRACE(value.dump().substr(0, 100));
        nlohmann::json text;
        // The index lists a shard with a valid name first. This shard is not opened either.
        text["weight_map"] = {{"a", "part.safetensors"}, {"b", value}};
        write_file_atomically(index, text.dump());
        const OpenedPaths opened;
        expect_error<FileError>({index.c_str(), "weight_map: b must name a .safetensors or .bin"},
                                [&] { return nn::WeightFiles(index); });
        EXPECT_THAT(opened.paths, ElementsAre(index));
    }
}

TEST(WeightFiles, RejectShardsThatAreNotRegularFilesWithoutWaiting) {
    namespace fs = std::filesystem;
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const std::string suffix : {".safetensors", ".bin"}) {
        const auto path = [&](const char* name) { return folder / (name + suffix); };
        ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
        fs::create_directory(path("folder"));
        fs::create_symlink("/dev/zero", path("device"));
        fs::create_symlink(path("pipe"), path("link_to_pipe"));
        fs::create_symlink(path("folder"), path("link_to_folder"));
        fs::create_symlink(path("missing"), path("broken_link"));
        fs::create_symlink(path("loop"), path("loop"));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        for (const char* name : {"pipe", "folder", "device", "link_to_pipe", "link_to_folder",
                                 "broken_link", "loop", "socket", "missing"}) {
            nlohmann::json text;
            text["weight_map"]["a"] = name + suffix;
            write_file_atomically(folder / "an.index.json", text.dump());
            expect_error<FileError>({path(name).c_str()},
                                    [&] { return nn::WeightFiles(folder / "an.index.json"); });
        }
        ::close(socket);
    }
}

// The cache of the Hugging Face Hub has a link for each file of a model.
TEST(WeightFiles, FollowLinksToShards) {
    const TemporaryFolder folder(FolderStorage::in_memory), blobs(FolderStorage::in_memory);
    save_safetensors(blobs / "0123", three(), {{"format", "pt"}});
    std::filesystem::create_symlink(blobs / "0123", folder / "part.safetensors");
    write_file_atomically(folder / "an.index.json", R"({"weight_map": {"a": "part.safetensors"}})");
    const nn::WeightFiles files(folder / "an.index.json");
    expect_same_bits(files.weights().at("a").read(), counted(16));
}

}  // namespace axle::tests
