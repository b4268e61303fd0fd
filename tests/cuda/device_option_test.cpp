// Tests which device an Accelerator uses, what it moves there, and when it waits for copies.
#include <memory>
#include <source_location>
#include <utility>

#include "accel/accelerator.h"
#include "accel/state/save_model.h"
#include "core/files/safetensors.h"
#include "tests/accel/training.h"
#include "tests/cuda/gpu.h"
#include "tests/dist/ranks.h"
#include "tests/environment_variable.h"
#include "tests/temporary_folder.h"
#if AXLE_SIMULATED_GPU
#include <cuda_runtime_api.h>
#endif

namespace axle::tests {
namespace {

class AcceleratorDevice : public GpuTest {};

// The tests simulated_gpus.* run this test with three simulated GPUs.
// Covers 6.device.
TEST_F(AcceleratorDevice, IsTheGpuOfTheLocalRankModuloTheNumberOfGpus) {
    const int gpus = cuda::device_count();
    on_ranks(gpus + 2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        const Device expected = Device::cuda(group->rank() % gpus);
        EXPECT_EQ(PartialState({.process_group = group}).device(), expected);
        EXPECT_EQ(Accelerator({.process_group = group}).device(), expected);
    });
}

// Covers 1.cpu, 2.device, 27.ACCELERATE_USE_CPU, 27.ACCELERATE_TORCH_DEVICE.
TEST_F(AcceleratorDevice, IsSelectedByOptionsAndEnvironmentVariables) {
    EXPECT_EQ(Accelerator().device(), kGpu);
    EXPECT_EQ(Accelerator({.cpu = true}).device(), Device::cpu());
    {
        const EnvironmentVariable cpu("ACCELERATE_USE_CPU", "yes");
        EXPECT_EQ(Accelerator().device(), Device::cpu());
        const EnvironmentVariable named("ACCELERATE_TORCH_DEVICE", "cuda:0");
        EXPECT_EQ(Accelerator().device(), kGpu);
        EXPECT_EQ(Accelerator({.cpu = true}).device(), Device::cpu());
    }
    {
        const EnvironmentVariable gpu("ACCELERATE_USE_CPU", "no");
        EXPECT_EQ(Accelerator().device(), kGpu);
    }
    const EnvironmentVariable named("ACCELERATE_TORCH_DEVICE", "cpu");
    EXPECT_EQ(Accelerator().device(), Device::cpu());
}

// Covers 6.AcceleratorState.
TEST_F(AcceleratorDevice, MustBeEqualInAcceleratorsThatExistAtTheSameTime) {
    const auto make = [](bool cpu) { return Accelerator({.cpu = cpu}).device(); };
    {
        const Accelerator first;
        EXPECT_EQ(make(false), kGpu);
        expect_error<ValueError>({"Accelerator: the device is cuda:0 in an existing Accelerator",
                                  "must be the same in the new one: cpu"},
                                 [&] { make(true); });
        {
            const EnvironmentVariable named("ACCELERATE_TORCH_DEVICE", "cpu");
            expect_error<ValueError>({"Accelerator: the device is cuda:0", "new one: cpu"},
                                     [&] { make(false); });
        }
        const EnvironmentVariable named("ACCELERATE_TORCH_DEVICE", "cuda:0");
        EXPECT_EQ(make(false), kGpu);
    }
    const Accelerator first({.cpu = true});
    EXPECT_EQ(make(true), Device::cpu());
    EXPECT_EQ(make(false), Device::cpu());  // uses the existing device if none is requested
    const EnvironmentVariable named("ACCELERATE_TORCH_DEVICE", "cuda");
    expect_error<ValueError>({"Accelerator: the device is cpu", "new one: cuda:0"},
                             [&] { make(false); });
}

// The objects of a training loop.
struct Objects {
    Objects() : adamw(net.parameters(), {.lr = 0.1}), loader(samples(4), {.batch_size = 4}) {}

    // Trains one step. Expects the weights and the optimizer's state on the device `model`, and the
    // batch on the device `batch`.
    void expect_devices(Accelerator& accelerator, Device model, Device batch,
                        std::source_location at = std::source_location::current()) {
        const testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()), "");
        for (const Tree& rows : loader) {
            EXPECT_EQ(rows["x"].tensor().device(), batch);
            EXPECT_EQ(rows["y"].tensor().device(), batch);
            accelerator.backward(squared_error(net(rows["x"].to(model)), rows["y"].to(model)));
            adamw.step();
        }
        for (const Tensor& p : net.parameters()) {
            EXPECT_EQ(p.device(), model);
            EXPECT_EQ(adamw.state(p)->buffers[1].device(), model);
        }
    }

    SmallNet net;
    optim::AdamW adamw;
    data::DataLoader loader;
};

class DevicePlacementOnGpu : public GpuTest {};

// Covers 1.cpu, 1.device_placement, 3.prepare.
TEST_F(DevicePlacementOnGpu, MovesPreparedObjectsAsRequested) {
    const Device cpu = Device::cpu();
    {
        Objects all, none, only_batches, only_model;
        Accelerator accelerator;
        accelerator.prepare(all.net, all.adamw, all.loader);
        all.expect_devices(accelerator, kGpu, kGpu);
        accelerator.prepare({false, false, false}, none.net, none.adamw, none.loader);
        none.expect_devices(accelerator, cpu, cpu);
        accelerator.prepare({false, true, true}, only_batches.net, only_batches.adamw,
                            only_batches.loader);
        only_batches.expect_devices(accelerator, cpu, kGpu);
        accelerator.prepare({true, true, false}, only_model.net, only_model.adamw,
                            only_model.loader);
        only_model.expect_devices(accelerator, kGpu, cpu);
    }
    {
        Objects objects;
        Accelerator accelerator({.device_placement = false});
        accelerator.prepare(objects.net, objects.adamw, objects.loader);
        objects.expect_devices(accelerator, cpu, cpu);
    }
    Objects objects;
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(objects.net, objects.adamw, objects.loader);
    objects.expect_devices(accelerator, cpu, cpu);
}

class DeviceMapOnGpu : public GpuTest {};

// Covers 3.load_checkpoint_in_model.
TEST_F(DeviceMapOnGpu, SelectsTheDeviceOfALoadedModelAndRejectsMissingGpus) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    SmallNet saved;
    save_safetensors(folder / "model.safetensors", saved.state_dict(), {{"format", "pt"}});
    SmallNet net;
    for (const auto& [name, device] :
         {std::pair("cuda", kGpu), std::pair("cpu", Device::cpu()), std::pair("cuda:0", kGpu)}) {
        SCOPED_TRACE(name);
        accel::load_checkpoint_in_model(net, folder.path(),
                                        {.device_map = {{"", name}}, .strict = true});
        const auto loaded = net.parameters(), expected = saved.parameters();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(loaded[i].device(), device);
            expect_same_bits(to(loaded[i].detach(), Device::cpu()), expected[i].detach());
        }
    }
    expect_error<DeviceError>({"device: the GPU does not exist", "cuda:99"}, [&] {
        accel::load_checkpoint_in_model(net, folder.path(), {.device_map = {{"", "cuda:99"}}});
    });
}

#if AXLE_SIMULATED_GPU
class BatchCopies : public GpuTest {};

// The simulated GPU runs all queued work when the host waits, and a single operation in each event
// query. If the work that was queued before a copy has not run completely, the host has not waited
// for the copy.
// Covers 4.non_blocking.
TEST_F(BatchCopies, SynchronizeOnlyIfPinnedAndBlocking) {
    static constexpr int kQueued = 1000;  // more than event queries run
    for (const bool pin : {false, true})
        for (const bool non_blocking : {false, true}) {
            SCOPED_TRACE(str("pinned: ", pin, ", non_blocking: ", non_blocking));
            data::DataLoader loader(samples(4), {.batch_size = 4, .pin_memory = pin});
            Accelerator accelerator({.dataloader_config = accel::DataLoaderConfiguration{
                                         .non_blocking = non_blocking}});
            accelerator.prepare(loader);
            cuda::synchronize();
            int done = 0;
            for (int i = 0; i < kQueued; ++i)
                ASSERT_EQ(cudaLaunchHostFunc(
                              cuda::current_stream().handle(),
                              [](void* count) { ++*static_cast<int*>(count); }, &done),
                          cudaSuccess);
            int steps = 0;
            for (const Tree& batch : loader) {
                ++steps;
                EXPECT_EQ(batch["x"].tensor().device(), kGpu);
                if (pin && !non_blocking) {
                    EXPECT_EQ(done, kQueued);
                } else {
                    EXPECT_LT(done, kQueued);
                }
            }
            EXPECT_EQ(steps, 1);
            cuda::synchronize();
            EXPECT_EQ(done, kQueued);
        }
}
#endif

}  // namespace
}  // namespace axle::tests
