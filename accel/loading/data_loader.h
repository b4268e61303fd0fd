// Prepares data loaders for several processes, and computes which processes of a mesh read the same
// data.
//
// All processes use the same order of samples. Either each process reads its own batches
// (data/loading/shard.h), or the main process reads all batches and distributes them
// (dispatch_batches). In both cases the loader is used like any other data::DataLoader. With
// even_batches, all processes get the same number of batches.
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
    // Whether a loader's batch is split between the processes, and each process gets a part. If
    // false, each process gets batches of the loader's batch size.
    bool split_batches = false;
    // Whether the main process reads all batches and distributes them. The default is true for
    // iterable datasets whose batches are placed on a device.
    std::optional<bool> dispatch_batches = {};
    // Whether all processes get the same number of batches. If necessary, samples are repeated at
    // the end of a pass.
    bool even_batches = true;
    // Whether random orders are seeded with data_seed (or, if it is not set, the seed of the
    // default generator) instead of the loader's own seed.
    bool use_seedable_sampler = false;
    std::optional<std::uint64_t> data_seed = {};
    // Whether copies of pinned batches to a GPU are asynchronous: the loop continues while they
    // run. Copies of batches that are not pinned finish before the loop continues.
    bool non_blocking = false;
    // An option of Accelerate without effect: every loader saves its position.
    bool use_stateful_dataloader = false;
};

// The range of rows [begin, end) that one process gets from a batch of all processes.
struct RowRange {
    std::int64_t begin = 0, end = 0;
};
// A function that returns one process's slice of a batch and replaces slice_tensors(). The main
// process calls it for each process. process_index and num_processes count the processes that read
// different data.
using SliceFn =
    std::function<Tree(const Tree& batch, RowRange slice, int process_index, int num_processes)>;

// The position of a process among the processes that read different data, and their number.
struct DataRank {
    int index = 0, count = 1;
    // Whether this process has the lowest rank of the processes that read the same data.
    bool is_first = true;
};

// Returns the position of a rank of the mesh, by default of the rank of this process. Ranks that
// differ only in the dimensions "tp", "cp" and "pp" read the same data. Ranks that differ in "sp"
// read different batches, which Accelerator::deepspeed_ulysses_dl_adapter() distributes.
DataRank data_rank(const std::vector<dist::DeviceMesh::Dimension>& dimensions, int rank);
DataRank data_rank(const dist::DeviceMesh& mesh, int rank);
DataRank data_rank(const dist::DeviceMesh& mesh);
// Returns the number of batches that the processes of the mesh train on at the same time. This is
// the product of its dimensions without "tp", "cp", "pp" and "sp".
int data_parallel_size(const dist::DeviceMesh& mesh);

struct PrepareDataLoaderOptions {
    Device device = Device::cpu();
    bool put_on_device = true;
    DataLoaderConfiguration config = {};
    // Random states that are synchronized across processes before each pass.
    std::vector<RngType> rng_types = {RngType::generator};
    SliceFn slice_fn_for_dispatch = {};
    // The mesh of the group's processes, or nullptr if all processes read different data.
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
};

// Prepares a loader for this process of the group without an Accelerator. Changes the loader itself
// and returns it. Preparing a loader again replaces the earlier preparation. Throws ValueError for
// dispatch_batches without put_on_device, for a device mesh of other processes, and for
// split_batches unless the batch size is fixed and a multiple of the number of processes that read
// different data. Throws UsageError during a pass.
data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                      const std::shared_ptr<dist::ProcessGroup>& group,
                                      PrepareDataLoaderOptions options = {});

}  // namespace axle::accel
