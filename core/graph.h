// CUDA graphs: work of a GPU that is recorded once and repeated with one call.
//
//     Graph graph;
//     {
//         GraphCapture capture(graph);
//         y = model(x);               // queued nowhere: recorded
//         capture.end();
//     }
//     x.copy_(batch); graph.replay(); // y holds the new result
//
// Recorded work reads and writes the very memory that it was recorded with: new input is copied to
// where the old one was. Tensors made while capturing live in a pool of the graph's own, which it
// keeps while it lives. Random numbers differ from replay to replay exactly as they would without a
// graph: a replay takes its part of the default generator.
//
// Run what is to be recorded once or twice before, for what is set up on first use (library plans,
// caches) can't be recorded. What reads the GPU's memory, such as item(), throws UsageError within
// a capture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/cuda.h"

namespace axle::inline v0 {

// Movable. Not for two threads at once, nor for another thread than the one that captured it.
// Exists in builds with CUDA alone.
class Graph {
  public:
    explicit Graph(int device = 0);
    ~Graph();
    Graph(Graph&&) noexcept;
    Graph& operator=(Graph&&) noexcept;

    bool captured() const;
    // Queues the recorded work on the current stream. UsageError if nothing has been captured.
    void replay();

  private:
    friend class GraphCapture;
    struct Recorded;
    std::unique_ptr<Recorded> recorded_;
};

// From its construction this thread's work for the graph's device is recorded, not done. Without
// end(), as when an exception leaves the scope, the recording is thrown away and the graph stays
// empty. UsageError for a graph that has been captured, or while another capture is under way.
class GraphCapture {
  public:
    explicit GraphCapture(Graph& graph);
    ~GraphCapture();
    GraphCapture(const GraphCapture&) = delete;
    GraphCapture& operator=(const GraphCapture&) = delete;

    void end();

  private:
    void stop() noexcept;

    Graph& graph_;
    std::optional<cuda::StreamGuard> guard_;
    bool open_ = false;
};

// Whether this thread captures a graph. Never in builds without CUDA.
bool is_capturing();
// Of the capture under way on this thread: no other has the same. 0 where there is none.
std::uint64_t capture_number();

}  // namespace axle::inline v0
