// DataParallel: trains one model on several processes, each with its own part of the data.
//
//     dist::DataParallel replicas(model, group);  // broadcasts the values of rank 0
//     loss.backward();                            // leaves the mean of all ranks' gradients
//
// The model is not wrapped: DataParallel registers hooks with autograd (core/autograd/autograd.h).
// Gradients are stored in buckets, in reverse order of the parameters, which is about the order in
// which they become final. A bucket is reduced as soon as all of its gradients are final, while
// backward continues. From the second reduction on, buckets follow the order in which rank 0's
// gradients became final in the first reduction.
//
// Under use_deterministic_algorithms(), gradients have the same bits for any number of processes,
// as long as the number of processes times the number of accumulated passes is the same power of
// two and the data are the same: pass k of rank r corresponds to pass k * size + r of a single
// process. In this mode every pass is reduced, also those without sync, and the sums form one
// binary tree. Until the pass with sync, a gradient is the sum over all ranks so far, and
// zero_grad() discards it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/group/process_group.h"
#include "nn/module.h"

namespace axle::dist {

// A contiguous 1-d buffer of gradients that are reduced together.
struct GradientBucket {
    Tensor buffer;
    std::size_t index = 0;  // in the order of reduction
    bool is_last = false;
    std::vector<Tensor> parameters;  // the parameters whose gradients it holds, in order
    // Views of the buffer in the shapes of the parameters.
    std::vector<Tensor> gradients;
};

// Defines how a bucket is reduced. start() begins the reduction; Pending::finish() waits for it and
// leaves the mean over all ranks in bucket.buffer.
class CommHook {
  public:
    virtual ~CommHook() = default;
    struct Pending {
        std::function<void()> finish;
    };
    virtual Pending start(GradientBucket& bucket, ProcessGroup& group) = 0;
};
// Averages in the bucket's dtype. This is the default.
std::shared_ptr<CommHook> all_reduce_hook();
// Divides by the number of processes, rounds to f16 or bf16, sums, and converts back.
std::shared_ptr<CommHook> fp16_compress_hook();
std::shared_ptr<CommHook> bf16_compress_hook();

struct PowerSgdOptions {
    std::int64_t matrix_approximation_rank = 1;
    std::int64_t start_powerSGD_iter = 1000;  // uses all_reduce_hook() before this step
    double min_compression_rate = 2;
    bool use_error_feedback = true, warm_start = true;
    std::uint64_t random_seed = 0;
    DType wrapper =
        DType::f32;  // f16 or bf16 correspond to comm_wrapper in DDPCommunicationHookType
};
// Communicates low-rank approximations of the gradients of matrices, as PyTorch's powerSGD_hook
// (Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019, arXiv:1905.13727). `batched` treats the
// whole bucket as one square matrix.
std::shared_ptr<CommHook> power_sgd_hook(PowerSgdOptions options = {}, bool batched = false);

// The options of torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
    // Broadcasts the buffers of rank 0 before each forward in training mode.
    bool broadcast_buffers = true;
    double bucket_cap_mb = 25;
    // Allows parameters that backward does not reach. They count as zero on ranks that do not reach
    // them; if no rank reaches one, its gradient stays as it is. If false, such a parameter makes
    // that backward throw a UsageError that names it.
    bool find_unused_parameters = false;
    bool gradient_as_bucket_view = true;
    bool static_graph = false;  // every backward reaches the same parameters
    std::shared_ptr<CommHook> hook = nullptr;

    bool operator==(const DataParallelOptions&) const = default;
};

// Suspends reductions: while it exists, backward accumulates gradients only locally. The first
// backward after it reduces the accumulated gradients.
class [[nodiscard]] NoSyncGuard;

// Keeps the gradients of a model's replicas in sync. Not thread-safe. The model must not move and
// must outlive it.
class DataParallel {
  public:
    // Broadcasts the parameters and buffers of rank 0. Throws UsageError if no parameter requires a
    // gradient, and CommError if the models of the ranks differ, with the first name that differs.
    DataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                 DataParallelOptions options = {});
    ~DataParallel();
    DataParallel(const DataParallel&) = delete;
    DataParallel& operator=(const DataParallel&) = delete;

    // Sets whether the backward passes that start from now on reduce gradients.
    void set_sync(bool reduce);
    bool syncs() const;
    // Returns whether a backward pass that starts now averages the gradients over all ranks:
    // syncs(), unless a LocalSgd is active.
    bool reduces() const;
    NoSyncGuard no_sync();
    // Returns the sum of an f64 scalar over all ranks. Ranks without data (see Join) contribute
    // zero.
    Tensor sum(const Tensor& number);

    // Must be called before each forward; Accelerator::prepare() arranges this. In training mode it
    // broadcasts the buffers, unless the last forward ran without sync.
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

// Lets ranks have different numbers of batches, like torch's Join. A rank that has left its loop
// takes part in the reductions of the other ranks with zeros until all ranks are done, and then
// receives the model of a rank that trained longest. finish() does this, or else the destructor;
// both throw on errors. The destructor does nothing during stack unwinding. Use one Join for all
// models that are trained in the same loop.
class [[nodiscard]] Join {
  public:
    struct Options {
        bool divide_by_initial_world_size = true;  // otherwise by the number of ranks with data
        bool throw_on_early_termination = false;   // UsageError on all ranks as soon as one is done
    };
    explicit Join(DataParallel& replicas) : Join(replicas, Options()) {}
    Join(DataParallel& replicas, Options options) : Join(std::vector{&replicas}, options) {}
    // Throws UsageError if the models belong to different groups or one already has a Join.
    Join(const std::vector<DataParallel*>& replicas, Options options);
    ~Join() noexcept(false);
    // Takes part until all ranks are done, as described above. A second call does nothing.
    void finish();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace axle::dist
