// What prepare() does to a loader.
//
// On several processes each reads its own batches of the order that all share
// (data/loading/shard.h), or the main process reads all and hands out (dispatch_batches). Either
// way a step is as many samples for everybody, and loops, flags and positions are those of
// data::DataLoader.
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
    // A loader's batch is that of all processes, each taking its part; else each takes whole ones.
    bool split_batches = false;
    // The main process reads all batches and hands out. Without a word, so do iterable datasets
    // whose batches are placed on a device.
    std::optional<bool> dispatch_batches = {};
    // Every process gets as many batches as the others, the first samples again where the data
    // run out.
    bool even_batches = true;
    // Random orders come from data_seed, or where that isn't said from the default generator's
    // seed, in place of the loader's own.
    bool use_seedable_sampler = false;
    std::optional<std::uint64_t> data_seed = {};
    // Copies to a GPU go on while the program does. Pinned batches always travel so.
    bool non_blocking = false;
    // Every loader knows its position: the option has no effect.
    bool use_stateful_dataloader = false;
};

// The rows of a batch of all processes that one of them gets.
struct Slice {
    std::int64_t begin = 0, end = 0;
};
// Cuts a batch, instead of slice_tensors(batch, slice). Called on the main process for everybody.
using SliceFn =
    std::function<Tree(const Tree& batch, Slice slice, int process_index, int num_processes)>;

// A process among those that read different data.
struct DataRank {
    int index = 0, count = 1;
    // Whether it is the first of those that read the same.
    bool is_first = true;
};

// Of a rank of the mesh: peers along the dimensions "tp", "cp" and "sp" read the same data, those
// along others different ones.
DataRank data_rank(const dist::DeviceMesh& mesh, int rank);
DataRank data_rank(const dist::DeviceMesh& mesh);

struct PrepareDataLoaderOptions {
    Device device = Device::cpu();
    bool put_on_device = true;
    DataLoaderConfiguration config = {};
    // Made alike on all processes before each pass.
    std::vector<RngType> rng_types = {RngType::generator};
    SliceFn slice_fn_for_dispatch = {};
    // Of the group's processes; null where all read different data.
    std::shared_ptr<const dist::DeviceMesh> device_mesh = {};
};

// The loader's share for this process of the group, in place, without an Accelerator. ValueError
// for dispatch_batches without put_on_device, and for split_batches with a batch size that the
// processes can't share. Preparing again starts from the loader as it was.
data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                      const std::shared_ptr<dist::ProcessGroup>& group,
                                      PrepareDataLoaderOptions options = {});

}  // namespace axle::accel
