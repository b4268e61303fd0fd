// Tests resuming a pass with another number of samples per step.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/tree/tree.h"
#include "data/loading/loader.h"
#include "tests/data/samples.h"

namespace axle::data {
namespace {

using tests::Batches, tests::Ids, tests::ids_of, tests::sample;

DataLoader loader_of(std::int64_t batch_size, std::int64_t processes, std::int64_t rank) {
    DataLoader loader(from_function(22, sample),
                      {.batch_size = batch_size, .shuffle = true, .seed = 3});
    loader.shard(ShardOptions{.num_processes = processes, .process_index = rank});
    return loader;
}

// Reads the rest of a pass on all processes, at most `steps` steps. Appends the samples to
// `samples`, step by step, and returns the state of process 0 after the last step.
Tree read(std::int64_t batch_size, std::int64_t processes, const Tree& state, std::int64_t steps,
          Ids& samples) {
    Tree after;
    Batches by_step;
    for (std::int64_t rank = 0; rank < processes; ++rank) {
        DataLoader loader = loader_of(batch_size, processes, rank);
        if (!state.is_null()) loader.load_state_dict(state);
        std::size_t step = 0;
        for (auto& batch : loader) {
            by_step.resize(std::max(by_step.size(), step + 1));
            const Ids ids = ids_of(batch);
            by_step[step].insert(by_step[step].end(), ids.begin(), ids.end());
            if (rank == 0) after = loader.state_dict();
            if (static_cast<std::int64_t>(++step) == steps) break;
        }
    }
    for (const Ids& step : by_step) samples.insert(samples.end(), step.begin(), step.end());
    return after;
}

TEST(LoaderState, ResumesWithAnotherStepSizeAfterTheSameSamples) {
    Ids whole;
    read(2, 4, {}, 100, whole);
    whole.resize(22);  // the last step is filled with repeated samples
    // An update of 8 samples has 1 step of 4 processes, or 2 steps of 2 processes, or 4 steps of 1
    // process.
    for (const std::int64_t processes : {1, 2}) {
        for (const std::int64_t done : {1, 2, 3}) {
            Ids samples;
            const Tree state = read(2, 4, {}, done, samples);
            samples.resize(std::min<std::size_t>(samples.size(), 22));
            if (done < 3) read(2, processes, state, 100, samples);
            samples.resize(22);
            EXPECT_EQ(samples, whole) << processes << " processes after " << done << " steps";
        }
    }
    // A pass can also continue on more processes than before.
    Ids samples;
    const Tree state = read(2, 2, {}, 2, samples);
    read(2, 4, state, 100, samples);
    samples.resize(22);
    EXPECT_EQ(samples, whole);
}

TEST(LoaderState, SelectsTheNextPassIfSavedAfterACompletePassWithAnotherStepSize) {
    Ids ignored;
    const Tree state = read(2, 4, {}, 100, ignored);
    DataLoader loader = loader_of(2, 2, 0);
    loader.load_state_dict(state);
    EXPECT_EQ(loader.epoch(), 1);
}

}  // namespace
}  // namespace axle::data
