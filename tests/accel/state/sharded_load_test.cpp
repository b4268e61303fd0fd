// Tests loading of a state that processes have saved in parts: the bytes that each process reads,
// and the errors for parts that are damaged, missing or too short.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "tests/accel/prepare/sharded_run.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using tests::at;
using tests::expect_error;
using tests::expect_same_bits;
using tests::Group;
using tests::on_group;
using tests::on_ranks;
using tests::TemporaryFolder;

thread_local int reading_rank = 0;  // the rank that runs on this thread

// Records which parts each rank reads. A part is the file of the rank that saved it.
class RecordingFileSystem final : public tests::FaultyFileSystem {
  public:
    // The bytes that a rank has read from a file, and whether it has mapped the file.
    struct Use {
        std::int64_t bytes = 0;
        bool is_mapped = false;
    };

    RecordingFileSystem() : FaultyFileSystem(file_system(), SIZE_MAX, 0) {}

    // Returns the parts that a rank has read, by the number in their names.
    std::map<int, Use> uses(int rank) const { return uses_.at(rank); }

    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        const std::lock_guard lock(mutex_);
        const int file = FaultyFileSystem::open(folder, name, flags, mode);
        const std::size_t begin = name.find("rank_");
        if (file >= 0 && begin != std::string::npos && name.ends_with(".safetensors"))
            parts_[file] = std::stoi(name.substr(begin + 5));
        return file;
    }
    int close(int file) override {
        const std::lock_guard lock(mutex_);
        parts_.erase(file);
        return FaultyFileSystem::close(file);
    }
    std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) override {
        const std::int64_t n = FaultyFileSystem::read(file, offset, bytes);
        const std::lock_guard lock(mutex_);
        if (parts_.contains(file)) uses_[reading_rank][parts_[file]].bytes += n;
        return n;
    }
    int map(int file, std::size_t size, void*& memory) override {
        const std::lock_guard lock(mutex_);
        if (parts_.contains(file)) uses_[reading_rank][parts_[file]].is_mapped = true;
        return FaultyFileSystem::map(file, size, memory);
    }

  private:
    mutable std::mutex mutex_;
    std::map<int, int> parts_;  // the number of the part of each descriptor
    std::map<int, std::map<int, Use>> uses_;
};

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kBytes = 4 * kWidth * (kWidth + 1);  // size of the model in f32
constexpr std::int64_t kBlock = std::int64_t{1} << 20;      // size of the block of a checksum

nn::Linear large_layer(std::uint64_t seed) {
    manual_seed(seed);
    return nn::Linear(kWidth, kWidth);
}

accel::AcceleratorOptions sharding(const Group& group) {
    return on_group(
        group,
        {.fsdp_plugin = {{.state_dict_type = "SHARDED_STATE_DICT", .sync_module_states = true}}});
}

// Saves a layer of 4 MiB on four ranks, in parts of a little more than 1 MiB.
void save_layer(const std::string& path) {
    std::vector<nn::Linear> layers;
    for (int rank = 0; rank < 4; ++rank) layers.push_back(large_layer(1));
    on_ranks(4, [&](const Group& group) {
        accel::Accelerator accelerator(sharding(group));
        accelerator.prepare(layers[at(group)]);
        accelerator.save_state(path);
    });
}

// Calls f(accelerator, layer, group) on ranks whose layers have other values than the saved layer.
template <class F>
void load_layer(int ranks, F&& f) {
    std::vector<nn::Linear> layers;
    for (int rank = 0; rank < ranks; ++rank) layers.push_back(large_layer(2));
    on_ranks(ranks, [&](const Group& group) {
        reading_rank = group->rank();
        accel::Accelerator accelerator(sharding(group));
        accelerator.prepare(layers[at(group)]);
        f(accelerator, layers[at(group)], group);
    });
}

// Covers 14.state_dict_type.
TEST(ShardedLoad, ReadsOnlyTheBlocksThatEachRankNeeds) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string path = folder / "state";
    save_layer(path);
    const nn::Linear saved = large_layer(1);
    for (const int ranks : {4, 3, 2, 1}) {
        SCOPED_TRACE(ranks);
        RecordingFileSystem files;
        const tests::ReplacedFileSystem replaced(files);
        load_layer(ranks, [&](accel::Accelerator& accelerator, nn::Linear& layer, const Group&) {
            accelerator.load_state(path);
            const dist::FullParameters full(layer);
            expect_same_bits(layer.weight.detach(), saved.weight.detach());
            expect_same_bits(layer.bias.detach(), saved.bias.detach());
        });
        for (int rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(rank);
            const int first = 4 * rank / ranks, last = (4 * (rank + 1) - 1) / ranks;
            std::int64_t bytes = 0;
            for (const auto& [part, use] : files.uses(rank)) {
                EXPECT_GE(part, first);
                EXPECT_LE(part, last);
                EXPECT_TRUE(use.is_mapped);
                bytes += use.bytes;
            }
            // Checksums are verified in whole blocks, and the headers of files are read again.
            const std::int64_t parts = last - first + 1;
            EXPECT_GE(bytes, kBytes / ranks - kBlock);
            EXPECT_LE(bytes, kBytes / ranks + parts * (2 * kBlock + 4096));
            EXPECT_LT(bytes, (parts + 1) * kBytes / 4);
        }
    }
}

void flip_byte(const std::string& file, std::int64_t at) {
    std::string bytes = read_file(file);
    const auto i =
        static_cast<std::size_t>(at < 0 ? at + static_cast<std::int64_t>(bytes.size()) : at);
    bytes[i] = static_cast<char>(bytes[i] ^ 16);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(ShardedLoad, ThrowsOnAllRanksWithoutChangesIfAByteIsDamaged) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string path = folder / "state";
    save_layer(path);
    const nn::Linear before = large_layer(2);
    for (const int part : {0, 2})
        for (const std::int64_t byte : {std::int64_t{20}, kBlock / 2, kBlock + 5, std::int64_t{-1}})
            for (const int ranks : {4, 1}) {
                SCOPED_TRACE(str("part ", part, ", byte ", byte, ", ", ranks, " ranks"));
                const std::string file =
                    path + str("/pytorch_model_fsdp_0/rank_0000", part, ".safetensors");
                flip_byte(file, byte);
                load_layer(ranks,
                           [&](accel::Accelerator& accelerator, nn::Linear& layer, const Group&) {
                               expect_error<FileError>(
                                   {"", file.c_str(),
                                    "has changed since it was saved: the checksum of block "},
                                   [&] { accelerator.load_state(path); });
                               const dist::FullParameters full(layer);
                               expect_same_bits(layer.weight.detach(), before.weight.detach());
                           });
                flip_byte(file, byte);
            }
}

TEST(ShardedLoad, IgnoresUnexpectedNamesUnlessStrict) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string path = folder / "state";
    save_layer(path);
    nn::Linear layer(kWidth, kWidth, {.bias = false});
    accel::Accelerator accelerator({.cpu = true});
    accelerator.prepare(layer);
    expect_error<FileError>({"", "missing: none; unexpected: bias"},
                            [&] { accelerator.load_state(path); });
    accelerator.load_state(path, {.strict = false});
    expect_same_bits(layer.weight.detach(), large_layer(1).weight.detach());
}

TEST(ShardedLoad, ThrowsOnAllRanksIfAFileIsMissingOrShorter) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    for (const bool is_missing : {false, true}) {
        const std::string path = folder / str("state", is_missing);
        save_layer(path);
        const std::string file = path + "/pytorch_model_fsdp_0/rank_00003.safetensors";
        if (is_missing)
            fs::remove(file);
        else
            fs::resize_file(file, fs::file_size(file) - 1);
        load_layer(2, [&](accel::Accelerator& accelerator, nn::Linear&, const Group&) {
            expect_error<FileError>({file.c_str()}, [&] { accelerator.load_state(path); });
        });
    }
}

}  // namespace
}  // namespace axle
