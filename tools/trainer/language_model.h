// Private to tools: the folder of a language model and its tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/files/text.h"

namespace axle::trainer {

// Returns the folder of a model: `path`, or the folder of `path` if it is a .safetensors file.
std::string model_folder(const std::string& path);
// Returns model_type of the model's config.json, or "" if there is none. Throws FileError if the
// file is missing, has more than 2 MiB or is not JSON.
std::string model_type(const std::string& path);
// Reads the vocabulary of a CharTokenizer. Throws FileError if the file is missing or invalid.
std::unique_ptr<data::Tokenizer> read_characters(const std::string& path);
// Returns the tokenizer of a model: the tokenizer.json of train_gpt or of Hugging Face, or a
// ByteTokenizer if the folder has no such file and `vocab_size`, the number of tokens of the model,
// is 256. Throws FileError if there is no such file otherwise, or if it is invalid.
std::unique_ptr<data::Tokenizer> model_tokenizer(const std::string& path, std::int64_t vocab_size);
// Copies the files of the tokenizer that exist in the model's folder.
void copy_tokenizer(const std::string& path, const std::string& folder);

}  // namespace axle::trainer
