#include "nn/files/deferred_weight.h"

#include <memory>
#include <optional>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/storage.h"

namespace axle::nn {
namespace {

// A storage without memory that reads a weight when its elements are used. Afterwards it is an
// ordinary storage, and the file is closed.
class WeightStorage final : public ShardProvider {
  public:
    WeightStorage(const WeightFiles::Weight& weight, std::int64_t numel, DType dtype,
                  std::string path)
        : weight_(weight),
          dtype_(dtype),
          path_(std::move(path)),
          storage_(static_cast<std::size_t>(numel * size_of(dtype)), Device::cpu(), *this) {}
    ~WeightStorage() override { storage_.set_provider(nullptr); }
    WeightStorage(const WeightStorage&) = delete;
    WeightStorage& operator=(const WeightStorage&) = delete;

    Storage& storage() { return storage_; }

    // --- ShardProvider
    void provide(Storage& storage) override {
        const NoGrad no_grad;
        try {
            storage.set_memory(to(weight_->read(), dtype_).impl()->storage);
        } catch (const ValueError& error) {
            throw FileError(str(printable(path_), ": ", error.what()));
        }
        weight_.reset();
    }
    void check_host_access(const char*) const override {}
    void changed() override {}
    const void* processes() const override { return nullptr; }
    Tensor gather_numbers(const Tensor& number) const override { return number; }

  private:
    std::optional<WeightFiles::Weight> weight_;
    DType dtype_;
    std::string path_;
    Storage storage_;
};

}  // namespace

Tensor deferred_weight(const WeightFiles::Weight& weight, DType dtype, const std::string& path) {
    Tensor t = Tensor::empty(weight.shape(), {.dtype = dtype, .device = Device::meta()});
    const auto provider = std::make_shared<WeightStorage>(weight, t.numel(), dtype, path);
    t.impl()->storage = std::shared_ptr<Storage>(provider, &provider->storage());
    return t;
}

}  // namespace axle::nn
