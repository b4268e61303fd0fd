// DataParallel: trains one model on several processes, each with its own part of the data.
//
//     dist::DataParallel replicas(model, group);  // broadcasts the values of rank 0
//     loss.backward();                            // leaves the mean of all ranks' gradients
//
// The model is not wrapped: DataParallel registers hooks with autograd (core/autograd/autograd.h).
// Gradients are stored in buckets, in reverse order of the parameters, which is roughly the order
// in which backward computes them. A bucket is reduced when all gradients of this bucket and of the
// earlier buckets are final, while backward continues. After the first reduction, buckets are
// rebuilt in the order in which the gradients of rank 0 became final (not with
// find_unused_parameters, unless static_graph is set).
//
// With use_deterministic_algorithms(), gradients have the same bits for any number of processes if
// the number of processes times the number of accumulated passes is the same power of two, and if
// the data are the same: pass k of rank r has the batch of pass k * size + r of a single process.
// In this mode all passes outside of a LocalSgd are reduced, even without sync, and the sums form
// one binary tree. Before the pass with sync, the gradients contain the sum of the passes that were
// already reduced; zero_grad() discards this sum.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/owning_ptr.h"
#include "dist/group/process_group.h"
#include "dist/parallel/data_parallel_options.h"
#include "dist/parallel/distributed_model.h"
#include "nn/module.h"

namespace axle::dist {

// A contiguous 1-d buffer of gradients that are reduced together.
struct GradientBucket {
    Tensor buffer;
    std::size_t index = 0;  // index of the bucket in the order of reduction
    bool is_last = false;
    std::vector<Tensor> parameters;  // the parameters of the gradients, in the same order
    // Views of the buffer in the shapes of the parameters.
    std::vector<Tensor> gradients;
};

// A policy for the reduction of buckets. start() begins the reduction of a bucket. It is called
// during backward and Join::finish(), for the same buckets in the same order on all ranks.
// Pending::finish() waits for the reduction and writes the mean over all ranks to bucket.buffer.
class CommHook {
  public:
    virtual ~CommHook() = default;
    struct Pending {
        std::function<void()> finish;
    };
    virtual Pending start(GradientBucket& bucket, ProcessGroup& group) = 0;

    // Returns the state that this rank keeps between reductions of the buckets of one model, for
    // checkpoints. A hook without state returns an empty map, as this default does.
    virtual Tree state_dict(const std::vector<GradientBucket>&) const { return Tree::map(); }
    // The origin of a state. own: the rank that loads the state has saved it. other_rank: rank 0 of
    // a job with another number of ranks has saved it. other_buckets: it was saved for buckets with
    // other parameters.
    enum class Source : std::uint8_t { own, other_rank, other_buckets };
    // Loads a state; an empty map resets the hook. Returns false if a part of the state was reset
    // instead of loaded, because it belongs to another rank, to other buckets or to other options.
    // Throws ValueError if the state is invalid.
    virtual bool load_state_dict(const Tree&, const std::vector<GradientBucket>&, Source) {
        return true;
    }

    // Called by each DataParallel that uses this hook. A hook with a state returns a new hook with
    // the same options and an empty state, because models must not share a state. The DataParallel
    // then uses the new hook. This default returns nullptr: the DataParallel uses this hook.
    virtual std::shared_ptr<CommHook> for_model() const { return nullptr; }
};

// Trains the replicas of a model, one per rank, and averages their gradients. The model must
// outlive the DataParallel; call set_model() if the model moves. Not thread-safe.
class DataParallel : public DistributedModel {
  public:
    // Broadcasts the parameters and buffers of rank 0, except experts that processes divide. Throws
    // UsageError if no other parameter requires a gradient. Throws CommError with the first tensor
    // whose name, dtype, shape or requires_grad differs between ranks.
    DataParallel(nn::Module& model, std::shared_ptr<ProcessGroup> group,
                 DataParallelOptions options = {});
    ~DataParallel() override;

    void set_sync(bool reduce) override;
    bool syncs() const override;
    // Returns whether syncs() is true and no LocalSgd is active.
    bool reduces() const override;
    // Returns a scope with set_sync(false).
    NoSyncGuard no_sync();
    // Returns the sum over all ranks. Ranks without data (see Join) add zero.
    Tensor sum(const Tensor& number) override;

    // Broadcasts the buffers of rank 0 (with a Join, of the first rank with data) if
    // broadcast_buffers is true and the model is in training mode. Does nothing if reduces() was
    // false at the last call in training mode. Must be called before each forward; hooks that
    // Accelerator::prepare() attaches call it.
    void before_forward() override;
    void set_model(nn::Module& moved) override;

    // Returns the state that a checkpoint of this rank needs in addition to the model of rank 0.
    // The layout of the buckets is the same on all ranks, so only rank 0 returns it. The state also
    // has the hook's state, the steps of an active LocalSgd, whether the next before_forward()
    // broadcasts, and, on ranks other than 0, parameters and buffers that can differ from rank 0.
    Tree state_dict() const override;
    // Loads a state between two backward passes, after the model of rank 0 was loaded. The layout
    // of rank 0 must be added to the states of other ranks. The active LocalSgd, or the next one if
    // none is active, continues with the saved steps. If the number of ranks has changed, is_own
    // must be false, and all ranks must load the state of rank 0. Returns false if the state of the
    // hook was not restored completely (see CommHook). Throws ValueError, IndexError, ShapeError or
    // DTypeError if the state is invalid.
    bool load_state_dict(const Tree& state, bool is_own = true) override;

    // Returns the buckets in the order of their reduction.
    const std::vector<GradientBucket>& buckets() const;

  private:
    friend class Join;
    friend class LocalSgd;
    struct Impl;
    OwningPtr<Impl> impl_;
};

// A scope in which ranks may have different numbers of batches, as in torch's Join. After its loop,
// a rank calls finish(). finish() takes part in the reductions of the other ranks with zeros until
// all ranks have finished. Then the rank receives the parameters and buffers of one of the ranks
// that trained longest. The destructor calls finish() and throws its errors. Use one Join for all
// models that are trained in the same loop.
class [[nodiscard]] Join {
  public:
    struct Options {
        // Whether sums of gradients are divided by the number of ranks. If false, they are divided
        // by the number of ranks with data.
        bool divide_by_initial_world_size = true;
        // Whether UsageError is thrown on all ranks when a rank has finished before another rank.
        bool throw_on_early_termination = false;
    };
    explicit Join(DataParallel& replicas) : Join(replicas, Options()) {}
    Join(DataParallel& replicas, Options options) : Join(std::vector{&replicas}, options) {}
    // Throws UsageError if there are no models, if they have different groups, or if a model
    // already has a Join.
    Join(const std::vector<DataParallel*>& replicas, Options options);
    ~Join() noexcept(false);
    // Takes part in the reductions of the other ranks until all ranks have finished. Returns the
    // rank whose parameters and buffers all ranks have received. If an exception is unwinding the
    // stack, ends the scope without communication and returns nullopt. A second call does nothing
    // and returns nullopt. Throws UsageError if the ranks with data make different calls. Also
    // throws it if another rank still has data and throw_on_early_termination is true.
    std::optional<int> finish();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

  private:
    struct Impl;
    OwningPtr<Impl> impl_;
};

}  // namespace axle::dist
