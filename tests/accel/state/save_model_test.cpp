#include "accel/state/save_model.h"

#include <filesystem>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/norm.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/log_capture.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string recorded(const std::string& name) {
    return AXLE_TESTS_DIR "/golden/torch_files/" + name;
}

// The model that tests/golden/record_torch_files.py records.
struct ModelForTest : nn::Model<ModelForTest> {
    nn::Linear linear1{3, 4};
    nn::BatchNorm1d batchnorm{4};
    nn::Linear linear2{4, 5};
    Tensor forward(const Tensor& x) { return linear2(batchnorm(linear1(x))); }
    void visit(nn::Visitor& v) override {
        v("linear1", linear1), v("batchnorm", batchnorm), v("linear2", linear2);
    }
};

void expect_recorded(const ModelForTest& model) {
    double next = 0;
    for (const auto& [name, tensor] : model.state_dict())
        for (const double value : tensor.to_vector()) {
            EXPECT_EQ(value, tensor.dtype() == i64 ? 7 : next) << name;
            if (tensor.dtype() != i64) next += 1.0 / 8;
        }
}

struct TiedNet : nn::Model<TiedNet> {
    nn::Linear embedding{3, 4, {.bias = false}}, hidden{3, 4}, head{3, 4, {.bias = false}};
    TiedNet() { head.weight = embedding.weight; }
    Tensor forward(const Tensor& x) { return head(x); }
    void visit(nn::Visitor& v) override {
        v("embedding", embedding), v("hidden", hidden), v("head", head);
    }
};

std::size_t count_files(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                  std::filesystem::directory_iterator()));
}

}  // namespace

// Covers 3.save_model, 3.get_state_dict.
TEST(SaveModel, WritesFilesThatModelsCanLoad) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::Accelerator accelerator({.cpu = true});
    ModelForTest model;
    model.batchnorm.num_batches_tracked.fill_(3);
    accelerator.prepare(model);
    for (const nn::ShardSize size : {nn::ShardSize("10GB"), nn::ShardSize(100)}) {
        accelerator.save_model(model, folder / "model", {.max_shard_size = size});
        ModelForTest other;
        const nn::LoadReport report =
            accel::load_checkpoint_in_model(other, folder / "model", {.strict = true});
        EXPECT_THAT(report.missing, IsEmpty());
        const nn::StateDict expected = accelerator.get_state_dict(model);
        const nn::StateDict actual = other.state_dict();
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i)
            expect_same_bits(actual[i].second, expected[i].second);
    }
    EXPECT_EQ(count_files(folder / "model"), 4u);
}

// Covers 3.save_model.
TEST(SaveModel, WritesATiedWeightOnceUnderItsFirstName) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::Accelerator accelerator({.cpu = true});
    TiedNet net;
    accelerator.save_model(net, folder.path());
    const SafetensorsFile file(folder / "model.safetensors");
    EXPECT_TRUE(file.contains("embedding.weight"));
    EXPECT_FALSE(file.contains("head.weight"));
    TiedNet other;
    accel::load_checkpoint_in_model(other, folder.path(), {.strict = true});
    expect_same_bits(other.head.weight, net.embedding.weight);
}

// Covers 3.save_model.
TEST(SaveModel, WritesOnlyOnTheMainProcess) {
    for (const int size : {1, 2}) {
        const TemporaryFolder folder(FolderStorage::in_memory);
        on_ranks(size, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            SmallNet net;
            for (const Tensor& p : net.parameters()) Tensor(p.detach()).fill_(group->rank());
            accel::Accelerator accelerator({.cpu = true, .process_group = group});
            const std::string own = folder / str("rank", group->rank());
            accelerator.save_model(net, own, {.max_shard_size = 64});
            accelerator.save(Tree{{"rank", group->rank()}}, own + ".json");
            accelerator.wait_for_everyone();
            SmallNet loaded;
            accel::load_checkpoint_in_model(loaded, folder / "rank0", {.strict = true});
            for (const Tensor& p : loaded.parameters())
                for (const double value : p.to_vector()) EXPECT_EQ(value, 0);
        });
        EXPECT_TRUE(std::filesystem::exists(folder / "rank0/model.safetensors.index.json"));
        EXPECT_EQ(folder.count(), 2u);
    }
}

// Covers 10.save_on_each_node, 31.save.
TEST(IsSavingProcess, IsTrueOnTheMainProcessOfTheJobOrOfEachMachine) {
    EXPECT_TRUE(accel::is_saving_process(accel::PartialState({.cpu = true}), false));
    EXPECT_TRUE(accel::is_saving_process(accel::PartialState({.cpu = true}), true));
    on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        const accel::PartialState state({.cpu = true, .process_group = group});
        EXPECT_EQ(accel::is_saving_process(state, false), group->rank() == 0);
        EXPECT_EQ(accel::is_saving_process(state, true), state.is_local_main_process());
    });
}

// Covers 3.save_model.
TEST(SaveModel, RejectsUnsafeSerializationMetaWeightsAndAFileAsFolder) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    write_file_atomically(folder / "file", "mine");
    accel::Accelerator accelerator({.cpu = true});
    SmallNet net;
    expect_error<UsageError>({"save_model", "safe_serialization"}, [&] {
        accelerator.save_model(net, folder / "new", {.safe_serialization = false});
    });
    expect_error<FileError>({(folder / "file").c_str(), "is a file"},
                            [&] { accelerator.save_model(net, folder / "file"); });
    const nn::init::EmptyWeights without_memory;
    expect_error<DeviceError>({"save_weights", "in.weight"},
                              [&] { accelerator.save_model(SmallNet(), folder / "new"); });
    EXPECT_EQ(folder.count(), 1u);
}

// Covers 3.load_checkpoint_in_model, 10.torch.load.
TEST(LoadCheckpointInModel, ReadsSafetensorsAndPyTorchFilesIndicesAndFolders) {
    for (const char* path :
         {"safetensors_whole", "safetensors_whole/model.safetensors", "safetensors_shards",
          "safetensors_shards/model.safetensors.index.json", "bin_whole",
          "bin_whole/pytorch_model.bin", "bin_shards", "bin_shards/pytorch_model.bin.index.json"}) {
        SCOPED_TRACE(path);
        ModelForTest model;
        const LogCapture logged;
        accel::load_checkpoint_in_model(model, recorded(path), {.strict = true});
        expect_recorded(model);
    }
}

// Covers 3.load_checkpoint_in_model.
TEST(LoadCheckpointInModel, PrefersThePyTorchFileAndRejectsIncompleteOrAmbiguousFolders) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto add = [&](const char* from, const char* to) {
        write_file_atomically(folder / to, read_file(recorded(from)));
    };
    ModelForTest model;
    const auto load = [&] { accel::load_checkpoint_in_model(model, folder.path()); };
    expect_error<FileError>({folder.path().c_str(), "contains neither pytorch_model.bin nor"},
                            load);
    write_file_atomically(folder / "a.index.json", "{}");
    expect_error<FileError>({(folder / "a.index.json").c_str(), "weight_map"}, load);
    write_file_atomically(folder / "b.index.json", "{}");
    expect_error<ValueError>({"load_checkpoint_in_model", "keep only one of them"}, load);
    add("safetensors_whole/model.safetensors", "model.safetensors");
    load();
    expect_recorded(model);
    write_file_atomically(folder / "pytorch_model.bin", "damaged");
    expect_error<FileError>({(folder / "pytorch_model.bin").c_str(), "zip"}, load);
}

// Covers 3.load_checkpoint_in_model.
TEST(LoadCheckpointInModel, WarnsAboutMissingAndUnexpectedNamesUnlessStrict) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "model.safetensors";
    SmallNet net;
    const Tensor before = net.out.bias.detach().clone();
    nn::StateDict state = net.state_dict();
    state.pop_back();
    state.emplace_back("more", ones({2}));
    save_safetensors(path, state, {{"format", "pt"}});
    {
        LogCapture logged;
        const nn::LoadReport report = accel::load_checkpoint_in_model(net, path);
        EXPECT_THAT(report.unexpected, ElementsAre("more"));
        EXPECT_THAT(report.missing, ElementsAre("out.bias"));
        EXPECT_THAT(
            logged.lines(),
            ElementsAre(AllOf(HasSubstr(path), HasSubstr("1 of 4 weights of the checkpoint"),
                              HasSubstr(": more")),
                        AllOf(HasSubstr(path), HasSubstr("1 of 4 weights of the model"),
                              HasSubstr(": out.bias"))));
    }
    expect_same_bits(net.out.bias, before);
    expect_error<FileError>({path.c_str(), "missing: out.bias", "unexpected: more"},
                            [&] { accel::load_checkpoint_in_model(net, path, {.strict = true}); });
}

// Covers 3.load_checkpoint_in_model.
TEST(LoadCheckpointInModel, ThrowsWhenNoNameMatches) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "model.safetensors";
    SmallNet net;
    nn::StateDict prefixed;
    for (const auto& [name, tensor] : net.state_dict())
        prefixed.emplace_back("net." + name, tensor);
    save_safetensors(path, prefixed, {{"format", "pt"}});
    for (const bool strict : {false, true})
        expect_error<FileError>(
            {"load_checkpoint_in_model", path.c_str(), "none of the model's 4 weights",
             "the model has in.weight", "the checkpoint has net.in.bias", "rename"},
            [&] { accel::load_checkpoint_in_model(net, path, {.strict = strict}); });
    save_safetensors(path, nn::StateDict{}, {{"format", "pt"}});
    expect_error<FileError>({"load_checkpoint_in_model", path.c_str(), "the checkpoint's 0"},
                            [&] { accel::load_checkpoint_in_model(net, path); });
}

TEST(LoadCheckpointInModel, ChangesNothingIfAShapeDiffers) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    SmallNet net;
    nn::StateDict state = {{"in.weight", zeros({8, 4})}, {"out.weight", zeros({1, 9})}};
    save_safetensors(folder / "model.safetensors", state, {{"format", "pt"}});
    const Tensor before = net.in.weight.detach().clone();
    expect_error<FileError>(
        {(folder / "model.safetensors").c_str(), "out.weight is [1, 8] in the module and [1, 9]"},
        [&] { accel::load_checkpoint_in_model(net, folder.path()); });
    expect_same_bits(net.in.weight, before);
}

TEST(LoadCheckpointInModel, ChangesNothingIfAStorageDTypeCannotBeConverted) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "model.safetensors";
    SmallNet net, on_meta;
    on_meta.to(Device::meta());
    const Tensor before = net.in.weight.detach().clone();
    for (const DType dtype : {DType::i8, DType::f8_e4m3}) {
        save_safetensors(path,
                         nn::StateDict{{"in.weight", zeros({8, 4})},
                                       {"out.weight", empty({1, 8}, {.dtype = dtype})}},
                         {{"format", "pt"}});
        for (SmallNet* model : {&net, &on_meta})
            expect_error<FileError>(
                {path.c_str(), "out.weight is float32 in the module", "can't be converted"},
                [&] { accel::load_checkpoint_in_model(*model, folder.path()); });
        expect_same_bits(net.in.weight, before);
        EXPECT_TRUE(on_meta.in.weight.device().is_meta());
    }
}

// Covers 3.load_checkpoint_in_model.
TEST(LoadCheckpointInModel, ConvertsToTheGivenDTypeAndRejectsAnUnknownDevice) {
    ModelForTest model;
    accel::LoadCheckpointOptions options{.device_map = {{"", "cpu:0"}}, .dtype = f64};
    const auto load = [&] {
        accel::load_checkpoint_in_model(model, recorded("bin_whole"), options);
    };
    expect_error<ValueError>({"device: expected cpu", "'cpu:0'"}, load);
    EXPECT_EQ(model.linear1.weight.dtype(), f32);
    options.device_map[""] = "cpu";  // GPUs are tested in tests/cuda/device_option_test.cpp
    load();
    expect_recorded(model);
    EXPECT_EQ(model.linear1.weight.dtype(), f64);
    EXPECT_EQ(model.batchnorm.running_mean.dtype(), f64);
    EXPECT_EQ(model.batchnorm.num_batches_tracked.dtype(), i64);
}

TEST(LoadCheckpointInModel, DoesNotRoundToTheDTypeOfTheModelIfADTypeIsGiven) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const Tensor values = tensor({1.0 / 3, 0.1, 1e-9, 3e30}, {4}, {.dtype = f64});
    save_safetensors(folder / "model.safetensors", nn::StateDict{{"linear1.bias", values}},
                     {{"format", "pt"}});
    ModelForTest model;
    model.to(bf16);
    const LogCapture logged;
    accel::load_checkpoint_in_model(model, folder.path(), {.dtype = f64});
    expect_same_bits(model.linear1.bias, values);
}

// Covers 30.12.
TEST(LoadCheckpointInModel, LoadsAMetaModel) {
    for (const char* folder : {"bin_whole", "safetensors_shards"}) {
        const auto model = [] {
            const nn::init::EmptyWeights without_memory;
            return std::make_unique<ModelForTest>();
        }();
        accel::load_checkpoint_in_model(*model, recorded(folder), {.strict = true});
        expect_recorded(*model);
    }
}

TEST(LoadCheckpointInModel, RejectsUnsupportedOptions) {
    ModelForTest model;
    const auto refused = [&](const char* name, const accel::LoadCheckpointOptions& options) {
        expect_error<UsageError>({"load_checkpoint_in_model", name}, [&] {
            accel::load_checkpoint_in_model(model, recorded("bin_whole"), options);
        });
    };
    refused("device_map with names of modules", {.device_map = {{"linear1", "cpu"}}});
    refused("device_map with names of modules", {.device_map = {{"", "cpu"}, {"linear1", "cpu"}}});
    refused("device_map with offloaded weights", {.device_map = {{"", "disk"}}});
    refused("offload_folder", {.offload_folder = "offload"});
    refused("offload_state_dict", {.offload_state_dict = true});
    refused("offload_buffers", {.offload_buffers = true});
    refused("keep_in_fp32_modules", {.keep_in_fp32_modules = {"norm"}});
    refused("offload_8bit_bnb", {.offload_8bit_bnb = true});
    refused("full_state_dict", {.full_state_dict = false});
    refused("broadcast_from_rank0", {.broadcast_from_rank0 = true});
}

// Covers 29.clean_state_dict_for_safetensors.
TEST(CleanStateDict, KeepsTheFirstNameOfSharedTensors) {
    TiedNet net;
    const Tensor base = zeros({4, 3});
    nn::StateDict state = net.state_dict();
    state.emplace_back("top", base.narrow(0, 0, 2));
    state.emplace_back("bottom", base.narrow(0, 2, 2));
    state.emplace_back("top again", base.narrow(0, 0, 2));
    LogCapture logged;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : accel::clean_state_dict_for_safetensors(state))
        names.push_back(name);
    EXPECT_THAT(names,
                ElementsAre("embedding.weight", "hidden.weight", "hidden.bias", "top", "bottom"));
    EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("head.weight, top again")));
}

// Covers 3.save, 10.safetensors, 13.load, 13.save.
TEST(Save, WritesTensorsAsSafetensorsOtherValuesAsJsonAndRejectsMixtures) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::Accelerator accelerator({.cpu = true});
    SmallNet net;
    accelerator.save(net.state_dict(), folder / "state.safetensors");
    EXPECT_EQ(SafetensorsFile(folder / "state.safetensors").metadata().at("format"), "pt");
    expect_same_bits(accel::load(folder / "state.safetensors")["in.weight"].tensor(),
                     net.in.weight);
    accelerator.save(Tree{{"x", ones({2})}}, folder / "map.safetensors");
    EXPECT_EQ(accel::load(folder / "map.safetensors")["x"].tensor().to_vector(),
              (std::vector<double>{1, 1}));
    const Tree plain{{"epoch", 3}, {"seen", Tree::list({1, "two"})}};
    accel::save(plain, folder / "plain.json");
    EXPECT_EQ(to_json(accel::load(folder / "plain.json")), to_json(plain));
    expect_error<ValueError>({"save", "must be a map of tensors or contain no tensors"}, [&] {
        accelerator.save(Tree{{"x", ones({2})}, {"epoch", 3}}, folder / "mixed");
    });
    expect_error<ValueError>({"save", "'x' is not a tensor"}, [&] {
        accelerator.save(Tree{{"x", {{"y", ones({2})}}}}, folder / "nested");
    });
    EXPECT_EQ(folder.count(), 3u);
}

// Covers 3.save, 13.load.
TEST(Save, WritesFilesThatLoadCanReadIfTheSuffixIsNotSafetensors) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::Accelerator accelerator({.cpu = true});
    for (const char* name : {"array.pkl", "array.bin", "array"}) {
        accelerator.save(Tree{{"x", ones({2})}}, folder / name);
        EXPECT_EQ(accel::load(folder / name)["x"].tensor().to_vector(), std::vector<double>(2, 1));
    }
    const Tree long_list = Tree::list({Tree("a long text"), 1.5});
    for (const Tree& value : {Tree{{"epoch", 3}}, long_list, Tree("text"), Tree(-7), Tree(true)}) {
        accelerator.save(value, folder / "value.pkl");
        EXPECT_EQ(to_json(accel::load(folder / "value.pkl")), to_json(value));
    }
}

TEST(Save, RejectsAnUndefinedTensor) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    accel::Accelerator accelerator({.cpu = true});
    expect_error<UsageError>({"save: the tensor is undefined: bias"}, [&] {
        accelerator.save(nn::StateDict{{"weight", ones({2})}, {"bias", Tensor()}},
                         folder / "state.safetensors");
    });
    EXPECT_EQ(folder.count(), 0u);
}

TEST(Load, ReadsPyTorchFilesAndReportsDamagedAndMissingFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    EXPECT_EQ(accel::load(recorded("bin_whole/pytorch_model.bin")).size(), 9u);
    write_file_atomically(folder / "bad.json", "{");
    for (const char* file : {"bad.json", "missing.safetensors", "missing.pt"})
        expect_error<FileError>({(folder / file).c_str()},
                                [&] { return accel::load(folder / file); });
}

}  // namespace axle::tests
