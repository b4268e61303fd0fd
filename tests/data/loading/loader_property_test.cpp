// Tests loaders on which shard() was called, in random cases: samples and batch sizes of each
// process, the length of a pass, and skipped batches.
#include <random>

#include <gtest/gtest.h>

#include "data/loading/loader.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::GivenBatches, tests::Ids, tests::ids_of, tests::Numbers, tests::sample;

class Draws {
  public:
    explicit Draws(std::uint64_t seed) : random_(seed) {}
    std::int64_t from(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    bool flip_coin() { return from(0, 1) == 1; }
    template <class T>
    T one_of(std::initializer_list<T> all) {
        return all.begin()[from(0, std::ssize(all) - 1)];
    }

  private:
    std::mt19937_64 random_;
};

enum class Kind { sequential, random, drawn_with_replacement, subset, preset, iterable };

struct Case {
    explicit Case(Draws& draws)
        : kind(draws.one_of({Kind::sequential, Kind::random, Kind::drawn_with_replacement,
                             Kind::subset, Kind::preset, Kind::iterable, Kind::iterable})),
          n(draws.from(kind == Kind::drawn_with_replacement ? 1 : 0, 40)),
          processes(draws.from(1, 6)),
          split(kind != Kind::preset && draws.flip_coin()),
          batch_size(draws.from(1, 5) * (split ? processes : 1)),
          even(draws.flip_coin()),
          drop_last(draws.flip_coin()),
          workers(draws.one_of({0, 0, 0, 1, 3})),
          epoch(draws.from(0, 2)),
          numbers(n, {.sized = draws.flip_coin(), .skips = draws.flip_coin()}),
          indexed(from_function(n, sample)) {
        for (std::int64_t i = 0; i < n; ++i) chosen.push_back(draws.from(0, n - 1));
        for (std::int64_t at = 0; at < n;) {
            const std::int64_t size = std::min(draws.from(1, 4), n - at);
            batches.emplace_back(chosen.begin() + at, chosen.begin() + at + size);
            at += size;
        }
    }

    std::shared_ptr<const Sampler> sampler() const {
        switch (kind) {
            case Kind::random:
                return std::make_shared<RandomSampler>(n, RandomSamplerOptions{.seed = 3});
            case Kind::drawn_with_replacement:
                return std::make_shared<RandomSampler>(
                    n, RandomSamplerOptions{.seed = 3, .replacement = true, .num_samples = n + 5});
            case Kind::subset:
                return std::make_shared<SubsetSampler>(chosen);
            default:
                return std::make_shared<SequentialSampler>(n);
        }
    }

    std::unique_ptr<DataLoader> loader(std::int64_t rank) const {
        LoaderOptions options{.num_workers = workers, .allow_empty = true};
        if (kind == Kind::preset) {
            options.batch_sampler = std::make_shared<GivenBatches>(batches, drop_last);
        } else {
            options.batch_size = batch_size;
            options.drop_last = drop_last;
            if (kind != Kind::iterable) options.sampler = sampler();
        }
        auto made = kind == Kind::iterable ? std::make_unique<DataLoader>(numbers, options)
                                           : std::make_unique<DataLoader>(indexed, options);
        made->shard(ShardOptions{processes, rank, split, even});
        made->set_epoch(epoch);
        return made;
    }

    // Returns the samples that all processes together read, in order.
    Ids expected() const {
        if (kind == Kind::preset) {
            const std::int64_t count = std::ssize(batches);
            Ids all;
            for (std::int64_t b = 0; b < (drop_last ? count - count % processes : count); ++b) {
                const Ids& batch = batches[static_cast<std::size_t>(b)];
                all.insert(all.end(), batch.begin(), batch.end());
            }
            return all;
        }
        Ids all;
        if (kind == Kind::iterable) {
            for (std::int64_t i = 0; i < n; ++i) all.push_back(100 * epoch + i);
        } else {
            all = sampler()->indices(epoch);
        }
        const std::size_t total = static_cast<std::size_t>(batch_size * (split ? 1 : processes));
        if (drop_last) all.resize(all.size() - all.size() % total);
        return all;
    }

    bool shares_are_even() const { return even || kind == Kind::iterable || drop_last; }

    friend void PrintTo(const Case& c, std::ostream* out) {
        *out << "kind " << static_cast<int>(c.kind) << ", " << c.n << " samples, " << c.processes
             << " processes" << (c.split ? ", split" : "") << ", batch size " << c.batch_size
             << (c.even ? ", even" : "") << (c.drop_last ? ", drop_last" : "") << ", " << c.workers
             << " workers, epoch " << c.epoch << (c.numbers.size() ? "" : ", unknown size");
    }

    Kind kind;
    std::int64_t n, processes;
    bool split;
    std::int64_t batch_size;
    bool even, drop_last;
    int workers;
    std::int64_t epoch;
    Numbers numbers;
    FunctionDataset indexed;
    Ids chosen;
    Batches batches;
};

struct Step {
    friend bool operator==(const Step&, const Step&) = default;
    friend void PrintTo(const Step& step, std::ostream* out) {
        *out << testing::PrintToString(step.ids) << ", " << step.valid << " valid"
             << (step.end ? ", the last" : "");
    }

    Ids ids;
    std::int64_t valid;
    bool end;
};
using Pass = std::vector<Step>;

Pass run_pass(DataLoader& loader) {
    Pass steps;
    for (auto& batch : loader) {
        steps.push_back({ids_of(batch), loader.valid_samples(), loader.end_of_dataloader()});
        EXPECT_EQ(loader.batch_samples(), std::ssize(steps.back().ids));
    }
    return steps;
}

std::vector<Pass> passes_of(const Case& c) {
    std::vector<Pass> ranks;
    for (std::int64_t rank = 0; rank < c.processes; ++rank)
        ranks.push_back(run_pass(*c.loader(rank)));
    return ranks;
}

constexpr std::uint64_t kCases = 300;

TEST(ShardedLoaders, GiveAllUndroppedSamplesOnceInOrder) {
    for (std::uint64_t seed = 0; seed < kCases; ++seed) {
        Draws draws(seed);
        const Case c(draws);
        const auto ranks = passes_of(c);
        Ids all;
        for (std::size_t step = 0; step < ranks[0].size(); ++step)
            for (const Pass& rank : ranks)
                if (step < rank.size())
                    all.insert(all.end(), rank[step].ids.begin(),
                               rank[step].ids.begin() + rank[step].valid);
        ASSERT_EQ(all, c.expected()) << seed << ": " << testing::PrintToString(c);
        for (const Pass& rank : ranks) ASSERT_LE(rank.size(), ranks[0].size());
    }
}

// Covers 4.even_batches.
TEST(ShardedLoaders, HaveEqualSizesWithEvenBatches) {
    for (std::uint64_t seed = 0; seed < kCases; ++seed) {
        Draws draws(seed);
        const Case c(draws);
        if (!c.shares_are_even()) continue;
        const auto ranks = passes_of(c);
        for (const Pass& rank : ranks) {
            ASSERT_EQ(rank.size(), ranks[0].size()) << testing::PrintToString(c);
            if (c.kind == Kind::preset) continue;
            for (const Step& step : rank)
                ASSERT_EQ(std::ssize(step.ids), c.batch_size / (c.split ? c.processes : 1))
                    << testing::PrintToString(c);
        }
    }
}

// Covers 4.__len__.
TEST(ShardedLoaders, ReportSizeAndLastBatch) {
    for (std::uint64_t seed = 0; seed < kCases; ++seed) {
        Draws draws(seed);
        const Case c(draws);
        // No rank has more steps than rank 0.
        const bool has_steps = !run_pass(*c.loader(0)).empty();
        for (std::int64_t rank = 0; rank < c.processes; ++rank) {
            const auto loader = c.loader(rank);
            const Pass steps = run_pass(*loader);
            if (c.kind != Kind::iterable || c.numbers.size()) {
                ASSERT_EQ(loader->len(), std::ssize(steps)) << testing::PrintToString(c);
            }
            for (std::size_t i = 0; i < steps.size(); ++i)
                ASSERT_EQ(steps[i].end, i + 1 == steps.size()) << testing::PrintToString(c);
            ASSERT_EQ(loader->epoch(), c.epoch + (has_steps ? 1 : 0));
        }
    }
}

TEST(ShardedLoaders, SkipToSamePositionAsReading) {
    for (std::uint64_t seed = 0; seed < kCases; ++seed) {
        Draws draws(seed);
        const Case c(draws);
        const std::int64_t rank = draws.from(0, c.processes - 1);
        const Pass whole = run_pass(*c.loader(rank));
        const std::int64_t skip = draws.from(0, std::ssize(whole) + 2);
        const auto loader = c.loader(rank);
        loader->skip_first_batches(skip);
        const Pass rest(whole.begin() + std::min(skip, std::ssize(whole)), whole.end());
        ASSERT_EQ(run_pass(*loader), rest) << skip << " of " << testing::PrintToString(c);
    }
}

}  // namespace
}  // namespace axle::data
