#include "core/cuda/graph.h"

#include <atomic>
#include <utility>

#include <cuda_runtime_api.h>

#include "core/cuda/context.h"
#include "core/cuda/memory.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/random.h"
#include "kernels/cuda/check.h"
#include "kernels/ops/copy.h"

namespace axle {

using kernels::check_cuda;

struct GraphPool::State {
    explicit State(int device_)
        : device(device_), stream(device), id(cuda::device_memory::create_pool(device)) {}
    ~State() { cuda::device_memory::release_pool(device, id); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    int device;
    // The stream is used only for capturing and never runs work. All graphs of the pool are
    // captured on this stream, because freed blocks are reused only on their own stream.
    cuda::Stream stream;
    cuda::device_memory::PoolId id;
};

GraphPool::GraphPool(int device) : state_(std::make_shared<State>(device)) {}

struct Graph::State {
    explicit State(std::shared_ptr<GraphPool::State> memory)
        : pool(std::move(memory)),
          device(pool->device),
          random(empty({2}, {.dtype = i64, .device = Device::cuda(device)})) {}
    ~State() {
        if (exec != nullptr) {
            cudaDeviceSynchronize();  // a replay may be running
            cudaGraphExecDestroy(exec);
        }
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    std::shared_ptr<GraphPool::State> pool;
    int device;
    cudaGraphExec_t exec = nullptr;
    Tensor random;  // seed and offset of the replay (Philox::base)
    std::uint64_t random_blocks = 0;
};

namespace {

constinit std::atomic<std::uint64_t> captures = 0;
constinit thread_local std::uint64_t capturing = 0;  // id of this thread's capture, or 0

void fill(kernels::Cuda& on, Tensor& x, std::int64_t index, std::uint64_t value) {
    Tensor slot = x.narrow(0, index, 1);
    kernels::fill(on, static_cast<std::int64_t>(value), slot.view());
}

}  // namespace

bool is_capturing() { return capturing != 0; }
std::uint64_t capture_id() { return capturing; }

Graph::Graph(int device) : Graph(GraphPool(device)) {}
Graph::Graph(const GraphPool& pool) : state_(std::make_unique<State>(pool.state_)) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

bool Graph::captured() const { return state_->exec != nullptr; }

void Graph::replay() {
    State& r = *state_;
    if (r.exec == nullptr)
        throw UsageError("Graph::replay: the graph is empty; capture it with GraphCapture first");
    kernels::Cuda& on = cuda::context(r.device);
    if (r.random_blocks > 0) {
        const kernels::Philox random = take_random(r.random_blocks);
        fill(on, r.random, 0, random.seed);
        fill(on, r.random, 1, random.offset);
    }
    check_cuda(cudaGraphLaunch(r.exec, on.stream()), "cudaGraphLaunch");
    check_after_launch(on);
}

GraphCapture::GraphCapture(Graph& graph) : graph_(graph) {
    Graph::State& r = *graph.state_;
    if (r.exec != nullptr)
        throw UsageError("GraphCapture: the graph has already been captured; create another Graph");
    if (is_capturing())
        throw UsageError(
            "GraphCapture: this thread is already capturing a graph; end that capture first");
    cuda::empty_cache(r.device);  // the graph's pool cannot use cached memory
    const cuda::Stream& stream = r.pool->stream;
    stream.wait_stream(cuda::current_stream(r.device));
    guard_.emplace(stream);
    cuda::context(r.device).error_slot();  // allocates memory, which is not possible in a capture
    cuda::device_memory::begin_pool(r.device, r.pool->id, stream.handle());
    const cudaError_t error =
        cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) {
        cuda::device_memory::end_pool(r.device, r.pool->id);
        check_cuda(error, "cudaStreamBeginCapture");
    }
    begin_captured_random(static_cast<const std::uint64_t*>(r.random.raw_data()));
    capturing = ++captures;
    open_ = true;
}

void GraphCapture::end() {
    if (!open_)
        throw UsageError("GraphCapture::end: the capture has already ended; call end() only once");
    Graph::State& r = *graph_.state_;
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(r.pool->stream.handle(), &graph);
    const std::uint64_t blocks = end_captured_random();
    cuda::device_memory::end_pool(r.device, r.pool->id);
    open_ = false;
    capturing = 0;
    guard_.reset();
    check_cuda(error, "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&r.exec, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(made, "cudaGraphInstantiate");
    r.random_blocks = blocks;
}

void GraphCapture::stop() noexcept {
    Graph::State& r = *graph_.state_;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(r.pool->stream.handle(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    end_captured_random();
    cuda::device_memory::end_pool(r.device, r.pool->id);
    capturing = 0;
}

GraphCapture::~GraphCapture() {
    if (open_) stop();
}

}  // namespace axle
