// MeshRanks: the position of this process in the device mesh of an Accelerator.
#pragma once

#include <memory>
#include <utility>

#include "dist/group/mesh.h"

namespace axle::accel {

class MeshRanks {
  public:
    // Returns the mesh of parallelism_config, megatron_lm_plugin or device_mesh. Returns nullptr
    // without these options, or if a mesh of parallelism_config or megatron_lm_plugin would have
    // one process.
    const dist::DeviceMesh* torch_device_mesh() const { return mesh_.get(); }
    // Return this process's coordinate along one dimension of the mesh, or 0 if the mesh does not
    // have the dimension. The dimensions are "tp", "pp", "cp", "sp", "dp_replicate" and "dp_shard".
    // Throw UsageError without parallelism_config, megatron_lm_plugin and device_mesh.
    int tensor_parallel_rank() const { return mesh_rank("tensor_parallel_rank", "tp"); }
    int pipeline_parallel_rank() const { return mesh_rank("pipeline_parallel_rank", "pp"); }
    int context_parallel_rank() const { return mesh_rank("context_parallel_rank", "cp"); }
    int sequence_parallel_rank() const { return mesh_rank("sequence_parallel_rank", "sp"); }
    int data_parallel_rank() const { return mesh_rank("data_parallel_rank", "dp_replicate"); }
    int data_parallel_shard_rank() const {
        return mesh_rank("data_parallel_shard_rank", "dp_shard");
    }
    // Returns whether this process has the lowest rank of the processes that read the same data.
    bool should_read_data() const;

  protected:
    // Sets the mesh. `is_configured` is true if the program has set an option for a mesh, even if
    // the mesh has no dimension.
    void set_mesh(std::shared_ptr<const dist::DeviceMesh> mesh, bool is_configured) {
        mesh_ = std::move(mesh);
        is_configured_ = is_configured;
    }
    // Returns the size of a dimension, or 1 if the mesh does not have this dimension.
    int mesh_size(const char* dimension) const;

  private:
    int mesh_rank(const char* getter, const char* dimension) const;

    std::shared_ptr<const dist::DeviceMesh> mesh_;
    bool is_configured_ = false;
};

}  // namespace axle::accel
