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
// Returns null if libcudnn.so.9 is not found. Throws DeviceError if it has another major version.
const Functions* functions();
// Returns the version of the library, such as 91900 for 9.19.0, or 0 if there is none.
std::int64_t version();

// Returns a handle for the context's device and this thread, bound to its stream, or null if cuDNN
// is missing or cannot run. Handles are returned to a pool when the thread ends, and never
// destroyed.
cudnnHandle_t handle_for(Cuda& on);

// Called when cuDNN has no kernel for a supported operation. Adds a library warning, once per
// operation (current_op), and returns false.
bool fall_back_to_own_kernels();

// Thrown if cuDNN has no kernel for a graph, or if the graph is malformed.
struct UnsupportedGraph {
    cudnnStatus_t status;
};
inline void accept(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) throw UnsupportedGraph{status};
}

// The cuDNN type tag of an attribute's element type.
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

// A backend descriptor. Its attributes are set, then it is finalized and used. Every failure throws
// UnsupportedGraph.
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

    // Returns an attribute with one element.
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

cudnnDataType_t data_type(DType t);  // for f64 f32 f16 bf16 i64 i32 u8 boolean
Dims row_major(const Dims& dims);

// A sequence of operations. Functions that add an operation return its result y.
class Graph {
  public:
    // Adds a tensor that run() binds to device memory.
    Value tensor(cudnnDataType_t type, const Dims& dims, const Dims& strides,
                 std::int64_t alignment = 16);
    Value tensor(const ConstView& x);
    // Adds an intermediate result.
    Value temporary(cudnnDataType_t type, const Dims& dims, const Dims& strides);
    Value temporary(cudnnDataType_t type, const Dims& dims) {
        return temporary(type, dims, row_major(dims));
    }
    // Adds an f32 of 1 x 1 x ... that run() reads on the host.
    Value number(int ndim = 4);

    // Adds an operation with one to three operands, y = mode(x), y = mode(x, b), or binary_select
    // with y = t ? x : b.
    Value pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Value> operands, Value y,
                    cudnnDataType_t precision = CUDNN_DATA_FLOAT);
    // Adds an operation that sets y, of the shape of x, to the index along the axis.
    Value index(Value x, std::int64_t axis, Value y);
    Value matmul(Value a, Value b, Value y);
    // Adds a reduction of the dimensions in which y has size 1 (or fewer elements).
    Value reduce(cudnnReduceTensorOp_t op, Value x, Value y);
    // Adds an operation that sets y to 1 with the given probability, else to 0. The random numbers
    // are cuDNN's own, a function of seed and offset (each an i64 of 1 x 1 x ...), and the same in
    // every graph with y's shape.
    Value bernoulli(double probability, Value seed, Value offset, Value y);
    // Adds a reshape of x to y, a temporary.
    Value reshape(Value x, Value y);
    // Adds any other operation, whose attributes the caller sets before it finalizes it. part()
    // keeps the descriptors that it refers to alive.
    Descriptor& operation(cudnnBackendDescriptorType_t type);
    Descriptor& part(cudnnBackendDescriptorType_t type);

    const Descriptor& operator[](Value x) const { return values_[static_cast<std::size_t>(x - 1)]; }

    // Returns the operation graph, validated by cuDNN. Without a handle it is validated for any
    // device.
    Descriptor finish(cudnnHandle_t handle) const;

  private:
    Value add(cudnnDataType_t type, const Dims& dims, const Dims& strides, std::int64_t alignment,
              bool is_virtual, bool by_value);

    std::vector<Descriptor> values_;  // value x is values_[x - 1]
    std::vector<std::unique_ptr<Descriptor>> operations_, parts_;
};

// The device that plans are created for: the device of a handle, or a device that is only described
// (by a DEVICEPROP descriptor), for which plans can be created but not run.
struct Target {
    cudnnHandle_t handle = nullptr;
    const Descriptor* described = nullptr;
};

// Restrictions on a plan.
struct Limits {
    bool deterministic = false;
    std::int64_t workspace = std::numeric_limits<std::int64_t>::max();  // in bytes
    std::uint32_t avoided = 0;  // bit n excludes engines with cudnnBackendNumericalNote_t n
};

// An operand of a plan: a value and its device memory (or a number on the host).
struct Binding {
    Value value;
    const void* data;
};

// A graph compiled for a device. Uses the first engine proposed by the heuristics that can be
// compiled within the limits. Throws UnsupportedGraph if there is none.
class Plan {
  public:
    Plan(Graph graph, const Target& target, const Limits& limits);

    std::int64_t workspace() const { return workspace_; }
    // Queues the plan. Not thread-safe. If cuDNN fails, returns false and adds a library warning,
    // and the plan is not tried again.
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

// The identity of a graph: numbers in a fixed order, beginning with the kind of graph.
using Key = std::vector<std::int64_t>;
// Appends dtype, shape, strides and the alignment of the data (up to 16 bytes).
void append(Key& key, const ConstView& x);

// Caches plans, and which graphs are not supported.
class PlanCache {
  public:
    // Returns the plan of a key on the context's device, created from build() on first use, or null
    // if cuDNN is missing, does not support the graph, or has failed to run it. Every handle, and
    // so every thread, has its own plans, because not all of cuDNN's engines are thread-safe.
    const Plan* find(Cuda& on, Key key, const Limits& limits, const std::function<Graph()>& build);

  private:
    std::mutex mutex_;
    std::map<Key, std::unique_ptr<const Plan>> plans_;
};

}  // namespace axle::kernels::cudnn
