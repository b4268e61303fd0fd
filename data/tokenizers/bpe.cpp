// Byte pair encoding: merges the pair of neighboring symbols with the lowest rank, until no pair
// has a rank.
#include <algorithm>
#include <queue>
#include <utility>

#include "core/files/file.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data::tokenizers {
namespace {

struct Merge {
    std::uint32_t rank = UINT32_MAX;  // the largest number if the pair has no merge
    std::uint32_t id = 0;             // the merged symbol
};

// The merges of pairs: a hash table with open addressing.
class MergeTable {
  public:
    explicit MergeTable(std::size_t count) {
        std::size_t size = 16;
        while (size < 2 * count) size *= 2;
        slots_.resize(size);
    }
    void set(std::uint32_t left, std::uint32_t right, Merge merge) {
        Slot& slot = slots_[find(key(left, right))];
        slot = {key(left, right), merge};
    }
    Merge get(std::uint32_t left, std::uint32_t right) const {
        return slots_[find(key(left, right))].merge;
    }

  private:
    struct Slot {
        std::uint64_t key = UINT64_MAX;
        Merge merge;
    };
    static std::uint64_t key(std::uint32_t left, std::uint32_t right) {
        return std::uint64_t{left} << 32 | right;
    }
    // Returns the slot of a key, or the free slot for it.
    std::size_t find(std::uint64_t key) const {
        const std::size_t mask = slots_.size() - 1;
        std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
        auto i = static_cast<std::size_t>(hash ^ hash >> 32) & mask;
        while (slots_[i].key != key && slots_[i].key != UINT64_MAX) i = (i + 1) & mask;
        return i;
    }
    std::vector<Slot> slots_;
};

// A symbol of a word. Symbols form a list, because merged ones are removed.
struct Symbol {
    std::uint32_t id;
    std::uint32_t size;  // bytes of the piece; 0 if the symbol was merged into the one before
    std::int32_t previous, next;
};

// The results of words that were encoded before. Each word has one place, and a later word with the
// same place replaces it, so the memory is limited.
class Cache : public Scratch {
  public:
    static constexpr std::size_t kLongest = 48;  // bytes of a word

    Cache() : entries_(kEntries) {}

    const std::vector<Token>* find(std::string_view word, std::size_t hash) const {
        const Entry& entry = entries_[hash % kEntries];
        return entry.word == word && !entry.tokens.empty() ? &entry.tokens : nullptr;
    }
    void set(std::string_view word, std::size_t hash, std::span<const Token> tokens) {
        Entry& entry = entries_[hash % kEntries];
        entry.word.assign(word);
        entry.tokens.assign(tokens.begin(), tokens.end());
    }

    std::vector<Symbol> symbols;

  private:
    static constexpr std::size_t kEntries = 1 << 14;
    struct Entry {
        std::string word;
        std::vector<Token> tokens;
    };
    std::vector<Entry> entries_;
};

class Bpe : public Model {
  public:
    explicit Bpe(const Fields& fields)
        : Model(Vocabulary::from_ids(fields, "vocab")),
          merges_(fields.list("merges").elements().size()),
          unknown_(fields.text("unk_token", "")),
          has_unknown_(fields.has("unk_token")),
          prefix_(fields.text("continuing_subword_prefix", "")),
          suffix_(fields.text("end_of_word_suffix", "")),
          fuses_unknown_(fields.flag("fuse_unk", false)),
          byte_fallback_(fields.flag("byte_fallback", false)),
          ignores_merges_(fields.flag("ignore_merges", false)) {
        if (fields.has("dropout") &&
            (!fields.value("dropout").is_number() || fields.value("dropout").number() != 0))
            fields.fail("dropout", str("only 0 and null are supported, not ",
                                       printable(str(fields.value("dropout")))));
        fields.allow_only({"vocab", "merges", "unk_token", "continuing_subword_prefix", "dropout",
                           "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
        std::uint32_t rank = 0;
        for (const Tree& merge : fields.list("merges").elements())
            add_merge(merge, rank++, fields.path_of("merges"));
    }

    std::unique_ptr<Scratch> make_scratch() const override { return std::make_unique<Cache>(); }

    void encode(std::string_view piece, std::vector<Token>& out, Scratch* scratch) const override {
        auto& cache = static_cast<Cache&>(*scratch);
        const bool is_short = piece.size() <= Cache::kLongest;
        const std::size_t hash = is_short ? std::hash<std::string_view>()(piece) : 0;
        if (is_short) {
            if (const std::vector<Token>* tokens = cache.find(piece, hash)) {
                out.insert(out.end(), tokens->begin(), tokens->end());
                return;
            }
        }
        const std::size_t before = out.size();
        encode_word(piece, out, cache.symbols);
        if (is_short) cache.set(piece, hash, std::span(out).subspan(before));
    }

  private:
    void add_merge(const Tree& merge, std::uint32_t rank, const std::string& path) {
        std::string left, right;
        if (merge.is_string()) {
            const std::string& text = merge.string();
            if (text.starts_with("#version")) return;
            const std::size_t space = text.find(' ');
            if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
                fail_at(path, str("merge ", rank, " must be two tokens with a space between them: ",
                                  in_quotes(text)));
            left = text.substr(0, space);
            right = text.substr(space + 1);
        } else if (merge.is_list() && merge.size() == 2 && merge[0].is_string() &&
                   merge[1].is_string()) {
            left = merge[0].string();
            right = merge[1].string();
        } else {
            fail_at(path, str("merge ", rank, " must be a string or a list of two strings"));
        }
        if (right.size() < prefix_.size())
            fail_at(path, str("merge ", rank, ": the token ", in_quotes(right),
                              " is shorter than the prefix ", in_quotes(prefix_)));
        const std::uint32_t left_id = known_id(left, rank, path);
        const std::uint32_t right_id = known_id(right, rank, path);
        const std::uint32_t id = known_id(left + right.substr(prefix_.size()), rank, path);
        merges_.set(left_id, right_id, {rank, id});
    }
    std::uint32_t known_id(const std::string& token, std::uint32_t rank,
                           const std::string& path) const {
        const auto id = vocabulary().id(token);
        if (!id)
            fail_at(path,
                    str("merge ", rank, ": the vocabulary lacks the token ", in_quotes(token)));
        return static_cast<std::uint32_t>(*id);
    }

    void encode_word(std::string_view word, std::vector<Token>& out,
                     std::vector<Symbol>& symbols) const {
        if (ignores_merges_) {
            if (const auto id = vocabulary().id(word)) {
                out.push_back({*id, {0, static_cast<std::uint32_t>(word.size())}});
                return;
            }
        }
        symbols.clear();
        divide(word, symbols);
        if (symbols.size() < kFew) {
            merge_few(symbols);
        } else {
            merge_many(symbols);
        }
        std::uint32_t begin = 0;
        for (const Symbol& symbol : symbols) {
            if (symbol.size == 0) continue;
            out.push_back({symbol.id, {begin, begin + symbol.size}});
            begin += symbol.size;
        }
    }

    // Appends the symbols of the characters of a word.
    void divide(std::string_view word, std::vector<Symbol>& symbols) const {
        std::optional<std::uint32_t> unknown_size;  // bytes of an unknown symbol to be added
        const auto add_unknown = [&] {
            if (unknown_size) add(symbols, unknown_id(word), *unknown_size);
            unknown_size.reset();
        };
        std::string key;
        for (std::size_t at = 0; at < word.size();) {
            const std::uint32_t size = character_in(word, at).size;
            key.assign(at > 0 ? prefix_ : "");
            key.append(word.substr(at, size));
            at += size;
            if (at == word.size()) key += suffix_;
            if (const auto id = vocabulary().id(key)) {
                add_unknown();
                add(symbols, *id, size);
            } else if (byte_fallback_ && add_bytes(symbols, key)) {
                continue;
            } else if (has_unknown_) {
                if (unknown_size && fuses_unknown_) {
                    *unknown_size += size;
                } else {
                    add_unknown();
                    unknown_size = size;
                }
            }
        }
        add_unknown();
    }
    static void add(std::vector<Symbol>& symbols, std::int64_t id, std::uint32_t size) {
        const auto i = static_cast<std::int32_t>(symbols.size());
        if (i > 0) symbols.back().next = i;
        symbols.push_back({static_cast<std::uint32_t>(id), size, i - 1, -1});
    }
    // Adds the tokens of all bytes, or returns false if one of them has no token.
    bool add_bytes(std::vector<Symbol>& symbols, std::string_view bytes) const {
        for (const char byte : bytes)
            if (!vocabulary().byte_id(static_cast<unsigned char>(byte))) return false;
        for (const char byte : bytes)
            add(symbols, *vocabulary().byte_id(static_cast<unsigned char>(byte)), 1);
        return true;
    }
    // Returns the id of unk_token. `word` has an unknown character.
    std::int64_t unknown_id(std::string_view word) const {
        const auto id = vocabulary().id(unknown_);
        if (!id)
            throw ValueError(str("encode: a character of ", in_quotes(word),
                                 " is unknown and the vocabulary lacks the token ",
                                 in_quotes(unknown_)));
        return *id;
    }

    Merge merge_at(const std::vector<Symbol>& symbols, std::int32_t i) const {
        const Symbol& left = symbols[static_cast<std::size_t>(i)];
        if (left.size == 0 || left.next < 0) return {};
        return merges_.get(left.id, symbols[static_cast<std::size_t>(left.next)].id);
    }
    // Merges a symbol and its successor.
    static void merge(std::vector<Symbol>& symbols, std::int32_t i, std::uint32_t id) {
        Symbol& left = symbols[static_cast<std::size_t>(i)];
        Symbol& right = symbols[static_cast<std::size_t>(left.next)];
        left.id = id;
        left.size += right.size;
        left.next = right.next;
        right.size = 0;
        if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = i;
    }

    // Searches all pairs for each merge.
    void merge_few(std::vector<Symbol>& symbols) const {
        if (symbols.empty()) return;
        std::array<Merge, kFew> merges;
        for (std::size_t i = 0; i < symbols.size(); ++i)
            merges[i] = merge_at(symbols, static_cast<std::int32_t>(i));
        while (true) {
            const auto best = std::ranges::min_element(
                merges.begin(), merges.begin() + std::ssize(symbols), {}, &Merge::rank);
            if (best->rank == UINT32_MAX) return;
            const auto i = static_cast<std::int32_t>(best - merges.begin());
            const std::int32_t next = symbols[static_cast<std::size_t>(i)].next;
            merge(symbols, i, best->id);
            merges[static_cast<std::size_t>(next)] = {};
            *best = merge_at(symbols, i);
            const std::int32_t previous = symbols[static_cast<std::size_t>(i)].previous;
            if (previous >= 0)
                merges[static_cast<std::size_t>(previous)] = merge_at(symbols, previous);
        }
    }

    // Keeps the pairs in a heap, for O(n log n) steps. A pair that has changed since it was added
    // is ignored.
    void merge_many(std::vector<Symbol>& symbols) const {
        struct Pair {
            Merge merge;
            std::int32_t at;
            bool operator<(const Pair& other) const {
                return merge.rank != other.merge.rank ? merge.rank > other.merge.rank
                                                      : at > other.at;
            }
        };
        std::priority_queue<Pair> pairs;
        const auto add_pair = [&](std::int32_t at) {
            const Merge merge = merge_at(symbols, at);
            if (merge.rank != UINT32_MAX) pairs.push({merge, at});
        };
        for (std::int32_t i = 0; i < std::ssize(symbols); ++i) add_pair(i);
        while (!pairs.empty()) {
            const Pair pair = pairs.top();
            pairs.pop();
            const Merge now = merge_at(symbols, pair.at);
            if (now.rank == UINT32_MAX || now.id != pair.merge.id) continue;
            merge(symbols, pair.at, now.id);
            const std::int32_t previous = symbols[static_cast<std::size_t>(pair.at)].previous;
            if (previous >= 0) add_pair(previous);
            add_pair(pair.at);
        }
    }

    static constexpr std::size_t kFew = 24;  // below this number of symbols, no heap is used

    MergeTable merges_;
    std::string unknown_;
    bool has_unknown_;
    std::string prefix_, suffix_;
    bool fuses_unknown_, byte_fallback_, ignores_merges_;
};

}  // namespace

std::unique_ptr<Model> make_bpe(const Fields& fields) { return std::make_unique<Bpe>(fields); }

}  // namespace axle::data::tokenizers
