// Tests TensorBoard's event files: their framing and protocol buffers, and the events that
// SummaryWriter and TensorBoardTracker write.
#include "accel/tracking/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>

#include <protozero/pbf_reader.hpp>
#include <unistd.h>

#include "accel/accelerator.h"
#include "accel/tracking/event.h"
#include "accel/tracking/tfrecord.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/file_bytes.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::crc32c;
using accel::Histogram;
using accel::make_histogram;
using accel::SummaryWriter;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using tests::bytes_of;
using tests::expect_error;
using tests::rows_of;
using tests::TemporaryFolder;

// --- framing

TEST(Crc32c, MatchesPublishedValues) {
    EXPECT_EQ(crc32c(""), 0u);
    EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
    // These values are test vectors of RFC 3720, section B.4.
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
    std::string ascending(32, '\0');
    std::iota(ascending.begin(), ascending.end(), '\0');
    EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
    EXPECT_EQ(crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cu);
}

TEST(Crc32c, MatchesBitwiseComputationForLengthsUpTo100) {
    std::string text;
    for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
    for (std::size_t length = 0; length <= text.size(); ++length) {
        std::uint32_t crc = 0xffffffff;
        for (std::size_t i = 0; i < length; ++i) {
            crc ^= static_cast<unsigned char>(text[i]);
            for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
        }
        EXPECT_EQ(crc32c(std::string_view(text).substr(0, length)), ~crc) << length;
    }
}

TEST(TfRecord, MatchesTensorBoardByteForByte) {
    // The bytes were written by TensorBoard's RecordWriter.write(b"hello").
    std::string file = "before";
    accel::append_record(file, "hello");
    EXPECT_EQ(file, "before" + bytes_of({5, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xb2, 0x04, 0x3e}) +
                        "hello" + bytes_of({0xbb, 0x1f, 0x1c, 0x19}));
}

// --- a reader of event files

// Removes the first record from the contents of a file, and returns the record's data.
std::string without_frame(std::string& file) {
    std::uint64_t length = 0;
    std::uint32_t check = 0;
    if (file.size() < 16) throw std::runtime_error("half a record");
    std::memcpy(&length, file.data(), 8);
    std::memcpy(&check, file.data() + 8, 4);
    if (check != accel::masked_crc32c(file.substr(0, 8))) throw std::runtime_error("length");
    if (file.size() < length + 16) throw std::runtime_error("half a record");
    std::string data = file.substr(12, length);
    std::memcpy(&check, file.data() + 12 + length, 4);
    if (check != accel::masked_crc32c(data)) throw std::runtime_error("data");
    file.erase(0, length + 16);
    return data;
}

// A decoded protocol buffer: its nested messages, strings and numbers by field number.
struct Message {
    std::multimap<std::uint32_t, Message> messages = {};
    std::multimap<std::uint32_t, double> numbers = {};
    std::string bytes = {};

    static Message parse(const std::string& bytes) {
        Message message;
        message.bytes = bytes;
        try {
            protozero::pbf_reader reader(bytes);
            while (reader.next()) message.add(reader);
        } catch (const protozero::exception&) {
            message.messages.clear();  // the field is a string, not a message
        }
        return message;
    }
    void add(protozero::pbf_reader& reader) {
        using protozero::pbf_wire_type;
        const std::uint32_t tag = reader.tag();
        switch (reader.wire_type()) {
            case pbf_wire_type::varint:
                numbers.emplace(tag, static_cast<double>(reader.get_int64()));
                break;
            case pbf_wire_type::fixed64:
                numbers.emplace(tag, reader.get_double());
                break;
            case pbf_wire_type::fixed32:
                numbers.emplace(tag, static_cast<double>(reader.get_float()));
                break;
            default:
                messages.emplace(tag, parse(reader.get_bytes()));
        }
    }
    const Message& at(std::uint32_t tag) const { return messages.find(tag)->second; }
    bool has(std::uint32_t tag) const { return messages.count(tag) > 0; }
    double number(std::uint32_t tag) const {
        const auto found = numbers.find(tag);
        return found == numbers.end() ? 0 : found->second;
    }
    std::vector<double> packed(std::uint32_t tag) const {
        const std::string& data = at(tag).bytes;
        std::vector<double> values(data.size() / 8);
        std::memcpy(values.data(), data.data(), data.size());
        return values;
    }
};

std::vector<Message> events_in(const std::string& path) {
    std::string file = read_file(path);
    std::vector<Message> events;
    while (!file.empty()) events.push_back(Message::parse(without_frame(file)));
    return events;
}

// Returns the value of a writer's last event.
Message last_value(SummaryWriter& writer) {
    writer.flush();
    return events_in(writer.path()).back().at(5).at(1);
}

// --- files of SummaryWriter

TEST(SummaryWriter, UsesFileNamesOfTensorBoard) {
    const TemporaryFolder folder;
    const SummaryWriter writer(folder / "a/b", {.filename_suffix = ".eval"});
    const std::string name = std::filesystem::path(writer.path()).filename();
    EXPECT_THAT(name, testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\."
                                            "[0-9]+\\.eval"));
    EXPECT_THAT(name, HasSubstr("." + std::to_string(::getpid()) + "."));
}

TEST(SummaryWriter, CreatesFilesWhoseNamesSortByCreationTime) {
    const TemporaryFolder folder;
    std::vector<std::string> paths;
    paths.reserve(12);
    for (int i = 0; i < 12; ++i) paths.push_back(SummaryWriter(folder.path()).path());
    EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
}

TEST(SummaryWriter, WritesTheFileVersionAsTheFirstEvent) {
    const TemporaryFolder folder;
    const SummaryWriter writer(folder.path());
    const auto events = events_in(writer.path());
    ASSERT_THAT(events, SizeIs(1));
    EXPECT_EQ(events[0].at(3).bytes, "brain.Event:2");
    EXPECT_NEAR(events[0].number(1), static_cast<double>(std::time(nullptr)), 60);
}

TEST(SummaryWriter, WritesTwoStartEventsIfPurgeStepIsSet) {
    const TemporaryFolder folder;
    const SummaryWriter writer(folder.path(), {.purge_step = 40});
    const auto events = events_in(writer.path());
    ASSERT_THAT(events, SizeIs(3));
    for (const std::size_t i : {1, 2}) {
        EXPECT_EQ(events[i].number(2), 40);
        EXPECT_EQ(events[i].at(7).number(1), 1);  // SessionLog.START
    }
}

// Covers 11.tensorboard.
TEST(TensorBoardTracker, WritesStartEventsAtTheStepAfterTheCheckpointOrAtPurgeStep) {
    const TemporaryFolder folder;
    // Returns the steps of the events in the newest file. The step of a scalar has a negative sign;
    // the step of a start event does not.
    const auto run = [&](bool loads, std::int64_t step, const Tree& options = {}) {
        Accelerator accelerator({.log_with = {"tensorboard"}, .project_dir = folder.path()});
        accelerator.init_trackers("run", {}, {{"tensorboard", options}});
        if (loads) accelerator.load_state(folder / "checkpoint");
        accelerator.log({{"x", 1}}, step);
        if (!loads) accelerator.save_state(folder / "checkpoint");
        accelerator.log({{"x", 1}}, step + 1);
        accelerator.end_training();
        std::vector<double> steps;
        std::string newest;
        for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
            newest = std::max(newest, entry.path().string());
        for (const Message& event : events_in(newest)) {
            if (event.messages.contains(7)) steps.push_back(event.number(2));
            if (event.messages.contains(5)) steps.push_back(-event.number(2));
        }
        return steps;
    };
    EXPECT_THAT(run(false, 10), ElementsAre(-10, -11));
    EXPECT_THAT(run(true, 11), ElementsAre(11, 11, -11, -12));
    EXPECT_THAT(run(true, 5), ElementsAre(11, 11, -5, -6));
    EXPECT_THAT(run(true, 11, {{"purge_step", 3}}), ElementsAre(3, 3, -11, -12));
}

TEST(SummaryEvent, MatchesProtocolBuffersByteForByte) {
    // PyTorch's SummaryWriter.add_scalar("loss", 1.0, 1) writes these bytes at time 0.5.
    EXPECT_EQ(accel::summary_event(0.5, 1, accel::scalar_value("loss", 1)),
              bytes_of({0x09, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0x10, 1, 0x2a, 13, 0x0a, 11, 0x0a, 4}) +
                  "loss" + bytes_of({0x15, 0, 0, 0x80, 0x3f}));
    EXPECT_EQ(accel::start_event(0.5, 3),
              bytes_of({0x09, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0x10, 3, 0x3a, 2, 0x08, 1}));
}

// Covers 11.tensorboard, 11.values.
TEST(SummaryWriter, WritesScalars) {
    const TemporaryFolder folder;
    SummaryWriter writer(folder.path());
    const std::vector<double> values = {0, -1.5, 1e-30, 1e300, INFINITY, NAN, 0.1};
    for (std::size_t i = 0; i < values.size(); ++i)
        writer.add_scalar("x/y", values[i], static_cast<std::int64_t>(i) << 33);
    writer.flush();
    const auto events = events_in(writer.path());
    ASSERT_THAT(events, SizeIs(values.size() + 1));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const Message& value = events[i + 1].at(5).at(1);
        EXPECT_EQ(events[i + 1].number(2), std::ldexp(static_cast<double>(i), 33));
        EXPECT_EQ(value.at(1).bytes, "x/y");
        const auto expected = static_cast<double>(static_cast<float>(values[i]));
        if (std::isnan(expected))
            EXPECT_TRUE(std::isnan(value.number(2)));
        else
            EXPECT_EQ(value.number(2), expected);
    }
}

// Covers 11.tensorboard, 11.values.
TEST(SummaryWriter, WritesTextAsAStringTensor) {
    const TemporaryFolder folder;
    SummaryWriter writer(folder.path());
    writer.add_text("note", "*h\xc3\xa9*", 3);
    const Message value = last_value(writer);
    EXPECT_EQ(value.at(1).bytes, "note/text_summary");
    EXPECT_EQ(value.at(8).number(1), 7);              // DT_STRING
    EXPECT_EQ(value.at(8).at(2).at(2).number(1), 1);  // shape [1]
    EXPECT_EQ(value.at(8).at(8).bytes, "*h\xc3\xa9*");
    EXPECT_EQ(value.at(9).at(1).at(1).bytes, "text");
}

// Covers 11.tensorboard.
TEST(SummaryWriter, WritesHparamsWithTheirTypesAndTheEndOfTheSession) {
    const TemporaryFolder folder;
    SummaryWriter writer(folder.path());
    Tree hparams{{"lr", 0.5}, {"deep", {{"flag", true}}}, {"name", "x"}};
    hparams.set("none", Tree());
    hparams.set("list", Tree::list({1, 2}));
    writer.add_hparams(hparams);
    const Message value = last_value(writer);
    EXPECT_EQ(value.at(1).bytes, "_hparams_/session_start_info");
    EXPECT_EQ(value.at(9).at(1).at(1).bytes, "hparams");
    std::map<std::string, Message> entries;
    const Message& info = value.at(9).at(1).at(2).at(3);
    for (auto [at, end] = info.messages.equal_range(1); at != end; ++at)
        entries[at->second.at(1).bytes] = at->second.at(2);
    ASSERT_THAT(entries, SizeIs(4));
    EXPECT_EQ(entries["lr"].number(2), 0.5);
    EXPECT_EQ(entries["deep/flag"].number(4), 1);
    EXPECT_EQ(entries["name"].at(3).bytes, "x");
    EXPECT_EQ(entries["list"].at(3).bytes, "[1, 2]");
    writer.add_hparams_end();
    const Message end = last_value(writer);
    EXPECT_EQ(end.at(1).bytes, "_hparams_/session_end_info");
    EXPECT_EQ(end.at(9).at(1).at(2).at(4).number(1), 1);  // STATUS_SUCCESS
}

// --- histograms, images and errors

TEST(Histogram, UsesTheBucketsOfTensorBoard) {
    // PyTorch computes these values in make_histogram() with SummaryWriter.default_bins.
    const Histogram h = make_histogram(std::vector<double>{0.7, 0.75, 0.8, 0.8, 1.0});
    EXPECT_EQ(h.num, 5);
    EXPECT_EQ(h.min, 0.7);
    EXPECT_EQ(h.max, 1);
    EXPECT_DOUBLE_EQ(h.sum, 4.05);
    EXPECT_DOUBLE_EQ(h.sum_squares, 3.3325);
    EXPECT_THAT(h.limits, ElementsAre(0.68914078815911028, 0.75805486697502134, 0.83386035367252354,
                                      0.917246389039776, 1.0089710279437536));
    EXPECT_THAT(h.counts, ElementsAre(0, 2, 2, 0, 1));
    const Histogram around_zero = make_histogram(std::vector<double>{-1e-12, 0, 0, 1e-12});
    EXPECT_THAT(around_zero.limits, ElementsAre(-1e-12, 0, 1e-12, 1.1000000000000002e-12));
    EXPECT_THAT(around_zero.counts, ElementsAre(0, 1, 2, 1));
}

TEST(Histogram, CountsHugeValuesInTheOutermostBuckets) {
    const double most = std::numeric_limits<double>::max();
    const Histogram h = make_histogram(std::vector<double>{-most, -1e30, 1e30, most});
    EXPECT_EQ(std::accumulate(h.counts.begin(), h.counts.end(), 0.0), 4);
    EXPECT_EQ(h.limits.back(), most);
    EXPECT_EQ(h.counts.back(), 2);
    EXPECT_EQ(h.counts[1], 2);
}

TEST(Histogram, IgnoresNonFiniteValues) {
    const Histogram h = make_histogram(std::vector<double>{NAN, 2, INFINITY, 3, -INFINITY});
    EXPECT_EQ(h.num, 2);
    EXPECT_EQ(h.min, 2);
    EXPECT_EQ(h.max, 3);
    EXPECT_THAT(make_histogram(std::vector<double>{NAN}).limits, SizeIs(0));
    EXPECT_THAT(make_histogram({}).counts, SizeIs(0));
}

TEST(SummaryWriter, WritesHistogramsUnlessAllValuesAreNan) {
    const TemporaryFolder folder;
    SummaryWriter writer(folder.path());
    const std::vector<double> values = {-2, 0.25, 0.25, 8};
    writer.add_histogram("w", tensor(values, {2, 2}).t(), 7);
    const Histogram expected = make_histogram(values);
    const Message histogram = last_value(writer).at(5);
    EXPECT_EQ(histogram.number(1), -2);
    EXPECT_EQ(histogram.number(2), 8);
    EXPECT_EQ(histogram.number(3), 4);
    EXPECT_EQ(histogram.number(4), 6.5);
    EXPECT_EQ(histogram.number(5), 68.125);
    EXPECT_EQ(histogram.packed(6), expected.limits);
    EXPECT_EQ(histogram.packed(7), expected.counts);
    const auto before = events_in(writer.path()).size();
    writer.add_histogram("w", full({3}, NAN), 8);
    writer.flush();
    EXPECT_THAT(events_in(writer.path()), SizeIs(before));
}

// Covers 11.tensorboard.
TEST(SummaryWriter, WritesImages) {
    const TemporaryFolder folder;
    SummaryWriter writer(folder.path());
    writer.add_image("digit", tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = i64}), 5);
    const Message image = last_value(writer).at(4);
    EXPECT_EQ(image.number(1), 2);
    EXPECT_EQ(image.number(2), 3);
    EXPECT_EQ(image.number(3), 1);
    EXPECT_EQ(rows_of(image.at(4).bytes), bytes_of({0, 1, 2, 3, 0, 4, 5, 6}));
}

TEST(SummaryWriter, ReportsAFolderThatCannotBeCreated) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "file", "");
    expect_error<FileError>({(folder / "file/run").c_str()},
                            [&] { SummaryWriter writer(folder / "file/run"); });
}

}  // namespace
}  // namespace axle
