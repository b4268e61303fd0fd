#include "data/files/tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/ops.h"
#include "kernels/error.h"
#include "kernels/ops/decode.h"
#include "kernels/philox.h"

namespace axle::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are mapped without conversion");

int bytes_for(const std::string& path, int bytes) {
    if (bytes == 2 || bytes == 4) return bytes;
    if (bytes != 0)
        throw ValueError(str("Tokens: the size of a token must be 2 or 4 bytes, not ", bytes));
    return path.ends_with(".u32") || path.ends_with(".u32.bin") ? 4 : 2;
}

template <class T>
std::shared_ptr<std::vector<T>> converted(std::span<const std::int64_t> ids) {
    auto values = std::make_shared<std::vector<T>>(ids.size());
    std::transform(ids.begin(), ids.end(), values->begin(),
                   [](std::int64_t id) { return static_cast<T>(id); });
    return values;
}

template <class T>
std::int64_t max_of(const T* tokens, std::int64_t n) {
    T largest = 0;
    for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, tokens[i]);
    return n == 0 ? -1 : std::int64_t{largest};
}

// Returns the number of occurrences of each token, in the order of the ids. Ids that do not occur
// have the number 0 or are left out.
std::vector<std::int64_t> counts_of(const Tokens& tokens) {
    constexpr std::int64_t kMaxTable = 1 << 20;  // larger vocabularies are counted in a map
    std::vector<std::int64_t> counts;
    const std::int64_t largest = tokens.max();
    if (largest < kMaxTable) {
        counts.resize(static_cast<std::size_t>(largest + 1));
        for (std::int64_t i = 0; i < tokens.size(); ++i)
            ++counts[static_cast<std::size_t>(tokens[i])];
        return counts;
    }
    std::map<std::int64_t, std::int64_t> sparse;
    for (std::int64_t i = 0; i < tokens.size(); ++i) ++sparse[tokens[i]];
    for (const auto& [id, count] : sparse) counts.push_back(count);
    return counts;
}

}  // namespace

Tokens::Tokens(std::span<const std::int64_t> ids) : size_(static_cast<std::int64_t>(ids.size())) {
    std::int64_t largest = 0;
    for (const std::int64_t id : ids) {
        if (id < 0 || id > std::numeric_limits<std::uint32_t>::max())
            throw ValueError(str("Tokens: a token id must fit in uint32: ", id));
        largest = std::max(largest, id);
    }
    const auto keep = [&](auto values, int bytes) {
        data_ = values->data();
        bytes_ = bytes;
        owner_ = std::move(values);
    };
    if (largest <= std::numeric_limits<std::uint16_t>::max())
        keep(converted<std::uint16_t>(ids), 2);
    else
        keep(converted<std::uint32_t>(ids), 4);
}

Tokens Tokens::open(const std::string& path, TokenFileOptions options) {
    Tokens tokens;
    tokens.bytes_ = bytes_for(path, options.bytes);
    const InputFile file(path);
    if (file.size() == 0) throw FileError(str(printable(path), ": the file is empty"));
    if (file.size() % tokens.bytes_ != 0)
        throw FileError(str(printable(path), ": the size is not a multiple of the token size: ",
                            file.size(), " bytes, ", tokens.bytes_, " per token"));
    auto mapped = std::make_shared<const MappedFile>(file);
    tokens.data_ = mapped->bytes().data();
    tokens.size_ = file.size() / tokens.bytes_;
    tokens.owner_ = std::move(mapped);
    if (options.vocab_size <= 0) return tokens;
    const std::int64_t largest = tokens.max();
    if (largest >= options.vocab_size)
        throw FileError(str(printable(path), ": token ", largest,
                            " is out of range for a vocabulary of ", options.vocab_size,
                            "; check whether the tokens really have ", tokens.bytes_, " bytes"));
    return tokens;
}

void Tokens::save(const std::string& path, int bytes) const {
    const int width = bytes_for(path, bytes);
    const std::int64_t largest = max();
    if (width == 2 && largest > std::numeric_limits<std::uint16_t>::max())
        throw ValueError(str("Tokens: save: token ", largest, " does not fit in 2 bytes: ",
                             printable(path), "; use a file name ending in .u32.bin"));
    write_file_atomically(path, [&](AtomicFile& file) {
        constexpr std::int64_t kChunk = 1 << 16;
        std::vector<std::byte> buffer(static_cast<std::size_t>(kChunk * width));
        for (std::int64_t from = 0; from < size_; from += kChunk) {
            const std::int64_t n = std::min(kChunk, size_ - from);
            for (std::int64_t i = 0; i < n; ++i) {
                const auto id = static_cast<std::uint32_t>((*this)[from + i]);
                std::memcpy(buffer.data() + i * width, &id, static_cast<std::size_t>(width));
            }
            file.write(std::span(buffer).first(static_cast<std::size_t>(n * width)));
        }
    });
}

void Tokens::copy(std::int64_t start, std::span<std::int64_t> out) const {
    if (bytes_ == 2)
        kernels::widen(as<std::uint16_t>() + start, out.data(), std::ssize(out));
    else
        kernels::widen(as<std::uint32_t>() + start, out.data(), std::ssize(out));
}

void Tokens::prefetch(std::int64_t start, std::int64_t n) const {
    // Prefetches only the first kMaxPrefetchBytes; the hardware prefetcher then loads the rest.
    constexpr std::int64_t kLine = 64, kMaxPrefetchBytes = 1 << 12;
    const auto* from = static_cast<const std::byte*>(data_) + start * bytes_;
    for (std::int64_t at = 0; at < std::min(n * bytes_, kMaxPrefetchBytes); at += kLine)
        __builtin_prefetch(from + at);
}

std::int64_t Tokens::max() const {
    return bytes_ == 2 ? max_of(as<std::uint16_t>(), size_) : max_of(as<std::uint32_t>(), size_);
}

double unigram_entropy(const Tokens& tokens) {
    double sum = 0;  // the sum of count * ln(count)
    for (const std::int64_t count : counts_of(tokens))
        if (count > 1) sum += static_cast<double>(count) * std::log(static_cast<double>(count));
    const auto n = static_cast<double>(tokens.size());
    return tokens.size() == 0 ? 0 : std::max(0.0, std::log(n) - sum / n);
}

BlockDataset::BlockDataset(Tokens tokens, std::int64_t block)
    : tokens_(std::move(tokens)), block_(block) {
    if (block < 1) throw ValueError(str("BlockDataset: block must be positive: ", block));
    if (tokens_.size() - 1 < block)
        throw ValueError(str("BlockDataset: too few tokens for a block and its last label: ",
                             tokens_.size(), " tokens, block ", block));
}

Tree BlockDataset::get(std::int64_t index) const {
    const Tree batch = get_batch({&index, 1});
    return map_tensors(batch, [](const Tensor& t) { return t.select(0, 0); });
}

Tree BlockDataset::get_batch(std::span<const std::int64_t> indices) const {
    std::vector<std::int64_t> from;
    from.reserve(indices.size());
    for (const std::int64_t index : indices) {
        if (index < 0 || index >= size())
            throw IndexError(
                str("BlockDataset: index ", index, " is out of range for ", size(), " samples"));
        from.push_back(start(index));
    }
    const Shape shape = {std::ssize(indices), block_};
    Tensor ids = empty(shape, {.dtype = i64}), labels = empty(shape, {.dtype = i64});
    auto *id = ids.data<std::int64_t>(), *label = labels.data<std::int64_t>();
    const auto block = static_cast<std::size_t>(block_);
    constexpr std::size_t kPrefetchDistance =
        4;  // number of blocks ahead; blocks are scattered in memory
    for (std::size_t i = 0; i < from.size(); ++i, id += block, label += block) {
        if (i + kPrefetchDistance < from.size())
            tokens_.prefetch(from[i + kPrefetchDistance], block_);
        tokens_.copy(from[i], {id, block});
        tokens_.copy(from[i] + 1, {label, block});
    }
    return Tree{{"input_ids", ids}, {"labels", labels}};
}

RandomBlockDataset::RandomBlockDataset(Tokens tokens, std::int64_t block, std::int64_t size,
                                       std::uint64_t seed)
    : BlockDataset(std::move(tokens), block), size_(size), seed_(seed) {
    if (size < 0) throw ValueError(str("RandomBlockDataset: negative number of samples: ", size));
}

std::int64_t RandomBlockDataset::start(std::int64_t index) const {
    const kernels::Philox random{.seed = seed_};
    const auto words = random.block(static_cast<std::uint64_t>(index));
    const std::uint64_t draw = std::uint64_t{words[0]} << 32 | words[1];
    return static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(starts()));
}

}  // namespace axle::data
