#include <locale>
#include <string>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

TEST(SaveSafetensors, RejectsInvalidNamesMetadataAndTensors) {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    const Tensor x = ones({2});
    expect_error<ValueError>({"save_safetensors: duplicate name: 'x'"}, [&] {
        save_safetensors(path, {{"x", x}, {"y", x}, {"x", ones({2}, {i32})}});
    });
    expect_error<ValueError>({"save_safetensors: ", "'__metadata__'"}, [&] {
        save_safetensors(path, {{"__metadata__", x}});
    });
    expect_error<ValueError>({"save_safetensors: names and metadata must be UTF-8: '\\xff'"}, [&] {
        save_safetensors(path, {{"\xff", x}});
    });
    expect_error<ValueError>({"save_safetensors: names and metadata must be UTF-8"}, [&] {
        save_safetensors(path, {{"x", x}}, {{"k", "\xc3"}});
    });
    expect_error<UsageError>({"save_safetensors: ", "undefined", "'x'"}, [&] {
        save_safetensors(path, {{"x", Tensor()}});
    });
    expect_error<DeviceError>({"save_safetensors: ", "meta", "'x'"}, [&] {
        save_safetensors(path, {{"x", empty({2}, {.device = Device::meta()})}});
    });
    expect_error<ValueError>({"save_safetensors: the header must have at most "}, [&] {
        save_safetensors(path, {{"x", x}}, {{"k", std::string(100'000'001, 'v')}});
    });
    EXPECT_EQ(folder.count(), 0u);
}

TEST(SaveSafetensors, ReadsDataOfMetaTensorsInTheOrderOfTheFileAndRejectsOtherShapes) {
    const TemporaryFolder folder;
    const std::string path = folder / "a";
    const Tensor x = arange(6, {f32}).reshape({2, 3}), y = arange(4, {i64});
    const NamedTensors state = {{"x", empty({2, 3}, {.device = Device::meta()})},
                                {"y", empty({4}, {.dtype = i64, .device = Device::meta()})},
                                {"z", ones({2})}};
    std::vector<std::string> read;
    write_file_atomically(path, [&](AtomicFile& file) {
        save_safetensors(file, state, {}, [&](const std::string& name) {
            read.push_back(name);
            return name == "x" ? x : y;
        });
    });
    EXPECT_THAT(read, testing::ElementsAre("y", "x"));  // tensors are read in the order of the file
    const auto loaded = load_safetensors(path).tensors;
    expect_same_bits(loaded.at("x"), x);
    expect_same_bits(loaded.at("y"), y);
    const std::string before = read_file(path);
    expect_error<FileError>({"save_safetensors: 'y' is float32 [2, 3] instead of int64 [4]"}, [&] {
        write_file_atomically(path, [&](AtomicFile& file) {
            save_safetensors(file, state, {}, [&](const std::string&) { return x; });
        });
    });
    EXPECT_EQ(read_file(path), before);
}

TEST(SaveSafetensors, IgnoresHostLocale) {
    struct Grouping : std::numpunct<char> {
        char do_thousands_sep() const override { return '.'; }
        std::string do_grouping() const override { return "\3"; }
    };
    const TemporaryFolder folder;
    const std::locale before = std::locale::global(std::locale(std::locale(), new Grouping));
    save_safetensors(folder / "a", {{"x", zeros({1234})}});
    const Tensor x = load_safetensors(folder / "a").tensors.at("x");
    std::locale::global(before);
    EXPECT_EQ(x.shape(), (Shape{1234}));
}

TEST(SaveSafetensors, KeepsOldFileOnFailure) {
    const TemporaryFolder folder;
    save_safetensors(folder / "a", {{"x", arange(3, {f32})}});
    const std::string before = read_file(folder / "a");
    EXPECT_THROW(save_safetensors(folder / "a", {{"x", Tensor()}}), UsageError);
    expect_error<FileError>({(folder / "no/a").c_str()}, [&] {
        save_safetensors(folder / "no/a", {{"x", ones({1})}});
    });
    EXPECT_EQ(read_file(folder / "a"), before);
    EXPECT_EQ(folder.count(), 1u);
}

}  // namespace
}  // namespace axle::tests
