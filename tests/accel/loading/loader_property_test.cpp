// Tests loaders with random options. All processes together must read the dataset in order and read
// each sample once. Exceptions are skipped and dropped samples, and samples that fill up batches.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/accel/loading/loaders.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using tests::range;
using tests::Rows;
using Group = std::shared_ptr<dist::ProcessGroup>;

struct Options {
    std::int64_t n, batch_size, skipped;
    int workers;
    bool iterable, sized, dispatches, splits, drops, evens, shuffles;

    std::string text() const {
        return str(n, " samples by ", batch_size, ", skip ", skipped, ", ", workers, " workers",
                   iterable ? ", iterable" : "", sized ? "" : " unsized",
                   dispatches ? ", dispatched" : "", splits ? ", split" : "",
                   drops ? ", drop_last" : "", evens ? "" : ", uneven",
                   shuffles ? ", shuffled" : "");
    }
};

// Generates random options of loaders, the same sequence on all processes.
class Draws {
  public:
    explicit Draws(int processes)
        : processes_(processes), engine_(static_cast<unsigned>(processes)) {}
    Options next() {
        Options o{.n = below(40),
                  .batch_size = 1 + below(5),
                  .skipped = std::max<std::int64_t>(below(8) - 4, 0),
                  .workers = static_cast<int>(below(3)),
                  .iterable = coin(),
                  .sized = coin(),
                  .dispatches = coin(),
                  .splits = coin(),
                  .drops = coin(),
                  .evens = coin(),
                  .shuffles = coin()};
        if (o.splits) o.batch_size *= processes_;
        o.shuffles = o.shuffles && !o.iterable && o.n > 0;
        o.sized = o.sized || !o.iterable;
        return o;
    }

  private:
    std::int64_t below(std::uint64_t end) { return static_cast<std::int64_t>(engine_() % end); }
    bool coin() { return below(2) == 1; }

    int processes_;
    std::mt19937 engine_;
};

// The samples that one process gets in a pass, without samples that fill up batches.
struct Pass {
    Tree new_rows = Tree::list();  // one element per step
    std::int64_t batches = 0;
};

Pass pass_of(data::DataLoader& loader, const Accelerator& accelerator, const Options& o) {
    Pass pass;
    bool ended = false;
    const auto walk = [&](auto&& loop) {
        for (auto& batch : loop) {
            EXPECT_FALSE(ended);
            ended = loader.end_of_dataloader();
            const std::int64_t rows = batch.tensor().size(0);
            const std::int64_t valid = accelerator.valid_rows(rows);
            EXPECT_LE(valid, rows);
            EXPECT_GT(rows, 0);
            EXPECT_LE(rows, loader.batch_size());
            // Several processes get only full batches, unless batches are dispatched, or the
            // dataset is map-style and even_batches is false.
            const bool may_be_short =
                o.dispatches || accelerator.num_processes() == 1 || (!o.iterable && !o.evens);
            if (!may_be_short) {
                EXPECT_EQ(rows, loader.batch_size());
            }
            pass.new_rows.push_back(batch.tensor().narrow(0, 0, valid));
            ++pass.batches;
        }
    };
    if (o.skipped > 0)
        walk(accelerator.skip_first_batches(loader, o.skipped));
    else
        walk(loader);
    EXPECT_EQ(ended, pass.batches > 0);
    return pass;
}

// Returns the rows of all processes, sorted by step and then by process.
Rows in_order(const std::vector<Tree>& by_rank) {
    Rows all;
    std::size_t steps = 0;
    for (const Tree& rank : by_rank) steps = std::max(steps, rank.size());
    for (std::size_t step = 0; step < steps; ++step)
        for (const Tree& rank : by_rank)
            if (step < rank.size())
                for (const std::int64_t row : tests::rows_of(rank[step])) all.push_back(row);
    return all;
}

Rows expected_in(std::int64_t epoch, const Options& o, std::int64_t total) {
    Rows all = o.shuffles ? data::RandomSampler(o.n, {.seed = 5}).indices(epoch) : range(0, o.n);
    if (o.drops) all.resize(static_cast<std::size_t>(o.n / total * total));
    const std::int64_t skipped = std::min(o.skipped * total, std::ssize(all));
    all.erase(all.begin(), all.begin() + skipped);
    return all;
}

void expect_passes(const Group& group, const Options& o) {
    SCOPED_TRACE(str(o.text(), ", rank ", group->rank(), " of ", group->size()));
    Accelerator accelerator(
        {.cpu = true,
         .dataloader_config = accel::DataLoaderConfiguration{.split_batches = o.splits,
                                                             .dispatch_batches = o.dispatches,
                                                             .even_batches = o.evens},
         .process_group = group});
    data::LoaderOptions options{.batch_size = o.batch_size,
                                .shuffle = o.shuffles,
                                .num_workers = o.workers,
                                .drop_last = o.drops,
                                .allow_empty = true};
    if (o.shuffles) options.seed = 5;
    const auto loader = tests::loader_of_numbers(o.n, o.iterable, options, o.sized);
    accelerator.prepare(*loader);
    const std::int64_t total = loader->total_batch_size();
    EXPECT_EQ(total, o.splits ? o.batch_size : o.batch_size * group->size());

    for (int epoch = 0; epoch < 2; ++epoch) {
        const std::int64_t started_as = loader->epoch();
        const Pass pass = pass_of(*loader, accelerator, o);
        const std::vector<Tree> all = group->all_gather_object(pass.new_rows);
        EXPECT_EQ(in_order(all), expected_in(started_as, o, total));
        if (o.sized) {
            EXPECT_EQ(pass.batches, std::max<std::int64_t>(loader->len() - o.skipped, 0));
        }
        if (!o.evens && !o.iterable && !o.dispatches) continue;
        for (const Tree& rank : all) EXPECT_EQ(std::ssize(rank.elements()), pass.batches);
    }
}

class PreparedLoaderOnRanks : public testing::TestWithParam<int> {};

TEST_P(PreparedLoaderOnRanks, ReadsSamplesOnceInOrderWithRandomOptions) {
    tests::on_ranks(GetParam(), [](const Group& group) {
        Draws draws(group->size());
        for (int i = 0; i < 150; ++i) expect_passes(group, draws.next());
    });
}

INSTANTIATE_TEST_SUITE_P(Processes, PreparedLoaderOnRanks, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace axle
