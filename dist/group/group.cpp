#include "dist/group/group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "kernels/error.h"
#include "kernels/failpoint.h"
#include "kernels/ops/copy.h"

namespace axle::dist {

namespace {

using std::chrono::milliseconds;

// The maximum time that the destructor of a group waits for running collectives.
constexpr milliseconds kDrainTimeout{5000};

constexpr Queues::Key kCollectives{-1, -1, false};

}  // namespace

Job::Job(std::unique_ptr<Control> control, milliseconds timeout, int device)
    : timeout_(timeout), device_(device), control_(std::move(control)) {
    control_->on_failure([this] {
        const std::lock_guard lock(mutex_);
        failed_ = true;
        for (const auto& [engine, abort] : engines_) abort();
    });
}

Job::~Job() = default;

void Job::add(const void* engine, std::function<void()> abort) {
    const std::lock_guard lock(mutex_);
    if (failed_) abort();
    engines_.emplace_back(engine, std::move(abort));
}

void Job::remove(const void* engine) {
    const std::lock_guard lock(mutex_);
    std::erase_if(engines_, [&](const auto& entry) { return entry.first == engine; });
}

Staged Staged::with_values(const Tensor& x, Device device) {
    return {x.detach(), contiguous(to(x.detach(), device))};
}

Staged Staged::to_fill(const Tensor& x, Device device) {
    if (x.device() == device && x.is_contiguous()) return {x.detach(), x.detach()};
    return {x.detach(), Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device})};
}

void Staged::copy_back() const {
    if (host.impl()->storage != x.impl()->storage) {
        const Tensor from = to(host, x.device());
        launch(x.device(), [&](auto& on) { kernels::copy(on, from.view(), Tensor(x).view()); });
    }
    x.impl()->storage->bump_version();
}

ProcessGroup::Impl::Impl(std::shared_ptr<Job> job_, std::uint32_t id_, std::vector<int> ranks,
                         int rank_)
    : job(std::move(job_)),
      id(id_),
      global_ranks(std::move(ranks)),
      rank(rank_),
      backend(global_ranks.size() > 1 ? "tcp" : "none") {}

// Waits for running collectives for a limited time, because they may never complete. An example is
// an exception that ends only this process.
ProcessGroup::Impl::~Impl() {
    if (job == nullptr || alone()) return;
    if (!queues_.drained(std::min(kDrainTimeout, job->timeout()))) {
        try {
            job->control().report(str("rank ", job->control().rank(),
                                      " left a process group with running collectives"));
        } catch (const std::exception&) {  // the job has already failed, or memory has run out
        }
    }
    queues_.stop();
    if (engine_ != nullptr) job->remove(engine_.get());
    if (device_engine_ != nullptr) job->remove(device_engine_.get());
}

void ProcessGroup::Impl::post(std::function<void()> task) {
    queues_.post(kCollectives, std::move(task));
}

std::string ProcessGroup::Impl::name() const { return str("group ", id); }

HostEngine& ProcessGroup::Impl::engine() {
    const std::lock_guard lock(engine_mutex_);
    if (engine_ == nullptr) use(open_tcp(job->control(), name(), rank, size(), job->timeout()));
    return *engine_;
}

void ProcessGroup::Impl::open_mpi_engine() {
    if (alone() || job->mpi() == nullptr) return;
    const std::lock_guard lock(engine_mutex_);
    use(open_mpi(*job->mpi(), global_ranks, rank, id, job->timeout()));
    backend = "mpi";
}

void ProcessGroup::Impl::use(std::unique_ptr<HostEngine> engine) {
    engine_ = std::move(engine);
    job->add(engine_.get(), [used = engine_.get()] { used->abort(); });
}

// Calls `run` and returns its error, or nullptr. Reports an error, so that the other ranks do not
// wait for this rank. A CommError is first replaced by the failure that caused it.
std::exception_ptr ProcessGroup::Impl::attempt(const std::string& activity,
                                               const std::function<void()>& run) {
    Control& control = job->control();
    std::exception_ptr error;
    try {
        try {
            run();
        } catch (const CommError& e) {
            control.throw_failure(control.failure() ? e.what() : str(activity, ": ", e.what()));
        }
    } catch (const std::exception& e) {
        error = std::current_exception();
        try {
            if (!control.failure()) control.report(str("rank ", control.rank(), ": ", e.what()));
        } catch (const std::exception&) {  // the error has already been reported
        }
    }
    return error;
}

Work ProcessGroup::Impl::start(CollectiveCall call, std::function<void(const Counts&)> run,
                               std::function<void()> finish) {
    const auto state = std::make_shared<Work::State>();
    state->finish = std::move(finish);
    const std::lock_guard lock(sequence_mutex_);
    call.group = id;
    call.sequence = sequence_ + 1;
    const std::string activity = str(name_of(call.op), " #", call.sequence);
    auto task = [this, state, activity, run = std::move(run), sequence = call.sequence] {
        const auto collective = [&] {
            Control& control = job->control();
            control.note(activity);
            AXLE_FAILPOINT("collective: after the announcement");
            const Counts counts = control.wait_for_agreement(id, sequence);
            AXLE_FAILPOINT("collective: after the agreement");
            run(counts);
            AXLE_FAILPOINT("collective: after the data");
            control.note("");
        };
        // The lambda must not throw. std::ref is used because std::function would allocate memory
        // to copy a lambda.
        state->complete(attempt(activity, std::ref(collective)));
    };
    job->control().start_call(call, [&] {
        post(std::move(task));
        ++sequence_;
    });
    return Work(state);
}

Work ProcessGroup::Impl::start_message(Queues::Key key, std::string activity,
                                       std::function<void()> run, std::function<void()> finish) {
    const auto state = std::make_shared<Work::State>();
    state->finish = std::move(finish);
    if (const auto failure = job->control().failure()) throw CommError(*failure);
    queues_.post(key, [this, state, activity = std::move(activity), run = std::move(run)] {
        state->complete(attempt(activity, run));
    });
    return Work(state);
}

std::shared_ptr<ProcessGroup> ProcessGroup::Impl::make_group(const std::vector<int>& ranks,
                                                             std::uint32_t group) {
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) return nullptr;
    std::vector<int> global;
    global.reserve(ranks.size());
    for (const int member : ranks) global.push_back(global_ranks[static_cast<std::size_t>(member)]);
    if (ranks.size() > 1) job->control().open_group(group, global);
    auto made =
        make_owning<Impl>(job, group, std::move(global), static_cast<int>(place - ranks.begin()));
    made->negotiate_nccl_backend();
    made->open_mpi_engine();
    return std::make_shared<ProcessGroup>(std::move(made));
}

void check_tensor(const char* op, const Tensor& x, const std::string& name) {
    if (!x.defined()) throw UsageError(str(op, ": ", name, " is undefined"));
    if (x.device().is_meta())
        throw DeviceError(
            str(op, ": ", name, " is on the meta device and has no data: ", x.shape()));
}

void check_rank(const char* op, const char* what, int rank, int size) {
    if (rank < 0 || rank >= size)
        throw IndexError(str(op, ": ", what, " ", rank, " is out of range in a group of ", size,
                             size == 1 ? " process" : " processes"));
}

void check_same(const char* op, const Tensor& a, const Tensor& b, const std::string& a_name,
                const std::string& b_name) {
    check_tensor(op, a, a_name);
    check_same_dtype(op, a, b, a_name.c_str(), b_name.c_str());
    if (a.device() != b.device())
        throw DeviceError(str(op, ": tensors are on different devices: ", a_name, " on ",
                              a.device(), ", ", b_name, " on ", b.device()));
}

void check_first_dimension(const char* op, const Tensor& x, int size) {
    if (x.dim() == 0 || x.size(0) != size)
        throw ShapeError(str(op, ": the first dimension must have size ", size,
                             " (the number of processes): x is ", x.shape()));
}

Shape without_first_dimension(Shape shape) {
    shape.erase(0);
    return shape;
}

}  // namespace axle::dist
