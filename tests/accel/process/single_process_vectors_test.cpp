// Compares Axle on a single process with recorded facts about Accelerate.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "accel/process/operations.h"
#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using accel::AcceleratorOptions;
using nlohmann::json;
using tests::SmallNet;

constexpr const char* kRefused = "refused";

json json_of(const Tensor& x) {
    if (x.dim() > 0) return x.to_vector();
    return x.item();
}

// Returns "refused" if f() throws an Axle error, else "ok".
template <class F>
json outcome(F&& f) {
    try {
        f();
        return "ok";
    } catch (const Error&) {
        return kRefused;
    }
}
json outcome_of(const AcceleratorOptions& options) {
    return outcome([&] { const Accelerator accelerator(options); });
}

// Returns the results of gather_for_metrics() in each step, for ten samples in batches of four.
json gathered_for_metrics() {
    Accelerator accelerator;
    data::DataLoader loader(data::TensorDataset(arange(10)), {.batch_size = 4});
    accelerator.prepare(loader);
    json steps = json::array();
    for (auto& batch : loader) {
        const Tensor ids = batch.tensor();
        const Tensor mean = ids.to(f32).mean();
        steps.push_back({json_of(accelerator.gather_for_metrics(ids)),
                         json_of(accelerator.gather_for_metrics(mean)),
                         accelerator.gather_for_metrics(Tree::list({"a", "b"}), true).size()});
    }
    return steps;
}

struct Trained {
    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 1}};
    Accelerator accelerator;
    Tensor before;

    explicit Trained(bool sync) {
        accelerator.prepare(net, sgd);
        accelerator.backward(net(ones({2, 4})).sum());
        before = net.out.bias.detach().clone();
        accelerator.set_sync_gradients(sync);
    }
    bool has_gradient() const { return net.out.bias.grad().defined(); }
    bool changed_by_step() {
        sgd.step();
        return net.out.bias.to_vector() != before.to_vector();
    }
    bool keeps_gradient_when_zeroed() {
        sgd.zero_grad();
        return has_gradient();
    }
};

template <class T>
constexpr bool kCanBeRegistered = requires(Accelerator& accelerator, T& object) {
    accelerator.register_for_checkpointing(object);
};

// Returns "ok" or "refused" for prepare_data_loader() with these options on one of two processes.
json outcome_of_loading(const accel::PrepareDataLoaderOptions& options) {
    json result;
    tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        data::DataLoader batches(tests::samples(10), {.batch_size = 5});
        const json mine = outcome([&] { accel::prepare_data_loader(batches, group, options); });
        if (group->rank() == 0) result = mine;
    });
    return result;
}

// Returns a map from the name of each recorded fact to a function that computes Axle's result.
std::map<std::string, std::function<json()>> facts() {
    const Tree pair = tensor({1.0, 2}, {2});
    std::map<std::string, std::function<json()>> f;
    f["distributed_type"] = [] {
        return str("DistributedType.", accel::name_of(Accelerator().distributed_type()));
    };
    f["gather_scalar"] = [] { return json_of(Accelerator().gather(full({}, 1.0))); };
    f["gather_same_object"] = [pair] {
        return Accelerator().gather(pair).tensor().is_same(pair.tensor());
    };
    for (const char* reduction : {"none", "mean"})
        f[str("reduce_", reduction)] = [pair, reduction] {
            return json_of(Accelerator().reduce(pair, reduction).tensor());
        };
    f["reduce_mean_int"] = [] {
        return outcome([] { Accelerator().reduce(tensor({1, 2}, {2}, {i64}), "mean"); });
    };
    f["gather_object"] = [] {
        return json::array({accel::gather_object(Tree::list({1}))[0].integer()});
    };
    f["check_trigger"] = [] { return Accelerator().check_trigger(); };
    f["check_trigger_after_set"] = [] {
        Accelerator accelerator;
        accelerator.set_trigger();
        return accelerator.check_trigger();
    };
    f["again"] = [] {
        Accelerator accelerator;
        accelerator.set_trigger();
        accelerator.check_trigger();
        return accelerator.check_trigger();
    };
    f["gfm_single"] = gathered_for_metrics;
    f["gather_non_tensor"] = [] {
        return Accelerator().gather(Tree("text")).string() == "text" ? "returned as is" : "changed";
    };
    f["prepare_returns_same_object"] = [] {
        SmallNet net, other;
        Accelerator accelerator;
        auto [a, b] = accelerator.prepare(net, other);
        return &a == &net && &b == &other;
    };
    f["prepare_one_returns_bare"] = [] {
        SmallNet net;
        Accelerator accelerator;
        return std::is_same_v<decltype(accelerator.prepare(net)), SmallNet&>;
    };
    f["prepare_passthrough"] = [] {
        std::nullptr_t none = nullptr;
        int five = 5;
        std::string s = "s";
        Accelerator accelerator;
        auto [a, b, c] = accelerator.prepare(none, five, s);
        return json::array({a == nullptr ? "None" : "?", str(b), str("'", c, "'")});
    };
    f["device_placement_len"] = [] {
        return outcome([] {
            SmallNet net;
            Accelerator accelerator;
            accelerator.prepare({true, false}, net);
        });
    };
    f["unwrap_is_same"] = [] {
        SmallNet net;
        Accelerator accelerator;
        return &accelerator.unwrap_model(accelerator.prepare(net)) == &net;
    };
    f["register_invalid"] = [] { return kCanBeRegistered<Tensor> ? "ok" : kRefused; };
    f["double_prepare_optimizer_same"] = [] {
        Trained t(true);
        return &t.accelerator.prepare(t.accelerator.prepare(t.sgd)) == &t.sgd;
    };
    f["zero_grad_nosync_keeps_grad"] = [] { return Trained(false).keeps_gradient_when_zeroed(); };
    f["step_nosync_noop"] = [] { return !Trained(false).changed_by_step(); };
    f["step_sync_changes"] = [] { return Trained(true).changed_by_step(); };
    f["zero_grad_default_set_to_none"] = [] { return !Trained(true).keeps_gradient_when_zeroed(); };
    f["both_gas_and_plugin"] = [] {
        return outcome_of(
            {.gradient_accumulation_steps = 2, .gradient_accumulation_plugin = {{.num_steps = 2}}});
    };
    f["unknown_mp"] = [] { return outcome_of({.mixed_precision = "fp4"}); };
    f["dup_handler"] = [] {
        return outcome_of(
            {.kwargs_handlers = {accel::GradScalerKwargs{}, accel::GradScalerKwargs{}}});
    };
    f["mp_change_after_init"] = [] {
        const Accelerator first;
        return outcome_of({.mixed_precision = "bf16"});
    };
    f["dispatch_needs_put_on_device"] = [] {
        return outcome_of_loading({.put_on_device = false, .config = {.dispatch_batches = true}});
    };
    f["split_not_divisible"] = [] {
        return outcome_of_loading({.config = {.split_batches = true}});
    };
    f["load_state_missing_dir"] = [] {
        return outcome([] { Accelerator().load_state("/nonexistent"); });
    };
    f["load_state_none"] = [] { return outcome([] { Accelerator().load_state(""); }); };
    f["log_with_unknown"] = [] { return outcome_of({.log_with = {"nope"}}); };
    f["tb_no_dir"] = [] { return outcome_of({.log_with = {"tensorboard"}}); };
    f["get_tracker_none"] = [] {
        Accelerator accelerator;
        accelerator.get_tracker("any").log({{"loss", 1.0}}, 1);
        return accelerator.trackers().empty() ? "GeneralTracker" : "?";
    };
    f["split_batches_ctor_ignored"] = [] {
        return Accelerator({.split_batches = true}).split_batches();
    };
    return f;
}

// Returns the expected value. It is the recorded value ("refused" for any recorded error), unless a
// rule in tests/vectors/README.md replaces it.
json expected(const std::string& name, const json& recorded) {
    if (name == "reduce_mean_int") return kRefused;
    if (name == "split_batches_ctor_ignored") return true;
    if (name == "tb_no_dir") return kRefused;
    const bool is_error =
        recorded.is_string() && recorded.get<std::string>().starts_with("ValueError");
    return is_error || name == "register_invalid" ? json(kRefused) : recorded;
}

// Covers 3.prepare, 3.gather, 3.gather_for_metrics, 3.gather_object, 3.reduce, 3.set_trigger,
// 3.unwrap_model, 3.get_tracker, 5.step, 5.zero_grad, 1.gradient_accumulation_plugin,
// 1.mixed_precision, 1.kwargs_handlers, 1.split_batches, 1.log_with.
TEST(SingleProcessAccelerator,
     ReturnsTheRecordedResultsOfAccelerateExceptForDocumentedDifferences) {
    const json file = tests::vectors("single_process_facts.json");
    const auto all = facts();
    ASSERT_FALSE(file["result"].empty());
    for (const auto& [name, value] : file["result"].items()) {
        SCOPED_TRACE(name);
        const auto fact = all.find(name);
        ASSERT_NE(fact, all.end()) << "an unknown fact";
        EXPECT_EQ(fact->second(), expected(name, value));
    }
}

}  // namespace
}  // namespace axle
