// Prepares data loaders for several processes.
//
// Each process reads its own batches of a common order (data/loading/shard.h), or the main process
// reads all batches and distributes them (dispatch_batches). In both cases all processes get
// batches of the same size, and loops, flags and positions work as in data::DataLoader.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/utils/random.h"
#include "core/device.h"
#include "core/tree/tree.h"
#include "data/loading/loader.h"
#include "dist/group/mesh.h"
#include "dist/group/process_group.h"

namespace axle::accel {

struct DataLoaderConfiguration {
    // true: a loader's batch is the batch of all processes, and each takes a part of it. false:
    // each process takes whole batches.
    bool split_batches = false;
    // The main process reads all batches and distributes them. By default this is done for iterable
    // datasets whose batches are placed on a device.
    std::optional<bool> dispatch_batches = {};
    // All processes get the same number of batches: the first samples are repeated at the end.
    bool even_batches = true;
    // Random orders are seeded with data_seed (by default the default generator's seed), instead of
    // the loader's own seed.
    bool use_seedable_sampler = false;
    std::optional<std::uint64_t> data_seed = {};
    // Copies to a GPU are asynchronous. Copies of pinned batches always are.
    bool non_blocking = false;
    // Has no effect: every loader saves its position.
    bool use_stateful_dataloader = false;
};

// The rows that one process gets of a batch of all processes.
struct Slice {
    std::int64_t begin = 0, end = 0;
};
// Returns a process's slice of a batch, instead of slice_tensors(). The main process calls it for
// each process.
using SliceFn =
    std::function<Tree(const Tree& batch, Slice slice, int process_index, int num_processes)>;

// The position of a process among the processes that read different data.
struct DataRank {
    int index = 0, count = 1;
    // Whether it is the first of the processes that read the same data.
    bool is_first = true;
};

// Returns the position of a rank of the mesh, by default of the rank of this process. Ranks that
// differ only in the dimensions "tp", "cp" and "sp" read the same data.
DataRank data_rank(const dist::DeviceMesh& mesh, int rank);
DataRank data_rank(const dist::DeviceMesh& mesh);

struct PrepareDataLoaderOptions {
    Device device = Device::cpu();
    bool put_on_device = true;
    DataLoaderConfiguration config = {};
    // Random states that are synchronized across processes before each pass.
    std::vector<RngType> rng_types = {RngType::generator};
    SliceFn slice_fn_for_dispatch = {};
    // The mesh of the group's processes; nullptr if all read different data.
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
};

// Prepares a loader for this process of the group, in place and without an Accelerator. Returns the
// loader. Preparing it again replaces the earlier preparation. Throws ValueError for
// dispatch_batches without put_on_device, and for split_batches with a batch size that is not a
// multiple of the number of processes.
data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                      const std::shared_ptr<dist::ProcessGroup>& group,
                                      PrepareDataLoaderOptions options = {});

}  // namespace axle::accel
