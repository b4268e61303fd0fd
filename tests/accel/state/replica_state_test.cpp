// Tests that checkpoints contain the state that differs between processes, so that a resumed run
// computes the same bits as an uninterrupted run.
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "accel/local_sgd.h"
#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/system/log.h"
#include "dist/parallel/data_parallel.h"
#include "gtest/gtest.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using dist::PowerSgdOptions;
using tests::on_ranks;
using tests::TemporaryFolder;
using Group = std::shared_ptr<dist::ProcessGroup>;

// A network that calls its layers in a different order than visit() lists them. It has a buffer
// that the forward pass uses and changes.
struct Net : nn::Model<Net> {
    nn::Linear last{12, 1}, first{8, 12}, middle{12, 12};
    Tensor mean = zeros({12});
    Tensor forward(const Tensor& x) {
        const Tensor hidden = first(x);
        if (is_training()) {
            const NoGrad no_grad;
            mean.mul_(0.5).add_(hidden.detach().mean({0}));
        }
        return last(relu(middle(relu(hidden - mean))));
    }
    void visit(nn::Visitor& v) override {
        v("last", last), v("first", first), v("middle", middle), v.buffer("mean", mean);
    }
};

// A training run of one process, with its own batches.
struct ReplicaRun {
    explicit ReplicaRun(const Group& process_group, dist::DataParallelOptions ddp = {},
                        int window = 1)
        : net((manual_seed(5), Net())),
          adam(net.parameters(), {.lr = 0.05}),
          accelerator({.cpu = true,
                       .gradient_accumulation_plugin =
                           accel::GradientAccumulationPlugin{.num_steps = window},
                       .ddp_kwargs = std::move(ddp),
                       .process_group = process_group}),
          group(process_group) {
        accelerator.prepare(net, adam);
    }
    // Returns the input of a step. Each rank has a different input.
    Tensor input(int step) const {
        std::vector<double> values;
        for (int i = 0; i < 32; ++i)
            values.push_back(((i * 7 + step * 5 + group->rank() * 3) % 13 - 6) / 4.0);
        return tensor(values, {4, 8}, {f32});
    }
    void step(int number) {
        auto scope = accelerator.accumulate(net);
        const Tensor error = net(input(number)) - (number % 3 + group->rank());
        accelerator.backward((error * error).mean());
        adam.step();
        adam.zero_grad();
    }
    // Returns copies of all parameters and buffers.
    std::vector<Tensor> tensors() const {
        std::vector<Tensor> all;
        for (const auto& [name, tensor] : net.state_dict()) all.push_back(tensor.clone());
        return all;
    }

    Net net;
    optim::AdamW adam;
    accel::Accelerator accelerator;
    Group group;
};

void expect_same_tensors(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) tests::expect_same_bits(actual[i], expected[i]);
}

// A bucket size in MiB that holds only a few parameters, so that the network has several buckets.
constexpr double kSmallBucket = 300.0 / (1 << 20);
constexpr int kUpdates = 7;

dist::DataParallelOptions power_sgd(PowerSgdOptions options, bool batched = false) {
    options.matrix_approximation_rank = 2;
    options.start_powerSGD_iter = 1;
    options.min_compression_rate = 0.5;
    return {.bucket_cap_mb = kSmallBucket, .hook = dist::power_sgd_hook(options, batched)};
}

// Expects the same final state from an uninterrupted run and from runs that resume after each
// number of steps.
template <class Options>
void expect_exact_resumption(int ranks, Options options, int window = 1) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    on_ranks(ranks, [&](const Group& group) {
        ReplicaRun whole(group, options(), window);
        for (int step = 0; step < kUpdates; ++step) {
            whole.step(step);
            whole.accelerator.save_state(folder / str("after_", step + 1));
        }
        for (int done = 1; done < kUpdates; ++done) {
            SCOPED_TRACE(str("after ", done, " steps on rank ", group->rank()));
            ReplicaRun resumed(group, options(), window);
            resumed.accelerator.load_state(folder / str("after_", done));
            for (int step = done; step < kUpdates; ++step) resumed.step(step);
            expect_same_tensors(resumed.tensors(), whole.tensors());
        }
    });
}

// Covers 9.comm_state_option.
TEST(PowerSgdState, ResumesBitExactly) {
    for (const bool batched : {false, true})
        for (const bool warm : {false, true}) {
            SCOPED_TRACE(str("batched ", batched, ", warm start ", warm));
            expect_exact_resumption(2, [=] { return power_sgd({.warm_start = warm}, batched); });
        }
}

TEST(PowerSgdState, ResumesBitExactlyBetweenUpdates) {
    expect_exact_resumption(
        2, [] { return power_sgd({}); }, 2);
}

// Returns the shapes of the parameters in each bucket.
std::vector<std::vector<Shape>> layout_of(const ReplicaRun& run) {
    std::vector<std::vector<Shape>> layout;
    const auto& replicas =
        dynamic_cast<dist::DataParallel&>(*run.accelerator.data_parallel(run.net));
    for (const dist::GradientBucket& bucket : replicas.buckets()) {
        layout.emplace_back();
        for (const Tensor& parameter : bucket.parameters)
            layout.back().push_back(parameter.shape());
    }
    return layout;
}

// With three processes, the order in which gradients are added depends on their positions in a
// bucket.
TEST(DataParallelState, ContainsTheLayoutOfTheBuckets) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const auto options = [] { return dist::DataParallelOptions{.bucket_cap_mb = kSmallBucket}; };
    expect_exact_resumption(3, options);
    on_ranks(3, [&](const Group& group) {
        ReplicaRun run(group, options());
        const auto initial = layout_of(run);
        for (int step = 0; step < 2; ++step) run.step(step);  // step 1 rebuilds the buckets
        run.accelerator.save_state(folder / "state");
        EXPECT_NE(layout_of(run), initial);
        ReplicaRun resumed(group, options());
        resumed.accelerator.load_state(folder / "state");
        EXPECT_EQ(layout_of(resumed), layout_of(run));
    });
}

TEST(DataParallelState, ContainsBuffersThatDifferBetweenProcesses) {
    expect_exact_resumption(2,
                            [] { return dist::DataParallelOptions{.broadcast_buffers = false}; });
    expect_exact_resumption(
        2, [] { return dist::DataParallelOptions(); }, 3);  // buffers differ until a window ends
}

// Counts warnings that contain a text.
class Warnings {
  public:
    explicit Warnings(std::string text) : text_(std::move(text)) {
        set_log_sink([this](LogLevel level, std::string_view message) {
            const std::lock_guard lock(mutex_);
            count_ += level == LogLevel::warning && message.find(text_) != std::string_view::npos;
        });
    }
    ~Warnings() { set_log_sink({}); }
    Warnings(const Warnings&) = delete;
    Warnings& operator=(const Warnings&) = delete;
    int count() const { return count_; }

  private:
    std::string text_;
    std::mutex mutex_;
    int count_ = 0;
};

// Returns how often the ranks of a run that resumes from `path` warn that error feedback starts
// from zero. Expects the same weights on all ranks after three steps.
template <class Options>
int warnings_of_resuming(const std::string& path, int ranks, Options options) {
    const Warnings warnings("error feedback starts from zero");
    on_ranks(ranks, [&](const Group& group) {
        ReplicaRun resumed(group, options());
        resumed.accelerator.load_state(path);
        for (int step = 0; step < 3; ++step) resumed.step(step);
        const Tensor all = group->all_gather(resumed.net.first.weight.detach());
        for (int rank = 1; rank < ranks; ++rank) tests::expect_same_bits(all[rank], all[0]);
    });
    return warnings.count();
}

TEST(PowerSgdState, IsReportedAsResetIfProcessesBucketsOrOptionsDiffer) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const auto options = [] { return power_sgd({}); };
    const auto save = [&](int ranks, const std::string& name) {
        on_ranks(ranks, [&](const Group& group) {
            ReplicaRun run(group, options());
            for (int step = 0; step < 3; ++step) run.step(step);
            run.accelerator.save_state(folder / name);
        });
        return folder / name;
    };
    const std::string two = save(2, "two"), one = save(1, "one");
    EXPECT_EQ(warnings_of_resuming(two, 2, options), 0);
    EXPECT_EQ(warnings_of_resuming(two, 1, options), 0);  // one process reduces nothing
    EXPECT_EQ(warnings_of_resuming(two, 3, options), 1);
    EXPECT_EQ(warnings_of_resuming(one, 2, options), 1);  // one process saves no PowerSGD state
    EXPECT_EQ(warnings_of_resuming(two, 2, [] { return dist::DataParallelOptions(); }), 0);
    EXPECT_EQ(warnings_of_resuming(two, 2,
                                   [] {
                                       auto changed = power_sgd({});
                                       changed.bucket_cap_mb = 25;
                                       return changed;
                                   }),
              1);
    EXPECT_EQ(warnings_of_resuming(two, 2, [] { return power_sgd({}, true); }), 1);
}

// A user-defined communication hook whose state is a number.
struct CountingHook : dist::CommHook {
    Pending start(dist::GradientBucket& bucket, dist::ProcessGroup& group) override {
        ++count;
        return average->start(bucket, group);
    }
    Tree state_dict(const std::vector<dist::GradientBucket>&) const override {
        return {{"count", count}};
    }
    bool load_state_dict(const Tree& state, const std::vector<dist::GradientBucket>&,
                         Source source) override {
        EXPECT_EQ(source, Source::own);
        count = state["count"].integer();
        if (count < 0) throw ValueError(str("the count is negative: ", count));
        return true;
    }
    std::shared_ptr<dist::CommHook> average = dist::all_reduce_hook();
    std::int64_t count = 0;
};

TEST(DataParallelState, ContainsTheStateOfUserDefinedHooksAndReportsTheFileOfAnInvalidState) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    on_ranks(2, [&](const Group& group) {
        const auto saved = std::make_shared<CountingHook>();
        ReplicaRun run(group, {.hook = saved});
        saved->count = 3 + group->rank();
        run.accelerator.save_state(folder / "valid");
        saved->count = group->rank() == 0 ? 3 : -1;
        run.accelerator.save_state(folder / "invalid");
        const auto loaded = std::make_shared<CountingHook>();
        ReplicaRun resumed(group, {.hook = loaded});
        resumed.accelerator.load_state(folder / "valid");
        EXPECT_EQ(loaded->count, 3 + group->rank());
        const std::string file = folder / "invalid/data_parallel_1.json";
        tests::expect_error<FileError>({group->rank() == 0 ? "load_state: process 1" : file.c_str(),
                                        file.c_str(), "the count is negative: -1"},
                                       [&] { resumed.accelerator.load_state(folder / "invalid"); });
    });
}

// --- LocalSGD

// Covers 20.LocalSGD.
TEST(LocalSGD, ResumesExactlyBetweenAverages) {
    constexpr int kInterval = 3;
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    on_ranks(2, [&](const Group& group) {
        ReplicaRun whole(group);
        {
            accel::LocalSGD local(whole.accelerator, whole.net, kInterval);
            for (int step = 0; step < kUpdates; ++step) {
                whole.step(step);
                local.step();
                whole.accelerator.save_state(folder / str("after_", step + 1));
            }
            local.finish();
        }
        for (const bool loads_in_scope : {false, true})
            for (int done = 1; done < kUpdates; ++done) {
                SCOPED_TRACE(str("after ", done, " steps on rank ", group->rank(),
                                 loads_in_scope ? ", loaded in the scope" : ""));
                ReplicaRun resumed(group);
                const std::string path = folder / str("after_", done);
                if (!loads_in_scope) resumed.accelerator.load_state(path);
                accel::LocalSGD local(resumed.accelerator, resumed.net, kInterval);
                if (loads_in_scope) resumed.accelerator.load_state(path);
                for (int step = done; step < kUpdates; ++step) {
                    resumed.step(step);
                    local.step();
                }
                local.finish();
                expect_same_tensors(resumed.tensors(), whole.tensors());
            }
    });
}

TEST(LocalSGD, LoadsTheStateOfTheMainProcessOnAnotherNumberOfProcesses) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    std::vector<Tensor> saved;
    on_ranks(2, [&](const Group& group) {
        ReplicaRun run(group);
        accel::LocalSGD local(run.accelerator, run.net, 4);
        for (int step = 0; step < 2; ++step) {
            run.step(step);
            local.step();
        }
        run.accelerator.save_state(folder / "state");
        if (group->rank() == 0) saved = run.tensors();
    });
    const Warnings warnings("continue with the models and optimizers of process 0");
    on_ranks(3, [&](const Group& group) {
        ReplicaRun resumed(group);
        resumed.accelerator.load_state(folder / "state");
        expect_same_tensors(resumed.tensors(), saved);
        accel::LocalSGD local(resumed.accelerator, resumed.net, 4);
        for (int step = 0; step < 2; ++step) {
            resumed.step(step);
            local.step();  // the second call averages, because it is the fourth step
        }
        const Tensor all = group->all_gather(resumed.net.first.weight.detach());
        for (int rank = 1; rank < 3; ++rank) tests::expect_same_bits(all[rank], all[0]);
    });
    EXPECT_EQ(warnings.count(), 1);
}

TEST(LocalSGD, CountsStepsFromZeroAfterLoadingACheckpointSavedOutsideItsScope) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    on_ranks(2, [&](const Group& group) {
        ReplicaRun run(group);
        run.accelerator.save_state(folder / "state");
        accel::LocalSGD local(run.accelerator, run.net, 2);
        run.step(0);
        local.step();
        run.accelerator.load_state(folder / "state");
        run.step(0);
        local.step();  // the first step after the checkpoint does not average
        const Tensor all = group->all_gather(run.net.first.weight.detach());
        EXPECT_NE(all[1].to_vector(), all[0].to_vector());
    });
}

}  // namespace
}  // namespace axle
