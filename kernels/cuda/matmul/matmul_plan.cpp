// The plan of a product is the algorithm that computes it. It is read from the tuning file, or it
// is the algorithm that cuBLASLt recommends. A product that is large enough (should_tune()) is
// tuned when it is used again. In deterministic mode it keeps the recommended algorithm,
// because timing can choose another algorithm in every run.
//
// Algorithms that split the depth must add the parts in the type of the sums and in a separate
// step. Other schemes round intermediate results or depend on the order in which parts finish.
#include "kernels/cuda/matmul/matmul_plan.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/matmul/matmul_tuning.h"

namespace axle::kernels {
namespace {

constexpr int kCandidates = 16;

// All properties that an algorithm can depend on, except the addresses of the matrices.
using Key = std::array<std::int64_t, 34>;

Key key_of(const Cuda& on, const LtProduct& p) {
    const bool tf32 = on.allow_tf32 && p.in == DType::f32;
    Key key = {p.rows,
               p.columns,
               p.depth,
               p.batches,
               static_cast<std::int64_t>(p.in),
               static_cast<std::int64_t>(p.out),
               static_cast<std::int64_t>(p.epilogue),
               tf32,
               on.deterministic};
    std::size_t i = 9;
    for (const LtMatrix* matrix : {&p.a, &p.b, &p.c, &p.d, &p.aux})
        for (const std::int64_t field :
             {matrix->ld, matrix->batch, std::int64_t{matrix->transposed}, matrix->alignment})
            key[i++] = field;
    key[i++] = p.vector.alignment;
    key[i++] = p.c.data != nullptr;
    key[i++] = p.c.data == p.d.data;
    key[i++] = p.float8 ? static_cast<std::int64_t>(p.float8->b) : -1;
    key[i++] = p.float8 && p.float8->fast;
    return key;
}

std::string text_of(const Key& key) {
    std::string text;
    for (const std::int64_t field : key) text += (text.empty() ? "" : ",") + std::to_string(field);
    return text;
}

struct HashOfKey {
    std::size_t operator()(const Key& key) const {
        std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a hash of 64-bit words
        for (const std::int64_t field : key)
            hash = (hash ^ static_cast<std::uint64_t>(field)) * 0x100000001b3u;
        return hash ^ (hash >> 32);
    }
};

// The descriptors of a product. They contain pointers, so each call creates its own descriptors.
struct Description {
    cublasLtMatmulDescOpaque_t operation = {};
    cublasLtMatrixLayoutOpaque_t a = {}, b = {}, c = {}, d = {};
};

void describe(const CublasLt& lt, const LtMatrix& matrix, DType dtype, std::int64_t rows,
              std::int64_t columns, std::int64_t batches, cublasLtMatrixLayoutOpaque_t& layout) {
    if (matrix.transposed) std::swap(rows, columns);
    lt.check(
        lt.init_layout(&layout, sizeof layout, cuda_type(dtype), static_cast<std::uint64_t>(rows),
                       static_cast<std::uint64_t>(columns), matrix.ld),
        "cublasLtMatrixLayoutInit");
    if (batches == 1) return;
    const auto count = static_cast<std::int32_t>(batches);
    lt.check(lt.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
             "cublasLtMatrixLayoutSetAttribute");
    lt.check(lt.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch,
                           sizeof matrix.batch),
             "cublasLtMatrixLayoutSetAttribute");
}

Description describe(const CublasLt& lt, const Cuda& on, const LtProduct& p) {
    Description result;
    describe(lt, p.a, p.in, p.rows, p.depth, p.batches, result.a);
    describe(lt, p.b, p.float8 ? p.float8->b : p.in, p.depth, p.columns, p.batches, result.b);
    describe(lt, p.c.data == nullptr ? p.d : p.c, p.out, p.rows, p.columns, p.batches, result.c);
    describe(lt, p.d, p.out, p.rows, p.columns, p.batches, result.d);

    const bool wide = p.in == DType::f64;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                        : on.allow_tf32 && p.in == DType::f32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    lt.check(lt.init_operation(&result.operation, sizeof result.operation, compute,
                               wide ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescInit");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
        lt.check(lt.set_operation(&result.operation, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
    };
    if (p.a.transposed) set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
    if (p.b.transposed) set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_T});
    if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(p.epilogue));
    if (p.float8) {
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.float8->a_factor);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.float8->b_factor);
        set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{p.float8->fast});
    }
    if (p.vector.data != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.vector.data);
    if (p.aux.data != nullptr) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.data);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux.ld);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, p.aux.batch);
    }
    return result;
}

struct Plan {
    bool supported = false;
    bool tuned = false;  // true if tuning has begun, or if `algo` is from the tuning file
    int uses = 0;
    cublasLtMatmulAlgo_t algo = {};
    std::size_t workspace = 0;
};

// Returns the number of bytes from the first element of a batch of matrices to the end of its last
// element.
std::int64_t extent(const LtMatrix& matrix, std::int64_t rows, std::int64_t columns,
                    std::int64_t batches, DType dtype) {
    return ((batches - 1) * matrix.batch + (columns - 1) * matrix.ld + rows) * size_of(dtype);
}

// The plans of one device. Thread-safe.
class Planner {
  public:
    Planner(const CublasLt& lt, int device) : lt_(lt), file_(device, lt.version()) {
        int major = 0;
        check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                   "cudaDeviceGetAttribute");
        // NVIDIA recommends these workspace sizes.
        most_workspace_ = std::size_t{major >= 9 ? 32u : 4u} << 20;
        lt.check(lt.create(&handle_), "cublasLtCreate");
    }

    bool run(Cuda& on, const LtProduct& product) {
        const Key key = key_of(on, product);
        Description description = describe(lt_, on, product);
        const double work = static_cast<double>(product.rows) *
                            static_cast<double>(product.columns) *
                            static_cast<double>(product.depth * product.batches);
        Plan plan;
        bool tunes = false;
        {
            const std::lock_guard lock(mutex_);
            const auto [entry, is_new] = plans_.try_emplace(key);
            if (is_new) entry->second = first_plan(on, product, key, description);
            Plan& known = entry->second;
            ++known.uses;
            tunes = known.supported && !known.tuned && !on.deterministic && known.uses >= 2 &&
                    should_tune(on, work);
            if (tunes) known.tuned = true;
            plan = known;
        }
        if (!plan.supported) return false;
        if (tunes && tune(on, product, description, plan)) {
            const std::lock_guard lock(mutex_);
            plans_[key] = plan;
            file_.add(text_of(key), plan.algo);
        }
        const cublasStatus_t status = queue(on, product, description, plan.algo, plan.workspace);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
            const std::lock_guard lock(mutex_);
            plans_[key].supported = false;
            return false;
        }
        lt_.check(status, "cublasLtMatmul");
        return true;
    }

  private:
    Plan first_plan(const Cuda& on, const LtProduct& product, const Key& key,
                    Description& description) {
        Plan plan;
        if (!on.deterministic) {
            if (const auto algo = file_.find(text_of(key))) {
                cublasLtMatmulHeuristicResult_t result = {};
                if (lt_.check_algo(handle_, &description.operation, &description.a, &description.b,
                                   &description.c, &description.d, &*algo,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
                    result.workspaceSize <= most_workspace_) {
                    plan.supported = plan.tuned = true;
                    plan.algo = *algo, plan.workspace = result.workspaceSize;
                    return plan;
                }
            }
        }
        const auto found = candidates(product, description);
        if (found.empty()) return plan;
        plan.supported = true;
        plan.algo = found[0].algo, plan.workspace = found[0].workspaceSize;
        return plan;
    }

    // Returns the algorithms for a product, ordered by cuBLASLt's estimate of their speed.
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(const LtProduct& product,
                                                            Description& description) {
        cublasLtMatmulPreferenceOpaque_t preference = {};
        lt_.check(lt_.init_preference(&preference, sizeof preference),
                  "cublasLtMatmulPreferenceInit");
        const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
            lt_.check(lt_.set_preference(&preference, attribute, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute");
        };
        const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                               const LtMatrix& matrix) {
            set(attribute, static_cast<std::uint32_t>(matrix.alignment));
        };
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{most_workspace_});
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
            std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
        align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.a);
        align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.b);
        align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
              product.c.data == nullptr ? product.d : product.c);
        align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.d);

        std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
        int count = 0;
        const cublasStatus_t status = lt_.heuristic(handle_, &description.operation, &description.a,
                                                    &description.b, &description.c, &description.d,
                                                    &preference, kCandidates, found.data(), &count);
        found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
        std::erase_if(found, [&](const cublasLtMatmulHeuristicResult_t& result) {
            return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > most_workspace_;
        });
        return found;
    }

    // Sets the plan to the fastest of the candidates, which write their results to scratch memory.
    // Returns false if this is not possible, usually because there is not enough memory.
    bool tune(Cuda& on, LtProduct product, Description description, Plan& plan) {
        const auto found = candidates(product, description);
        DeviceScratch scratch(on);
        try {
            const auto elsewhere = [&](LtMatrix& matrix, std::int64_t bytes) {
                if (matrix.data != nullptr) matrix.data = scratch.take<char>(bytes);
            };
            if (product.c.data == nullptr) product.c = {};
            elsewhere(product.d, extent(product.d, product.rows, product.columns, product.batches,
                                        product.out));
            if (product.epilogue != CUBLASLT_EPILOGUE_DGELU)
                elsewhere(product.aux, extent(product.aux, product.rows, product.columns,
                                              product.batches, product.out));
            const std::int64_t gradients =
                product.epilogue == CUBLASLT_EPILOGUE_BGRADA   ? product.rows
                : product.epilogue == CUBLASLT_EPILOGUE_BGRADB ? product.columns
                                                               : 0;
            if (gradients > 0) elsewhere(product.vector, gradients * size_of(product.out));
            description = describe(lt_, on, product);
            const int best = fastest(on, static_cast<int>(found.size()), [&](int i) {
                const auto& candidate = found[static_cast<std::size_t>(i)];
                return queue(on, product, description, candidate.algo, candidate.workspaceSize) ==
                       CUBLAS_STATUS_SUCCESS;
            });
            if (best < 0) return false;
            plan.algo = found[static_cast<std::size_t>(best)].algo;
            plan.workspace = found[static_cast<std::size_t>(best)].workspaceSize;
            return true;
        } catch (const Error&) {
            return false;
        }
    }

    cublasStatus_t queue(Cuda& on, const LtProduct& product, Description& description,
                         const cublasLtMatmulAlgo_t& algo, std::size_t workspace) {
        static constexpr float kOne = 1, kZero = 0;
        static constexpr double kWideOne = 1, kWideZero = 0;
        const bool wide = product.in == DType::f64, adds = product.c.data != nullptr;
        const void* const alpha =
            wide ? static_cast<const void*>(&kWideOne) : static_cast<const void*>(&kOne);
        const void* const nothing =
            wide ? static_cast<const void*>(&kWideZero) : static_cast<const void*>(&kZero);
        DeviceScratch scratch(on);
        void* const memory =
            workspace == 0 ? nullptr : scratch.take<char>(static_cast<std::int64_t>(workspace));
        void* const d = const_cast<void*>(product.d.data);
        return lt_.matmul(handle_, &description.operation, alpha, product.a.data, &description.a,
                          product.b.data, &description.b, adds ? alpha : nothing,
                          adds ? product.c.data : d, &description.c, d, &description.d, &algo,
                          memory, workspace, on.stream());
    }

    const CublasLt& lt_;
    cublasLtHandle_t handle_ = nullptr;
    std::size_t most_workspace_ = 0;
    std::mutex mutex_;
    std::unordered_map<Key, Plan, HashOfKey> plans_;
    TuningFile file_;
};

Planner& planner_of(int device) {
    static std::mutex mutex;
    static auto& planners = *new std::map<int, std::unique_ptr<Planner>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Planner>& planner = planners[device];
    if (!planner) planner = std::make_unique<Planner>(*cublaslt(), device);
    return *planner;
}

}  // namespace

bool lt_matmul(Cuda& on, const LtProduct& product) {
    return planner_of(on.device()).run(on, product);
}

}  // namespace axle::kernels
