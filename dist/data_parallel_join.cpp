// Before each group of collectives, everybody says what comes next: one number per rank. A rank
// without data hears it from the others and answers.
#include <algorithm>
#include <exception>
#include <utility>

#include "core/ops.h"
#include "dist/data_parallel_impl.h"

namespace axle::inline v0::dist {
namespace {

// The steps by rank, where `own` is this one's.
std::vector<Step> exchange(ProcessGroup& group, Step own) {
    Tensor codes = zeros({group.size()}, {i64});
    auto* const code = codes.data<std::int64_t>();
    code[group.rank()] = static_cast<std::int64_t>(own);
    group.all_reduce(codes);
    std::vector<Step> steps;
    steps.reserve(static_cast<std::size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank) steps.push_back(static_cast<Step>(code[rank]));
    return steps;
}

const char* name_of(Step step) {
    switch (step) {
        case Step::none:
            return "out of data";
        case Step::forward:
            return "before a forward";
        case Step::gather:
            return "in a backward";
        case Step::reduce:
            return "in a synchronised backward";
    }
    return "?";
}

// What those with data do next; none if nobody has any.
Step common(const std::vector<Step>& steps) {
    Step next = Step::none;
    for (const Step step : steps) {
        if (step == Step::none || step == next) continue;
        if (next == Step::none) {
            next = step;
            continue;
        }
        std::string text = "join: ranks with data must do the same: ";
        for (std::size_t rank = 0; rank < steps.size(); ++rank)
            text += str(rank == 0 ? "rank " : ", rank ", rank, " is ", name_of(steps[rank]));
        throw UsageError(text);
    }
    return next;
}

int first_without_data(const std::vector<Step>& steps) {
    return static_cast<int>(std::find(steps.begin(), steps.end(), Step::none) - steps.begin());
}

void check_nobody_is_out(const std::vector<Step>& steps) {
    const int rank = first_without_data(steps);
    if (rank < static_cast<int>(steps.size()))
        throw UsageError(str("join: rank ", rank, " has no more batches, but others have"));
}

}  // namespace

struct Join::Impl {
    DataParallel::Impl& replicas;
    Options options;
    int exceptions = std::uncaught_exceptions();

    std::vector<Step> announce(Step step) const {
        const std::vector<Step> steps = exchange(*replicas.group, step);
        common(steps);
        if (options.throw_on_early_termination) check_nobody_is_out(steps);
        return steps;
    }

    // Until nobody has data.
    void answer() const {
        bool is_last = true;
        for (;;) {
            const std::vector<Step> steps = exchange(*replicas.group, Step::none);
            const Step next = common(steps);
            if (next == Step::none) break;
            if (options.throw_on_early_termination) check_nobody_is_out(steps);
            is_last = false;
            if (next != Step::forward) {
                replicas.reducer.shadow(next);
                continue;
            }
            const auto root = std::find(steps.begin(), steps.end(), Step::forward);
            replicas.shadow_forward(static_cast<int>(root - steps.begin()));
        }
        replicas.take_model_of(highest_of(is_last));
    }

    // The highest rank that was among the last with data.
    int highest_of(bool is_last) const {
        const Tensor rank = tensor({is_last ? replicas.group->rank() : -1.0}, {1}, {i64});
        replicas.group->all_reduce(rank, ReduceOp::max);
        return static_cast<int>(rank.item_int());
    }
};

Join::Join(DataParallel& replicas, Options options)
    : impl_(std::make_unique<Impl>(Impl{*replicas.impl_, options})) {
    Reducer& reducer = impl_->replicas.reducer;
    if (reducer.announce) throw UsageError("join: there is a Join of this model already");
    reducer.announce = [impl = impl_.get()](Step step) { return impl->announce(step); };
    reducer.divides_by_all = options.divide_by_initial_world_size;
}

Join::~Join() noexcept(false) {
    impl_->replicas.reducer.announce = nullptr;
    impl_->replicas.reducer.divides_by_all = true;
    // A rank that fails leaves the others to their errors.
    if (std::uncaught_exceptions() == impl_->exceptions) impl_->answer();
}

}  // namespace axle::inline v0::dist
