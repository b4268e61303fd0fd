// Before each group of collectives, the ranks exchange their next step as one number per rank. A
// rank without data takes part in the steps of the other ranks.
#include <algorithm>
#include <exception>
#include <utility>

#include "core/ops.h"
#include "dist/parallel/data_parallel_impl.h"

namespace axle::dist {
namespace {

// A number that encodes the next step of a rank and the index of the model.
using Code = std::int64_t;
constexpr Code kOutOfData = 0;
constexpr Code kSteps = 5;  // number of values of Step

Code code_of(std::size_t model, Step step) {
    return static_cast<Code>(model) * kSteps + static_cast<Code>(step);
}
std::size_t model_of(Code code) { return static_cast<std::size_t>(code / kSteps); }
Step step_of(Code code) { return static_cast<Step>(code % kSteps); }

// Sends the code of this rank, `own`, and returns the codes of all ranks.
std::vector<Code> exchange(ProcessGroup& group, Code own) {
    Tensor codes = zeros({group.size()}, {i64});
    auto* const code = codes.data<std::int64_t>();
    code[group.rank()] = own;
    group.all_reduce(codes);
    return {code, code + group.size()};
}

std::string text_of(Code code) {
    static constexpr const char* kTexts[] = {"out of data", "before a forward", "in a backward",
                                             "in a synchronized backward", "summing a number"};
    const std::string text = kTexts[code % kSteps];
    return model_of(code) == 0 ? text : str(text, " of model ", model_of(code));
}

// Returns the code of the ranks with data, or kOutOfData if no rank has data. Throws UsageError if
// the codes of ranks with data differ.
Code common(const std::vector<Code>& codes) {
    Code next = kOutOfData;
    for (const Code code : codes) {
        if (code == kOutOfData || code == next) continue;
        if (next == kOutOfData) {
            next = code;
            continue;
        }
        std::string text = "Join: ranks with data must make the same calls: ";
        for (std::size_t rank = 0; rank < codes.size(); ++rank)
            text += str(rank == 0 ? "rank " : ", rank ", rank, " is ", text_of(codes[rank]));
        throw UsageError(text);
    }
    return next;
}

void check_all_have_data(const std::vector<Code>& codes) {
    const auto out = std::find(codes.begin(), codes.end(), kOutOfData);
    if (out != codes.end())
        throw UsageError(str("Join: rank ", out - codes.begin(),
                             " has no more batches, but other ranks still have some"));
}

}  // namespace

struct Join::Impl {
    std::vector<DataParallel::Impl*> models;
    ProcessGroup& group;
    Options options;
    int exceptions = std::uncaught_exceptions();

    // Sends this rank's next step and returns the next steps of all ranks.
    std::vector<Step> announce(std::size_t model, Step step) const {
        const std::vector<Code> codes = exchange(group, code_of(model, step));
        common(codes);
        if (options.throw_on_early_termination) check_all_have_data(codes);
        std::vector<Step> steps;
        steps.reserve(codes.size());
        for (const Code code : codes) steps.push_back(step_of(code));
        return steps;
    }

    // Takes part in the steps of the other ranks until no rank has data. Returns the rank whose
    // models all ranks have received.
    int shadow_others() const {
        bool is_last = true;
        for (;;) {
            const std::vector<Code> codes = exchange(group, kOutOfData);
            const Code next = common(codes);
            if (next == kOutOfData) break;
            if (options.throw_on_early_termination) check_all_have_data(codes);
            is_last = false;
            DataParallel::Impl& model = *models.at(model_of(next));
            if (step_of(next) == Step::sum) {
                model.shadow_sum();
                continue;
            }
            if (step_of(next) != Step::forward) {
                model.reducer.shadow(step_of(next));
                continue;
            }
            const auto root = std::find(codes.begin(), codes.end(), next);
            model.shadow_forward(static_cast<int>(root - codes.begin()));
        }
        const int last = highest_of(is_last);
        for (DataParallel::Impl* model : models) model->take_model_of(last);
        return last;
    }

    // Returns the highest rank among the ranks that pass is_last = true.
    int highest_of(bool is_last) const {
        const Tensor rank = tensor({is_last ? group.rank() : -1.0}, {1}, {i64});
        group.all_reduce(rank, ReduceOp::max);
        return static_cast<int>(rank.item_int());
    }
};

Join::Join(const std::vector<DataParallel*>& replicas, Options options) {
    if (replicas.empty())
        throw UsageError("Join: needs at least one model: the list of models is empty");
    std::vector<DataParallel::Impl*> models;
    for (DataParallel* one : replicas) {
        models.push_back(one->impl_.get());
        if (models.back()->reducer.announce)
            throw UsageError(str("Join: model ", models.size() - 1,
                                 " is already in an active Join; destroy that Join first"));
        if (models.back()->group != models.front()->group)
            throw UsageError(str("Join: all models must have the same process group: model ",
                                 models.size() - 1, " has another group than model 0"));
    }
    ProcessGroup& group = *models.front()->group;
    impl_ = make_owning<Impl>(Impl{std::move(models), group, options});
    for (std::size_t i = 0; i < impl_->models.size(); ++i) {
        Reducer& reducer = impl_->models[i]->reducer;
        reducer.announce = [impl = impl_.get(), i](Step step) { return impl->announce(i, step); };
        reducer.divides_by_all = options.divide_by_initial_world_size;
    }
}

Join::~Join() noexcept(false) { finish(); }

std::optional<int> Join::finish() {
    if (!impl_) return {};
    const OwningPtr<Impl> impl = std::move(impl_);
    for (DataParallel::Impl* model : impl->models) {
        model->reducer.announce = nullptr;
        model->reducer.divides_by_all = true;
    }
    // If an exception is being thrown, this rank does not take part, and the other ranks throw
    // their own errors.
    if (std::uncaught_exceptions() != impl->exceptions) return {};
    return impl->shadow_others();
}

}  // namespace axle::dist
