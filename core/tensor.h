// Tensor: a handle to a strided, typed, differentiable array.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/memory/owning_ptr.h"
#include "core/scalar.h"
#include "core/shape.h"
#include "core/storage.h"
#include "kernels/error.h"
#include "kernels/view.h"

namespace axle {

class Tensor;
class TensorIndex;  // core/indexing.h
namespace autograd {
class HookHandle;
struct Meta;
}  // namespace autograd

struct TensorOptions;

// Options of functions such as tensor() and full(). If dtype is not set, floating numbers give f32,
// integers give i64 and booleans give bool.
struct InferredOptions {
    std::optional<DType> dtype = {};
    Device device = Device::cpu();
    bool requires_grad = false;
    bool pinned = false;

    // Returns these options with `dtype`, or with `inferred` if `dtype` is not set.
    TensorOptions with(DType inferred) const;
};

struct TensorOptions {
    DType dtype = f32;
    Device device = Device::cpu();
    bool requires_grad = false;
    bool pinned = false;  // if true, uses page-locked memory (see pin_memory)

    operator InferredOptions() const {  // NOLINT(google-explicit-constructor)
        return {dtype, device, requires_grad, pinned};
    }
};
inline TensorOptions InferredOptions::with(DType inferred) const {
    return {dtype.value_or(inferred), device, requires_grad, pinned};
}

// The types for which tensor() has an overload (double values are stored as f32 unless options set
// the dtype). Values of other arithmetic types become Scalars.
template <class T>
concept TensorElement =
    std::same_as<T, double> || std::same_as<T, float> || std::same_as<T, std::int64_t> ||
    std::same_as<T, int> || std::same_as<T, bool>;

// The object that a Tensor refers to. The address of the Impl is the tensor's identity. Module::to,
// loading and offloading replace the storage but never the Impl itself, so that optimizers and tied
// weights stay valid.
struct Impl {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Strides strides;
    std::int64_t offset = 0;  // elements from the start of the storage
    DType dtype = f32;
    OwningPtr<autograd::Meta> autograd;  // null until a gradient is needed

    // A converted copy of this tensor that is cached, such as the cast of autocast(). The copy is
    // valid while storage and version are unchanged. A copy that was created during a graph capture
    // is used only within that capture, because every replay must create it again.
    struct Derived {
        std::weak_ptr<Storage> source;
        std::uint32_t version = 0;
        std::uint64_t capture = 0;  // capture_id() when the copy was created
        std::shared_ptr<void> value;
        const char* kind = nullptr;
    } derived;

    Impl();
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
};

// A handle to an array; copying a Tensor copies the handle. A default-constructed Tensor is
// undefined: functions other than defined(), is_same(), impl() and assignment throw UsageError.
// Concurrent reads of one tensor are safe; concurrent writes are not.
//
// Assignment makes a variable refer to another array and copies no elements. So the left side must
// be a variable: `x[0] = y` does not compile. Write x[0].copy_(y) or x.index_put_({0}, y). Compound
// assignment changes elements: `x[0] += y` changes x.
class Tensor {
  public:
    Tensor() = default;
    explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    Tensor(const Tensor&) = default;
    Tensor(Tensor&&) noexcept = default;
    // Sets the memory of the handle to null. nn::Module::check_visit() searches the memory of a
    // module for handles, and must not find a destroyed one, such as the value of an optional after
    // reset(). The asm statement contains no instruction. It reads impl_, so the compiler must keep
    // the stores.
    ~Tensor() {
        impl_.reset();
        asm volatile("" : : "m"(impl_));
    }
    Tensor& operator=(const Tensor&) & = default;
    Tensor& operator=(Tensor&&) & noexcept = default;
    void operator=(const Tensor&) && = delete;  // use x[0].copy_(y) or x.index_put_({0}, y)

    // Returns a contiguous tensor with uninitialized memory. Throws ShapeError for a negative size
    // or a number of bytes beyond int64, OutOfMemory, the DeviceErrors of Storage (core/storage.h),
    // and UsageError if requires_grad is true and the dtype is not floating.
    static Tensor empty(const Shape& shape, TensorOptions options = {});
    // Returns a contiguous CPU tensor over existing memory, which is not copied. The memory must
    // stay valid until the last tensor that uses it is destroyed; `release` is then called, on the
    // thread that destroys this tensor. Throws ShapeError for an invalid shape, without calling
    // `release`.
    static Tensor from_blob(void* data, const Shape& shape, DType dtype,
                            std::function<void()> release = {});

    // --- properties
    bool defined() const { return impl_ != nullptr; }
    const Shape& shape() const { return of("shape").shape; }
    const Strides& strides() const { return of("strides").strides; }
    // Returns the size of one dimension. A negative dim counts from the end. Throws IndexError if
    // dim is out of range.
    std::int64_t size(std::int64_t dim) const;
    int dim() const { return of("dim").shape.size(); }
    int ndim() const { return dim(); }
    std::int64_t numel() const;
    DType dtype() const { return of("dtype").dtype; }
    Device device() const { return of("device").storage->device(); }
    bool is_contiguous() const;
    bool is_pinned() const { return of("is_pinned").storage->is_pinned(); }
    // Returns whether both handles refer to the same Impl; values are not compared.
    bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
    const std::shared_ptr<Impl>& impl() const { return impl_; }

    // --- elements
    // Return a pointer to the first element, in the memory of the tensor's device. Throw DTypeError
    // unless T is the C++ type of the dtype, and DeviceError on the meta device. Writing through
    // the pointer does not increment the version. The elements of a parameter that is sharded over
    // processes (docs/sharding.md) are gathered for reading; the non-const function throws
    // UsageError for such a parameter, because changes would be lost.
    template <class T>
    T* data() {
        check_access(dtype_of<T>);
        check_host_write();
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
    // Return the value of a one-element tensor; item_int() truncates it (ValueError for NaN, or
    // outside of int64). Wait until a GPU has computed the value. Throw ShapeError for other
    // numbers of elements, DeviceError on the meta device, DTypeError for a storage dtype, and
    // UsageError for a sharded parameter.
    double item() const;
    std::int64_t item_int() const;
    // Returns the value as T, with the rules of item(). bool is true for a value other than 0.
    template <class T>
        requires std::is_arithmetic_v<T>
    T item() const {
        if constexpr (std::is_same_v<T, bool>)
            return item() != 0;
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(item_int());
        else
            return static_cast<T>(item());
    }
    // Returns all elements in row-major order, converted to double. Waits until a GPU has computed
    // them. Throws DeviceError on the meta device, DTypeError for a storage dtype, and UsageError
    // for a parameter that is sharded over processes.
    std::vector<double> to_vector() const;

    // --- gradients (the engine is core/autograd/autograd.h)
    bool requires_grad() const;
    // Sets whether a gradient is computed. Throws UsageError unless this tensor is a leaf. If
    // `value` is true, also throws UsageError unless the dtype is floating, and for a frozen
    // parameter that is sharded over processes.
    Tensor& set_requires_grad(bool value = true);
    Tensor& requires_grad_(bool value = true) { return set_requires_grad(value); }
    bool is_leaf() const;
    // Returns the accumulated gradient, or an undefined Tensor. Throws UsageError for a parameter
    // that is sharded over processes (docs/sharding.md).
    Tensor grad() const;
    // Replaces the accumulated gradient. Throws ShapeError unless `grad` is undefined or has the
    // shape of this tensor, and UsageError for a sharded parameter.
    void set_grad(const Tensor& grad) const;
    // Removes the gradient (zero_grad with set_to_none in PyTorch).
    void zero_grad() const;
    // Compute the gradients of this tensor with respect to the leaves and add them to grad() of the
    // leaves (see autograd::backward for errors). Without an argument, the tensor must have one
    // element.
    void backward() const;
    void backward(const Tensor& gradient, bool retain_graph = false) const;
    // autograd::register_hook() and autograd::retain_grad() document these methods.
    template <class Hook>
    [[nodiscard]] autograd::HookHandle register_hook(Hook hook) const;
    void retain_grad() const;
    // Returns a tensor with the same storage but without history, which does not require a
    // gradient.
    Tensor detach() const;
    // Returns the version of the storage, which is incremented by every in-place change.
    std::uint32_t version() const { return of("version").storage->version(); }

    // --- in place; these return *this. While ops are recorded, an in-place op is recorded if this
    // tensor or the operand requires a gradient. Only uniform_ and normal_ cannot be recorded, and
    // throw UsageError. Also throw UsageError if an op must be recorded and this tensor is a leaf
    // that requires a gradient or shares memory with other tensors. Then write x.index_put_({0}, y)
    // instead of x[0].copy_(y). All throw UsageError for a sharded parameter, and all but fill_ if
    // elements of this tensor share memory (expand). The operand is broadcast to the shape of this
    // tensor (else ShapeError) and converted to its dtype. A floating result cannot be stored in an
    // integer tensor, nor an integer one in a boolean tensor (DTypeError), except by copy_ and
    // fill_, which convert. All throw DTypeError for a storage dtype, and sub_ for booleans. The
    // operand may share memory with this tensor; only copy_ and index_put_ accept one on another
    // device (DeviceError). clamp_ throws ValueError without a bound.
    Tensor& copy_(const Tensor& source);
    Tensor& fill_(Scalar value);
    Tensor& zero_() { return fill_(0); }
    Tensor& add_(const Tensor& other, Scalar alpha = 1);
    Tensor& sub_(const Tensor& other, Scalar alpha = 1);
    Tensor& mul_(const Tensor& other);
    Tensor& div_(const Tensor& other);
    Tensor& add_(Scalar value);
    Tensor& sub_(Scalar value);
    Tensor& mul_(Scalar value);
    Tensor& div_(Scalar value);
    Tensor& clamp_(std::optional<double> low, std::optional<double> high);
    // Writes the value, broadcast, to the elements that index(indices) returns, with the rules of
    // copy_. The value may have more leading dimensions, if their size is one. If several indices
    // select one element, the last value is written, or with `accumulate` all values are added to
    // the element. With index tensors and masks, the time of the call is linear in the size of this
    // tensor. With masks, the call can wait for a GPU.
    Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value,
                       bool accumulate = false);
    Tensor& index_put_(const std::vector<TensorIndex>& indices, Scalar value,
                       bool accumulate = false);

    // --- compound assignment: a += b
    // If neither tensor requires a gradient, or under NoGrad, changes a in place as add_ does;
    // other handles and views of a then have the new values, too. Otherwise computes a new tensor
    // with history, of a's shape and dtype, and makes this handle refer to it; other handles and
    // views keep the old values. Throws UsageError if a is a leaf that requires a gradient (except
    // under NoGrad), and the errors of add_.
    Tensor& operator+=(const Tensor& other) &;
    Tensor& operator-=(const Tensor& other) &;
    Tensor& operator*=(const Tensor& other) &;
    Tensor& operator/=(const Tensor& other) &;
    Tensor& operator+=(Scalar value) &;
    Tensor& operator-=(Scalar value) &;
    Tensor& operator*=(Scalar value) &;
    Tensor& operator/=(Scalar value) &;
    // Compound assignment to a temporary, such as `x[0] += y` or `x.slice(0, 1, 3) *= 2`, calls
    // add_, mul_ and so on. It changes x through the view and returns the view. Throws the errors
    // of add_. Instead of `x[0] += y` while ops are recorded, write x.index_put_({0}, y, true). Has
    // no effect on x if the temporary is a copy, such as x.index({mask}).
    Tensor operator+=(const Tensor& other) && { return add_(other); }
    Tensor operator-=(const Tensor& other) && { return sub_(other); }
    Tensor operator*=(const Tensor& other) && { return mul_(other); }
    Tensor operator/=(const Tensor& other) && { return div_(other); }
    Tensor operator+=(Scalar value) && { return add_(value); }
    Tensor operator-=(Scalar value) && { return sub_(value); }
    Tensor operator*=(Scalar value) && { return mul_(value); }
    Tensor operator/=(Scalar value) && { return div_(value); }

    // Fill the tensor in place with random values from the default generator: uniform in [low,
    // high), or normally distributed. Throw DTypeError unless the dtype is floating, and ValueError
    // for a range that is reversed or not finite, and for a negative std.
    Tensor& uniform_(double low = 0, double high = 1);
    Tensor& normal_(double mean = 0, double std = 1);
    // Makes this tensor use the storage of the source, or of a copy if the source is not
    // contiguous. The tensor keeps its identity, and gets the device and dtype of the source.
    // Throws ShapeError if the shapes differ, and UsageError for a sharded parameter.
    void set_data(const Tensor& source) const;

    // --- methods that call free functions; core/ops.h documents these functions
    Tensor to(DType dtype) const;
    Tensor to(Device device, bool non_blocking = false) const;
    Tensor cpu() const { return to(Device::cpu()); }
    Tensor cuda(int index = 0) const { return to(Device::cuda(index)); }
    Tensor type_as(const Tensor& other) const { return to(other.dtype()).to(other.device()); }
    // Returns a copy in page-locked CPU memory, which a GPU can copy asynchronously, or the tensor
    // itself if it is pinned already. Throws DeviceError if no GPU is available or the tensor is
    // not a CPU tensor.
    Tensor pin_memory() const;
    Tensor contiguous() const;
    Tensor clone() const;
    Tensor view(const Shape& shape) const;
    Tensor reshape(const Shape& shape) const;
    Tensor flatten(std::int64_t from = 0, std::int64_t to = -1) const;
    Tensor transpose(std::int64_t a, std::int64_t b) const;
    Tensor t() const;
    Tensor permute(const Dims& order) const;
    Tensor expand(const Shape& shape) const;
    Tensor squeeze() const;
    Tensor squeeze(std::int64_t dim) const;
    Tensor unsqueeze(std::int64_t dim) const;
    Tensor narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const;
    Tensor slice(std::int64_t dim, std::int64_t start, std::int64_t end = INT64_MAX,
                 std::int64_t step = 1) const;
    Tensor select(std::int64_t dim, std::int64_t index) const;
    Tensor operator[](std::int64_t index) const { return select(0, index); }
    std::vector<Tensor> split(std::int64_t size, std::int64_t dim = 0) const;
    std::vector<Tensor> split(const Dims& sizes, std::int64_t dim = 0) const;
    std::vector<Tensor> chunk(std::int64_t chunks, std::int64_t dim = 0) const;
    Tensor index(const std::vector<TensorIndex>& indices) const;
    Tensor index_select(std::int64_t dim, const Tensor& index) const;
    Tensor gather(std::int64_t dim, const Tensor& index) const;
    Tensor masked_fill(const Tensor& mask, Scalar value) const;
    Tensor sum(const Dims& dims = {}, bool keepdim = false) const;
    Tensor mean(const Dims& dims = {}, bool keepdim = false) const;
    Tensor var(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
    Tensor std(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
    Tensor any(const Dims& dims = {}, bool keepdim = false) const;
    Tensor all(const Dims& dims = {}, bool keepdim = false) const;
    Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false) const;
    Tensor max() const;
    Tensor min() const;
    // Return the extreme values along dim and their indices (i64). Of equal elements, the first is
    // selected, and only this element gets a gradient (unlike max() and min() of core/ops.h).
    std::pair<Tensor, Tensor> max(std::int64_t dim, bool keepdim = false) const;
    std::pair<Tensor, Tensor> min(std::int64_t dim, bool keepdim = false) const;
    // Return the row-major position of the first NaN, or else of the first maximum or minimum.
    Tensor argmax() const;
    Tensor argmin() const;
    Tensor argmax(std::int64_t dim, bool keepdim = false) const;
    Tensor argmin(std::int64_t dim, bool keepdim = false) const;
    Tensor cumsum(std::int64_t dim) const;
    std::pair<Tensor, Tensor> topk(std::int64_t k, std::int64_t dim = -1,
                                   bool largest = true) const;
    std::pair<Tensor, Tensor> sort(std::int64_t dim = -1, bool descending = false) const;
    Tensor argsort(std::int64_t dim = -1, bool descending = false) const;
    Tensor add(const Tensor& other) const;
    Tensor sub(const Tensor& other) const;
    Tensor mul(const Tensor& other) const;
    Tensor div(const Tensor& other) const;
    Tensor add(Scalar other) const;
    Tensor sub(Scalar other) const;
    Tensor mul(Scalar other) const;
    Tensor div(Scalar other) const;
    Tensor pow(Scalar exponent) const;
    Tensor matmul(const Tensor& other) const;
    Tensor eq(const Tensor& other) const;
    Tensor ne(const Tensor& other) const;
    Tensor lt(const Tensor& other) const;
    Tensor le(const Tensor& other) const;
    Tensor gt(const Tensor& other) const;
    Tensor ge(const Tensor& other) const;
    Tensor eq(Scalar other) const;
    Tensor ne(Scalar other) const;
    Tensor lt(Scalar other) const;
    Tensor le(Scalar other) const;
    Tensor gt(Scalar other) const;
    Tensor ge(Scalar other) const;
    Tensor neg() const;
    Tensor abs() const;
    Tensor exp() const;
    Tensor log() const;
    Tensor sqrt() const;
    Tensor rsqrt() const;
    Tensor tanh() const;
    Tensor sigmoid() const;
    Tensor relu() const;
    Tensor clamp(std::optional<double> low, std::optional<double> high) const;
    Tensor softmax(std::int64_t dim) const;
    Tensor log_softmax(std::int64_t dim) const;

  private:
    void check_access(DType t) const;
    void check_host_write() const;
    const Impl& of(const char* name) const { return impl_ ? *impl_ : throw_undefined(name); }
    [[noreturn]] static const Impl& throw_undefined(const char* name);
    std::shared_ptr<Impl> impl_;
};

// Prints the tensor as "tensor([[1, 2], [3, 4]], float32)". If the tensor has more than 1000
// elements, dimensions above 6 are shortened. Waits until a GPU has computed the tensor. Throws
// DTypeError for a storage dtype, and UsageError for a parameter that is sharded over processes.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace axle
