#include <algorithm>

#include "kernels/cuda/cudnn/cudnn.h"
#include "kernels/cuda/library.h"
#include "kernels/error.h"

namespace axle::kernels::cudnn {

namespace {

// Returns the engine settings that cuDNN's heuristics propose in this mode, best first.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                  const Target& target) {
    Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (target.described != nullptr)
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.described);
    heuristic.finalize();
    std::int64_t count = 0;
    accept(functions()->get_attribute(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < count; ++i) {
        found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        raw.push_back(found.back().raw());
    }
    if (count > 0)
        accept(functions()->get_attribute(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                          raw.data()));
    found.erase(found.begin() + std::min<std::int64_t>(count, std::ssize(found)), found.end());
    return found;
}

// Returns the numerical notes of an engine; bit n is set if the engine has
// cudnnBackendNumericalNote_t n.
std::uint32_t notes_of(const Descriptor& config) {
    const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.raw();
    std::int64_t count = 0;
    accept(functions()->get_attribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    accept(functions()->get_attribute(engine.raw(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                      &count, notes));
    std::uint32_t bits = 0;
    for (std::int64_t i = 0; i < count; ++i) bits |= 1u << notes[i];
    return bits;
}

}  // namespace

Plan::Plan(Graph graph, const Target& target, const Limits& limits) : graph_(std::move(graph)) {
    parts_.push_back(graph_.finish(target.handle));
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        std::vector<Descriptor> configs;
        try {
            configs = proposals(parts_.front(), mode, target);
        } catch (const UnsupportedGraph&) {
            continue;  // this mode proposes no engines
        }
        for (Descriptor& config : configs) {
            parts_.push_back(std::move(config));
            if (compile(target, limits)) return;
            parts_.pop_back();
        }
    }
    throw UnsupportedGraph{CUDNN_STATUS_NOT_SUPPORTED};
}

// Compiles the plan with the engine settings in the last element of parts_. Returns whether this
// engine can be used.
bool Plan::compile(const Target& target, const Limits& limits) {
    try {
        std::uint32_t avoided = limits.avoided;
        if (limits.deterministic) avoided |= 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        if ((notes_of(parts_.back()) & avoided) != 0) return false;
        auto plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, parts_.back());
        if (target.handle != nullptr) plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
        if (target.described != nullptr)
            plan->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.described);
        plan->finalize();
        workspace_ = plan->get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        if (workspace_ > limits.workspace) return false;
        plan_ = std::move(plan);
        return true;
    } catch (const UnsupportedGraph&) {
        return false;
    }
}

bool Plan::run(Cuda& on, std::span<const Binding> bindings) const {
    const cudnnHandle_t handle = handle_for(on);
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    for (const Binding& binding : bindings) {
        ids.push_back(binding.value);
        pointers.push_back(const_cast<void*>(binding.data));
    }
    DeviceScratch scratch(on);
    void* const workspace = workspace_ > 0 ? scratch.take<char>(workspace_) : nullptr;
    try {
        Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
        pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                 static_cast<std::int64_t>(pointers.size()), pointers.data());
        pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
        pack.finalize();
        accept(functions()->execute(handle, plan_->raw(), pack.raw()));
        return true;
    } catch (const UnsupportedGraph& refused) {
        failed_ = true;
        add_library_warning(str(current_op, ": cuDNN ", version(),
                                " failed: ", functions()->get_error_string(refused.status)));
        return false;
    }
}

void append(Key& key, const ConstView& x) {
    key.push_back(static_cast<std::int64_t>(x.dtype));
    key.insert(key.end(), x.shape, x.shape + x.ndim);
    key.insert(key.end(), x.stride, x.stride + x.ndim);
    const auto address = reinterpret_cast<std::uintptr_t>(x.data) | 16;
    key.push_back(static_cast<std::int64_t>(address & (~address + 1)));  // the alignment, up to 16
}

const Plan* PlanCache::find(Cuda& on, Key key, const Limits& limits,
                            const std::function<Graph()>& build) {
    const cudnnHandle_t handle = handle_for(on);
    if (handle == nullptr) return nullptr;
    key.push_back(limits.deterministic);
    key.push_back(limits.workspace);
    key.push_back(limits.avoided);
    // The key includes the handle, so that each device and each thread has its own plans.
    key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(handle)));
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
        const Plan* const plan = found->second.get();
        return plan == nullptr || plan->failed() ? nullptr : plan;
    }
    std::unique_ptr<const Plan> plan;
    try {
        plan = std::make_unique<const Plan>(build(), Target{handle, nullptr}, limits);
    } catch (const UnsupportedGraph&) {
        // The graph is not supported; the cache stores a null plan below.
    }
    return (plans_[std::move(key)] = std::move(plan)).get();
}

}  // namespace axle::kernels::cudnn
