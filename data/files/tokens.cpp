#include "data/files/tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/ops.h"
#include "data/files/token_writer.h"
#include "kernels/error.h"
#include "kernels/ops/decode.h"
#include "kernels/philox.h"

namespace axle::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are mapped without conversion");

// The number of ids that are read together.
constexpr std::int64_t kPart = 1 << 16;

template <class T>
void widen(std::span<const std::byte> stored, std::span<std::int64_t> out) {
    kernels::widen(reinterpret_cast<const T*>(stored.data()), out.data(), std::ssize(out));
}

void widen(std::span<const std::byte> stored, int bytes, std::span<std::int64_t> out) {
    if (bytes == 2)
        widen<std::uint16_t>(stored, out);
    else
        widen<std::uint32_t>(stored, out);
}

// A source whose ids are in memory, as values of type T.
template <class T>
class StoredTokens : public TokenSource {
  public:
    explicit StoredTokens(std::span<const std::int64_t> ids) : ids_(ids.size()) {
        std::ranges::transform(ids, ids_.begin(),
                               [](std::int64_t id) { return static_cast<T>(id); });
    }
    const T* data() const { return ids_.data(); }
    std::int64_t size() const override { return std::ssize(ids_); }
    void copy(std::int64_t start, std::span<std::int64_t> out) const override {
        kernels::widen(ids_.data() + start, out.data(), std::ssize(out));
    }

  private:
    std::vector<T> ids_;
};

// A file of ids. copy() reads the file instead of the map, because pages that were accessed through
// the map count as memory of the process.
class TokenFile : public TokenSource {
  public:
    TokenFile(const std::string& path, int bytes) : file_(path), bytes_(bytes) {
        if (file_.size() == 0) throw FileError(str(printable(path), ": the file is empty"));
        if (file_.size() % bytes != 0)
            throw FileError(str(printable(path), ": the size is not a multiple of the token size: ",
                                file_.size(), " bytes, ", bytes, " per token"));
        map_.emplace(file_);
    }
    const void* data() const { return map_->bytes().data(); }
    std::int64_t size() const override { return file_.size() / bytes_; }
    void copy(std::int64_t start, std::span<std::int64_t> out) const override {
        std::vector<std::byte> stored(out.size() * static_cast<std::size_t>(bytes_));
        file_.read_at(start * bytes_, stored);
        widen(stored, bytes_, out);
    }

  private:
    InputFile file_;
    std::optional<MappedFile> map_;
    int bytes_;
};

// The tokens of several files, in sequence.
class ShardedTokens : public TokenSource {
  public:
    ShardedTokens(const std::string& folder, const TokenFileOptions& options) {
        // The last component "." makes list_folder() follow a link at `folder`.
        for (const std::string& name : list_folder(folder + "/."))
            if (name.ends_with(".bin")) {
                shards_.push_back(Tokens::open(folder + "/" + name, options));
                ends_.push_back(size() + shards_.back().size());
            }
        if (shards_.empty())
            throw FileError(str(printable(folder), ": the folder must have a file *.bin"));
    }
    std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
    void copy(std::int64_t start, std::span<std::int64_t> out) const override {
        auto shard =
            static_cast<std::size_t>(std::ranges::upper_bound(ends_, start) - ends_.begin());
        for (; !out.empty(); ++shard) {
            const std::int64_t n = std::min(std::ssize(out), ends_[shard] - start);
            const std::int64_t begin = ends_[shard] - shards_[shard].size();
            const auto part = out.first(static_cast<std::size_t>(n));
            shards_[shard].copy(start - begin, part);
            out = out.subspan(part.size());
            start += n;
        }
    }

  private:
    std::vector<Tokens> shards_;
    std::vector<std::int64_t> ends_;  // for each file, the number of tokens up to its last token
};

// Returns the number of occurrences of each id, in the order of the ids. For ids that do not occur,
// the number is 0 or left out.
std::vector<std::int64_t> counts_of(const Tokens& tokens) {
    constexpr std::size_t kMaxTable = 1 << 20;  // larger ids are counted in a map
    std::vector<std::int64_t> counts;
    std::map<std::int64_t, std::int64_t> sparse;
    tokens.for_each_part([&](std::span<const std::int64_t> ids) {
        for (const std::int64_t id : ids) {
            const auto index = static_cast<std::size_t>(id);
            if (index >= kMaxTable) {
                ++sparse[id];
                continue;
            }
            if (index >= counts.size()) counts.resize(index + 1);
            ++counts[index];
        }
    });
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
    const auto keep = [&]<class T>(T) {
        auto stored = std::make_shared<const StoredTokens<T>>(ids);
        data_ = stored->data();
        bytes_ = sizeof(T);
        source_ = std::move(stored);
    };
    if (largest <= std::numeric_limits<std::uint16_t>::max())
        keep(std::uint16_t{});
    else
        keep(std::uint32_t{});
}

Tokens::Tokens(std::shared_ptr<const TokenSource> source)
    : source_(std::move(source)), size_(source_->size()) {}

Tokens Tokens::open(const std::string& path, TokenFileOptions options) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        return Tokens(std::make_shared<const ShardedTokens>(path, options));
    Tokens tokens;
    tokens.bytes_ = token_bytes(path, options.bytes);
    auto file = std::make_shared<const TokenFile>(path, tokens.bytes_);
    tokens.data_ = file->data();
    tokens.size_ = file->size();
    tokens.source_ = std::move(file);
    if (options.vocab_size <= 0) return tokens;
    const std::int64_t largest = tokens.max();
    if (largest >= options.vocab_size)
        throw FileError(str(printable(path), ": token ", largest,
                            " is out of range for a vocabulary of ", options.vocab_size,
                            "; check whether the tokens really have ", tokens.bytes_, " bytes"));
    return tokens;
}

Tokens Tokens::slice(std::int64_t begin, std::int64_t end) const {
    if (begin < 0 || end < begin || end > size_)
        throw IndexError(str("Tokens: slice: the positions must satisfy 0 <= begin <= end <= ",
                             size_, ": begin ", begin, ", end ", end));
    Tokens part = *this;
    part.begin_ += begin;
    part.size_ = end - begin;
    if (data_ != nullptr) part.data_ = static_cast<const std::byte*>(data_) + begin * bytes_;
    return part;
}

void Tokens::save(const std::string& path, int bytes) const {
    TokenWriter writer(path, {.bytes = bytes});
    for_each_part([&](std::span<const std::int64_t> ids) { writer.write(ids); });
    writer.commit();
}

void Tokens::copy(std::int64_t start, std::span<std::int64_t> out) const {
    if (data_ == nullptr) {
        if (!out.empty()) source_->copy(begin_ + start, out);
    } else if (bytes_ == 2) {
        kernels::widen(as<std::uint16_t>() + start, out.data(), std::ssize(out));
    } else {
        kernels::widen(as<std::uint32_t>() + start, out.data(), std::ssize(out));
    }
}

std::int64_t Tokens::computed(std::int64_t i) const {
    std::int64_t id = 0;
    source_->copy(begin_ + i, {&id, 1});
    return id;
}

void Tokens::prefetch(std::int64_t start, std::int64_t n) const {
    if (data_ == nullptr) return;
    // Prefetches only the first kMaxPrefetchBytes; the hardware prefetcher then loads the rest.
    constexpr std::int64_t kLine = 64, kMaxPrefetchBytes = 1 << 12;
    const auto* from = static_cast<const std::byte*>(data_) + start * bytes_;
    for (std::int64_t at = 0; at < std::min(n * bytes_, kMaxPrefetchBytes); at += kLine)
        __builtin_prefetch(from + at);
}

std::int64_t Tokens::max() const {
    std::int64_t largest = -1;
    for_each_part([&](std::span<const std::int64_t> ids) {
        for (const std::int64_t id : ids) largest = std::max(largest, id);
    });
    return largest;
}

void Tokens::for_each_part(const std::function<void(std::span<const std::int64_t> ids)>& f) const {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kPart, size_)));
    for (std::int64_t from = 0; from < size_; from += kPart) {
        const auto part =
            std::span(ids).first(static_cast<std::size_t>(std::min(kPart, size_ - from)));
        source_->copy(begin_ + from, part);
        f(part);
    }
}

double unigram_entropy(const Tokens& tokens) {
    // The entropy of the frequencies count / n is ln(n) - (sum of count ln(count)) / n.
    double sum = 0;
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
    std::vector<std::int64_t> computed;
    constexpr std::size_t kPrefetchDistance = 4;  // in blocks, which are scattered in memory
    for (std::size_t i = 0; i < from.size(); ++i, id += block, label += block) {
        if (i + kPrefetchDistance < from.size())
            tokens_.prefetch(from[i + kPrefetchDistance], block_);
        if (tokens_.is_stored()) {
            tokens_.copy(from[i], {id, block});
            tokens_.copy(from[i] + 1, {label, block});
        } else {  // computes each id once
            computed.resize(block + 1);
            tokens_.copy(from[i], computed);
            std::copy_n(computed.data(), block, id);
            std::copy_n(computed.data() + 1, block, label);
        }
    }
    return Tree{{"input_ids", ids}, {"labels", labels}};
}

RandomBlockDataset::RandomBlockDataset(Tokens tokens, std::int64_t block, std::int64_t size,
                                       std::uint64_t seed)
    : BlockDataset(std::move(tokens), block), size_(size), seed_(seed) {
    if (size < 0)
        throw ValueError(
            str("RandomBlockDataset: the number of samples must not be negative: ", size));
}

std::int64_t RandomBlockDataset::start(std::int64_t index) const {
    const kernels::Philox random{.seed = seed_};
    const auto words = random.block(static_cast<std::uint64_t>(index));
    const std::uint64_t draw = std::uint64_t{words[0]} << 32 | words[1];
    return static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(starts()));
}

}  // namespace axle::data
