#include "data/corpora/encode_files.h"

#include <utility>

#include "core/files/file.h"
#include "data/corpora/in_order.h"
#include "data/files/token_writer.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
constexpr std::size_t kBatchTexts = 4096;

struct Batch {
    std::vector<FileText> texts;
    std::int64_t read_bytes = 0;  // of the files, up to the last text
    std::int64_t documents = 0;
    std::vector<std::int64_t> ids;
};

int bytes_of_tokens(const Tokenizer& tokenizer, const std::string& out,
                    const EncodeFilesOptions& options) {
    const std::int64_t size = tokenizer.vocab_size();
    const int needed = size > 65536 ? 4 : 2;
    if (options.shard_tokens > 0) return needed;
    const int bytes = token_bytes(out, 0);
    if (bytes < needed)
        throw ValueError(str("encode_files: the ", size,
                             " tokens of the vocabulary do not fit in 2 bytes: ", printable(out),
                             "; use a name that ends in .u32.bin"));
    return bytes;
}

void check(const Tokenizer& tokenizer, const EncodeFilesOptions& options) {
    if (options.num_threads < 1 || options.num_threads > 1024)
        throw ValueError(
            str("encode_files: num_threads must be from 1 to 1024: it is ", options.num_threads));
    if (options.end_id && (*options.end_id < 0 || *options.end_id >= tokenizer.vocab_size()))
        throw ValueError(str("encode_files: end_id must be an id of the vocabulary, which has ",
                             tokenizer.vocab_size(), " tokens: it is ", *options.end_id));
}

}  // namespace

EncodedFiles encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const std::string& out, const EncodeFilesOptions& options) {
    check(tokenizer, options);
    const auto* const pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
    if (options.add_special_tokens && pretrained == nullptr)
        throw ValueError("encode_files: add_special_tokens needs a tokenizer.json");
    const int bytes = bytes_of_tokens(tokenizer, out, options);
    TextReader reader(paths, options.texts);
    TokenWriter writer(out, {.bytes = bytes, .shard_tokens = options.shard_tokens});
    EncodedFiles result;
    if (options.on_progress) options.on_progress({0, reader.total_bytes(), 0});

    const auto next = [&](Batch& batch) {
        batch.texts.clear();
        std::size_t size = 0;
        while (size < kBatchBytes && batch.texts.size() < kBatchTexts) {
            FileText text;
            if (!reader.next(text)) break;
            if (options.add_special_tokens && !text.is_row &&
                options.texts.sample_by == SampleBy::part)
                throw ValueError(
                    "encode_files: add_special_tokens cannot be used for text files that are read "
                    "in parts; sample_by must be document, paragraph or line");
            size += text.text.size();
            batch.texts.push_back(std::move(text));
        }
        batch.read_bytes = reader.read_bytes();
        return !batch.texts.empty();
    };
    const auto work = [&](Batch& batch) {
        batch.ids.clear();
        batch.documents = 0;
        for (const FileText& text : batch.texts) {
            try {
                const auto ids = pretrained
                                     ? pretrained->encode_ids(text.text, options.add_special_tokens)
                                     : tokenizer.encode(text.text);
                batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
            } catch (const ValueError& error) {
                throw FileError(str(reader.location(text), ": ", error.what()));
            }
            if (!text.ends_document) continue;
            ++batch.documents;
            if (options.end_id) batch.ids.push_back(*options.end_id);
        }
    };
    const auto finish = [&](const Batch& batch) {
        writer.write(batch.ids);
        result.documents += batch.documents;
        if (options.on_progress)
            options.on_progress({batch.read_bytes, reader.total_bytes(), writer.size()});
    };
    process_in_order<Batch>(options.num_threads, next, work, finish);

    result.tokens = writer.size();
    if (result.tokens == 0)
        throw FileError(str("encode_files: the texts have no tokens: ", printable(paths[0]),
                            paths.size() > 1 ? ", ..." : ""));
    writer.commit();
    return result;
}

}  // namespace axle::data
