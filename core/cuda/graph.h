// CUDA graphs: GPU work that is captured once and replayed with one call.
//
//     Graph graph;
//     {
//         GraphCapture capture(graph);
//         y = model(x);               // captured, not executed
//         capture.end();
//     }
//     x.copy_(batch); graph.replay(); // y contains the new result
//
// A replay uses the memory addresses of the capture, so copy new input into the original tensors.
// Tensors created during the capture are allocated from the graph's pool. A graph owns a pool
// unless it shares a GraphPool with other graphs. Each replay draws the next random numbers of the
// default generator, the same numbers as without a graph.
//
// Run the work once or twice before the capture, because initialization on first use (library
// plans, caches) cannot be captured. During a capture, functions that copy between the CPU and a
// GPU, such as item() and to(device), throw UsageError.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/cuda.h"

namespace axle {

// The memory of several graphs. A graph uses the memory that earlier captures have freed, so all
// graphs of a pool together need little more memory than the largest one. Replays must not run at
// the same time, and a replay invalidates the results of other graphs that were captured later. A
// copy of this handle refers to the same pool. The pool is released when its last handle and graph
// are destroyed. Use a pool on one thread only. This class is defined only in builds with CUDA.
class GraphPool {
  public:
    explicit GraphPool(int device = 0);

  private:
    friend class Graph;
    struct State;
    std::shared_ptr<State> state_;
};

// A captured graph. Movable. Not thread-safe: use it only on the thread that captured it. This
// class is defined only in builds with CUDA.
class Graph {
  public:
    // Creates a graph with a pool of its own.
    explicit Graph(int device = 0);
    // Creates a graph on the pool's device.
    explicit Graph(const GraphPool& pool);
    ~Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;

    bool captured() const;  // whether a capture has ended successfully
    // Queues the captured work on the current stream. Throws UsageError if nothing was captured.
    void replay();

  private:
    friend class GraphCapture;
    struct State;
    std::unique_ptr<State> state_;
};

// Captures this thread's work on the graph's device, from construction until end(). If the object
// is destroyed before end(), for example by an exception, the capture is discarded and the graph
// stays empty. Throws UsageError if the graph was already captured, or if another capture is active
// on this thread or device.
class GraphCapture {
  public:
    explicit GraphCapture(Graph& graph);
    ~GraphCapture();
    GraphCapture(const GraphCapture&) = delete;
    GraphCapture& operator=(const GraphCapture&) = delete;

    // Ends the capture, after which the graph can be replayed. Throws UsageError if the capture has
    // already ended, and CudaError if it failed; then the graph stays empty.
    void end();

  private:
    void stop() noexcept;

    Graph& graph_;
    std::optional<cuda::StreamGuard> guard_;
    bool open_ = false;
};

// Returns whether this thread is capturing a graph, which is always false in builds without CUDA.
bool is_capturing();
// Returns the unique id of this thread's active capture, or 0 if there is none.
std::uint64_t capture_id();

}  // namespace axle
