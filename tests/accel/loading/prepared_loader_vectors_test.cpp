// Compares loops over prepared loaders on every process with recordings of Accelerate. If an
// expected value differs from the recording, a row in tests/vectors/README.md gives the reason.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/accel/loading/loaders.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using tests::range;
using tests::Rows;

constexpr const char* kUnknown = "TypeError";

// The batches and loader properties of one process.
struct Seen {
    std::vector<Rows> batches, gathered;
    std::vector<bool> ends;
    std::vector<std::int64_t> remainders;
    // The sizes of the loader. A size is kUnknown if the property throws UsageError.
    json len = {}, total_batch_size = {}, total_dataset_length = {};
    bool ends_after = true, active_after = true;
};

template <class F>
json known(F&& f) {
    try {
        return f();
    } catch (const UsageError&) {
        return kUnknown;
    }
}

// Iterates `loop`, a loader or a view of a loader, and stores the observed values in `seen`.
template <class Loop>
void walk(Loop&& loop, const data::DataLoader& loader, const Accelerator& accelerator, bool gathers,
          Seen& seen) {
    for (auto& batch : loop) {
        seen.batches.push_back(tests::rows_of(batch));
        seen.ends.push_back(loader.end_of_dataloader());
        seen.remainders.push_back(loader.remainder());
        if (gathers) seen.gathered.push_back(tests::rows_of(accelerator.gather_for_metrics(batch)));
    }
    seen.ends_after = loader.end_of_dataloader();
    seen.active_after = accelerator.active_dataloader() != nullptr;
}

// Returns the results by case and process. All cases with the same number of processes share a
// group.
template <class F>
std::vector<std::vector<Seen>> seen_by_all(const json& cases, F&& run) {
    std::vector<std::vector<Seen>> seen;
    int most = 0;
    for (const auto& c : cases) {
        const int processes = c["num_processes"].get<int>();
        seen.emplace_back(static_cast<std::size_t>(processes));
        most = std::max(most, processes);
    }
    for (int processes = 1; processes <= most; ++processes)
        tests::on_ranks(processes, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
            for (std::size_t i = 0; i < cases.size(); ++i)
                if (cases[i]["num_processes"] == processes)
                    seen[i][static_cast<std::size_t>(group->rank())] = run(cases[i], group);
        });
    return seen;
}

// --- prepared_dataloader.json

struct Case {
    explicit Case(const json& c)
        : n(c["n"].get<std::int64_t>()),
          batch_size(c["batch_size"].get<std::int64_t>()),
          processes(c["num_processes"].get<std::int64_t>()),
          splits(c["split_batches"].get<bool>()),
          drops(c["drop_last"].get<bool>()),
          evens(c["even_batches"].get<bool>()),
          iterable(c["kind"] != "map"),
          sized(c["kind"] != "iter") {
        if (!c["dispatch_batches"].is_null()) dispatches = c["dispatch_batches"].get<bool>();
        dispatched = dispatches.value_or(iterable);
        total = splits ? batch_size : batch_size * processes;
    }
    std::int64_t n, batch_size, processes;
    bool splits, drops, evens, iterable, sized;
    std::optional<bool> dispatches;
    bool dispatched = false;
    std::int64_t total = 0;  // number of samples in a full step
    std::int64_t steps() const { return n / total + (!drops && n % total != 0 ? 1 : 0); }
    bool is_sharded_stream() const { return iterable && !dispatched && processes > 1; }
};

Seen run_prepared(const json& c, const std::shared_ptr<dist::ProcessGroup>& group) {
    const Case is(c);
    Accelerator accelerator(
        {.cpu = true,
         .dataloader_config = accel::DataLoaderConfiguration{.split_batches = is.splits,
                                                             .dispatch_batches = is.dispatches,
                                                             .even_batches = is.evens},
         .process_group = group});
    const auto loader = tests::loader_of_numbers(
        is.n, is.iterable,
        {.batch_size = is.batch_size, .drop_last = is.drops, .allow_empty = true}, is.sized);
    Seen seen;
    accelerator.prepare(*loader);
    seen.len = known([&] { return loader->len(); });
    seen.total_batch_size = loader->total_batch_size();
    seen.total_dataset_length = known([&] { return loader->total_dataset_length(); });
    walk(*loader, *loader, accelerator, is.evens, seen);
    return seen;
}

// The expected values of one process.
struct Expected {
    json len, total_dataset_length;
    std::vector<Rows> batches = {}, gathered = {};
    std::vector<bool> ends = {};
    std::vector<std::int64_t> remainders = {};
};

bool has_an_empty_batch(const json& c) {
    return std::any_of(c["batches"].begin(), c["batches"].end(), [](const json& rank) {
        return std::any_of(rank.begin(), rank.end(), [](const json& b) { return b.empty(); });
    });
}

Expected expected_of(const json& c, std::size_t rank) {
    const Case is(c);
    Expected e{.len = c["len"][rank],
               .total_dataset_length = c["total_dataset_length"],
               .batches = c["batches"][rank].get<std::vector<Rows>>(),
               .ends = c["end_of_dataloader"][rank].get<std::vector<bool>>(),
               .remainders = c["remainder"][rank].get<std::vector<std::int64_t>>()};
    const bool given = std::none_of(c["gather_for_metrics"].begin(), c["gather_for_metrics"].end(),
                                    [](const json& step) { return step.is_object(); });
    if (given) e.gathered = c["gather_for_metrics"].get<std::vector<Rows>>();
    if (is.is_sharded_stream()) {
        // Accelerate reports the sizes of one process's shard as the sizes of the dataset, and does
        // not remove duplicates from the gathered rows.
        if (is.sized) {
            if (is.splits) e.len = is.steps();
            e.total_dataset_length = is.n;
            std::fill(e.remainders.begin(), e.remainders.end(), is.drops ? -1 : is.n % is.total);
        }
        e.gathered.clear();
        for (std::int64_t s = 0; s < is.steps(); ++s)
            e.gathered.push_back(range(s * is.total, std::min((s + 1) * is.total, is.n)));
    } else if (!is.dispatched && is.splits && !is.evens && !is.drops && is.processes > 1) {
        e.len = e.batches.size();  // Accelerate also counts batches of other processes
    } else if (is.dispatched && has_an_empty_batch(c)) {
        // Processes without samples repeat the first samples.
        e.batches = {{static_cast<std::int64_t>(rank) % is.n}};
        e.gathered = {range(0, is.n)};
    }
    return e;
}

void expect_case(const json& c, const std::vector<Seen>& by_rank) {
    const Case is(c);
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        SCOPED_TRACE(str(c.dump(), " on rank ", rank));
        const Seen& seen = by_rank[rank];
        EXPECT_EQ(seen.total_batch_size, is.total);
        if (c.contains("total_batch_size") && !is.dispatched && !is.is_sharded_stream()) {
            EXPECT_EQ(seen.total_batch_size, c["total_batch_size"]);
        }
        EXPECT_FALSE(seen.ends_after);
        EXPECT_FALSE(seen.active_after);
        if (c.contains("error")) {  // a dispatched loader without steps
            EXPECT_EQ(is.steps(), 0);
            EXPECT_TRUE(seen.batches.empty());
            EXPECT_EQ(seen.len, is.sized ? json(0) : json(kUnknown));
            continue;
        }
        const Expected e = expected_of(c, rank);
        EXPECT_EQ(seen.len, e.len);
        EXPECT_EQ(seen.total_dataset_length, e.total_dataset_length);
        EXPECT_EQ(seen.batches, e.batches);
        EXPECT_EQ(seen.ends, e.ends);
        EXPECT_EQ(seen.remainders, e.remainders);
        if (is.evens) {
            EXPECT_EQ(seen.gathered, e.gathered);
        }
        if (seen.len != kUnknown) {
            EXPECT_EQ(seen.len, seen.batches.size());
        }
    }
}

// Covers 4.prepare_data_loader, 4.total_batch_size, 4.total_dataset_length, 30.4.
TEST(PreparedLoader, MatchesAccelerateExceptForDocumentedDifferences) {
    const json file = tests::vectors("prepared_dataloader.json");
    const json& cases = file["cases"];
    ASSERT_FALSE(cases.empty());
    const auto seen = seen_by_all(cases, run_prepared);
    for (std::size_t i = 0; i < cases.size(); ++i) expect_case(cases[i], seen[i]);
}

// --- skip_first_batches.json

bool dispatches(const json& c) {
    return c["dispatch"].is_null() ? c["kind"] != "map" : bool{c["dispatch"]};
}

Seen run_skipping(const json& c, const std::shared_ptr<dist::ProcessGroup>& group) {
    Accelerator accelerator(
        {.cpu = true,
         .dataloader_config =
             accel::DataLoaderConfiguration{.dispatch_batches =
                                                c["dispatch"].is_null()
                                                    ? std::nullopt
                                                    : std::optional(c["dispatch"].get<bool>())},
         .process_group = group});
    const auto loader =
        tests::loader_of_numbers(c["n"].get<std::int64_t>(), c["kind"] != "map",
                                 {.batch_size = c["batch_size"].get<std::int64_t>()});
    accelerator.prepare(*loader);
    EXPECT_EQ(loader->len(), c["orig_len"]) << c;
    auto rest = accelerator.skip_first_batches(*loader, c["skip"].get<std::int64_t>());
    Seen seen;
    try {
        seen.len = rest.len();
    } catch (const ValueError&) {
        seen.len = "ValueError";
    }
    walk(rest, *loader, accelerator, true, seen);
    return seen;
}

// Returns the batches that process `rank` of a dispatched loader gets from step `first` on, if a
// step has `total` of the n samples.
std::vector<Rows> dispatched_steps(std::int64_t first, std::int64_t n, std::int64_t total,
                                   std::int64_t processes, std::int64_t rank) {
    std::vector<Rows> batches;
    for (std::int64_t begin = first * total; begin < n; begin += total) {
        const std::int64_t end = std::min(begin + total, n);
        const std::int64_t share = (end - begin + processes - 1) / processes;
        Rows& batch = batches.emplace_back();
        for (std::int64_t i = begin + rank * share; i < begin + (rank + 1) * share; ++i)
            batch.push_back(i < end ? i : i - end);
    }
    return batches;
}

void expect_skipping_case(const json& c, const std::vector<Seen>& by_rank) {
    const auto n = c["n"].get<std::int64_t>(), skip = c["skip"].get<std::int64_t>(),
               all = c["orig_len"].get<std::int64_t>();
    const std::int64_t processes = std::ssize(by_rank);
    const std::int64_t total = c["batch_size"].get<std::int64_t>() * processes;
    const std::int64_t left = std::max<std::int64_t>(all - skip, 0);
    const bool dispatched = dispatches(c);
    std::vector<bool> ends(static_cast<std::size_t>(left));
    std::vector<std::int64_t> remainders(ends.size(), dispatched ? -1 : n % total);
    if (left > 0) ends.back() = true;
    if (left > 0 && dispatched) remainders.back() = n - (all - 1) * total;
    std::vector<Rows> gathered;
    for (std::int64_t begin = skip * total; begin < n; begin += total)
        gathered.push_back(range(begin, std::min(begin + total, n)));

    for (std::int64_t rank = 0; rank < processes; ++rank) {
        SCOPED_TRACE(str(c.dump(), " on rank ", rank));
        const Seen& seen = by_rank[static_cast<std::size_t>(rank)];
        EXPECT_EQ(seen.ends, ends);
        EXPECT_EQ(seen.remainders, remainders);
        EXPECT_EQ(seen.gathered, gathered);
        EXPECT_EQ(seen.len, skip > all ? json("ValueError") : json(left));
        EXPECT_FALSE(seen.ends_after);
        EXPECT_FALSE(seen.active_after);
        // If batches of a map-style dataset are dispatched, Accelerate skips single batches instead
        // of steps.
        if (dispatched && c["kind"] == "map" && processes > 1 && skip > 0) {
            EXPECT_EQ(seen.batches, dispatched_steps(skip, n, total, processes, rank));
            continue;
        }
        EXPECT_EQ(json(seen.batches), c["batches"][static_cast<std::size_t>(rank)]);
        EXPECT_EQ(json(seen.ends), c["end"]);
        // Two values of Accelerate are wrong and not compared. One is the remainder if batches are
        // not dispatched. The other is the length of streams, which includes the skipped batches.
        if (dispatched) {
            EXPECT_EQ(json(seen.remainders), c["remainder"]);
        }
        if (c["kind"] == "map") {
            EXPECT_EQ(seen.len, c["len"]);
        }
    }
}

// Covers 3.skip_first_batches, 4.skip_first_batches, 4.SkipDataLoader.
TEST(SkipFirstBatches, MatchesAccelerateForPreparedLoadersExceptForDocumentedDifferences) {
    const json file = tests::vectors("skip_first_batches.json");
    const json& cases = file["cases"];
    ASSERT_FALSE(cases.empty());
    const auto seen = seen_by_all(cases, run_skipping);
    for (std::size_t i = 0; i < cases.size(); ++i) expect_skipping_case(cases[i], seen[i]);
}

}  // namespace
}  // namespace axle
