// The worker of bench/peers/compare_gpu, which runs training steps on request, so that several
// workers can use one device in turn.
//
// Weights and data are hashes of their indices, so that bench/peers/serve.py trains the same model
// with the same data. The worker replies to each line of input with a line of JSON:
//
//     (at its start)  {"engine", "version", "device", ...}
//     check N         runs N steps: {"losses": [N numbers]}
//     run N           runs a step, then N steps without waiting for each: {"ms": [N numbers],
//                     "loss", "peak_bytes", ...}
//     digest          {"digest"}: a hash of the bits of all parameters
//     quit
//
// After an error the worker replies {"error"} and exits.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "accel/accelerator.h"
#include "bench/hashed.h"
#include "bench/requests.h"
#include "core/cuda.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "core/version.h"

namespace axle::bench {

// Returns an FNV-1a hash, in hexadecimal, of the 32-bit words of all f32 parameters.
inline std::string digest_of(const std::vector<Tensor>& parameters) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const Tensor& p : parameters) {
        const Tensor here = to(p.detach(), Device::cpu());
        const auto* const words = here.data<float>();
        for (std::int64_t i = 0; i < here.numel(); ++i) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, words + i, sizeof bits);
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    std::ostringstream text;
    text << std::hex << hash;
    return text.str();
}

// A list of points in time, recorded on the device.
class Marks {
  public:
    explicit Marks(Device device) : device_(device) {}

    void mark() {
#if AXLE_CUDA
        if (device_.is_cuda()) {
            events_.emplace_back(true);
            events_.back().record(cuda::current_stream(device_.index));
            return;
        }
#endif
        times_.push_back(std::chrono::steady_clock::now());
    }

    // Waits for the device and returns the milliseconds between the points.
    std::vector<double> gaps() const {
        std::vector<double> ms;
#if AXLE_CUDA
        if (device_.is_cuda()) {
            cuda::synchronize(device_.index);
            for (std::size_t i = 1; i < events_.size(); ++i)
                ms.push_back(events_[i - 1].elapsed_time(events_[i]));
            return ms;
        }
#endif
        for (std::size_t i = 1; i < times_.size(); ++i)
            ms.push_back(
                std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
        return ms;
    }

  private:
    Device device_;
    std::vector<cuda::Event> events_;
    std::vector<std::chrono::steady_clock::time_point> times_;
};

struct ServeOptions {
    std::string engine = "axle";
    std::string dtype = "f32";
    std::string device = "cuda";
    bool compile = false;
};

// Replies to requests until "quit" or the end of the input. loss_of(model, batch) returns the mean
// loss. Gradients are clipped to max_norm unless it is 0.
template <class Model, class Optimizer, class LossOf>
void serve(const ServeOptions& options, Model& model, Optimizer& optimizer, Tree batch,
           double max_norm, LossOf&& loss_of) {
    Accelerator accelerator({.mixed_precision = options.dtype == "bf16" ? "bf16" : "no",
                             .cpu = options.device == "cpu"});
    const Device device = accelerator.device();
    if (options.device != "cpu" && !device.is_cuda())
        throw DeviceError("serve: no GPU is available: " + cuda::why_unavailable());
    accelerator.prepare(model, optimizer);
    batch = map_tensors(batch, [&](const Tensor& t) { return Tree(t.to(device)); });

    const std::vector<Tensor> parameters = model.parameters();
    const auto body = [&](Tree& b) {
        const Tensor loss = loss_of(model, b);
        accelerator.backward(loss);
        if (max_norm > 0) accelerator.clip_grad_norm_(parameters, max_norm);
        optimizer.step();
        optimizer.zero_grad();
        return loss.detach();
    };
    auto compiled = accelerator.compile(body);
    const auto step = [&] { return options.compile ? compiled(batch) : body(batch); };

    reply({{"engine", options.engine},
           {"version", kVersion},
           {"device", device.is_cuda() ? cuda::get_device_properties().name : "CPU"},
           {"parameters", model.num_parameters()}});
    answer_requests([&](const std::string& request, int count) -> nlohmann::json {
        if (request == "check") {
            std::vector<double> losses(static_cast<std::size_t>(count));
            for (double& loss : losses) loss = step().item();
            return {{"losses", losses}};
        }
        if (request == "run") {
            Tensor loss = step();  // allocates the memory that empty_cache() has freed
            Marks marks(device);
            marks.mark();
            for (int i = 0; i < count; ++i) loss = step(), marks.mark();
            const std::vector<double> ms = marks.gaps();
            const std::int64_t peak =
                (device.is_cuda() ? cuda::memory_stats() : host_memory::stats()).peak;
            const double last_loss = loss.item();
            if (device.is_cuda()) cuda::empty_cache();  // frees memory for the other workers
            return {{"ms", ms},
                    {"loss", last_loss},
                    {"peak_bytes", peak},
                    {"eager_steps", compiled.eager_steps()},
                    {"replays", compiled.replays()}};
        }
        if (request == "digest") return {{"digest", digest_of(parameters)}};
        return nullptr;
    });
}

}  // namespace axle::bench
