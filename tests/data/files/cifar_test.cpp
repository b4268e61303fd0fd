#include "data/files/cifar.h"

#include <fstream>

#include "core/files/file.h"
#include "core/ops.h"
#include "tests/close.h"
#include "tests/data/files/damage.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::golden_image;
using tests::parse_error;
using Values = std::vector<double>;

constexpr std::size_t kRecord = 3073;

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Cifar, ReadsLabelsAndPlanes) {
    const TensorDataset test = cifar10(golden_image(""), false);
    ASSERT_EQ(test.size(), 2);
    const Tree sample = test.get(1);
    EXPECT_EQ(sample["label"].tensor().item_int(), 4);
    EXPECT_EQ(sample["label"].tensor().dtype(), i64);
    const Tensor& image = sample["image"];
    EXPECT_EQ(image.shape(), (Shape{3, 32, 32}));
    EXPECT_EQ(image.dtype(), u8);
    for (const std::int64_t p : {0, 1, 1024, 3071})
        EXPECT_EQ(image.flatten()[p].item_int(), (p * 7 + 1) % 251);
}

TEST(Cifar, ReadsFineAndCoarseLabelsOfCifar100) {
    const TensorDataset test = cifar100(golden_image(""), false);
    const std::vector<std::int64_t> both = {0, 1};
    const Tree batch = test.get_batch(both);
    EXPECT_EQ(batch["coarse_label"].tensor().to_vector(), (Values{1, 2}));
    EXPECT_EQ(batch["label"].tensor().to_vector(), (Values{3, 4}));
    EXPECT_EQ(batch["image"].tensor().flatten(1).select(1, 0).to_vector(), (Values{0, 1}));
}

TEST(Cifar, ReadsFiveTrainingFilesInOrderAndReportsInvalidFiles) {
    const tests::TemporaryFolder folder;
    const auto name = [&](int i) { return folder / "data_batch_" + std::to_string(i) + ".bin"; };
    for (int i = 1; i <= 5; ++i) {
        std::string records;
        for (int r = 0; r < i; ++r) records += static_cast<char>(i) + std::string(kRecord - 1, 'x');
        write_file(name(i), records);
    }
    const TensorDataset train = cifar10(folder.path());
    ASSERT_EQ(train.size(), 15);
    EXPECT_EQ(train.get(14)["label"].tensor().item_int(), 5);
    EXPECT_EQ(train.get(1)["label"].tensor().item_int(), 2);
    std::string second = read_file(name(2));
    second[kRecord] = 10;
    write_file(name(2), second);
    expect_error<FileError>({name(2).c_str(), "byte 3073: label must be at most 9: 10"},
                            [&] { cifar10(folder.path()); });
    std::filesystem::remove(name(4));
    expect_error<FileError>({name(4).c_str(), "can't open"}, [&] { cifar10(folder.path()); });
}

TEST(Cifar, ReportsOffsetAndReasonForInvalidFiles) {
    const std::string ten = read_file(golden_image("test_batch.bin"));
    const std::string hundred = read_file(golden_image("test.bin"));
    const auto accepted_lengths = [](const std::string& bytes, const tests::Parse& parse) {
        std::vector<std::size_t> lengths;
        for (std::size_t n = 0; n <= bytes.size(); ++n)
            if (parse_error(bytes.substr(0, n), parse) == "no error") lengths.push_back(n);
        return lengths;
    };
    EXPECT_EQ(accepted_lengths(ten, parse_cifar10),
              (std::vector<std::size_t>{kRecord, 2 * kRecord}));
    EXPECT_EQ(accepted_lengths(hundred, parse_cifar100),
              (std::vector<std::size_t>{kRecord + 1, 2 * kRecord + 2}));
    EXPECT_EQ(parse_error(ten + "x", parse_cifar10),
              "a\\x0afile: byte 6146: the size is not a multiple of the record size: 6147 bytes, "
              "3073 per record");
    EXPECT_EQ(parse_error("", parse_cifar10), "a\\x0afile: byte 0: the file is empty");
    std::string corrupt = hundred;
    corrupt[kRecord + 1] = 20;
    EXPECT_EQ(parse_error(corrupt, parse_cifar100),
              "a\\x0afile: byte 3074: coarse_label must be at most 19: 20");
    corrupt = hundred;
    corrupt[1] = 100;
    EXPECT_EQ(parse_error(corrupt, parse_cifar100),
              "a\\x0afile: byte 1: label must be at most 99: 100");
}

}  // namespace
}  // namespace axle::data
