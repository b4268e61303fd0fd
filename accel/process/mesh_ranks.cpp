#include "accel/process/mesh_ranks.h"

#include "accel/loading/data_loader.h"
#include "kernels/error.h"

namespace axle::accel {

bool MeshRanks::should_read_data() const { return mesh_ == nullptr || data_rank(*mesh_).is_first; }

int MeshRanks::mesh_size(const char* dimension) const {
    return mesh_ != nullptr && mesh_->has(dimension) ? mesh_->size(dimension) : 1;
}

int MeshRanks::mesh_rank(const char* getter, const char* dimension) const {
    if (!is_configured_ && mesh_ == nullptr)
        throw UsageError(
            str(getter,
                ": needs an Accelerator with a parallelism_config, a megatron_lm_plugin or a "
                "device_mesh"));
    return mesh_size(dimension) > 1 ? mesh_->coordinate(dimension) : 0;
}

}  // namespace axle::accel
