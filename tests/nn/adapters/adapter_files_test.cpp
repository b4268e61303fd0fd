// Tests adapter folders of user-defined models, and folders that are missing, damaged or do not fit
// the model.
#include <filesystem>
#include <string>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::TemporaryFolder;

struct Net : nn::Model<Net> {
    nn::Linear query{4, 6}, head{6, 3};

    Tensor forward(const Tensor& x) { return head(relu(query(x))); }
    void visit(nn::Visitor& v) override { v("query", query), v("head", head); }
};

Net seeded_net() {
    manual_seed(3);
    return Net();
}
Tensor some_input() {
    return tensor({0.5, -1.0, 2.0, 0.25, 1.5, 0.75, -0.5, 1.0}).reshape({2, 4}).to(f32);
}

// Writes an adapter for `query` with a trained head into a folder and returns its model.
Net write_adapter(const std::string& folder) {
    Net net = seeded_net();
    nn::add_lora(net, {.r = 2, .target_modules = {"query"}, .modules_to_save = {"head"}});
    nn::init::normal_(dynamic_cast<nn::LoraLinear&>(*net.query.policy).lora_B);
    nn::init::normal_(net.head.weight);
    nn::save_adapter(net, folder);
    return net;
}

// Changes an entry of adapter_config.json.
void set_entry(const std::string& folder, const char* name, const Tree& value) {
    const std::string path = folder + "/adapter_config.json";
    Tree config = from_json(read_file(path));
    config.set(name, value);
    write_file_atomically(path, to_json(config));
}

TEST(AdapterFolder, RestoresTheModel) {
    const TemporaryFolder folder;
    Net net = write_adapter(folder / "adapter");
    Net loaded = seeded_net();
    const nn::LoraConfig config = nn::load_adapter(loaded, folder / "adapter");
    EXPECT_EQ(config.r, 2);
    expect_same_bits(loaded(some_input()).detach(), net(some_input()).detach());
    EXPECT_TRUE(nn::trainable_parameters(loaded).empty());
}

TEST(AdapterFolder, IsTrainableOnRequest) {
    const TemporaryFolder folder;
    write_adapter(folder / "adapter");
    Net loaded = seeded_net();
    nn::load_adapter(loaded, folder / "adapter", {.is_trainable = true});
    EXPECT_EQ(nn::trainable_parameters(loaded).size(), 4u);  // two factors, weight and bias
}

TEST(AdapterFolder, IsWrittenByTheMainProcessOnly) {
    const TemporaryFolder folder;
    Net net = seeded_net();
    nn::add_lora(net, {.target_modules = {"query"}});
    nn::save_adapter(net, folder / "adapter", {.is_main_process = false});
    EXPECT_FALSE(std::filesystem::exists(folder / "adapter"));
    nn::save_adapter(net, folder / "adapter");
    EXPECT_TRUE(std::filesystem::exists(folder / "adapter"));
}

TEST(AdapterFolder, LeavesTheModelUnchangedIfItDoesNotFit) {
    const TemporaryFolder folder;
    const auto refuses = [&](const char* file, const char* part, const char* other) {
        Net net = seeded_net();
        net.query.weight.set_requires_grad(false);
        const Tensor y = net(some_input()).detach();
        const std::string path = folder / "adapter/" + file;
        expect_error<FileError>({path.c_str(), part, other},
                                [&] { nn::load_adapter(net, folder / "adapter"); });
        EXPECT_EQ(net.query.policy, nullptr);
        EXPECT_EQ(nn::trainable_parameters(net).size(), 3u);
        expect_same_bits(net(some_input()).detach(), y);
    };
    const std::string adapter = folder / "adapter";
    write_adapter(adapter);
    set_entry(adapter, "r", 1);
    refuses("adapter_model.safetensors", "lora_A.weight", "[2, 4]");

    write_adapter(adapter);
    set_entry(adapter, "r", 2'000'000'000);  // no memory is allocated for this rank
    refuses("adapter_config.json", "query has rank 2000000000", "at most 2 rows");

    write_adapter(adapter);
    set_entry(adapter, "target_modules", Tree::list({"key"}));
    refuses("adapter_config.json", "select no layer", "query, head");

    write_adapter(adapter);
    set_entry(adapter, "target_modules", Tree::list({"query", "head"}));
    set_entry(adapter, "modules_to_save", {});
    refuses("adapter_model.safetensors", "base_model.model.head.lora_A.weight", "missing");

    write_adapter(adapter);
    set_entry(adapter, "modules_to_save", {});
    refuses("adapter_model.safetensors", "base_model.model.head.", "no adapted layer");
}

TEST(AdapterFolder, ReportsUnsupportedAndInvalidEntriesOfTheConfiguration) {
    const TemporaryFolder folder;
    const std::string adapter = folder / "adapter";
    const auto refuses = [&](const char* name, const Tree& value, const char* reason) {
        write_adapter(adapter);
        set_entry(adapter, name, value);
        Net net = seeded_net();
        const std::string path = adapter + "/adapter_config.json";
        expect_error<FileError>({path.c_str(), name, reason},
                                [&] { nn::load_adapter(net, adapter); });
    };
    refuses("peft_type", "IA3", "LORA");
    refuses("use_dora", true, "false");
    refuses("layers_to_transform", Tree::list({1}), "null");
    refuses("init_lora_weights", "pissa", "gaussian");
    refuses("bias", "some", "lora_only");
    refuses("r", "8", "integer");
    refuses("r", std::int64_t{1} << 40, "2^31");
    refuses("target_modules", 3, "list of strings");
    refuses("target_modules", {}, "missing");
    refuses("rank_pattern", Tree::list({2}), "object");
    refuses("rank_pattern", Tree{{"query", 0.5}}, "integer");
    refuses("target_modules", std::string(300, '(') + std::string(300, ')'), "nested");
}

TEST(AdapterFolder, RefusesDamagedFiles) {
    const TemporaryFolder folder;
    const std::string adapter = folder / "adapter";
    write_adapter(adapter);
    write_file_atomically(adapter + "/adapter_config.json", "[1]");
    Net net = seeded_net();
    const std::string config = adapter + "/adapter_config.json";
    expect_error<FileError>({config.c_str(), "JSON object"},
                            [&] { nn::load_adapter(net, adapter); });
    write_adapter(adapter);
    write_file_atomically(adapter + "/adapter_model.safetensors", "not a header");
    const std::string weights = adapter + "/adapter_model.safetensors";
    expect_error<FileError>({weights.c_str(), "safetensors file"},
                            [&] { nn::load_adapter(net, adapter); });
}

TEST(AdapterFolder, IsNotLoadedIntoAModelThatHasAnAdapter) {
    const TemporaryFolder folder;
    Net net = write_adapter(folder / "adapter");
    const Tensor y = net(some_input()).detach();
    expect_error<UsageError>({"add_lora", "already has an adapter"},
                             [&] { nn::load_adapter(net, folder / "adapter"); });
    expect_same_bits(net(some_input()).detach(), y);
    EXPECT_EQ(nn::trainable_parameters(net).size(), 4u);
}

}  // namespace
}  // namespace axle
