#include "accel/config/deepspeed_config.h"

#include <string>

#include "core/files/file.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle::accel {
namespace {

using tests::expect_error;

// The text {"zero_optimization": {"stage": 3}} in base64.
constexpr const char* kBase64 = "eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAzfX0=";

DeepSpeedConfig example() {
    return Tree{
        {"train_batch_size", "auto"},
        {"fp16", {{"enabled", false}, {"loss_scale", 0}}},
        {"steps_per_print", 10},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}},
        {"zero_optimization",
         {{"stage", 2}, {"overlap_comm", true}, {"offload_optimizer", {{"device", "cpu"}}}}}};
}

// Covers 15.HfDeepSpeedConfig, 15.hf_ds_config.
TEST(DeepSpeedConfig, ReadsFilesTextAndBase64) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "ds.json";
    write_file_atomically(path, R"({"zero_optimization": {"stage": 2}})");
    const DeepSpeedConfig file(path);
    EXPECT_TRUE(file.is_zero2());
    EXPECT_TRUE(file.is_from_file());
    EXPECT_EQ(file.source(), "'" + path + "'");
    EXPECT_TRUE(DeepSpeedConfig(R"( {"zero_optimization": {"stage": 3}})").is_zero3());
    EXPECT_TRUE(DeepSpeedConfig(kBase64).is_zero3());
    const std::string unpadded(kBase64, std::string(kBase64).size() - 1);
    EXPECT_TRUE(DeepSpeedConfig(unpadded).is_zero3());
    // The base64 text of {"a": "?>?~"} contains characters that differ between the standard and the
    // URL-safe alphabet.
    EXPECT_EQ(DeepSpeedConfig("eyJhIjogIj8+P34ifQ==").get_value("a").string(), "?>?~");
    EXPECT_EQ(DeepSpeedConfig("eyJhIjogIj8-P34ifQ").get_value("a").string(), "?>?~");
    EXPECT_TRUE(DeepSpeedConfig("none").empty());
    EXPECT_TRUE(DeepSpeedConfig("").empty());
}

// Covers 15.HfDeepSpeedConfig.
TEST(DeepSpeedConfig, RejectsInvalidTextAndReportsTheFile) {
    const tests::TemporaryFolder folder;
    const std::string path = folder / "ds.json";
    write_file_atomically(path, "{\"stage\": 2,}");
    expect_error<ValueError>({("'" + path + "': ").c_str(), "from_json"},
                             [&] { DeepSpeedConfig{path}; });
    write_file_atomically(path, "[2]");
    expect_error<ValueError>(
        {("'" + path + "': a DeepSpeed configuration must be a JSON object").c_str()},
        [&] { DeepSpeedConfig{path}; });
    write_file_atomically(path, std::string(kMaxDeepSpeedConfig + 1, ' '));
    expect_error<FileError>({path.c_str()}, [&] { DeepSpeedConfig{path}; });
    expect_error<ValueError>(
        {"DeepSpeedConfig: expected the path of an existing JSON file, JSON text", "'ds.json'"},
        [] { DeepSpeedConfig("ds.json"); });
    EXPECT_THROW(DeepSpeedConfig("W10="), ValueError);  // [] in base64
    EXPECT_THROW(DeepSpeedConfig("eyJhI"), ValueError);
    expect_error<ValueError>({"the DeepSpeed configuration: from_json"},
                             [] { DeepSpeedConfig("{\"a\""); });
    expect_error<ValueError>({"DeepSpeedConfig: the configuration must have at most"}, [] {
        DeepSpeedConfig(std::string(static_cast<std::size_t>(kMaxDeepSpeedConfig) * 2, 'A'));
    });
    expect_error<ValueError>({"DeepSpeedConfig: the configuration must be a map"},
                             [] { DeepSpeedConfig(Tree::list({1})); });
}

// Covers 15.HfDeepSpeedConfig.
TEST(DeepSpeedConfig, FindsSetsAndDeletesValuesByDottedNames) {
    DeepSpeedConfig config = example();
    EXPECT_EQ(config.get_value("zero_optimization.offload_optimizer.device").string(), "cpu");
    EXPECT_EQ(config.get_value("steps_per_print").integer(), 10);
    EXPECT_TRUE(config.get_value("zero_optimization.stage.more").is_null());
    EXPECT_EQ(config.get_value("bf16.enabled", true).boolean(), true);
    const auto [section, key] = config.find_config_node("fp16.loss_scale");
    ASSERT_NE(section, nullptr);
    EXPECT_EQ(key, "loss_scale");
    EXPECT_EQ((*section)[key].integer(), 0);
    EXPECT_EQ(config.find_config_node("bf16.enabled").first, nullptr);
    EXPECT_EQ(config.find_config_node("steps_per_print.a").first, nullptr);
    config.set("a.b.c", 1);
    EXPECT_EQ(config.get_value("a.b.c").integer(), 1);
    expect_error<ValueError>({"the DeepSpeed configuration: steps_per_print.a: steps_per_print "
                              "must be a map"},
                             [&] { config.set("steps_per_print.a", 1); });
    config.del_config_sub_tree("a.b");
    EXPECT_EQ(config.find("a.b"), nullptr);
    EXPECT_NO_THROW(config.del_config_sub_tree("a.b"));
    expect_error<ValueError>(
        {"the DeepSpeed configuration: del_config_sub_tree: the key to delete is missing: a.b"},
        [&] { config.del_config_sub_tree("a.b", true); });
}

// Covers 15.HfDeepSpeedConfig.
TEST(DeepSpeedConfig, DetectsZeroStageAndOffloadingAndConvertsValuesToBool) {
    DeepSpeedConfig config = example();
    EXPECT_TRUE(config.is_true("zero_optimization.overlap_comm"));
    EXPECT_FALSE(config.is_false("zero_optimization.overlap_comm"));
    EXPECT_TRUE(config.is_false("fp16.enabled"));
    EXPECT_TRUE(config.is_false("fp16.loss_scale"));
    EXPECT_TRUE(config.is_true("train_batch_size"));
    EXPECT_FALSE(config.is_true("missing"));
    EXPECT_FALSE(config.is_false("missing"));
    EXPECT_TRUE(config.is_auto("optimizer.params.lr"));
    EXPECT_TRUE(config.is_zero2());
    EXPECT_FALSE(config.is_zero3());
    EXPECT_TRUE(config.is_offload());
    config.set("zero_optimization.stage", 1);
    EXPECT_FALSE(config.is_offload());
    EXPECT_FALSE(config.is_zero2());
    config.set("zero_optimization.stage", 3);
    EXPECT_TRUE(config.is_zero3());
    config.set("zero_optimization.offload_optimizer.device", "none");
    EXPECT_FALSE(config.is_offload());
    config.set("zero_optimization.offload_param.device", "nvme");
    EXPECT_TRUE(config.is_offload());
}

// Covers 15.hf_ds_config, 15.HfDeepSpeedConfig.
TEST(DeepSpeedConfig, FillsAutoValuesAndListsMismatches) {
    DeepSpeedConfig config = example();
    const Tree values = {{"train_batch_size", 8},
                         {"optimizer.params.lr", 0.5},
                         {"steps_per_print", 20},
                         {"zero_optimization.stage", 3},
                         {"unused", 1}};
    expect_error<ValueError>(
        {"the DeepSpeed configuration: these values differ from the values of the program",
         "\n- steps_per_print is 10, but the program uses 20",
         "\n- zero_optimization.stage is 2, but the program uses 3"},
        [&] { DeepSpeedConfig(config).deepspeed_config_process(values); });
    config.deepspeed_config_process(values, false);
    EXPECT_EQ(config.get_value("train_batch_size").integer(), 8);
    EXPECT_EQ(config.get_value("optimizer.params.lr").number(), 0.5);
    EXPECT_EQ(config.get_value("steps_per_print").integer(), 10);
    EXPECT_EQ(config.find("unused"), nullptr);
    EXPECT_NO_THROW(config.deepspeed_config_process({{"steps_per_print", 10.0}}));
    expect_error<ValueError>(
        {"the DeepSpeed configuration: optimizer.params.lr: 'auto' cannot be replaced"}, [] {
            example().deepspeed_config_process({{"train_batch_size", 8}}, false);
        });
}

// Covers 15.HfDeepSpeedConfig.
TEST(DeepSpeedConfig, FillsOneAutoValueOrReportsAMismatch) {
    DeepSpeedConfig config = example();
    std::vector<std::string> mismatches;
    const Tree values = {{"train_batch_size", 8}, {"steps_per_print", 20}, {"missing", 1}};
    config.fill_match("train_batch_size", values, mismatches);
    config.fill_match("missing", values, mismatches);
    EXPECT_TRUE(mismatches.empty());
    EXPECT_EQ(config.get_value("train_batch_size").integer(), 8);
    EXPECT_EQ(config.find("missing"), nullptr);
    config.fill_match("steps_per_print", values);
    EXPECT_EQ(config.get_value("steps_per_print").integer(), 10);
    config.fill_match("steps_per_print", values, mismatches);
    EXPECT_EQ(mismatches.size(), 1u);
    EXPECT_THROW(config.fill_match("optimizer.params.lr", values), ValueError);
}

// The first key is long and has many values below it. Code that builds the dotted name of each
// value would need minutes.
TEST(DeepSpeedConfig, AcceptsManyValuesBelowALongKey) {
    std::string text = "{\"" + std::string(300000, 'k') + "\": {\"s\": 0";
    for (int i = 0; i < 50000; ++i) text += ",\"" + std::to_string(i) + "\":\"\"";
    DeepSpeedConfig config(text + "}}");
    EXPECT_NO_THROW(config.deepspeed_config_process({{"s", 1}}));
}

}  // namespace
}  // namespace axle::accel
