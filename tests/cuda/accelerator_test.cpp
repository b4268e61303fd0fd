// Tests the Accelerator on a GPU: mixed precision, checkpoints that are loaded on another device,
// and loaders.
#include "accel/accelerator.h"

#include "core/autograd/autograd.h"
#include "core/system/numerics.h"
#include "tests/accel/training.h"
#include "tests/cuda/gpu.h"
#include "tests/temporary_folder.h"

namespace axle::tests {
namespace {

class AcceleratorOnGpu : public GpuTest {
  protected:
    void TearDown() override { use_deterministic_algorithms(false); }
};

// Trains on the CPU or the GPU, saves a checkpoint after each batch, and resumes from four of them
// on the CPU or the GPU. Expects the same losses and weights.
void expect_resume(bool from_cpu, bool to_cpu, double tolerance) {
    SCOPED_TRACE(str(from_cpu, " ", to_cpu));
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::vector<double> losses;
    std::vector<Tensor> expected;
    {
        Training whole(7, 0, from_cpu);
        losses = whole.run(2, [&] {
            whole.accelerator.save_state(folder / str("after_", whole.counter.batches));
        });
        for (const Tensor& p : whole.net.parameters())
            expected.push_back(to(p.detach(), Device::cpu()));
    }
    for (const std::size_t done : {1u, 2u, 5u, 8u}) {
        SCOPED_TRACE(done);
        Training resumed(99, 0, to_cpu);
        resumed.accelerator.load_state(folder / str("after_", done));
        const auto rest = resumed.run(2);
        ASSERT_EQ(rest.size(), losses.size() - done);
        for (std::size_t i = 0; i < rest.size(); ++i)
            EXPECT_NEAR(rest[i], losses[done + i], tolerance) << i;
        const Device device = to_cpu ? Device::cpu() : kGpu;
        const auto end = resumed.net.parameters();
        for (std::size_t i = 0; i < end.size(); ++i) {
            EXPECT_EQ(end[i].device(), device);
            EXPECT_EQ(resumed.adamw.state(end[i])->buffers[1].device(), device);
            expect_close(to(end[i].detach(), Device::cpu()), expected[i], tolerance);
        }
    }
}

// The second save reuses the host memory of the first save.
TEST_F(AcceleratorOnGpu, SavesItsStateInTheBackground) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Training training(7, 0, false);
    for (const char* name : {"a", "b"}) {
        training.run(training.loader.epoch() + 1);
        std::vector<Tensor> saved;
        for (const Tensor& p : training.net.parameters())
            saved.push_back(to(p.detach(), Device::cpu()));
        training.accelerator.save_state(folder / name, {.asynchronous = true});
        {
            const NoGrad no_grad;
            for (Tensor& p : training.net.parameters()) p.fill_(7);
        }
        training.accelerator.wait_for_saves();
        training.accelerator.load_state(folder / name);
        const auto loaded = training.net.parameters();
        for (std::size_t i = 0; i < loaded.size(); ++i)
            expect_same_bits(to(loaded[i].detach(), Device::cpu()), saved[i]);
    }
}

TEST_F(AcceleratorOnGpu, ResumesFromCheckpointsOfTheCpuAndTheGpu) {
    expect_resume(false, true, 1e-4);
    expect_resume(true, false, 1e-4);
    use_deterministic_algorithms(true);
    expect_resume(false, false, 0);
}

struct TrainingRun {
    std::vector<double> losses;
    std::vector<Tensor> evaluated;  // evaluation outputs before each step
    std::int64_t replays = 0;
};

struct Plain : nn::Model<Plain> {
    nn::Linear in{12, 32}, out{32, 4};
    Tensor forward(const Tensor& x) { return out(relu(in(x))); }
    void visit(nn::Visitor& v) override { v("in", in), v("out", out); }
};

TrainingRun in_bf16(bool cpu, bool compiled) {
    manual_seed(12);
    Plain net;
    optim::AdamW adamw(net.parameters(), {.lr = 0.02});
    Accelerator accelerator({.mixed_precision = "bf16", .cpu = cpu});
    accelerator.prepare(net, adamw);
    const auto body = [&](Tree& batch) {
        const Tensor loss = cross_entropy(net(batch["x"]), batch["y"]);
        accelerator.backward(loss);
        adamw.step();
        adamw.zero_grad();
        return loss;
    };
    auto step = accelerator.compile(body);
    TrainingRun result;
    for (int i = 0; i < 9; ++i) {
        manual_seed(static_cast<std::uint64_t>(50 + i));
        const Tensor x = to(randn({8, 12}), accelerator.device());
        const Tensor y = to(randint(0, 4, {8}), accelerator.device());
        {
            const NoGrad no_grad;
            net.eval();
            result.evaluated.push_back(to(net(x), Device::cpu()));
            net.train();
        }
        Tree batch{{"x", x}, {"y", y}};
        result.losses.push_back(compiled ? step(batch).item() : body(batch).item());
    }
    result.replays = step.replays();
    return result;
}

TEST_F(AcceleratorOnGpu, TrainsInBf16LikeTheCpu) {
    const TrainingRun gpu = in_bf16(false, false), cpu = in_bf16(true, false);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
        EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 0.03 * (1 + cpu.losses[i])) << i;
}

// Autocast caches bf16 copies of weights between calls; a replay must invalidate the copies.
TEST_F(AcceleratorOnGpu, UsesUpdatedBf16WeightsAfterReplays) {
    use_deterministic_algorithms(true);
    const TrainingRun compiled = in_bf16(false, true), eager = in_bf16(false, false);
    EXPECT_GT(compiled.replays, 2);
    EXPECT_EQ(compiled.losses, eager.losses);
    for (std::size_t i = 0; i < eager.evaluated.size(); ++i) {
        SCOPED_TRACE(i);
        expect_same_bits(compiled.evaluated[i], eager.evaluated[i]);
    }
}

// Covers 2.device, 4.non_blocking.
TEST_F(AcceleratorOnGpu, CopiesExactValuesOfPinnedAndPageableBatches) {
    for (int which = 0; which < 8; ++which) {
        const int workers = which / 4 * 2;
        const bool pin = which / 2 % 2 == 1, non_blocking = which % 2 == 1;
        SCOPED_TRACE(str(workers, " workers, pinned: ", pin, ", non_blocking: ", non_blocking));
        data::LoaderOptions options{
            .batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 4};
        data::DataLoader plain(samples(40), options);
        options.pin_memory = pin;
        data::DataLoader copied(samples(40), options);
        for (const Tree& batch : copied) EXPECT_EQ(batch["x"].tensor().is_pinned(), pin);
        plain.set_epoch(1);
        Accelerator accelerator(
            {.dataloader_config = accel::DataLoaderConfiguration{.non_blocking = non_blocking}});
        accelerator.prepare(copied);
        // The test keeps all batches until the end, so that it fails if a batch overwrites the
        // memory of an earlier batch.
        std::vector<Tensor> there, here;
        for (const Tree& batch : copied) there.push_back(batch["x"].tensor());
        for (const Tree& batch : plain) here.push_back(batch["x"].tensor());
        ASSERT_EQ(there.size(), here.size());
        for (std::size_t i = 0; i < here.size(); ++i) {
            EXPECT_EQ(there[i].device(), kGpu);
            expect_same_bits(to(there[i], Device::cpu()), here[i]);
        }
    }
}

}  // namespace
}  // namespace axle::tests
