#include "data/webdataset/web_dataset.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/files/file.h"
#include "core/ops.h"
#include "data/loading/loader.h"
#include "tests/close.h"
#include "tests/data/images/pictures.h"
#include "tests/data/webdataset/tar_files.h"
#include "tests/vectors.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::expect_same_bits;
using tests::FolderStorage;
using tests::kTarEnd;
using tests::tar_member;
using tests::TemporaryFolder;
using tests::written_tar;
using Strings = std::vector<std::string>;

// Returns the path of a file that record_webdataset.py has written.
std::string recorded_tar(const std::string& name) {
    return AXLE_TESTS_DIR "/golden/webdataset/" + name;
}

std::vector<Tree> samples_of(const IterableDataset& dataset) {
    std::vector<Tree> samples;
    const auto stream = dataset.stream(0);
    while (auto sample = stream->next()) samples.push_back(*std::move(sample));
    EXPECT_FALSE(stream->next());
    return samples;
}

std::vector<Tree> samples_in(const std::string& bytes, const WebDatasetOptions& options = {}) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    return samples_of(stream_webdataset(Strings{written_tar(folder, bytes)}, options));
}

void expect_value(const Tree& value, const nlohmann::json& expected) {
    if (!expected.is_object()) {
        EXPECT_EQ(value.integer(), expected.get<std::int64_t>());
    } else if (expected.contains("image")) {
        expect_same_bits(value, read_image(tests::picture(expected["image"])));
    } else if (expected.contains("text")) {
        EXPECT_EQ(value.string(), expected["text"].get<std::string>());
    } else if (expected.contains("array")) {
        EXPECT_EQ(value.dtype(), i32);
        EXPECT_EQ(value.shape(), (Shape{2, 3}));
        EXPECT_EQ(value.tensor().flatten().to_vector(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
    } else if (expected.contains("bytes")) {
        EXPECT_EQ(value.dtype(), u8);
        EXPECT_EQ(value.tensor().to_vector(), expected["bytes"].get<std::vector<double>>());
    } else {
        EXPECT_EQ(nlohmann::json::parse(to_json(value)), expected);
    }
}

// Covers 32.WebDataset.
TEST(WebDataset, ReadsTheSamplesOfTheWebDatasetPackage) {
    if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
    const auto recorded = tests::read_json(recorded_tar("samples.json"));
    for (const bool decode : {true, false})
        for (const auto& [name, expected] : recorded.items()) {
            SCOPED_TRACE(name);
            const std::string path = recorded_tar(name);
            const auto samples = samples_of(stream_webdataset(path, {.decode = decode}));
            ASSERT_EQ(samples.size(), expected.size());
            for (std::size_t i = 0; i < samples.size(); ++i) {
                const Tree sample = decode ? samples[i] : decode_webdataset_sample(samples[i]);
                EXPECT_EQ(sample["__key__"].string(), expected[i]["key"].get<std::string>());
                EXPECT_EQ(sample["__url__"].string(), path);
                ASSERT_EQ(sample.size(), expected[i]["fields"].size() + 2);
                for (const auto& [field, value] : expected[i]["fields"].items()) {
                    SCOPED_TRACE(field);
                    expect_value(sample[field], value);
                    if (decode) continue;
                    EXPECT_EQ(samples[i][field].dtype(), u8);
                    EXPECT_EQ(samples[i][field].dim(), 1);
                }
            }
        }
}

TEST(WebDataset, ReadsOnlyTheSelectedFieldsInTheirOrder) {
    const std::string bytes = tar_member("a.txt", "x") + tar_member("a.png", "not an image") +
                              tar_member("a.cls", "1") + kTarEnd;
    const auto samples = samples_in(bytes, {.fields = {"cls", "txt"}});
    ASSERT_EQ(samples.size(), 1u);
    ASSERT_EQ(samples[0].size(), 4u);
    EXPECT_EQ(samples[0].entries()[2].key, "cls");
    EXPECT_EQ(samples[0].entries()[3].key, "txt");
    expect_error<FileError>(
        {"", "a.tar: byte 0: member 'a.txt': the sample has no field 'jpg', only txt, png, cls"},
        [&] {
            samples_in(bytes, {.fields = {"cls", "jpg"}});
        });
}

TEST(WebDataset, StartsANewSampleWhenTheNameChanges) {
    const auto samples =
        samples_in(tar_member("a.cls", "1") + tar_member("b.cls", "2") + tar_member(".b.txt", "") +
                   tar_member("b.", "") + tar_member("b.txt", "x") + tar_member("a.cls", "3") +
                   tar_member("a/b.cls", "4") + kTarEnd);
    Strings keys;
    for (const Tree& sample : samples) keys.push_back(sample["__key__"].string());
    EXPECT_EQ(keys, (Strings{"a", "b", "a", "a/b"}));
    EXPECT_EQ(samples[1].size(), 4u);
}

TEST(WebDataset, ReportsArchiveOffsetAndFileOfInvalidFields) {
    const auto check = [](const std::string& name, const std::string& contents,
                          std::initializer_list<const char*> parts) {
        const std::string bytes =
            tar_member("first.cls", "1") + tar_member(name, contents) + kTarEnd;
        std::vector<const char*> all = {"", "a.tar: byte 1024: member '"};
        all.insert(all.end(), parts);
        try {
            samples_in(bytes);
            ADD_FAILURE() << name;
        } catch (const FileError& error) {
            for (const char* part : all) EXPECT_THAT(error.what(), testing::HasSubstr(part));
        }
    };
    check("b.cls", "x", {"'b.cls': expected an integer, found 'x'"});
    check("b.cls", "1 2", {"expected an integer, found '1 2'"});
    check("b.cls", "", {"expected an integer, found ''"});
    check("b.cls", "9223372036854775808", {"expected an integer"});
    check("b.txt", "a\xff", {"'b.txt': byte 1: the text is not valid UTF-8"});
    check("b.json", "{", {"'b.json': "});
    check("b.npy", "x", {"'b.npy': byte 0: not an .npy file"});
    check("b.a.b.npy", "x", {"'b.a.b.npy': byte 0: not an .npy file"});
    check("first.CLS", "2", {"'first.CLS': the sample has two fields 'cls'"});
    check("b.__key__", "2", {"the field name __key__ is reserved"});
    if (!tests::decodes_images()) GTEST_SKIP() << "this build has no libjpeg or no libpng";
    check("b.jpg", "\xff\xd8\xff", {"'b.jpg': "});
    check("b.png", "x", {"'b.png': "});
    const std::string png = read_file(tests::picture("color.png"));
    EXPECT_THROW(samples_in(tar_member("a.png", png) + kTarEnd, {.images = {.max_pixels = 1}}),
                 FileError);
}

TEST(WebDataset, LimitsTheSizeAndTheNumberOfTheFieldsOfASample) {
    const std::string bytes = tar_member("a.bin", std::string(600, 'x')) +
                              tar_member("a.txt", std::string(400, 'x')) +
                              tar_member("b.txt", std::string(1000, 'x')) + kTarEnd;
    EXPECT_EQ(samples_in(bytes, {.max_sample_bytes = 1000}).size(), 2u);
    expect_error<FileError>({"",
                             "byte 1536: member 'a.txt': has 400 bytes, but only 399 bytes of "
                             "WebDatasetOptions::max_sample_bytes are left"},
                            [&] { samples_in(bytes, {.max_sample_bytes = 999}); });
    std::string many;
    for (int i = 0; i < 1000; ++i) many += tar_member(str("a.", i), "");
    EXPECT_EQ(samples_in(many + kTarEnd)[0].size(), 1002u);
    expect_error<FileError>({"", "member 'a.x': the sample has more than 1000 fields"},
                            [&] { samples_in(many + tar_member("a.x", "") + kTarEnd); });
}

// Writes `archives` archives of `samples` samples, whose field cls counts all samples.
Strings counted_archives(const TemporaryFolder& folder, int archives, int samples) {
    Strings paths;
    int count = 0;
    for (int a = 0; a < archives; ++a) {
        std::string bytes;
        for (int i = 0; i < samples; ++i, ++count)
            bytes += tar_member(str(i, ".cls"), str(count)) + tar_member(str(i, ".txt"), "x");
        paths.push_back(written_tar(folder, bytes + kTarEnd, str("part-", a, ".tar")));
    }
    return paths;
}

TEST(WebDataset, SkipsSamplesWithoutReadingThem) {
    // The skipped fields are damaged.
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string first =
        written_tar(folder, tar_member("a.cls", "x") + tar_member("b.cls", "x") + kTarEnd, "a.tar");
    const std::string second =
        written_tar(folder, tar_member("c.cls", "x") + tar_member("d.cls", "4") + kTarEnd, "b.tar");
    const auto dataset = stream_webdataset(Strings{first, second});
    const auto stream = dataset.stream(0);
    EXPECT_EQ(stream->skip(3), 3);
    EXPECT_EQ((*stream->next())["cls"].integer(), 4);
    EXPECT_EQ(stream->skip(5), 0);
    EXPECT_EQ(dataset.stream(0)->skip(5), 4);
}

// With an archive for each process, processes read their own archives. With one archive, each
// process keeps its part of the samples.
TEST(WebDataset, IsShardedAndResumedByLoaders) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const int archives : {4, 1}) {
        counted_archives(folder, archives, 24 / archives);
        const std::string pattern = folder / str("part-{0..", archives - 1, "}.tar");
        std::vector<double> all;
        for (int process = 0; process < 2; ++process)
            for (const int workers : {0, 2}) {
                const auto loader_of = [&] {
                    DataLoader loader(stream_webdataset(pattern, {.fields = {"cls"}}),
                                      {.batch_size = 4, .num_workers = workers});
                    loader.shard(ShardOptions{.num_processes = 2, .process_index = process});
                    return loader;
                };
                DataLoader whole = loader_of(), stopped = loader_of(), resumed = loader_of();
                EXPECT_EQ(whole.reads_own_shards(), archives == 4);
                std::vector<std::vector<double>> expected, begin;
                for (auto& batch : whole) expected.push_back(batch["cls"].tensor().to_vector());
                ASSERT_EQ(expected.size(), 3u);
                if (workers == 0)
                    for (const auto& batch : expected)
                        all.insert(all.end(), batch.begin(), batch.end());
                Tree state;
                for (auto& batch : stopped) {
                    begin.push_back(batch["cls"].tensor().to_vector());
                    state = stopped.state_dict();
                    if (begin.size() == 2) break;
                }
                resumed.load_state_dict(state);
                for (auto& batch : resumed) begin.push_back(batch["cls"].tensor().to_vector());
                EXPECT_EQ(begin, expected);
            }
        std::ranges::sort(all);
        for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(all.at(i), static_cast<double>(i));
        EXPECT_EQ(all.size(), 24u);
    }
}

TEST(WebDataset, DecodesInCollateFunctionsOfWorkers) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const auto collate_fn = [](std::span<const Tree> samples) {
        std::vector<Tree> decoded;
        for (const Tree& sample : samples)
            decoded.push_back(Tree{{"cls", decode_webdataset_sample(sample)["cls"]}});
        return collate(decoded);
    };
    DataLoader loader(stream_webdataset(counted_archives(folder, 2, 4), {.decode = false}),
                      {.batch_size = 4, .num_workers = 2, .collate_fn = collate_fn});
    std::vector<double> values;
    for (auto& batch : loader)
        for (const double value : batch["cls"].tensor().to_vector()) values.push_back(value);
    EXPECT_EQ(values, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
    const Tree damaged{{"__key__", "k"}, {"__url__", "a.tar"}, {"cls", zeros({2}, {u8})}};
    expect_error<FileError>({"a.tar: sample 'k': field 'cls': expected an integer, found "},
                            [&] { decode_webdataset_sample(damaged); });
    expect_error<ValueError>({"decode_webdataset_sample: expected a map with the string __key__"},
                             [] { decode_webdataset_sample(Tree::map()); });
}

TEST(WebDataset, RejectsInvalidOptionsAndMissingArchives) {
    expect_error<ValueError>({"stream_webdataset: needs at least one path"},
                             [] { stream_webdataset(Strings{}); });
    expect_error<FileError>({"/no/a-1.tar: "}, [] { stream_webdataset("/no/a-{1..2}.tar"); });
    const std::string path = recorded_tar("empty.tar");
    expect_error<ValueError>({"WebDatasetOptions: max_sample_bytes must be positive: 0"},
                             [&] { stream_webdataset(path, {.max_sample_bytes = 0}); });
    expect_error<ValueError>({"WebDatasetOptions: duplicate field 'a'"}, [&] {
        stream_webdataset(path, {.fields = {"a", "b", "a"}});
    });
    expect_error<ValueError>({"WebDatasetOptions: the name of a field must not be empty"}, [&] {
        stream_webdataset(path, {.fields = {"a", ""}});
    });
}

TEST(ExpandBraces, ReturnsTheNamesOfTheShell) {
    EXPECT_EQ(expand_braces("a.tar"), Strings{"a.tar"});
    EXPECT_EQ(expand_braces(""), Strings{""});
    EXPECT_EQ(expand_braces("a-{08..10}.tar"), (Strings{"a-08.tar", "a-09.tar", "a-10.tar"}));
    EXPECT_EQ(expand_braces("{9..11}"), (Strings{"9", "10", "11"}));
    EXPECT_EQ(expand_braces("{2..0}"), (Strings{"2", "1", "0"}));
    EXPECT_EQ(expand_braces("{000..1}"), (Strings{"000", "001"}));
    EXPECT_EQ(expand_braces("{a,b}-{0..1}"), (Strings{"a-0", "a-1", "b-0", "b-1"}));
    EXPECT_EQ(expand_braces("x{,.old}"), (Strings{"x", "x.old"}));
    EXPECT_EQ(expand_braces("{name}"), Strings{"{name}"});
    EXPECT_EQ(expand_braces("{000000..000099}").size(), 100u);
}

TEST(ExpandBraces, RejectsInvalidPatternsAndTooManyNames) {
    for (const auto& [pattern, reason] : std::vector<std::pair<const char*, const char*>>{
             {"a{0..1", "a brace is not closed: 'a{0..1'"},
             {"{a,{b,c}}", "nested braces are not supported"},
             {"{a..c}", "a range must have two non-negative integers"},
             {"{-1..2}", "a range must have two non-negative integers"},
             {"{1..}", "a range must have two non-negative integers"},
             {"{0..1000000}", "more than 1000000 names"},
             {"{0..9223372036854775807}", "more than 1000000 names"},
             {"{0..9999}{0..9999}", "more than 1000000 names"}})
        expect_error<ValueError>({"expand_braces: ", reason}, [&] { expand_braces(pattern); });
}

}  // namespace
}  // namespace axle::data
