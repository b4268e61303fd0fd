#include "kernels/cuda/cudnn/cudnn.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <string>

#include "kernels/cuda/library.h"
#include "kernels/error.h"

namespace axle::kernels::cudnn {

// --- the library and its handles

namespace {

std::unique_ptr<Functions> open() {
    const Library library("cuDNN", "libcudnn", 9);
    if (!library.found()) return nullptr;
    auto f = std::make_unique<Functions>();
    library.bind("cudnnGetVersion", f->get_version);
    library.bind("cudnnGetErrorString", f->get_error_string);
    library.bind("cudnnCreate", f->create);
    library.bind("cudnnSetStream", f->set_stream);
    library.bind("cudnnBackendCreateDescriptor", f->create_descriptor);
    library.bind("cudnnBackendDestroyDescriptor", f->destroy_descriptor);
    library.bind("cudnnBackendSetAttribute", f->set_attribute);
    library.bind("cudnnBackendGetAttribute", f->get_attribute);
    library.bind("cudnnBackendFinalize", f->finalize);
    library.bind("cudnnBackendExecute", f->execute);
    if (f->get_version() / 10000 != 9)
        throw DeviceError(str(current_op, ": cuDNN 9 is required: ", library.path(),
                              " has version ", f->get_version(),
                              "; set AXLE_LIBRARY_PATH to the folder of cuDNN 9"));
    return f;
}

// The handles that no thread uses now, for each device.
struct Pool {
    std::mutex mutex;
    std::map<int, std::vector<cudnnHandle_t>> free;
};
// Returns the pool, which is never destroyed because threads can end after static objects are
// destroyed.
Pool& pool() {
    static auto* const instance = new Pool;
    return *instance;
}

// The handle of this thread for each device. A handle is null if it cannot be created.
class Held {
  public:
    Held() = default;
    ~Held() {
        const std::lock_guard lock(pool().mutex);
        for (const auto& [device, handle] : handles_)
            if (handle != nullptr) pool().free[device].push_back(handle);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    cudnnHandle_t on(int device) {
        const auto found = handles_.find(device);
        if (found != handles_.end()) return found->second;
        return handles_[device] = take(device);
    }

  private:
    static cudnnHandle_t take(int device) {
        const std::lock_guard lock(pool().mutex);
        auto& free = pool().free[device];
        cudnnHandle_t handle = nullptr;
        if (!free.empty()) {
            handle = free.back();
            free.pop_back();
        } else if (const auto status = functions()->create(&handle);
                   status != CUDNN_STATUS_SUCCESS) {
            handle = nullptr;
            add_library_warning(str("cuDNN cannot be initialized on cuda:", device, ": ",
                                    functions()->get_error_string(status)));
        }
        return handle;
    }

    std::map<int, cudnnHandle_t> handles_;
};

}  // namespace

const Functions* functions() {
    static const auto* const found = open().release();
    return found;
}

std::int64_t version() {
    return functions() == nullptr ? 0 : static_cast<std::int64_t>(functions()->get_version());
}

cudnnHandle_t handle_for(Cuda& on) {
    if (functions() == nullptr) return nullptr;
    thread_local Held held;
    const cudnnHandle_t handle = held.on(on.device());
    if (handle == nullptr) return nullptr;
    return functions()->set_stream(handle, on.stream()) == CUDNN_STATUS_SUCCESS ? handle : nullptr;
}

bool fall_back_to_own_kernels() {
    static std::mutex mutex;
    static auto* const reported = new std::set<std::string>;
    const std::lock_guard lock(mutex);
    if (reported->insert(current_op).second)
        add_library_warning(str(current_op, ": cuDNN ", version(),
                                " does not support some calls; using Axle's own kernels"));
    return false;
}

// --- graphs

cudnnDataType_t data_type(DType t) {
    switch (t) {
        case DType::f64:
            return CUDNN_DATA_DOUBLE;
        case DType::f16:
            return CUDNN_DATA_HALF;
        case DType::bf16:
            return CUDNN_DATA_BFLOAT16;
        case DType::i64:
            return CUDNN_DATA_INT64;
        case DType::i32:
            return CUDNN_DATA_INT32;
        case DType::u8:
            return CUDNN_DATA_UINT8;
        case DType::boolean:
            return CUDNN_DATA_BOOLEAN;
        default:
            assert(t == DType::f32);
            return CUDNN_DATA_FLOAT;
    }
}

Dims row_major(const Dims& dims) {
    Dims strides(dims.size());
    std::int64_t stride = 1;
    for (std::size_t d = dims.size(); d-- > 0; stride *= dims[d]) strides[d] = stride;
    return strides;
}

Value Graph::add(cudnnDataType_t type, const Dims& dims, const Dims& strides,
                 std::int64_t alignment, bool is_virtual, bool by_value) {
    Descriptor& x = values_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const auto id = static_cast<Value>(values_.size());
    x.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    x.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    x.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    x.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    x.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    if (is_virtual) x.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    if (by_value) x.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    x.finalize();
    return id;
}

Value Graph::tensor(cudnnDataType_t type, const Dims& dims, const Dims& strides,
                    std::int64_t alignment) {
    return add(type, dims, strides, alignment, false, false);
}

Value Graph::tensor(const ConstView& x) {
    Key key;
    append(key, x);
    return tensor(data_type(x.dtype), Dims(x.shape, x.shape + x.ndim),
                  Dims(x.stride, x.stride + x.ndim), key.back());
}

Value Graph::temporary(cudnnDataType_t type, const Dims& dims, const Dims& strides) {
    return add(type, dims, strides, 16, true, false);
}

Value Graph::number(int ndim) {
    const Dims ones(static_cast<std::size_t>(ndim), 1);
    return add(CUDNN_DATA_FLOAT, ones, ones, 16, false, true);
}

Descriptor& Graph::operation(cudnnBackendDescriptorType_t type) {
    return *operations_.emplace_back(std::make_unique<Descriptor>(type));
}
Descriptor& Graph::part(cudnnBackendDescriptorType_t type) {
    return *parts_.emplace_back(std::make_unique<Descriptor>(type));
}

Value Graph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Value> operands, Value y,
                       cudnnDataType_t precision) {
    Descriptor& kind = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
    kind.finalize();
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    constexpr cudnnBackendAttributeName_t kOperands[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                         CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    const auto* name = kOperands;
    for (const Value operand : operands) op.set(*name++, (*this)[operand]);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, (*this)[y]);
    op.finalize();
    return y;
}

Value Graph::index(Value x, std::int64_t axis, Value y) {
    Descriptor& kind = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_INT32);
    kind.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    kind.finalize();
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, (*this)[x]);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, (*this)[y]);
    op.finalize();
    return y;
}

Value Graph::matmul(Value a, Value b, Value y) {
    Descriptor& kind = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize();
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, (*this)[a]);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, (*this)[b]);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, (*this)[y]);
    op.finalize();
    return y;
}

Value Graph::reduce(cudnnReduceTensorOp_t reduction, Value x, Value y) {
    Descriptor& kind = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, reduction);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize();
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, (*this)[x]);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, (*this)[y]);
    op.finalize();
    return y;
}

Value Graph::reshape(Value x, Value y) {
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, (*this)[x]);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, (*this)[y]);
    op.finalize();
    return y;
}

Value Graph::bernoulli(double probability, Value seed, Value offset, Value y) {
    Descriptor& kind = part(CUDNN_BACKEND_RNG_DESCRIPTOR);
    kind.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI);
    kind.set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, probability);
    kind.finalize();
    Descriptor& op = operation(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RNG_DESC, kind);
    op.set(CUDNN_ATTR_OPERATION_RNG_SEED, (*this)[seed]);
    op.set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, (*this)[offset]);
    op.set(CUDNN_ATTR_OPERATION_RNG_YDESC, (*this)[y]);
    op.finalize();
    return y;
}

Descriptor Graph::finish(cudnnHandle_t handle) const {
    std::vector<cudnnBackendDescriptor_t> operations;
    operations.reserve(operations_.size());
    for (const auto& operation : operations_) operations.push_back(operation->raw());
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              static_cast<std::int64_t>(operations.size()), operations.data());
    if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    graph.finalize();
    return graph;
}

}  // namespace axle::kernels::cudnn
