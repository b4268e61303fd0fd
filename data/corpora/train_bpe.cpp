#include "data/corpora/train_bpe.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/files/file.h"
#include "core/tree/tree.h"
#include "data/corpora/in_order.h"
#include "data/tokenizers/components.h"
#include "data/tokenizers/unicode.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

using tokenizers::Vocabulary;

constexpr std::size_t kMaxText = (std::size_t{1} << 30) - 1;
constexpr std::int64_t kBytes = 256;

// Two neighboring tokens, in the order of their ids.
using Pair = std::pair<std::uint32_t, std::uint32_t>;

struct PairHash {
    std::size_t operator()(const Pair& pair) const {
        const std::uint64_t key = std::uint64_t{pair.first} << 32 | pair.second;
        const std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
        return static_cast<std::size_t>(hash ^ hash >> 32);
    }
};

// A pair that can be merged, and the words that contain it. The count may be too large, because it
// is that of the time when the pair was found.
struct Candidate {
    std::int64_t count;
    Pair pair;
    std::vector<std::uint32_t> words;
    bool operator<(const Candidate& other) const {
        return count != other.count ? count < other.count : pair > other.pair;
    }
};

// The tokens by id, and the merges.
struct Merges {
    Vocabulary vocabulary;
    std::vector<Pair> pairs;

    // Returns the id of a token, and adds the token if it is new.
    std::uint32_t id(const std::string& token) {
        if (!vocabulary.id(token)) vocabulary.add(token);
        return static_cast<std::uint32_t>(*vocabulary.id(token));
    }
};

// Merges pairs of tokens of words. The counts of pairs and the words that contain them are kept up
// to date, so that a merge only needs the words that contain the pair.
class PairMerger {
  public:
    // `counts` maps words to the numbers of their occurrences.
    template <class Counts>
    PairMerger(const Counts& counts, const std::array<std::uint32_t, kBytes>& byte_ids) {
        words_.reserve(counts.size());
        for (const auto& [text, count] : counts) {
            words_.push_back({tokens_.size(), text.size(), count});
            for (const char byte : text)
                tokens_.push_back(byte_ids[static_cast<unsigned char>(byte)]);
        }
        for (std::uint32_t i = 0; i < words_.size(); ++i) {
            const Word& word = words_[i];
            for (std::size_t at = word.begin; at + 1 < word.begin + word.size; ++at)
                change({tokens_[at], tokens_[at + 1]}, 1, i);
        }
        add_candidates();
    }

    // Returns the most frequent pair, or nullptr if none occurs at least `min_frequency` times. The
    // pair is valid until the next call of merge().
    const Pair* best(std::int64_t min_frequency) {
        while (!candidates_.empty()) {
            std::pop_heap(candidates_.begin(), candidates_.end());
            Candidate& last = candidates_.back();
            const std::int64_t count = counts_[last.pair];
            if (last.count == count)
                return count < 1 || count < min_frequency ? nullptr : &last.pair;
            last.count = count;
            std::push_heap(candidates_.begin(), candidates_.end());
        }
        return nullptr;
    }
    // Replaces the pair that best() returned last by the token `merged`.
    void merge(std::uint32_t merged) {
        const Candidate best = std::move(candidates_.back());
        candidates_.pop_back();
        for (const std::uint32_t word : best.words) merge(word, best.pair, merged);
        add_candidates();
    }

  private:
    struct Word {
        std::size_t begin, size;  // its tokens
        std::int64_t count;
    };

    void merge(std::uint32_t number, Pair pair, std::uint32_t merged) {
        Word& word = words_[number];
        const std::span tokens = std::span(tokens_).subspan(word.begin, word.size);
        std::size_t size = 0;
        for (std::size_t at = 0; at < tokens.size(); ++at) {
            if (at + 1 == tokens.size() || Pair(tokens[at], tokens[at + 1]) != pair) {
                tokens[size++] = tokens[at];
                continue;
            }
            if (size > 0) {
                change({tokens[size - 1], pair.first}, -1, number);
                change({tokens[size - 1], merged}, 1, number);
            }
            ++at;
            if (at + 1 < tokens.size()) {
                change({pair.second, tokens[at + 1]}, -1, number);
                change({merged, tokens[at + 1]}, 1, number);
            }
            tokens[size++] = merged;
        }
        word.size = size;
    }
    void change(Pair pair, std::int64_t sign, std::uint32_t word) {
        counts_[pair] += sign * words_[word].count;
        if (sign < 0) return;
        std::vector<std::uint32_t>& found = found_[pair];
        if (found.empty() || found.back() != word) found.push_back(word);
    }
    // Adds the pairs that change() found.
    void add_candidates() {
        for (auto& [pair, words] : found_) {
            const std::int64_t count = counts_[pair];
            if (count < 1) continue;
            words.shrink_to_fit();
            candidates_.push_back({count, pair, std::move(words)});
            std::push_heap(candidates_.begin(), candidates_.end());
        }
        found_.clear();
    }

    std::vector<std::uint32_t> tokens_;
    std::vector<Word> words_;
    std::unordered_map<Pair, std::int64_t, PairHash> counts_;
    std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> found_;
    std::vector<Candidate> candidates_;  // a heap
};

// Returns the tokenizer.json of a trained model, with the fields of the tokenizers library.
std::string json_of(const Merges& model, const std::vector<std::string>& special_tokens) {
    const auto byte_level = [](bool add_prefix_space, bool trim_offsets) {
        return Tree{{"type", "ByteLevel"},
                    {"add_prefix_space", add_prefix_space},
                    {"trim_offsets", trim_offsets},
                    {"use_regex", true}};
    };
    const auto text = [&](std::int64_t id) { return *model.vocabulary.token(id); };
    Tree added = Tree::list(), vocabulary = Tree::map(), merges = Tree::list();
    for (const std::string& token : special_tokens)
        added.push_back(Tree{{"id", *model.vocabulary.id(token)},
                             {"content", token},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}});
    vocabulary.entries().reserve(model.vocabulary.size());
    for (std::int64_t id = 0; id <= model.vocabulary.max_id(); ++id)
        vocabulary.entries().push_back({text(id), id});
    for (const Pair& pair : model.pairs)
        merges.push_back(Tree::List{text(pair.first), text(pair.second)});
    const Tree file{{"version", "1.0"},
                    {"truncation", {}},
                    {"padding", {}},
                    {"added_tokens", std::move(added)},
                    {"normalizer", {}},
                    {"pre_tokenizer", byte_level(false, true)},
                    {"post_processor", byte_level(true, false)},
                    {"decoder", byte_level(true, true)},
                    {"model", Tree{{"type", "BPE"},
                                   {"dropout", {}},
                                   {"unk_token", {}},
                                   {"continuing_subword_prefix", {}},
                                   {"end_of_word_suffix", {}},
                                   {"fuse_unk", false},
                                   {"byte_fallback", false},
                                   {"ignore_merges", false},
                                   {"vocab", std::move(vocabulary)},
                                   {"merges", std::move(merges)}}}};
    return to_json(file) + "\n";
}

}  // namespace

struct BpeTrainer::Words {
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>()(text);
        }
    };

    tokenizers::Regex pattern{tokenizers::kWordPattern};
    tokenizers::Matches matches;
    std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts;
};

BpeTrainer::BpeTrainer(BpeTrainerOptions options)
    : options_(std::move(options)), words_(std::make_unique<Words>()) {
    std::unordered_set<std::string> known;
    for (const std::string& token : options_.special_tokens)
        if (token.empty() || tokenizers::find_invalid_utf8(token) != std::string_view::npos)
            throw ValueError(
                str("BpeTrainer: a special token must be UTF-8 and not empty: ", in_quotes(token)));
    std::erase_if(options_.special_tokens,
                  [&](const std::string& token) { return !known.insert(token).second; });
    const std::int64_t smallest = kBytes + std::ssize(options_.special_tokens);
    if (options_.vocab_size < smallest || options_.vocab_size > Vocabulary::kMaxId)
        throw ValueError(str("BpeTrainer: vocab_size must be from ", smallest,
                             ", the number of bytes and special tokens, to ", Vocabulary::kMaxId,
                             ": it is ", options_.vocab_size));
    if (options_.min_frequency < 0)
        throw ValueError(
            str("BpeTrainer: min_frequency must not be negative: it is ", options_.min_frequency));
}

BpeTrainer::~BpeTrainer() = default;
BpeTrainer::BpeTrainer(BpeTrainer&& other) noexcept = default;
BpeTrainer& BpeTrainer::operator=(BpeTrainer&& other) noexcept = default;

void BpeTrainer::add(std::string_view text) {
    if (text.size() > kMaxText)
        throw ValueError(
            str("BpeTrainer: the text has ", text.size(), " bytes, more than ", kMaxText));
    if (const std::size_t invalid = tokenizers::find_invalid_utf8(text);
        invalid != std::string_view::npos)
        throw ValueError(str("BpeTrainer: the text must be UTF-8: invalid at byte ", invalid));
    words_->matches.clear();
    words_->pattern.find(text, words_->matches);
    for (const auto& [range, is_match] : words_->matches) {
        const std::string_view word = text.substr(range.begin, range.end - range.begin);
        const auto found = words_->counts.find(word);
        if (found != words_->counts.end())
            ++found->second;
        else if (!word.empty())
            words_->counts.emplace(word, 1);
    }
}

void BpeTrainer::add(const BpeTrainer& other) {
    for (const auto& [word, count] : other.words_->counts) words_->counts[word] += count;
}

std::int64_t BpeTrainer::num_words() const { return std::ssize(words_->counts); }

std::string BpeTrainer::train(const std::function<void(std::int64_t)>& on_token) const {
    Merges model;
    for (const std::string& token : options_.special_tokens) model.id(token);
    // The bytes have ids in the order of the characters that stand for them.
    std::vector<std::pair<std::uint32_t, std::size_t>> characters;
    for (std::size_t byte = 0; byte < kBytes; ++byte)
        characters.emplace_back(tokenizers::character_of_byte(static_cast<unsigned char>(byte)),
                                byte);
    std::ranges::sort(characters);
    std::array<std::uint32_t, kBytes> byte_ids = {};
    for (const auto& [code, byte] : characters) {
        std::string character;
        tokenizers::append_utf8(character, code);
        byte_ids[byte] = model.id(character);
    }
    const auto vocabulary_size = [&] { return static_cast<std::int64_t>(model.vocabulary.size()); };
    PairMerger merger(words_->counts, byte_ids);
    while (vocabulary_size() < options_.vocab_size) {
        const Pair* const pair = merger.best(options_.min_frequency);
        if (pair == nullptr) break;
        model.pairs.push_back(*pair);
        merger.merge(
            model.id(*model.vocabulary.token(pair->first) + *model.vocabulary.token(pair->second)));
        if (on_token) on_token(vocabulary_size());
    }
    return json_of(model, options_.special_tokens);
}

std::string train_bpe(const std::vector<std::string>& paths, const TrainBpeOptions& options) {
    if (options.num_threads < 1 || options.num_threads > 1024)
        throw ValueError(
            str("train_bpe: num_threads must be from 1 to 1024: it is ", options.num_threads));
    BpeTrainer total(options.trainer);
    TextReader reader(paths, {.column = options.column});
    if (options.on_read) options.on_read(0, reader.total_bytes());
    std::mutex mutex;
    std::vector<BpeTrainer> idle;  // trainers of threads, which count at most one text at a time
    const auto take = [&] {
        const std::lock_guard lock(mutex);
        if (idle.empty()) return BpeTrainer(options.trainer);
        BpeTrainer trainer = std::move(idle.back());
        idle.pop_back();
        return trainer;
    };
    struct Item {
        FileText text;
        std::int64_t read_bytes = 0;
    };
    const auto next = [&](Item& item) {
        const bool has_next = reader.next(item.text);
        item.read_bytes = reader.read_bytes();
        return has_next;
    };
    const auto work = [&](const Item& item) {
        BpeTrainer trainer = take();
        std::string_view text = item.text.text;
        try {
            while (!text.empty()) {
                const std::size_t line =
                    item.text.is_row ? text.size() : std::min(text.find('\n'), text.size() - 1) + 1;
                trainer.add(text.substr(0, line));
                text.remove_prefix(line);
            }
        } catch (const ValueError& error) {
            throw FileError(str(reader.location(item.text), ": ", error.what()));
        }
        const std::lock_guard lock(mutex);
        idle.push_back(std::move(trainer));
    };
    const auto finish = [&](const Item& item) {
        if (options.on_read) options.on_read(item.read_bytes, reader.total_bytes());
    };
    process_in_order<Item>(options.num_threads, next, work, finish);
    for (const BpeTrainer& trainer : idle) total.add(trainer);
    return total.train(options.on_token);
}

}  // namespace axle::data
