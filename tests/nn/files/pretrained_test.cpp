// Tests saving and loading user-defined modules as Hugging Face Hub folders.
#include "nn/files/pretrained.h"

#include <filesystem>
#include <string>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "nn/models/gpt.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using tests::expect_error;
using tests::TemporaryFolder;

struct TinyNet : nn::Model<TinyNet> {
    nn::Linear in, out;
    explicit TinyNet(std::int64_t width)
        : in(2, width, {.bias = false}), out(2, width, {.bias = false}) {
        out.weight = in.weight;
    }
    Tensor forward(const Tensor& x) { return out(x) + in(x); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out); }
};

const Tree kConfig{{"model_type", "tiny"}, {"width", 8}};

// Covers 10.save_pretrained, 10.torch.load, 32.push_to_hub, 10.from_pretrained.
TEST(Pretrained, RoundTripsAUserDefinedModuleAndRejectsDifferentShapes) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const TinyNet net(8);
    for (const nn::ShardSize size : {nn::ShardSize("50GB"), nn::ShardSize(16)}) {
        nn::save_pretrained(net, "TinyNet", kConfig, folder / "out", {.max_shard_size = size});
        const Tree config = nn::pretrained_config(folder / "out");
        EXPECT_EQ(config["architectures"][0].string(), "TinyNet");
        EXPECT_EQ(config["torch_dtype"].string(), "float32");
        TinyNet again(config["width"].integer());
        nn::load_pretrained(again, folder / "out");
        tests::expect_same_bits(again.in.weight, net.in.weight);
        EXPECT_TRUE(again.out.weight.is_same(again.in.weight));
        const SafetensorsFile file(folder / "out/model.safetensors");
        EXPECT_EQ(file.entries().size(), 1u);  // the tied weight is stored once
        EXPECT_EQ(file.metadata().at("format"), "pt");
    }
    TinyNet wider(9);
    const std::string weights = folder / "out/model.safetensors";
    expect_error<FileError>({weights.c_str(), "[9, 2]"},
                            [&] { nn::load_pretrained(wider, folder / "out"); });
}

// Covers 32.push_to_hub.
TEST(Pretrained, WritesAGivenModelCardOrADefaultOneIfNoneExists) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string card = folder / "README.md";
    const auto save = [&](const nn::SavePretrainedOptions& options = {}) {
        nn::save_pretrained(TinyNet(8), "TinyNet", kConfig, folder.path(), options);
        return read_file(card);
    };
    EXPECT_THAT(save(), HasSubstr("---\nlibrary_name: axle\ntags:\n- axle\n---\n"));
    EXPECT_THAT(save(), HasSubstr("# TinyNet\n\n16 parameters"));
    write_file_atomically(card, "# mine\n");
    EXPECT_EQ(save(), "# mine\n");
    EXPECT_EQ(save({.model_card = "# new\n"}), "# new\n");
    nn::Gpt({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 4})
        .save_pretrained(folder / "gpt");
    EXPECT_THAT(read_file(folder / "gpt/README.md"), HasSubstr("library_name: transformers"));
}

// Covers 32.push_to_hub.
TEST(Pretrained, WritesShardsOnTheMainProcessOnly) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const nn::Gpt gpt({.vocab_size = 5, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 4});
    gpt.save_pretrained(folder / "gpt", {.is_main_process = false});
    EXPECT_FALSE(fs::exists(folder / "gpt"));
    gpt.save_pretrained(folder / "gpt", {.max_shard_size = 64});
    EXPECT_TRUE(fs::exists(folder / "gpt/model.safetensors.index.json"));
    EXPECT_EQ(nn::Gpt::from_pretrained(folder / "gpt").num_parameters(), gpt.num_parameters());
}

TEST(Pretrained, ReportsMissingFilesAndInvalidConfigurations) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    TinyNet net(8);
    expect_error<FileError>({(folder / "config.json").c_str()},
                            [&] { nn::pretrained_config(folder.path()); });
    write_file_atomically(folder / "config.json", "{");
    expect_error<FileError>({(folder / "config.json").c_str()},
                            [&] { nn::pretrained_config(folder.path()); });
    write_file_atomically(folder / "config.json", "{}");
    expect_error<FileError>({(folder / "model.safetensors").c_str()},
                            [&] { nn::load_pretrained(net, folder.path()); });
    expect_error<ValueError>({"save_pretrained: config must be a map"},
                             [&] { nn::save_pretrained(net, "TinyNet", Tree(3), folder / "x"); });
    EXPECT_FALSE(fs::exists(folder / "x"));
}

}  // namespace
}  // namespace axle
