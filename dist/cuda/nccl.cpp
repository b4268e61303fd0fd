// The NCCL engine: each communicator has its own stream, and one thread polls for errors.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda.h"
#include "core/cuda/graph.h"
#include "dist/cuda/nccl_comm.h"
#include "dist/group/device_engine.h"
#include "dist/rendezvous/control.h"
#include "kernels/error.h"
#include "kernels/thread.h"

namespace axle::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kWatchInterval{100};
constexpr int kPriority = -1;  // higher than the default, 0: other ranks wait for collectives

ncclDataType_t type_of(const char* op, DType t) {
    switch (t) {
        case DType::f64:
            return ncclFloat64;
        case DType::f32:
            return ncclFloat32;
        case DType::f16:
            return ncclFloat16;
        case DType::bf16:
            return ncclBfloat16;
        case DType::i64:
            return ncclInt64;
        case DType::i32:
            return ncclInt32;
        case DType::i8:
            return ncclInt8;
        case DType::u64:
            return ncclUint64;
        case DType::u32:
            return ncclUint32;
        case DType::u8:
        case DType::boolean:  // 0 or 1, so max computes "any" and min "all"
            return ncclUint8;
        default:
            throw DTypeError(
                str(op, ": NCCL does not support the dtype ", t, "; convert the tensor first"));
    }
}

ncclRedOp_t op_of(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum:
            return ncclSum;
        case ReduceOp::mean:
            return ncclAvg;
        case ReduceOp::max:
            return ncclMax;
        case ReduceOp::min:
            return ncclMin;
        case ReduceOp::product:
            return ncclProd;
    }
    return ncclSum;
}

std::size_t bytes_of(const Tensor& x) {
    return static_cast<std::size_t>(x.numel() * size_of(x.dtype()));
}

bool holds_something(const Tensor& x) { return x.defined() && x.numel() > 0; }

// The first error of the engine. Thread-safe. Pending collectives share its ownership, because they
// can outlive the engine.
class EngineError {
  public:
    void fail(const std::string& text) {
        const std::lock_guard lock(mutex_);
        if (text_.empty())
            text_ = text.empty() ? "NCCL: the communicator was aborted after an error" : text;
    }
    std::string text() const {
        const std::lock_guard lock(mutex_);
        return text_;
    }
    void check() const {
        if (const std::string failure = text(); !failure.empty()) throw CommError(failure);
    }

  private:
    mutable std::mutex mutex_;
    std::string text_;
};

class Queued final : public DeviceWork {
  public:
    Queued(int device, std::shared_ptr<const EngineError> fate)
        : device_(device), engine_error_(std::move(fate)) {}

    void wait() override {
        engine_error_->check();
        done.wait(cuda::current_stream(device_));
    }
    bool is_completed() const override { return done.query(); }

    cuda::Event done;

  private:
    int device_;
    std::shared_ptr<const EngineError> engine_error_;
};

struct Channel {
    Channel(int device, std::function<std::string()> failure)
        : stream(device, kPriority), comm(std::move(failure)) {}
    cuda::Stream stream;
    NcclComm comm;
};

class NcclEngine final : public DeviceEngine {
  public:
    NcclEngine(Control& control, std::string name, int rank, int size, int device,
               milliseconds timeout, const std::string& id)
        : control_(control),
          name_(std::move(name)),
          rank_(rank),
          size_(size),
          device_(device),
          timeout_(timeout),
          group_(device, failure()) {
        group_.comm.connect(rank, size, id, timeout);
        watchdog_ = kernels::start_thread("axle nccl", [this] { watch(); });
    }
    ~NcclEngine() override {
        {
            const std::lock_guard lock(mutex_);
            leaving_ = true;
            woken_.notify_all();
        }
        watchdog_.join();
    }

    int device() const override { return device_; }
    bool waits_for_agreement() const override { return false; }

    Started all_reduce(const Tensor& x, ReduceOp op) override {
        return queue("all_reduce", {x}, [&](ncclComm_t comm, cudaStream_t stream) {
            return nccl()->all_reduce(x.raw_data(), x.raw_data(), count(x),
                                      type_of("all_reduce", x.dtype()), op_of(op), comm, stream);
        });
    }
    Started reduce(const Tensor& x, ReduceOp op, int root) override {
        return queue("reduce", {x}, [&](ncclComm_t comm, cudaStream_t stream) {
            return nccl()->reduce(x.raw_data(), x.raw_data(), count(x),
                                  type_of("reduce", x.dtype()), op_of(op), root, comm, stream);
        });
    }
    Started reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op) override {
        return queue("reduce_scatter", {out, x}, [&](ncclComm_t comm, cudaStream_t stream) {
            return nccl()->reduce_scatter(x.raw_data(), out.raw_data(), count(out),
                                          type_of("reduce_scatter", x.dtype()), op_of(op), comm,
                                          stream);
        });
    }
    Started broadcast(const Tensor& x, int root) override {
        return queue("broadcast", {x}, [&](ncclComm_t comm, cudaStream_t stream) {
            return nccl()->broadcast(x.raw_data(), x.raw_data(), bytes_of(x), ncclUint8, root, comm,
                                     stream);
        });
    }
    Started all_gather(const Tensor& out, const Tensor& x,
                       std::span<const std::int64_t> counts) override {
        const bool even = std::all_of(counts.begin(), counts.end(),
                                      [&](std::int64_t n) { return n == counts[0]; });
        return queue("all_gather", {out, x}, [&](ncclComm_t comm, cudaStream_t stream) {
            if (even)
                return nccl()->all_gather(x.raw_data(), out.raw_data(), bytes_of(x), ncclUint8,
                                          comm, stream);
            return each_part(out, counts, [&](int r, char* part, std::size_t bytes) {
                return nccl()->broadcast(x.raw_data(), part, bytes, ncclUint8, r, comm, stream);
            });
        });
    }
    Started all_to_all(const Tensor& out, std::span<const std::int64_t> out_counts, const Tensor& x,
                       std::span<const std::int64_t> in_counts) override {
        return queue("all_to_all", {out, x}, [&](ncclComm_t comm, cudaStream_t stream) {
            const ncclResult_t sent =
                each_part(x, in_counts, [&](int r, char* part, std::size_t bytes) {
                    return nccl()->send(part, bytes, ncclUint8, r, comm, stream);
                });
            if (sent != ncclSuccess && sent != ncclInProgress) return sent;
            return each_part(out, out_counts, [&](int r, char* part, std::size_t bytes) {
                return nccl()->recv(part, bytes, ncclUint8, r, comm, stream);
            });
        });
    }
    Started gather(const Tensor& whole, const Tensor& part, int root) override {
        return queue("gather", {whole, part}, [&](ncclComm_t comm, cudaStream_t stream) {
            const ncclResult_t sent =
                nccl()->send(part.raw_data(), bytes_of(part), ncclUint8, root, comm, stream);
            if (rank_ != root || (sent != ncclSuccess && sent != ncclInProgress)) return sent;
            return each_part(whole, even(part), [&](int r, char* to, std::size_t bytes) {
                return nccl()->recv(to, bytes, ncclUint8, r, comm, stream);
            });
        });
    }
    Started scatter(const Tensor& part, const Tensor& whole, int root) override {
        return queue("scatter", {part, whole}, [&](ncclComm_t comm, cudaStream_t stream) {
            const ncclResult_t received =
                nccl()->recv(part.raw_data(), bytes_of(part), ncclUint8, root, comm, stream);
            if (rank_ != root || (received != ncclSuccess && received != ncclInProgress))
                return received;
            return each_part(whole, even(part), [&](int r, char* from, std::size_t bytes) {
                return nccl()->send(from, bytes, ncclUint8, r, comm, stream);
            });
        });
    }
    Started send(const Tensor& x, int to) override {
        return queue_on(channel(rank_, to), "send", {x}, [&](ncclComm_t comm, cudaStream_t stream) {
            return nccl()->send(x.raw_data(), bytes_of(x), ncclUint8, 1, comm, stream);
        });
    }
    Started recv(const Tensor& x, int from) override {
        return queue_on(
            channel(from, rank_), "recv", {x}, [&](ncclComm_t comm, cudaStream_t stream) {
                return nccl()->recv(x.raw_data(), bytes_of(x), ncclUint8, 0, comm, stream);
            });
    }

    void abort() noexcept override {
        try {
            engine_error_->fail(control_.failure().value_or(""));
        } catch (...) {
            engine_error_->fail("");
        }
        const std::lock_guard lock(mutex_);
        group_.comm.abort();
        for (auto& [pair, pairs] : pairs_) pairs->comm.abort();
    }

  private:
    struct Pending {
        std::shared_ptr<Queued> work;
        std::string what;
        Clock::time_point deadline;
    };

    static std::size_t count(const Tensor& x) { return static_cast<std::size_t>(x.numel()); }
    std::vector<std::int64_t> even(const Tensor& part) const {
        return std::vector<std::int64_t>(static_cast<std::size_t>(size_), part.numel());
    }

    // Calls call(rank, part, bytes) for each part of x that is not empty. Returns the first error,
    // or ncclSuccess.
    template <class Call>
    static ncclResult_t each_part(const Tensor& x, std::span<const std::int64_t> counts,
                                  Call call) {
        char* part = static_cast<char*>(x.raw_data());
        for (std::size_t r = 0; r < counts.size(); ++r) {
            const auto bytes = static_cast<std::size_t>(counts[r] * size_of(x.dtype()));
            if (bytes == 0) continue;
            const ncclResult_t result = call(static_cast<int>(r), part, bytes);
            if (result != ncclSuccess && result != ncclInProgress) return result;
            part += bytes;
        }
        return ncclSuccess;
    }

    std::function<std::string()> failure() {
        return [this] {
            const std::string own = engine_error_->text();
            return own.empty() ? control_.failure().value_or("") : own;
        };
    }

    template <class Call>
    Started queue(const char* what, std::vector<Tensor> tensors, Call call) {
        return queue_on(group_, what, std::move(tensors), std::move(call));
    }

    template <class Call>
    Started queue_on(Channel& channel, const char* what, std::vector<Tensor> tensors, Call call) {
        engine_error_->check();
        if (is_capturing())
            throw UsageError(str(what,
                                 ": collectives cannot be captured in a graph; call them outside "
                                 "of the captured function"));
        for (const Tensor& x : tensors)
            if (x.defined() && x.device() != Device::cuda(device_))
                throw DeviceError(str(what, ": the tensor is on ", x.device(),
                                      ", but the group's GPU is ", Device::cuda(device_),
                                      "; move the tensor to it"));
        const auto work = std::make_shared<Queued>(device_, engine_error_);
        if (std::none_of(tensors.begin(), tensors.end(), holds_something)) return work;
        channel.stream.wait_stream(cuda::current_stream(device_));
        channel.comm.run(timeout_, [&](ncclComm_t comm) {
            NcclComm::check(call(comm, channel.stream.handle()), what, comm);
        });
        work->done.record(channel.stream);
        const cuda::StreamGuard guard(channel.stream);
        for (const Tensor& x : tensors)
            if (x.defined()) x.impl()->storage->record_stream(device_);
        const std::lock_guard lock(mutex_);
        pending_.push_back({work, what, Clock::now() + timeout_});
        return work;
    }

    // Returns the channel for messages from one rank to another. The first call opens the channel
    // and waits for the other rank. Each direction has its own channel. With one channel, two ranks
    // that send to each other at the same time would deadlock.
    Channel& channel(int from, int to) {
        Channel* found = nullptr;
        bool made = false;
        {
            const std::lock_guard lock(mutex_);
            std::unique_ptr<Channel>& place = pairs_[{from, to}];
            if (place == nullptr) {
                place = std::make_unique<Channel>(device_, failure());
                made = true;
            }
            found = place.get();
        }
        if (!made) return *found;
        const std::string key = str(name_, "/pair ", from, ' ', to);
        const bool sends = from == rank_;
        std::string id;
        if (sends) control_.set(key, id = NcclComm::make_id());
        if (!sends) id = control_.get(key, timeout_);
        found->comm.connect(sends ? 0 : 1, 2, id, timeout_);
        return *found;
    }

    void watch() {
        std::unique_lock lock(mutex_);
        while (!leaving_) {
            woken_.wait_for(lock, kWatchInterval);
            const std::string error = find_error();
            if (error.empty()) continue;
            lock.unlock();
            engine_error_->fail(error);
            try {
                if (!control_.failure())
                    control_.report(str("rank ", control_.rank(), ": ", error));
            } catch (const Error&) {  // the error has already been reported
            }
            abort();
            return;
        }
    }

    std::string find_error() {
        if (std::string text = group_.comm.async_error(); !text.empty()) return text;
        for (auto& [pair, channel] : pairs_)
            if (std::string text = channel->comm.async_error(); !text.empty()) return text;
        try {
            std::erase_if(pending_, [](const Pending& p) { return p.work->is_completed(); });
        } catch (const Error& error) {
            return error.what();
        }
        for (const Pending& p : pending_)
            if (Clock::now() > p.deadline)
                return str(p.what, " on the GPU did not end within ", timeout_.count(), " ms");
        return {};
    }

    Control& control_;
    const std::string name_;
    const int rank_, size_, device_;
    const milliseconds timeout_;
    const std::shared_ptr<EngineError> engine_error_ = std::make_shared<EngineError>();
    Channel group_;
    std::mutex mutex_;
    std::map<std::pair<int, int>, std::unique_ptr<Channel>> pairs_;
    std::deque<Pending> pending_;
    std::condition_variable woken_;
    bool leaving_ = false;
    std::thread watchdog_;
};

}  // namespace

std::unique_ptr<DeviceEngine> open_nccl(Control& control, const std::string& name, int rank,
                                        int size, int device, milliseconds timeout,
                                        const std::string& token) {
    return std::make_unique<NcclEngine>(control, name, rank, size, device, timeout, token);
}

}  // namespace axle::dist
