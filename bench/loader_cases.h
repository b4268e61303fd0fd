// The cases of bench_loader: datasets, and the loaders that read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "data/files/tokens.h"
#include "data/images/image_folder.h"
#include "data/images/resize.h"
#include "data/loading/loader.h"
#include "data/tables/formats.h"
#include "data/tables/table.h"
#include "data/transforms.h"
#include "kernels/error.h"

namespace axle::bench {

struct Case {
    std::function<data::DataLoader(int workers)> loader;
    double handed_bytes = 0;  // bytes of a pass's batches
    double source_bytes = 0;  // bytes from which they are created
    // If true, the order of the batches depends on the number of workers of other programs.
    bool is_stream = false;
    // Images before random transforms, which other programs must decode to the same bytes.
    std::vector<Tensor> decoded = {};
};

inline constexpr const char* kCases =
    "small64|small512|cifar|images|tokens|jpeg_folder|csv|json_lines|csv_stream|json_lines_stream";

// Returns the case of a dataset that is read in batches in random order. `source` is the number of
// bytes from which a sample is created.
inline Case shuffled(const std::shared_ptr<const data::Dataset>& dataset, std::int64_t batch,
                     double source) {
    const auto samples = static_cast<double>(dataset->size());
    Case made;
    made.loader = [=](int workers) {
        return data::DataLoader(dataset,
                                {.batch_size = batch, .shuffle = true, .num_workers = workers});
    };
    for_each_tensor(dataset->get(0), [&](const Tensor& t) {
        made.handed_bytes += samples * static_cast<double>(t.numel() * size_of(t.dtype()));
    });
    made.source_bytes = samples * source;
    return made;
}

// Returns the labels 0 to n - 1, so that a label is the index of its row.
inline Tensor row_numbers(std::int64_t n) {
    Tensor rows = empty({n}, {.dtype = i64});
    for (std::int64_t i = 0; i < n; ++i) rows.data<std::int64_t>()[i] = i;
    return rows;
}

inline Case small(const std::string& path, std::int64_t batch) {
    constexpr std::int64_t kRows = 200'000, kColumns = 16;
    const data::Tokens words = data::Tokens::open(path);
    Tensor x = empty({kRows, kColumns});
    auto* const to = x.data<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
        to[i] = static_cast<float>(words[i % words.size()]) / 65536;
    const Tree rows{{"x", x}, {"y", row_numbers(kRows)}};
    return shuffled(std::make_shared<data::TensorDataset>(rows), batch, kColumns * 4 + 8);
}

// Returns images of random bytes that become brighter from left to right, so that a flip changes
// the mean of the left half.
inline Tensor pictures(const std::string& path, const Shape& shape) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    Tensor images = empty(shape, {.dtype = u8});
    auto* const to = images.data<std::uint8_t>();
    const std::int64_t width = shape[3];
    std::size_t from = 0;
    for (std::int64_t i = 0, n = images.numel(); i < n; ++i) {
        to[i] = static_cast<std::uint8_t>(static_cast<std::int64_t>(bytes[from]) / 2 +
                                          i % width * 127 / width);
        from = from + 1 < bytes.size() ? from + 1 : 0;
    }
    return images;
}

inline Case transformed(const Tensor& images, std::int64_t batch, data::Transform transform) {
    const Tree samples{{"image", images}, {"label", row_numbers(images.size(0))}};
    const std::int64_t bytes_per_sample = images.numel() / images.size(0) + 8;
    return shuffled(std::make_shared<data::TransformedDataset>(data::TensorDataset(samples),
                                                               std::move(transform)),
                    batch, static_cast<double>(bytes_per_sample));
}

inline Case jpeg_folder(const std::string& path, data::Transform transform) {
    const data::ImageFolder folder(path);
    double bytes = 0;
    for (const auto& image : folder.images())
        bytes += static_cast<double>(std::filesystem::file_size(image.path));
    Case made = shuffled(std::make_shared<data::TransformedDataset>(folder, std::move(transform)),
                         32, bytes / static_cast<double>(folder.size()));
    for (std::int64_t i = 0; i < 8; ++i) made.decoded.push_back(folder.get(i)["image"].tensor());
    return made;
}

// Returns the case of a table in a file with the columns "text" and "label". Only the text is
// counted as bytes.
inline Case table(const data::Table& rows, const std::string& path) {
    Case made = shuffled(std::make_shared<data::Table>(rows), 64, 0);
    made.handed_bytes = made.source_bytes = static_cast<double>(std::filesystem::file_size(path));
    return made;
}

inline Case stream(const data::ShardedDataset& rows, std::span<const std::string> paths) {
    Case made;
    made.loader = [rows](int workers) {
        return data::DataLoader(rows, {.batch_size = 64, .num_workers = workers});
    };
    for (const std::string& path : paths)
        made.handed_bytes += static_cast<double>(std::filesystem::file_size(path));
    made.source_bytes = made.handed_bytes;
    made.is_stream = true;
    return made;
}

// Returns the case with a name. `path` is a file of random bytes, a folder of classes of images, or
// a folder with a table as one file, rows.csv or rows.jsonl, and as two files, 0.csv and 1.csv or
// 0.jsonl and 1.jsonl.
inline Case case_of(const std::string& name, const std::string& path) {
    const data::Normalize normalize({0.49, 0.48, 0.44}, {0.24, 0.25, 0.26});
    if (name == "small64") return small(path, 64);
    if (name == "small512") return small(path, 512);
    if (name == "cifar")
        return transformed(
            pictures(path, {25'600, 3, 32, 32}), 128,
            data::Compose({data::RandomCrop(32, {.padding = 4}), data::RandomHorizontalFlip(),
                           data::ToFloat(), normalize}));
    if (name == "images")
        return transformed(pictures(path, {1024, 3, 224, 224}), 32,
                           data::Compose({data::ToFloat(), normalize}));
    if (name == "tokens")
        return shuffled(std::make_shared<data::BlockDataset>(data::Tokens::open(path), 256), 32,
                        257 * 2);
    if (name == "jpeg_folder")
        return jpeg_folder(
            path, data::Compose({data::RandomResizedCrop(224), data::RandomHorizontalFlip(),
                                 data::ToFloat(), normalize}));
    const std::vector<std::string> csv = {path + "/0.csv", path + "/1.csv"};
    const std::vector<std::string> json = {path + "/0.jsonl", path + "/1.jsonl"};
    const std::string all_csv = path + "/rows.csv", all_json = path + "/rows.jsonl";
    if (name == "csv") return table(data::Table::from_csv(all_csv), all_csv);
    if (name == "json_lines") return table(data::Table::from_json(all_json), all_json);
    if (name == "csv_stream") return stream(data::stream_csv(csv), csv);
    if (name == "json_lines_stream") return stream(data::stream_json(json), json);
    throw ValueError(std::string("bench_loader: --case must be ") + kCases + ": " + name);
}

}  // namespace axle::bench
