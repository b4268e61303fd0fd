// Private to kernels: cuDNN's graph interface. The library is opened on first use.
//
// A Graph consists of operations between Values. A Plan is a graph compiled by cuDNN for one
// device; plans are cached in a PlanCache. If cuDNN has no kernel for a graph, creating the plan
// throws UnsupportedGraph, and callers use Axle's own kernels.
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

namespace axle::kernels::cudnn {

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
// Returns cuDNN's functions, or null if libcudnn.so.9 is not found. Throws DeviceError if the
// library has another major version, and CudaError if it lacks a function.
const Functions* functions();
// Returns the version of the library, such as 91900 for 9.19.0, or 0 if cuDNN is missing.
std::int64_t version();

// Returns a handle for the context's device and this thread, bound to the context's stream. Returns
// null if cuDNN is missing or cannot run. When a thread ends, its handles are returned to a pool;
// they are never destroyed.
cudnnHandle_t handle_for(Cuda& on);

// Adds a library warning that cuDNN does not support some calls of the current operation
// (current_op), once per operation. Always returns false.
bool fall_back_to_own_kernels();

// Thrown if cuDNN returns an error, usually because it has no kernel for a graph.
struct UnsupportedGraph {
    cudnnStatus_t status;
};
inline void accept(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) throw UnsupportedGraph{status};
}

// The cuDNN type tag of an attribute whose elements are of type T.
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

// A cuDNN backend descriptor. Callers set its attributes, finalize it and then use it. All
// functions throw UnsupportedGraph if cuDNN returns an error.
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

    // Returns the value of an attribute that has one element.
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

// A tensor of a Graph, identified by its unique id.
using Value = std::int64_t;
using Dims = std::vector<std::int64_t>;

cudnnDataType_t data_type(DType t);  // supports f64, f32, f16, bf16, i64, i32, u8 and boolean
Dims row_major(const Dims& dims);

// A graph of operations, added in order. Functions that add an operation return its result y.
class Graph {
  public:
    // Adds a tensor that Plan::run() binds to device memory.
    Value tensor(cudnnDataType_t type, const Dims& dims, const Dims& strides,
                 std::int64_t alignment = 16);
    Value tensor(const ConstView& x);
    // Adds an intermediate result.
    Value temporary(cudnnDataType_t type, const Dims& dims, const Dims& strides);
    Value temporary(cudnnDataType_t type, const Dims& dims) {
        return temporary(type, dims, row_major(dims));
    }
    // Adds a single f32 number (a tensor of 1 x 1 x ...) that Plan::run() reads on the host.
    Value number(int ndim = 4);

    // Adds an operation with one to three operands: y = mode(x), y = mode(x, b), or for
    // binary_select y = t ? x : b.
    Value pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Value> operands, Value y,
                    cudnnDataType_t precision = CUDNN_DATA_FLOAT);
    // Adds an operation that sets each element of y, which has the shape of x, to its index along
    // the axis.
    Value index(Value x, std::int64_t axis, Value y);
    Value matmul(Value a, Value b, Value y);
    // Adds a reduction over the dimensions in which y has a smaller size than x.
    Value reduce(cudnnReduceTensorOp_t op, Value x, Value y);
    // Adds an operation that sets each element of y to 1 with the given probability, else to 0.
    // cuDNN computes the random numbers from seed and offset (each an i64 of 1 x 1 x ...); they are
    // the same in every graph with y's shape.
    Value bernoulli(double probability, Value seed, Value offset, Value y);
    // Adds an operation that reshapes x to y. y must be a temporary.
    Value reshape(Value x, Value y);
    // operation() adds any other operation; the caller sets its attributes and finalizes it. part()
    // adds a descriptor that an operation refers to. The graph keeps both alive.
    Descriptor& operation(cudnnBackendDescriptorType_t type);
    Descriptor& part(cudnnBackendDescriptorType_t type);

    const Descriptor& operator[](Value x) const { return values_[static_cast<std::size_t>(x - 1)]; }

    // Returns the operation graph after cuDNN has validated it. If handle is null, cuDNN does not
    // check whether a device supports the graph.
    Descriptor finish(cudnnHandle_t handle) const;

  private:
    Value add(cudnnDataType_t type, const Dims& dims, const Dims& strides, std::int64_t alignment,
              bool is_virtual, bool by_value);

    std::vector<Descriptor> values_;  // value x is values_[x - 1]
    std::vector<std::unique_ptr<Descriptor>> operations_, parts_;
};

// The device for which plans are created. It is the device of a handle, or a device that a
// DEVICEPROP descriptor describes. For a described device, plans can be created but not run.
struct Target {
    cudnnHandle_t handle = nullptr;
    const Descriptor* described = nullptr;
};

// The restrictions on the engine of a plan.
struct Limits {
    bool deterministic = false;
    std::int64_t workspace = std::numeric_limits<std::int64_t>::max();  // maximum size in bytes
    std::uint32_t avoided = 0;  // bit n excludes engines with cudnnBackendNumericalNote_t n
};

// An operand of a plan: a value and the device memory (or the host number) that it is bound to.
struct Binding {
    Value value;
    const void* data;
};

// A graph compiled for a device. cuDNN's heuristics propose engines; the plan uses the first engine
// that can be compiled within the limits. The constructor throws UnsupportedGraph if there is no
// such engine.
class Plan {
  public:
    Plan(Graph graph, const Target& target, const Limits& limits);

    std::int64_t workspace() const { return workspace_; }
    // Queues the plan on the context's stream. Not thread-safe. If cuDNN fails, returns false, adds
    // a library warning, and marks the plan as failed so that it is not used again.
    bool run(Cuda& on, std::span<const Binding> bindings) const;
    bool failed() const { return failed_; }

  private:
    bool compile(const Target& target, const Limits& limits);

    Graph graph_;
    std::vector<Descriptor> parts_;  // the compiled parts: operation graph, engine settings
    std::unique_ptr<Descriptor> plan_;
    std::int64_t workspace_ = 0;
    mutable bool failed_ = false;
};

// The key that identifies a graph: numbers in a fixed order, beginning with the kind of graph.
using Key = std::vector<std::int64_t>;
// Appends the dtype, shape, strides and data alignment (up to 16 bytes) of x to the key.
void append(Key& key, const ConstView& x);

// A cache of plans, which also records the graphs that are not supported.
class PlanCache {
  public:
    // Returns the plan of a key on the context's device, and creates it with build() on first use.
    // Returns null if cuDNN is missing, does not support the graph, or has failed to run it. Every
    // handle, and so every thread, has its own plans, because not all of cuDNN's engines are
    // thread-safe.
    const Plan* find(Cuda& on, Key key, const Limits& limits, const std::function<Graph()>& build);

  private:
    std::mutex mutex_;
    std::map<Key, std::unique_ptr<const Plan>> plans_;
};

}  // namespace axle::kernels::cudnn
