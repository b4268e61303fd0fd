// Tensor: a handle to a strided, typed, differentiable array.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/shape.h"
#include "core/storage.h"
#include "kernels/error.h"
#include "kernels/view.h"

namespace axle {

class Tensor;
namespace autograd {
struct Node;
struct Meta;
}  // namespace autograd

// A number as in Python. It stores whether it was an integer, because dtype promotion depends on
// this.
struct Scalar {
    Scalar(double v) : value(v), integral(false) {}                            // NOLINT
    Scalar(float v) : value(v), integral(false) {}                             // NOLINT
    Scalar(int v) : value(v), integral(true) {}                                // NOLINT
    Scalar(std::int64_t v) : value(static_cast<double>(v)), integral(true) {}  // NOLINT
    Scalar(bool v) : value(v), integral(true) {}                               // NOLINT
    double value;
    bool integral;
};

struct TensorOptions {
    DType dtype = f32;
    Device device = Device::cpu();
    bool requires_grad = false;
    bool pinned = false;  // if true, uses page-locked memory (see pin_memory)
};

// The object that a Tensor refers to. Its address is the tensor's identity. `to`, loading and
// offloading replace its storage but never the Impl itself, so that optimizers and tied weights
// stay valid.
struct Impl {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Strides strides;
    std::int64_t offset = 0;  // elements from the start of the storage
    DType dtype = f32;
    std::unique_ptr<autograd::Meta> autograd;  // null until a gradient is needed

    // A converted form of this tensor that an op caches (packed weights, a bf16 copy). It is valid
    // while storage and version are unchanged. A form that was created during a graph capture is
    // used only within that capture, because every replay must create it again.
    struct Derived {
        std::weak_ptr<Storage> source;
        std::uint32_t version = 0;
        std::uint64_t capture = 0;  // capture_id() when it was created
        std::shared_ptr<void> value;
        const char* kind = nullptr;
    } derived;

    Impl();
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
};

// A handle to an array; copying a Tensor copies the handle. A default-constructed Tensor is
// undefined: only defined() and assignment are allowed. Concurrent reads of one tensor are safe;
// concurrent writes are not.
class Tensor {
  public:
    Tensor() = default;
    explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

    // Returns a tensor with uninitialized memory. Throws ShapeError for a negative size, and
    // OutOfMemory.
    static Tensor empty(const Shape& shape, TensorOptions options = {});
    // Returns a tensor over memory that the caller owns. `release` is called when the last view is
    // destroyed.
    static Tensor from_blob(void* data, const Shape& shape, DType dtype,
                            std::function<void()> release = {});

    // --- properties
    bool defined() const { return impl_ != nullptr; }
    const Shape& shape() const { return impl_->shape; }
    const Strides& strides() const { return impl_->strides; }
    // Returns the size of one dimension. A negative dim counts from the end. Throws IndexError if
    // dim is out of range.
    std::int64_t size(std::int64_t dim) const;
    int dim() const { return impl_->shape.size(); }
    std::int64_t numel() const;
    DType dtype() const { return impl_->dtype; }
    Device device() const { return impl_->storage->device(); }
    bool is_contiguous() const;
    bool is_pinned() const { return impl_->storage->is_pinned(); }
    // Returns whether both handles refer to the same Impl; values are not compared.
    bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
    const std::shared_ptr<Impl>& impl() const { return impl_; }

    // --- elements
    // Returns a pointer to the first element, in the memory of the tensor's device. Throws
    // DTypeError unless T is the dtype's C++ type.
    template <class T>
    T* data() {
        check_access(dtype_of<T>);
        return static_cast<T*>(raw_data());
    }
    template <class T>
    const T* data() const {
        check_access(dtype_of<T>);
        return static_cast<const T*>(raw_data());
    }
    void* raw_data() const;
    // Return views for kernels. The non-const function is for writing; it does not increment the
    // version.
    View view();
    ConstView view() const;
    // Return the value of a one-element tensor. On a GPU, they wait for the value.
    double item() const;
    std::int64_t item_int() const;
    // Returns all elements in row-major order, converted to double.
    std::vector<double> to_vector() const;

    // --- gradients (the engine is core/autograd/autograd.h)
    bool requires_grad() const;
    // Sets whether a gradient is computed. Throws UsageError unless this is a leaf with a floating
    // dtype.
    Tensor& set_requires_grad(bool value = true);
    bool is_leaf() const;
    // Returns the accumulated gradient, or an undefined Tensor.
    Tensor grad() const;
    void set_grad(const Tensor& grad) const;
    // Removes the gradient (zero_grad with set_to_none in PyTorch).
    void zero_grad() const;
    // Computes the gradients of this tensor with respect to the leaves (see autograd::backward).
    // The first form requires a one-element tensor.
    void backward() const;
    void backward(const Tensor& gradient, bool retain_graph = false) const;
    // Returns a tensor with the same storage but without history.
    Tensor detach() const;
    std::uint32_t version() const { return impl_->storage->version(); }

    // --- in place; these throw UsageError while a gradient is recorded for this tensor
    Tensor& copy_(const Tensor& source);
    Tensor& fill_(Scalar value);
    Tensor& zero_() { return fill_(0); }
    Tensor& add_(const Tensor& other, Scalar alpha = 1);
    Tensor& mul_(const Tensor& other);
    Tensor& mul_(Scalar value);
    // Fill the tensor with random values from the default generator.
    Tensor& uniform_(double low = 0, double high = 1);
    Tensor& normal_(double mean = 0, double std = 1);
    // Replaces the storage of this tensor by the source's storage. The tensor keeps its identity,
    // but device and dtype can change.
    void set_data(const Tensor& source) const;

    // --- methods for free functions of core/ops.h
    Tensor to(DType dtype) const;
    Tensor to(Device device, bool non_blocking = false) const;
    // Returns a copy in page-locked CPU memory, which a GPU can copy asynchronously, or the tensor
    // itself if it is pinned already. Throws DeviceError without a GPU.
    Tensor pin_memory() const;
    Tensor contiguous() const;
    Tensor clone() const;
    Tensor view(const Shape& shape) const;
    Tensor reshape(const Shape& shape) const;
    Tensor flatten(std::int64_t from = 0, std::int64_t to = -1) const;
    Tensor transpose(std::int64_t a, std::int64_t b) const;
    Tensor t() const { return transpose(-2, -1); }
    Tensor permute(const Dims& order) const;
    Tensor expand(const Shape& shape) const;
    Tensor squeeze(std::int64_t dim) const;
    Tensor unsqueeze(std::int64_t dim) const;
    Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
    // Returns a view of every step-th element of [start, end) along a dimension. Negative bounds
    // count from the end, and bounds are clamped, as in Python.
    Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end = INT64_MAX,
                 std::int64_t step = 1) const;
    Tensor select(std::int64_t dim, std::int64_t index) const;
    Tensor operator[](std::int64_t index) const { return select(0, index); }
    Tensor sum(const Dims& dims = {}, bool keepdim = false) const;
    Tensor mean(const Dims& dims = {}, bool keepdim = false) const;
    Tensor max() const;
    Tensor min() const;
    Tensor argmax(std::int64_t dim, bool keepdim = false) const;
    Tensor matmul(const Tensor& other) const;
    Tensor exp() const;
    Tensor log() const;
    Tensor sqrt() const;
    Tensor tanh() const;
    Tensor abs() const;
    Tensor pow(Scalar exponent) const;
    Tensor masked_fill(const Tensor& mask, Scalar value) const;

  private:
    void check_access(DType t) const;

    std::shared_ptr<Impl> impl_;
};

// Prints the tensor as "tensor([[1, 2], [3, 4]], float32)", shortened if it has over 1000 elements.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace axle
