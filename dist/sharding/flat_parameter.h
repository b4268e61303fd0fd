// Private to dist: FlatParameter, one buffer for the parameters of a unit with the same dtype and
// requires_grad.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "dist/group/process_group.h"
#include "dist/sharding/sharded_data_parallel.h"
#include "dist/sharding/sharding_options.h"
#include "nn/module.h"

namespace axle::dist {

class FlatParameter;

// The interface through which a FlatParameter calls the ShardedPass of its model.
class GatherObserver {
  public:
    virtual ~GatherObserver() = default;
    // Called after an op on a parameter has gathered the parameters.
    virtual void gathered_on_use(FlatParameter& parameters) = 0;
    // Ends the sharding of the model. All ranks must call this function.
    virtual void unshard() = 0;
};

// The groups, dtypes, devices, counters and observer that the FlatParameters of a model share.
struct ShardingContext {
    std::shared_ptr<ProcessGroup> group, replicas, secondary;  // see ShardingOptions
    ShardingPrecision precision;
    Device device, part_device;  // the devices of the gathered buffer and of the parts
    std::string part_folder;     // see ShardingOptions
    ShardingCounters counters = {};
    GatherObserver* observer = nullptr;
};

// Parameters of one unit with the same dtype and requires_grad, in a flat buffer that is cut into
// equal parts, one for each rank. In the dtype of the model, a parameter begins at a multiple of 64
// bytes. A cut may be inside a parameter.
//
// Every rank stores its part in the dtype of the model. The whole buffer exists, in param_dtype,
// only while it is gathered; the handles of the parameters are views of it. All ranks must call the
// methods that communicate, in the same order.
class FlatParameter final : public ShardProvider {
  public:
    struct Member {
        std::string name;
        Tensor handle;           // the parameter of the model
        std::int64_t begin = 0;  // first element in the buffer
        std::int64_t numel = 0;
        // The first element of this parameter that this rank stores: its index in the part, and its
        // index in the parameter.
        std::int64_t in_part = 0;
        std::int64_t first_local = 0;
        Tensor local;           // the elements that this rank stores, 1-d
        bool expected = false;  // whether the current pass computes the gradient of this parameter
        bool ready = false;     // whether this gradient is final
    };

    // Shards the parameters. If sync_module_states is true, the parts get the values of rank 0.
    // Otherwise each part keeps the values of its own rank.
    FlatParameter(const nn::StateDict& parameters, ShardingContext& context,
                  bool sync_module_states);
    // Frees the elements. The handles of the parameters stay valid, but have no elements.
    ~FlatParameter() override;
    FlatParameter(const FlatParameter&) = delete;
    FlatParameter& operator=(const FlatParameter&) = delete;

    std::vector<Member>& members() { return members_; }
    const Tensor& part() const { return part_; }
    bool is_trained() const { return is_trained_; }
    std::int64_t part_size() const { return part_.numel(); }
    int rank() const { return context_.group->rank(); }
    int ranks() const { return context_.group->size(); }
    // Returns the index of this rank among the ranks with the same part.
    int replica() const { return context_.replicas == nullptr ? 0 : context_.replicas->rank(); }

    // --- gathering
    bool is_sharded() const { return state_ == State::sharded; }
    // Begins to gather, unless the parameters are already gathered or being gathered. Gathers from
    // the secondary group if its copy is valid.
    void start_gather();
    // Calls start_gather(), and waits until the parameters are gathered.
    void gather();
    // Frees the gathered elements. If a gather is in progress, first waits for its end.
    void free() noexcept;
    // Gathers the tensors `part` of all ranks into a tensor of the whole buffer. The result has the
    // dtype and device of `part`.
    Tensor gather_part(const Tensor& part) const;
    // Makes the handles views of `buffer`, which has the dtype of the model. If `buffer` is
    // undefined, restores the earlier storage of the handles.
    void set_full(const Tensor& buffer);
    bool is_full() const { return full_.defined(); }
    // Gives the parameters new memory with all elements. The FlatParameter then has no members.
    void unshard();
    GatherObserver* observer() const { return context_.observer; }
    // Overwrites the part with this rank's elements of the buffer that set_full() has set. If
    // `root` has a value, first broadcasts the buffer of rank `root` (in the first replica) to all
    // ranks.
    void write_back(std::optional<int> root = {});

    // --- gradients

    // Moves the pending gradient of a member, if there is one, to the buffer that start_reduce()
    // sends.
    void collect_gradient(std::size_t member);
    // start_reduce() collects the pending gradients of all members and begins to reduce them: each
    // rank gets its part of the mean over all ranks. finish_reduce() waits, and adds the result to
    // the gradients of the local parts. Members without a pending gradient get no gradient.
    void start_reduce();
    void finish_reduce();
    bool is_reducing() const { return reduction_.has_value() && reduction_->started; }
    // Waits for a reduction in progress. Discards its result and the collected gradients.
    void cancel_reduce() noexcept;

    // --- ShardProvider
    void provide(Storage& storage) override;
    void check_host_access(const char* op) const override;
    void changed() override;
    const void* processes() const override { return context_.group.get(); }
    Tensor gather_numbers(const Tensor& number) const override;

  private:
    enum class State : std::uint8_t { sharded, gathering, gathered };
    struct Reduction {
        Tensor whole, part;
        std::vector<bool> has_gradient;  // indexed by member
        Work work;
        bool started = false;
    };

    void lay_out(const nn::StateDict& parameters);
    void fill_part(bool sync_module_states);
    void broadcast(const Tensor& whole, int root) const;
    void find_local_parts();
    void attach(const std::shared_ptr<Storage>& storage, DType dtype);
    DType model_dtype() const { return part_.dtype(); }
    DType reduce_dtype() const;
    void count(int change);

    ShardingContext& context_;
    std::vector<Member> members_;
    bool is_trained_ = false;
    std::int64_t total_ = 0;     // number of elements of the buffer
    DType compute_dtype_ = f32;  // dtype of the gathered buffer
    Tensor part_;                // this rank's elements
    // This rank's part of the copy in the secondary group; undefined if the copy is not valid.
    Tensor secondary_;
    std::shared_ptr<Storage> storage_;  // the storage of the handles, without memory while sharded
    State state_ = State::sharded;
    Tensor gathered_, sent_;  // buffers of the gather in progress
    Work work_;
    Tensor full_;  // see set_full()
    std::optional<Reduction> reduction_;
};

}  // namespace axle::dist
