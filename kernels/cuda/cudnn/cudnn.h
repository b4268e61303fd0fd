// Private to kernels: cuDNN's graph interface, of a library that is opened when it is first needed.
//
// A Graph is operations between Values; a Plan is what cuDNN compiles it to, for one device; plans
// are kept by a PlanCache. What cuDNN has no kernel for shows as GraphRefused while the plan is
// made: callers then use kernels of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <cudnn_graph.h>

#include "kernels/exec.h"
#include "kernels/view.h"

namespace axle::inline v0::kernels::cudnn {

struct Functions {
    decltype(&cudnnGetVersion) get_version;
    decltype(&cudnnGetErrorString) get_error_string;
    decltype(&cudnnCreate) create;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnBackendCreateDescriptor) create_descriptor;
    decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
    decltype(&cudnnBackendSetAttribute) set_attribute;
    decltype(&cudnnBackendGetAttribute) get_attribute;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendExecute) execute;
};
// Null where there is no libcudnn.so.9. DeviceError if it is of another major version.
const Functions* functions();
// Of the library that functions() found, as in 91900 for 9.19.0; 0 without one.
std::int64_t version();

// A handle of the context's device and of this thread, bound to its stream. Null where cuDNN is
// absent or cannot run. Handles are given back when the thread ends, and never destroyed.
cudnnHandle_t handle_for(Cuda& on);

// For what cuDNN could have done and has no kernel for: has the log say so, once for each operation
// (current_op), and returns false.
bool leave_to_own_kernels();

// cuDNN has no kernel for this graph, or the graph is malformed.
struct GraphRefused {
    cudnnStatus_t status;
};
inline void accept(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) throw GraphRefused{status};
}

// The type tag of an attribute's element.
template <class T>
struct AttributeType;
#define AXLE_ATTRIBUTE_TYPE(TYPE, TAG)                            \
    template <>                                                   \
    struct AttributeType<TYPE> {                                  \
        static constexpr cudnnBackendAttributeType_t value = TAG; \
    };
AXLE_ATTRIBUTE_TYPE(cudnnHandle_t, CUDNN_TYPE_HANDLE)
AXLE_ATTRIBUTE_TYPE(cudnnDataType_t, CUDNN_TYPE_DATA_TYPE)
AXLE_ATTRIBUTE_TYPE(bool, CUDNN_TYPE_BOOLEAN)
AXLE_ATTRIBUTE_TYPE(std::int64_t, CUDNN_TYPE_INT64)
AXLE_ATTRIBUTE_TYPE(float, CUDNN_TYPE_FLOAT)
AXLE_ATTRIBUTE_TYPE(double, CUDNN_TYPE_DOUBLE)
AXLE_ATTRIBUTE_TYPE(cudnnConvolutionMode_t, CUDNN_TYPE_CONVOLUTION_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnBackendHeurMode_t, CUDNN_TYPE_HEUR_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnPointwiseMode_t, CUDNN_TYPE_POINTWISE_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnGenStatsMode_t, CUDNN_TYPE_GENSTATS_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnReduceTensorOp_t, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)
AXLE_ATTRIBUTE_TYPE(cudnnBackendNumericalNote_t, CUDNN_TYPE_NUMERICAL_NOTE)
AXLE_ATTRIBUTE_TYPE(cudnnRngDistribution_t, CUDNN_TYPE_RNG_DISTRIBUTION)
AXLE_ATTRIBUTE_TYPE(cudnnResampleMode_t, CUDNN_TYPE_RESAMPLE_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnPaddingMode_t, CUDNN_TYPE_PADDING_MODE)
AXLE_ATTRIBUTE_TYPE(cudnnNanPropagation_t, CUDNN_TYPE_NAN_PROPOGATION)
AXLE_ATTRIBUTE_TYPE(char, CUDNN_TYPE_CHAR)
#undef AXLE_ATTRIBUTE_TYPE

// A backend descriptor: set its attributes, finalize it, use it. Every failure is GraphRefused.
class Descriptor {
  public:
    explicit Descriptor(cudnnBackendDescriptorType_t type) {
        accept(functions()->create_descriptor(type, &raw_));
    }
    ~Descriptor() {
        if (raw_ != nullptr) functions()->destroy_descriptor(raw_);
    }
    Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }

    cudnnBackendDescriptor_t raw() const { return raw_; }

    template <class T>
    Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
        return set(name, AttributeType<T>::value, 1, &value);
    }
    Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
    }
    Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
        return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
    }
    Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
        return set(name, std::span<const std::int64_t>(values));
    }
    Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    std::int64_t count, const void* values) {
        accept(functions()->set_attribute(raw_, name, type, count, values));
        return *this;
    }
    void finalize() { accept(functions()->finalize(raw_)); }

    // An attribute of one element.
    template <class T>
    T get(cudnnBackendAttributeName_t name) const {
        T value = {};
        std::int64_t count = 0;
        accept(functions()->get_attribute(raw_, name, AttributeType<T>::value, 1, &count, &value));
        return value;
    }

  private:
    cudnnBackendDescriptor_t raw_ = nullptr;
};

// A tensor of a Graph: its unique id.
using Value = std::int64_t;
using Dims = std::vector<std::int64_t>;

cudnnDataType_t data_type(DType t);  // of f64 f32 f16 bf16 i64 i32 u8 boolean
Dims row_major(const Dims& dims);

// Operations in the order in which they are added. Operations return their result, y.
class Graph {
  public:
    // A tensor that run() binds to device memory.
    Value tensor(cudnnDataType_t type, const Dims& dims, const Dims& strides,
                 std::int64_t alignment = 16);
    Value tensor(const ConstView& x);
    // What passes between operations.
    Value temporary(cudnnDataType_t type, const Dims& dims, const Dims& strides);
    Value temporary(cudnnDataType_t type, const Dims& dims) {
        return temporary(type, dims, row_major(dims));
    }
    // An f32 of 1 x 1 x ... that run() reads on the host.
    Value number(int ndim = 4);

    // One to three operands: y = mode(x), mode(x, b), or binary_select: t ? x : b.
    Value pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Value> operands, Value y,
                    cudnnDataType_t precision = CUDNN_DATA_FLOAT);
    // y has the shape of x and holds the index along the axis.
    Value index(Value x, std::int64_t axis, Value y);
    Value matmul(Value a, Value b, Value y);
    // Over the dimensions in which y has size 1 (or fewer elements).
    Value reduce(cudnnReduceTensorOp_t op, Value x, Value y);
    // y = 1 with that probability, and 0: numbers of cuDNN's own, a function of seed and offset
    // (each an i64 of 1 x 1 x ...), the same in every graph with y's shape.
    Value bernoulli(double probability, Value seed, Value offset, Value y);
    // The same elements with y's shape; y is a temporary.
    Value reshape(Value x, Value y);
    // Any other operation: the caller sets its attributes and finalizes it. Descriptors that it
    // refers to are kept alive by part().
    Descriptor& operation(cudnnBackendDescriptorType_t type);
    Descriptor& part(cudnnBackendDescriptorType_t type);

    const Descriptor& operator[](Value x) const { return values_[static_cast<std::size_t>(x - 1)]; }

    // The operation graph, checked by cuDNN. Without a handle it is checked for any device.
    Descriptor finish(cudnnHandle_t handle) const;

  private:
    Value add(cudnnDataType_t type, const Dims& dims, const Dims& strides, std::int64_t alignment,
              bool is_virtual, bool by_value);

    std::vector<Descriptor> values_;  // value x is values_[x - 1]
    std::vector<std::unique_ptr<Descriptor>> operations_, parts_;
};

// Which device plans are made for: that of a handle, or one that is only described (by a
// DEVICEPROP descriptor), where a plan can be made and not run.
struct Target {
    cudnnHandle_t handle = nullptr;
    const Descriptor* described = nullptr;
};

// What a plan may do.
struct Limits {
    bool deterministic = false;
    std::int64_t workspace = std::numeric_limits<std::int64_t>::max();  // bytes
    std::uint32_t avoided = 0;  // bit n: engines with cudnnBackendNumericalNote_t n
};

// The plan's operands: a value, and its device memory (or a number on the host).
struct Binding {
    Value value;
    const void* data;
};

// A graph compiled for a device: the first of the engines that the heuristics propose which can be
// compiled and keeps the limits. GraphRefused where there is none.
class Plan {
  public:
    Plan(Graph graph, const Target& target, const Limits& limits);

    std::int64_t workspace() const { return workspace_; }
    // Queues the plan. Not for two threads at once. False if cuDNN fails: the log says so, and the
    // plan is not tried again.
    bool run(Cuda& on, std::span<const Binding> bindings) const;
    bool failed() const { return failed_; }

  private:
    bool compile(const Target& target, const Limits& limits);

    Graph graph_;
    std::vector<Descriptor> parts_;  // what is compiled: the operation graph, an engine's settings
    std::unique_ptr<Descriptor> plan_;
    std::int64_t workspace_ = 0;
    mutable bool failed_ = false;
};

// What tells graphs apart: numbers in an agreed order, the first of them the kind of graph.
using Key = std::vector<std::int64_t>;
// Appends dtype, shape, strides and the alignment of the data, up to 16 bytes.
void append(Key& key, const ConstView& x);

// Plans that were made, and graphs that were refused.
class PlanCache {
  public:
    // The plan of a key on the context's device, made from build() when first asked for. Null where
    // cuDNN is absent, has refused it, or has failed to run it. Every handle, and so every thread,
    // has plans of its own: not all of cuDNN's engines let threads share one.
    const Plan* find(Cuda& on, Key key, const Limits& limits, const std::function<Graph()>& build);

  private:
    std::mutex mutex_;
    std::map<Key, std::unique_ptr<const Plan>> plans_;
};

}  // namespace axle::inline v0::kernels::cudnn
