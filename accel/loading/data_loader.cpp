#include "accel/loading/data_loader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "accel/loading/dispatcher.h"
#include "accel/loading/even_feed.h"
#include "accel/loading/loader_hooks.h"
#include "core/random.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

constexpr std::array<const char*, 3> kSameData = {"tp", "cp", "pp"};

std::vector<DataRank> data_ranks(const dist::ProcessGroup& group, const dist::DeviceMesh* mesh) {
    std::vector<DataRank> ranks;
    for (int rank = 0; rank < group.size(); ++rank)
        ranks.push_back(mesh != nullptr ? data_rank(*mesh, rank)
                                        : DataRank{rank, group.size(), true});
    return ranks;
}

}  // namespace

DataRank data_rank(const std::vector<dist::DeviceMesh::Dimension>& dimensions, int rank) {
    DataRank place;
    int stride = 1;  // distance between two indices along the current dimension
    for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension) {
        const auto& [name, size] = *dimension;
        const int coordinate = rank % size;
        rank /= size;
        if (std::find(kSameData.begin(), kSameData.end(), name) != kSameData.end()) {
            if (coordinate != 0) place.is_first = false;
            continue;
        }
        place.index += coordinate * stride;
        stride *= size;
    }
    place.count = stride;
    return place;
}

DataRank data_rank(const dist::DeviceMesh& mesh, int rank) {
    return data_rank(mesh.dimensions(), rank);
}

DataRank data_rank(const dist::DeviceMesh& mesh) { return data_rank(mesh, mesh.group()->rank()); }

int data_parallel_size(const dist::DeviceMesh& mesh) {
    return data_rank(mesh).count / (mesh.has("sp") ? mesh.size("sp") : 1);
}

std::unique_ptr<data::Feed> PreparedLoaderHooks::feed(data::DataLoader& loader,
                                                      std::unique_ptr<data::Feed> own) {
    has_feed_ = true;
    const bool counts = !options_.device_mesh || data_rank(*options_.device_mesh).is_first;
    std::unique_ptr<data::Feed> feed = std::move(own);
    if (loader.needs_even_steps())
        feed = std::make_unique<EvenFeed>(group_, std::move(feed), loader.drop_last(), counts);
    if (sharing_)
        feed = std::make_unique<SequenceFeed>(group_, *sharing_, std::move(feed), counts,
                                              loader.position() % loader.micro_batches());
    return feed;
}

void shard_or_dispatch(data::DataLoader& loader, const std::shared_ptr<dist::ProcessGroup>& group,
                       const PrepareDataLoaderOptions& options) {
    const auto list_of = [](const std::vector<int>& ranks) {
        return Tree(Tree::List(ranks.begin(), ranks.end()));
    };
    const DataLoaderConfiguration& config = options.config;
    const bool dispatches =
        config.dispatch_batches.value_or(loader.dataset() == nullptr && options.put_on_device);
    if (dispatches && !options.put_on_device)
        throw ValueError(
            "prepare_data_loader: dispatch_batches = true needs put_on_device = true (in an "
            "Accelerator: device_placement), because batches are sent to the devices");
    const dist::DeviceMesh* mesh = options.device_mesh.get();
    if (mesh != nullptr && mesh->group()->global_ranks() != group->global_ranks())
        throw ValueError(
            str("prepare_data_loader: the mesh must have the processes of the group: the mesh has ",
                list_of(mesh->group()->global_ranks()), ", the group has ",
                list_of(group->global_ranks())));
    const std::vector<DataRank> places = data_ranks(*group, options.device_mesh.get());
    const DataRank own = places[static_cast<std::size_t>(group->rank())];
    const data::ShardOptions share{.num_processes = own.count,
                                   .process_index = own.index,
                                   .split_batches = config.split_batches,
                                   .even_batches = config.even_batches};
    try {
        loader.shard(share);  // throws if the loader can't be sharded
        loader.set_micro_batches(1);
    } catch (const Error&) {
        data::rethrow_from(
            str("prepare_data_loader: process ", group->rank(), " of ", group->size()));
    }
    if (dispatches) {
        loader.dispatch(std::make_shared<DataLoaderDispatcher>(group, places, config.split_batches,
                                                               options.slice_fn_for_dispatch),
                        share);
    } else if (own.count == 1) {
        loader.shard(std::nullopt);
    }
    if (const auto generator = loader.generator(); generator && config.use_seedable_sampler)
        generator->manual_seed(config.data_seed.value_or(generator_state().seed));
}

data::DataLoader& prepare_data_loader(data::DataLoader& loader,
                                      const std::shared_ptr<dist::ProcessGroup>& group,
                                      PrepareDataLoaderOptions options) {
    shard_or_dispatch(loader, group, options);
    loader.set_hooks(std::make_shared<PreparedLoaderHooks>(group, std::move(options)));
    return loader;
}

}  // namespace axle::accel
