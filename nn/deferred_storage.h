// Private to nn: DeferredStorage, the storage of a parameter whose initial values are computed when
// they are used (DeferredWeights in nn/init.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/storage.h"
#include "core/tensor.h"
#include "kernels/philox.h"

namespace axle::nn::init {

enum class Fill : std::uint8_t { constant, uniform, normal };

// A storage without memory, with the calls of initializers that will fill it. The first use of its
// elements allocates the memory and fills it; afterwards it is an ordinary storage.
class DeferredStorage final : public ShardProvider {
  public:
    // Returns the storage of an f32 tensor.
    static std::shared_ptr<Storage> create(std::int64_t numel);
    // Returns the DeferredStorage of a tensor, or nullptr if the tensor is undefined or its storage
    // has memory or no DeferredStorage.
    static DeferredStorage* of(const Tensor& t);
    // Records how t, a parameter or a view of a parameter, is filled. The values are `first`
    // (constant), or random: uniform in [first, second), or normal with the mean `first` and the
    // standard deviation `second`. Returns false, without recording, if the storage of t is not
    // deferred, or if t is not contiguous and the values are random. Throws the errors of
    // Tensor::uniform_() and normal_().
    static bool record(const Tensor& t, Fill fill, double first, double second = 0);

    explicit DeferredStorage(std::int64_t numel);
    ~DeferredStorage() override { storage_.set_provider(nullptr); }
    DeferredStorage(const DeferredStorage&) = delete;
    DeferredStorage& operator=(const DeferredStorage&) = delete;

    // Returns whether t, a tensor with this storage, has all elements in row-major order.
    bool is_whole(const Tensor& t) const;
    // Computes the recorded values of all elements and writes them to `whole`, a contiguous f32
    // tensor on the CPU.
    void write(const Tensor& whole) const;

    // --- ShardProvider
    void provide(Storage& storage) override;
    void check_host_access(const char*) const override {}
    void changed() override {}
    const void* processes() const override { return nullptr; }
    Tensor gather_numbers(const Tensor& number) const override { return number; }

  private:
    struct FilledView {
        Shape shape;
        Strides strides;
        std::int64_t offset = 0;
        Fill fill = Fill::constant;
        double first = 0, second = 0;
        kernels::Philox random = {};
    };

    std::int64_t numel_;
    std::vector<FilledView> fills_;  // in the order of the calls
    Storage storage_;
};

}  // namespace axle::nn::init
