// Checks of processes: execution, collectives, splitting and random numbers.
#include "tools/axle/self_checks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "accel/utils/random.h"
#include "core/ops.h"
#include "core/random.h"
#include "core/tree/tree.h"
#include "data/sampler.h"
#include "dist/group/process_group.h"
#include "kernels/error.h"

namespace axle::launcher {
namespace {

void check_is(const Tensor& x, const std::vector<double>& wanted, const std::string& what) {
    expect_equal(numbers(x), wanted, "the result of " + what);
}

// Checks collectives on tensors whose elements are rank + 1, so that sums over P ranks are P (P +
// 1) / 2.
void check_collectives(Accelerator& accelerator) {
    dist::ProcessGroup& group = *accelerator.state().process_group();
    const Device device = accelerator.device();
    const int size = group.size(), rank = group.rank();
    const double sum = size * (size + 1) / 2.0;
    const auto mine = [&] {
        return full({3}, static_cast<double>(rank + 1), {.dtype = f32, .device = device});
    };
    const auto reduced = [&](dist::ReduceOp op) {
        const Tensor x = mine();
        group.all_reduce(x, op);
        return x;
    };
    check_is(reduced(dist::ReduceOp::sum), {sum, sum, sum}, "all_reduce(sum)");
    check_is(reduced(dist::ReduceOp::max), std::vector<double>(3, size), "all_reduce(max)");
    check_is(reduced(dist::ReduceOp::mean), std::vector<double>(3, sum / size), "all_reduce(mean)");

    const Tensor last = mine();
    group.broadcast(last, size - 1);
    check_is(last, std::vector<double>(3, size), "broadcast");

    std::vector<double> everybody;
    for (int r = 0; r < size; ++r) everybody.insert(everybody.end(), 3, r + 1);
    check_is(group.all_gather(mine()), everybody, "all_gather");

    const Tensor parts = full({size, 2}, static_cast<double>(rank + 1), {.device = device});
    check_is(group.reduce_scatter(parts), {sum, sum}, "reduce_scatter");

    const std::vector<Tree> objects = group.all_gather_object(Tree{{"rank", rank}});
    expect(static_cast<int>(objects.size()) == size,
           str("all_gather_object must return ", size, " objects: it returned ", objects.size()));
    for (int r = 0; r < size; ++r)
        expect(objects[static_cast<std::size_t>(r)]["rank"].integer() == r,
               str("all_gather_object: object ", r, " must come from rank ", r, ": it is ",
                   objects[static_cast<std::size_t>(r)]));
    group.barrier();
}

// Calls f with a function. Checks that f calls this function on this process if `wanted` is true,
// and does not call it if `wanted` is false.
template <class F>
void check_runs_on(Accelerator& accelerator, const char* what, bool wanted, F&& f) {
    int runs = 0;
    f([&] { ++runs; });
    expect(runs == (wanted ? 1 : 0),
           str(what, wanted ? " must run its function on this process"
                            : " must not run its function on this process"));
    accelerator.wait_for_everyone();
}

void check_execution(Accelerator& accelerator) {
    const int rank = accelerator.process_index(), local = accelerator.local_process_index();
    const int last = accelerator.num_processes() - 1;
    check_runs_on(accelerator, "on_main_process", rank == 0,
                  [&](auto f) { accelerator.on_main_process(f); });
    check_runs_on(accelerator, "on_local_main_process", local == 0,
                  [&](auto f) { accelerator.on_local_main_process(f); });
    check_runs_on(accelerator, "on_last_process", rank == last,
                  [&](auto f) { accelerator.on_last_process(f); });
    for (int i = 0; i <= last; ++i) {
        check_runs_on(accelerator, "on_process", rank == i,
                      [&](auto f) { accelerator.on_process(i, f); });
        check_runs_on(accelerator, "on_local_process", local == i,
                      [&](auto f) { accelerator.on_local_process(i, f); });
    }
}

// Compares the times when the processes enter and leave a scope. All processes of a machine have
// the same clock.
void check_main_process_first(Accelerator& accelerator) {
    using Clock = std::chrono::steady_clock;
    const auto now = [] { return static_cast<double>(Clock::now().time_since_epoch().count()); };
    double entered = 0, left = 0;
    {
        const auto first = accelerator.local_main_process_first();
        entered = now();
        left = now();
    }
    const int local = accelerator.local_process_index();
    double main_left = 0;
    const std::vector<double> all = of_all(accelerator.state(), {static_cast<double>(local), left});
    const auto rank = static_cast<std::size_t>(accelerator.process_index());
    // The local main process of this machine is the last local main process whose rank is not above
    // this rank.
    for (std::size_t i = 0; i <= rank; ++i)
        if (all[2 * i] == 0) main_left = all[2 * i + 1];
    if (local != 0)
        expect(entered >= main_left,
               "a process entered the scope before the main process of its machine had left it");
}

Tree list_to(std::int64_t n) {
    Tree list = Tree::list();
    for (std::int64_t i = 0; i < n; ++i) list.push_back(i);
    return list;
}

// Returns the integers from `begin` to `end` - 1.
std::vector<double> count(std::int64_t begin, std::int64_t end) {
    std::vector<double> values;
    for (std::int64_t i = begin; i < end; ++i) values.push_back(static_cast<double>(i));
    return values;
}

std::vector<double> numbers_of(const Tree& list) {
    std::vector<double> values;
    for (const Tree& element : list.elements()) values.push_back(element.number());
    return values;
}

void check_split(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes(), rank = accelerator.process_index();
    const std::int64_t begin = 2 * rank, end = begin + 2;
    expect_equal(numbers_of(accelerator.split_between_processes(list_to(2 * processes))),
                 count(begin, end), "the part of a list");
    const Tensor rows = arange(2 * processes);
    expect_equal(numbers(accelerator.split_between_processes(Tree(rows)).tensor()),
                 count(begin, end), "the part of a tensor");
    const Tree map =
        accelerator.split_between_processes(Tree{{"list", list_to(2 * processes)}, {"rows", rows}});
    expect_equal(numbers_of(map["list"]), count(begin, end), "the part of a list in a map");
    expect_equal(numbers(map["rows"].tensor()), count(begin, end), "the part of a tensor in a map");
}

// Splits 17 elements. Checks that the first processes get the larger parts, and that all parts have
// the same size if padding is requested.
void check_split_evenly(Accelerator& accelerator) {
    const std::int64_t processes = accelerator.num_processes(), rank = accelerator.process_index();
    const std::int64_t each = 17 / processes, extra = 17 % processes;
    const std::int64_t begin = rank * each + std::min(rank, extra);
    const std::vector<double> mine = count(begin, begin + each + (rank < extra ? 1 : 0));
    expect_equal(numbers_of(accelerator.split_between_processes(list_to(17))), mine,
                 "the part of 17 elements");
    std::vector<double> padded = mine;
    if (extra > 0 && rank >= extra) padded.push_back(16);
    expect_equal(numbers_of(accelerator.split_between_processes(list_to(17), true)), padded,
                 "the padded part of 17 elements");
}

void check_triggers(Accelerator& accelerator) {
    expect(!accelerator.check_trigger(), "a trigger was set too early");
    accelerator.on_last_process([&] { accelerator.set_trigger(); });
    expect(accelerator.check_trigger(),
           "the trigger of the last process did not reach this process");
    expect(!accelerator.check_trigger(), "a trigger was not reset");
}

// Checks that processes with different seeds draw the random numbers of the main process after
// synchronization.
void check_rng_synchronization(Accelerator& accelerator) {
    auto& group = *accelerator.state().process_group();
    const auto rank = static_cast<std::uint64_t>(group.rank());
    const auto same = [&](const std::vector<double>& mine) {
        const std::vector<double> all = of_all(accelerator.state(), mine);
        return std::equal(mine.begin(), mine.end(), all.begin());
    };
    const auto draw = [&] { return numbers(rand({4}, {.device = accelerator.device()})); };
    for (const char* type : {"torch", "cuda"}) {
        accel::set_seed(40 + rank);
        const bool alike = same(draw());
        expect(rank == 0 || !alike, "different seeds gave the same random numbers");
        accel::synchronize_rng_state(group, accel::rng_type(type));
        expect(same(draw()),
               str("synchronize_rng_state(", type, ") must give all processes the same numbers"));
    }
    data::Generator generator(40 + rank);
    accel::synchronize_rng_state(group, accel::RngType::generator, &generator);
    expect(
        generator.initial_seed() == 40,
        str("synchronize_rng_state(generator) must set the seed to 40, the seed of rank 0: it is ",
            generator.initial_seed()));
}

// Checks that a second Accelerator can be created and destroyed.
void check_reinstantiation(Accelerator& accelerator) {
    const PartialState& state = accelerator.state();
    {
        const Accelerator again(options_for(state));
        expect(again.process_index() == state.process_index() &&
                   again.num_processes() == state.num_processes() &&
                   again.device() == state.device(),
               "a second Accelerator has another process state");
    }
    const auto current = PartialState::current();
    expect(current && current->num_processes() == state.num_processes(),
           "the process state was destroyed with the second Accelerator");
    accelerator.wait_for_everyone();
}

}  // namespace

void expect(bool holds, const std::string& wrong) {
    if (!holds) throw Error(wrong);
}

void expect_equal(const std::vector<double>& found, const std::vector<double>& wanted,
                  const std::string& what) {
    expect(found == wanted, str(what, " must be ", Tree(Tree::List(wanted.begin(), wanted.end())),
                                ": it is ", Tree(Tree::List(found.begin(), found.end()))));
}

std::vector<double> numbers(const Tensor& x) {
    return x.detach().to(Device::cpu()).to(f64).to_vector();
}

std::vector<double> of_all(const PartialState& state, const std::vector<double>& mine) {
    Tree list = Tree::list();
    for (const double value : mine) list.push_back(value);
    std::vector<double> all;
    for (const Tree& theirs : state.process_group()->all_gather_object(list))
        for (const Tree& value : theirs.elements()) all.push_back(value.number());
    return all;
}

accel::AcceleratorOptions options_for(const PartialState& state) {
    return {.mixed_precision = "no",
            .cpu = state.device().is_cpu(),
            .gradient_accumulation_plugin = accel::GradientAccumulationPlugin{.num_steps = 1},
            .process_group = state.process_group()};
}

Check check_with(const char* name, void (*run)(Accelerator&)) {
    return {name, [run](const PartialState& state) {
                Accelerator accelerator(options_for(state));
                run(accelerator);
            }};
}

std::vector<Check> process_checks() {
    return {check_with("process execution", check_execution),
            check_with("main process first", check_main_process_first),
            check_with("collectives", check_collectives),
            check_with("split between processes: list, tensor, map", check_split),
            check_with("split between processes: evenly", check_split_evenly),
            check_with("random number synchronization", check_rng_synchronization),
            check_with("triggers", check_triggers),
            check_with("reinstantiated state", check_reinstantiation)};
}

}  // namespace axle::launcher
