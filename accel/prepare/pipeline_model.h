// Private to accel: a prepared model that is divided into the stages of a pipeline.
#pragma once

#include <memory>
#include <vector>

#include "accel/config/options.h"
#include "accel/prepare/preparation.h"
#include "dist/parallel/distributed_model.h"
#include "dist/pipeline/pipeline.h"

namespace axle::accel {

// A prepared model and its pipeline. The pipeline averages gradients in every step, independent of
// set_sync().
class PipelineModel : public dist::DistributedModel {
  public:
    PipelineModel(nn::Module& model, std::vector<nn::Piece> pieces,
                  std::shared_ptr<dist::ProcessGroup> group, dist::PipelineOptions options);

    // Throws UsageError if the model was moved, because the stages refer to its address.
    dist::Pipeline& pipeline();
    void set_sync(bool reduce) override { syncs_ = reduce; }
    bool syncs() const override { return syncs_; }
    bool reduces() const override { return true; }
    Tensor sum(const Tensor& number) override;
    void set_model(nn::Module&) override { is_moved_ = true; }
    Tree state_dict() const override;
    bool load_state_dict(const Tree& state, bool is_own) override;

  private:
    std::shared_ptr<dist::ProcessGroup> data_parallel_;
    dist::Pipeline pipeline_;
    bool syncs_ = true, is_moved_ = false;
};

// Returns the pipeline of a prepared model, or nullptr if the model has none. These functions throw
// UsageError if the model was moved.
dist::Pipeline* find_pipeline(const Preparation& preparation, const nn::Module& model);
// Returns the pipeline of a prepared model. Throws UsageError, with a message that begins with
// `op`, if the model has none.
dist::Pipeline& pipeline_of(const char* op, const Preparation& preparation,
                            const nn::Module& model);
// Returns the pipeline whose model has the first of the parameters, or nullptr.
dist::Pipeline* find_pipeline(const Preparation& preparation,
                              const std::vector<Tensor>& parameters);

// Makes prepare() divide models into stages, and steps of optimizers clip gradients to the plugin's
// gradient_clipping, if a resolved megatron_lm_plugin is given. `options` must outlive
// `preparation` and its copies.
void set_pipelines(PreparationOptions& preparation, const AcceleratorOptions& options);

}  // namespace axle::accel
