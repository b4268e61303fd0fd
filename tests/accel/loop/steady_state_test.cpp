// Tests that training in its steady state takes no further memory, descriptors or threads from the
// system.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/memory/memory.h"
#include "tests/accel/training.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

constexpr std::int64_t kBatch = 16, kIn = 64, kHidden = 128, kBatches = 10;

std::int64_t entries(const char* folder) {
    const std::filesystem::directory_iterator all(folder);
    return std::distance(begin(all), end(all));
}

// Returns the anonymous resident memory of this process in bytes.
std::int64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::int64_t size = 0, resident = 0, shared = 0;
    file >> size >> resident >> shared;
    return (resident - shared) * ::sysconf(_SC_PAGESIZE);
}

struct Taken {
    MemoryStats memory = host_memory::stats();
    std::int64_t resident = resident_bytes();
    std::int64_t descriptors = entries("/proc/self/fd");
    std::int64_t threads = entries("/proc/self/task");
};

data::TensorDataset rows() {
    const std::int64_t n = kBatch * kBatches;
    return data::TensorDataset(Tree{{"x", randn({n, kIn})}, {"y", randn({n, 1})}});
}

// A typical training run: workers, dropout, bf16, clipping, a schedule and a tracker.
struct UsualTraining {
    explicit UsualTraining(const std::string& folder)
        : accelerator({.mixed_precision = "bf16", .log_with = {"jsonl"}, .project_dir = folder}) {
        accelerator.prepare(net, adamw, loader, schedule);
        accelerator.init_trackers("run");
    }

    void run(std::int64_t steps) {
        while (step < steps)
            for (auto& batch : loader) {
                auto scope = accelerator.accumulate(net);
                const Tensor loss = squared_error(net(batch["x"]), batch["y"]);
                accelerator.backward(loss);
                const Tensor norm = accelerator.clip_grad_norm_(net.parameters(), 1);
                adamw.step();
                schedule.step();
                adamw.zero_grad();
                accelerator.log(Tree{{"loss", loss.item()}, {"norm", norm.item()}}, ++step);
                if (step == steps) break;
            }
    }
    // Allocates the largest number of simultaneous batches in advance, because the number in use
    // depends on thread timing.
    void reserve_batches() {
        std::vector<Tensor> held;
        for (int i = 0; i < 8; ++i)
            for (const std::int64_t columns : {kIn, std::int64_t{1}})
                held.push_back(empty({kBatch, columns}));
    }

    struct Net : nn::Model<Net> {
        nn::Linear in{kIn, kHidden};
        nn::Dropout dropout{0.1};
        nn::Linear out{kHidden, 1};

        Tensor forward(const Tensor& x) { return out(dropout(gelu(in(x)))); }
        void visit(nn::Visitor& v) override { v("in", in), v("dropout", dropout), v("out", out); }
    };

    std::int64_t step = 0;
    Net net;
    data::DataLoader loader{rows(), {.batch_size = kBatch, .shuffle = true, .num_workers = 2}};
    optim::AdamW adamw{net.parameters(), {.lr = 1e-3}};
    optim::LambdaLR schedule = optim::get_constant_schedule_with_warmup(adamw, 5);
    accel::Accelerator accelerator;
};

void expect_nothing_taken(std::int64_t warmup, std::int64_t steps) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    UsualTraining training(folder.path());
    training.reserve_batches();
    training.run(warmup);
    const Taken before;
    training.run(warmup + steps);
    const Taken after;

    EXPECT_EQ(after.memory.system_allocations, before.memory.system_allocations);
    EXPECT_EQ(after.memory.current, before.memory.current);
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_EQ(after.threads, before.threads);
    EXPECT_GT(after.memory.allocations, before.memory.allocations + steps);
    // The memory of a sanitizer grows, so resident memory is not checked in builds with one.
    EXPECT_TRUE(kSanitized || after.resident - before.resident <= 64 << 10)
        << after.resident - before.resident << " bytes";
}

TEST(SteadyStateTraining, NeedsNoFurtherDescriptorsMemoryOrThreads) {
    expect_nothing_taken(100, 200);
}

TEST(SteadyStateTraining, NeedsNoFurtherDescriptorsMemoryOrThreadsInALongRun) {
    expect_nothing_taken(1000, 10000);
}

}  // namespace
}  // namespace axle::tests
