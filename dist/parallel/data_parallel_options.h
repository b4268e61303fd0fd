// The options of DataParallel (dist/parallel/data_parallel.h), and its policies for the reduction
// of gradients.
#pragma once

#include <cstdint>
#include <memory>

#include "core/shape.h"

namespace axle::dist {

// A policy for the reduction of gradients, declared in dist/parallel/data_parallel.h.
class CommHook;
// Returns the default hook, which averages in the bucket's dtype.
std::shared_ptr<CommHook> all_reduce_hook();
// Return a hook that divides by the number of processes, rounds to f16 or bf16, sums, and converts
// to the bucket's dtype.
std::shared_ptr<CommHook> fp16_compress_hook();
std::shared_ptr<CommHook> bf16_compress_hook();

struct PowerSgdOptions {
    std::int64_t matrix_approximation_rank = 1;
    std::int64_t start_powerSGD_iter = 1000;  // the first step with PowerSGD; earlier steps average
    // The compression rate that a matrix must exceed to be compressed. The rate is the number of
    // elements of the matrix divided by the number of elements that are sent. Not used by batched
    // hooks.
    double min_compression_rate = 2;
    bool use_error_feedback = true;  // whether approximation errors are added to the next gradient
    bool warm_start = true;  // whether a reduction starts with the factor Q of the previous one
    std::uint64_t random_seed = 0;
    DType wrapper = DType::f32;  // dtype of messages (Accelerate's comm_wrapper); f32: not rounded
};
// Returns a hook that sends low-rank approximations of the gradients of matrices, as powerSGD_hook
// of PyTorch does (Vogels et al., "PowerSGD", NeurIPS 2019, arXiv:1905.13727). If `batched` is
// true, a bucket is approximated as one square matrix. Throws ValueError if
// matrix_approximation_rank is less than 1, and DTypeError for a wrapper other than f32, f16 and
// bf16.
//
// Each model that uses the hook has its own state, as with one PowerSGDState per model in PyTorch.
// Checkpoints contain the state. When a checkpoint is loaded, the number of processes, the
// approximation rank, the compression rate, `batched` or the bucket size may have changed. The
// saved approximation errors (error feedback) are then discarded.
std::shared_ptr<CommHook> power_sgd_hook(PowerSgdOptions options = {}, bool batched = false);

// The options of torch.nn.parallel.DistributedDataParallel.
struct DataParallelOptions {
    // Whether the buffers of rank 0 are broadcast before forward passes in training mode (see
    // DataParallel::before_forward()).
    bool broadcast_buffers = true;
    // The size in MiB at which a bucket is full, in [0, 2^20] (ValueError). The first bucket of
    // each dtype and device is full at 1 MiB, if this is less.
    double bucket_cap_mb = 25;
    // Whether backward may compute no gradient for a parameter. If true, this rank adds zero to the
    // mean of such a parameter. If no rank computes a gradient, the parameter's gradient is not
    // changed. If both this option and static_graph are false, backward throws UsageError with the
    // name of the parameter.
    bool find_unused_parameters = false;
    bool gradient_as_bucket_view = true;  // whether gradients share the memory of the buckets
    // Whether all backward passes reach the same parameters. If they do not, backward throws
    // UsageError.
    bool static_graph = false;
    std::shared_ptr<CommHook> hook = nullptr;  // nullptr: all_reduce_hook()

    bool operator==(const DataParallelOptions&) const = default;
};

}  // namespace axle::dist
