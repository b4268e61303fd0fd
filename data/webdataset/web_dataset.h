// Streams of the samples in tar archives, as the WebDataset library of Python reads them.
//
//     const auto samples = data::stream_webdataset("shards/train-{000000..000099}.tar",
//                                                  {.fields = {"jpg", "cls"}});
//     data::DataLoader loader(samples, {.batch_size = 32});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/decode.h"
#include "data/loading/iterable.h"

namespace axle::data {

struct WebDatasetOptions {
    // The fields to read, in the order of the sample's entries. Each sample must have them. Other
    // fields are skipped without reading them. If the list is empty, all fields are read.
    std::vector<std::string> fields = {};
    // Whether fields are decoded. If false, all fields are u8 tensors; decode_webdataset_sample()
    // can decode them in collate_fn, on the worker threads of a loader.
    bool decode = true;
    DecodeOptions images = {};  // for images
    // The largest total size of the fields of a sample, before decoding.
    std::int64_t max_sample_bytes = std::int64_t{1} << 30;
};

// Returns the samples of several tar archives, read in sequence. Nothing is unpacked to the disk.
// Each archive is a shard (ShardedDataset), so that processes can read different archives, and a
// resumed loader skips samples without reading their contents.
//
// A sample consists of consecutive files whose names are equal up to the first dot in the last
// component. It is a map: "__key__" is this part of the name, "__url__" the path of the archive,
// and each file is an entry whose name is the rest in lower case. The letters after the last dot
// determine the value:
//
// - jpg, jpeg, png: an image, as decode_image() returns it;
// - cls, cls2, class, count, index, inx, id: an integer;
// - txt, text, transcript: a string, which must be UTF-8;
// - json, jsn: a Tree, as from_json() returns it;
// - npy: a tensor, as parse_npy() returns it;
// - all others: the bytes as a u8 tensor [n].
//
// Directories, files whose name has no extension or begins with a dot, and files and folders at the
// top named "__...__" are skipped. Archives have the formats ustar, pax, GNU or V7, without
// compression.
//
// Throws ValueError if there are no paths, a field is repeated or empty, or max_sample_bytes is not
// positive, and FileError if an archive cannot be opened. Reading throws FileError with the path,
// the offset of a header, the name of the file and the reason: if an archive is truncated, damaged
// or not a tar archive; for links, devices, sparse files, and names that are absolute, contain
// "..", or are not UTF-8; if an extended header exceeds 1 MiB or a name 4096 bytes; if a field is
// damaged, repeated or missing; and if a sample exceeds max_sample_bytes or has more than 1000
// fields. Throws UsageError if this build cannot decode the format of an image.
ShardedDataset stream_webdataset(const std::vector<std::string>& paths,
                                 const WebDatasetOptions& options = {});
// Returns the samples of the archives expand_braces(pattern).
ShardedDataset stream_webdataset(const std::string& pattern, const WebDatasetOptions& options = {});

// Returns a sample of a stream without `decode`, with its fields decoded. Throws FileError with the
// archive, the sample, the field and the reason if a field is damaged; ValueError unless the sample
// is a map with the strings "__key__" and "__url__"; and UsageError as above.
Tree decode_webdataset_sample(const Tree& sample, const DecodeOptions& images = {});

// Returns the names that a pattern stands for, as in a shell: "a-{08..10}.tar" is a-08.tar,
// a-09.tar and a-10.tar, and "{train,val}.tar" is train.tar and val.tar. With several braces, the
// last one changes fastest. Braces without ".." or a comma are kept. Throws ValueError for nested
// braces, for a brace that is not closed, and for more than a million names.
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace axle::data
