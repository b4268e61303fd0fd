// DataParallel: one model on several processes, each with its own part of the data.
//
//     dist::DataParallel replicas(model, group);   // everybody starts from rank 0's values
//     loss.backward();  // gradients are everybody's mean when it returns
//
// Nothing is wrapped: it hangs on the hooks of the engine (core/autograd/autograd.h). Parameters
// lie in buckets in reverse order, which is about the order in which their gradients become final;
// a bucket is reduced as soon as all of its gradients are, while backward goes on with the others.
// From the second reduction on they lie in the order in which rank 0's became final in the first.
//
// Under use_deterministic_algorithms(), gradients have the same bits wherever the number of
// processes times that of accumulated passes is the same power of two, for the same data: pass k
// of rank r is pass k * size + r of one process. Then each pass is reduced, also those without
// sync, and the sums form one binary tree. Until the pass with sync, a gradient is everybody's so
// far, and zero_grad() forgets it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::inline v0::dist {

// A run of gradients, to be reduced together: contiguous, 1-d.
struct GradientBucket {
    Tensor buffer;
    std::size_t index = 0;  // in the order of reduction
    bool is_last = false;
    std::vector<Tensor> parameters;  // whose gradients lie in it, in order
    // Views of the buffer in the shapes of the parameters.
    std::vector<Tensor> gradients;
};

// What a bucket's reduction is: starts it, and is called back with nothing left to do but to wait.
// finish() leaves everybody's mean in bucket.buffer.
class CommHook {
  public:
    virtual ~CommHook() = default;
    struct Pending {
        std::function<void()> finish;
    };
    virtual Pending start(GradientBucket& bucket, ProcessGroup& group) = 0;
};
// Mean in the bucket's dtype: what happens without a hook.
std::shared_ptr<CommHook> all_reduce_hook();
// Divided by the number of processes, rounded to f16 or bf16, summed, and widened again.
std::shared_ptr<CommHook> fp16_compress_hook();
std::shared_ptr<CommHook> bf16_compress_hook();

struct PowerSgdOptions {
    std::int64_t matrix_approximation_rank = 1;
    std::int64_t start_powerSGD_iter = 1000;  // plain means before
    double min_compression_rate = 2;
    bool use_error_feedback = true, warm_start = true;
    std::uint64_t random_seed = 0;
    DType wrapper = DType::f32;  // f16 or bf16: DDPCommunicationHookType's comm_wrapper
};
// Low-rank approximations of the gradients of matrices (Vogels, Karimireddy, Jaggi, "PowerSGD",
// NeurIPS 2019, arXiv:1905.13727), as PyTorch's powerSGD_hook; batched takes the whole bucket as
// one square matrix.
std::shared_ptr<CommHook> power_sgd_hook(PowerSgdOptions options = {}, bool batched = false);

// As torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
    bool broadcast_buffers = true;  // rank 0's, at each forward in training
    double bucket_cap_mb = 25;
    // Parameters that a backward doesn't reach count as zero there, and keep the gradient they
    // have, or none, where no rank has reached them. Without it such a parameter is a UsageError
    // that names it, in the backward that has missed it.
    bool find_unused_parameters = false;
    bool gradient_as_bucket_view = true;
    bool static_graph = false;  // the same parameters are reached in every backward
    std::shared_ptr<CommHook> hook = nullptr;

    bool operator==(const DataParallelOptions&) const = default;
};

// While it lives, backward leaves gradients to this process alone; the first backward after it
// reduces what has been gathered.
class [[nodiscard]] NoSyncGuard;

// One thread at a time. The model must not move and must live longer.
class DataParallel {
  public:
    // Broadcasts parameters and buffers of rank 0. UsageError for a model without a parameter that
    // requires a gradient; CommError where the ranks' models differ, with the first name that does.
    DataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                 DataParallelOptions options = {});
    ~DataParallel();
    DataParallel(const DataParallel&) = delete;
    DataParallel& operator=(const DataParallel&) = delete;

    // What a backward that begins now does.
    void set_sync(bool reduce);
    bool syncs() const;
    // Whether a backward that begins now leaves everybody's mean: not while it is a LocalSgd's.
    bool reduces() const;
    NoSyncGuard no_sync();
    // Of one f64, over the ranks; those without data (Join) add nothing.
    Tensor sum(const Tensor& number);

    // Before each forward; Accelerator::prepare sees to it. Broadcasts the buffers of a model that
    // trains, unless the last forward was one without sync.
    void before_forward();

    const std::vector<GradientBucket>& buckets() const;

  private:
    friend class Join;
    friend class LocalSgd;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

class [[nodiscard]] NoSyncGuard {
  public:
    explicit NoSyncGuard(DataParallel& replicas) : replicas_(&replicas), before_(replicas.syncs()) {
        replicas.set_sync(false);
    }
    ~NoSyncGuard() { replicas_->set_sync(before_); }
    NoSyncGuard(const NoSyncGuard&) = delete;
    NoSyncGuard& operator=(const NoSyncGuard&) = delete;

  private:
    DataParallel* replicas_;
    bool before_;
};

// While it lives, ranks may have different numbers of batches: one that has left its loop answers
// the others' reductions with zeros until all have (torch's Join), and ends with the model of those
// who had data longest. finish() does so, or else the destructor; both throw what goes wrong. The
// destructor does nothing where an exception is under way. Of several models that are trained in
// one loop, one Join.
class [[nodiscard]] Join {
  public:
    struct Options {
        bool divide_by_initial_world_size = true;  // else by the ranks that still have data
        bool throw_on_early_termination = false;   // UsageError everywhere as soon as one is done
    };
    explicit Join(DataParallel& replicas) : Join(replicas, Options()) {}
    Join(DataParallel& replicas, Options options) : Join(std::vector{&replicas}, options) {}
    // UsageError for models of different groups, and for one that another Join has.
    Join(const std::vector<DataParallel*>& replicas, Options options);
    ~Join() noexcept(false);
    // Nothing the second time.
    void finish();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace axle::inline v0::dist
