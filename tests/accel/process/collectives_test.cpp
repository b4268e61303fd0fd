// Compares the results of collectives on nested values with recordings of Hugging Face Accelerate,
// and tests the group that they use.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "accel/accelerator.h"
#include "accel/process/operations.h"
#include "core/ops.h"
#include "nlohmann/json.hpp"
#include "tests/close.h"
#include "tests/dist/ranks.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using tests::on_ranks;
using Group = std::shared_ptr<dist::ProcessGroup>;

json json_of(const Tree& tree) { return json::parse(to_json(listify(tree), -1)); }

// Returns "no error" if f() does not throw. If f() throws an E, returns `name`, the error that
// Accelerate raises in this case.
template <class E, class F>
json error_of(const char* name, F&& f) {
    try {
        f();
    } catch (const E&) {
        return name;
    }
    return "no error";
}

// Computes the results of one rank for the cases of collectives.json.
class Rank {
  public:
    explicit Rank(Group group)
        : group_(std::move(group)),
          accelerator_({.cpu = true, .process_group = group_}),
          r_(group_->rank()),
          alone_(group_->size() == 1) {}

    json value(const std::string& name) {
        if (name.starts_with("gather_for_metrics")) return metrics(name);
        if (name.starts_with("gather")) return gather(name);
        if (name.starts_with("reduce")) return reduce(name);
        if (name.starts_with("broadcast")) return broadcast(name);
        if (name.starts_with("pad")) return pad(name);
        if (name.starts_with("trigger")) return trigger(name);
        if (name == "concatenate_mixed")
            return error_of<ValueError>("TypeError", [] {
                const Tree mixed = Tree::list({ones({1}), "text"});
                accel::concatenate(std::vector{mixed, mixed});
            });
        if (name == "is_main") return accelerator_.is_main_process();
        if (name == "is_last") return accelerator_.is_last_process();
        if (name == "is_local_main") return accelerator_.is_local_main_process();
        return "unknown: " + name;
    }

    // Returns the expected result of a case: the recorded result, unless Axle differs from
    // Accelerate for a reason in tests/vectors/README.md.
    json excused(const std::string& name, const json& upstream) const {
        if (name == "reduce_none") return json{r_ + 1.0, 2.0 * r_ + 2};
        if (name == "reduce_sum_scale_0.5") {
            json half = upstream;
            for (json& x : half) x = x.get<double>() / 2;
            return half;
        }
        if (name == "pad_bool") {
            json flags = upstream;
            for (json& x : flags) x = x.is_boolean() ? x.get<bool>() : x != 0;
            return flags;
        }
        if (name == "pad_bool_dtype") return "torch.bool";
        if (name == "pad_int_with_float_index_dtype") return "torch.int32";
        if (name == "gather_for_metrics_object_dict") {
            json ids = json::array();
            for (int rank = 0; rank < group_->size(); ++rank) ids.push_back(rank);
            return {{"id", alone_ ? ids[0] : ids}};
        }
        if (alone_ && name == "gather_scalar") return upstream[0];
        if (alone_ && name == "gather_non_tensor") return "text";
        return upstream;
    }

  private:
    Tensor counting() const { return arange(r_ + 1); }

    json gather(const std::string& name) {
        if (name == "gather_scalar") return json_of(accelerator_.gather(full({}, r_, {f32})));
        if (name == "gather_1d") return json_of(accelerator_.gather((arange(2) * 10 + r_)));
        if (name == "gather_2d")
            return json_of(accelerator_.gather(stack({full({2}, r_, {i64}), arange(1, 3, 1)}, 1)));
        if (name == "gather_nested") {
            const Tensor r = full({1}, r_, {i64});
            const std::map<std::string, Tree> nested{
                {"x", r}, {"y", Tree::list({r + r, Tree::list({r.view({1, 1})})})}};
            json seen = json_of(to_tree(accelerator_.gather(nested)));
            seen["types"] = {"dict", "tuple", "list"};  // Axle keeps the argument's types
            return seen;
        }
        if (name == "gather_object")
            return json_of(dist::gather_object(*group_, Tree::list({{{"r", r_}}, r_})));
        if (name != "gather_non_tensor") return "unknown: " + name;
        if (alone_) return accelerator_.gather(Tree("text")).string();
        return error_of<ValueError>("TypeError", [&] { accelerator_.gather(Tree("text")); });
    }

    json reduce(const std::string& name) {
        const Tensor x = tensor({r_ + 1.0, 2.0 * r_ + 2}, {2});
        if (name == "reduce_sum_scale_0.5") return json_of(accelerator_.reduce(x, "sum", 0.5));
        if (name == "reduce_int_mean")
            return error_of<DTypeError>("RuntimeError",
                                        [&] { accelerator_.reduce(x.to(i64), "mean"); });
        if (name == "reduce_input_unchanged") {
            accelerator_.reduce(x);
            return x.to_vector() == std::vector<double>{r_ + 1.0, 2.0 * r_ + 2};
        }
        return json_of(accelerator_.reduce(x, name.substr(std::string("reduce_").size())));
    }

    json broadcast(const std::string& name) {
        if (name == "broadcast_object_list") {
            Tree list = Tree::list({r_, {{"k", r_}}});
            return json_of(dist::broadcast_object_list(*group_, list));
        }
        const int from = name == "broadcast_from_last" ? group_->size() - 1 : 0;
        return json_of(dist::broadcast(*group_, full({1}, r_, {f32}), from));
    }

    json pad(const std::string& name) {
        const auto padded = [&](const Tensor& x, std::int64_t dim, double value,
                                bool first = false) {
            return accelerator_.pad_across_processes(x, dim, value, first);
        };
        const Tensor grid = full({2, r_ + 1}, r_ + 1, {i64}), flags = ones({r_ + 1}, {boolean});
        if (name == "pad_1d") return json_of(padded(counting(), 0, 0));
        if (name == "pad_1d_first") return json_of(padded(counting(), 0, 0, true));
        if (name == "pad_1d_m100") return json_of(padded(counting(), 0, -100));
        if (name == "pad_2d_dim1") return json_of(padded(grid, 1, -1));
        if (name == "pad_2d_dim_neg1") return json_of(padded(grid, -1, -1));
        if (name == "pad_2d_dim1_first") return json_of(padded(grid, 1, -1, true));
        if (name == "pad_dim_out_of_range") return json_of(padded(counting(), 3, 0));
        if (name == "pad_neg_out_of_range") return json_of(padded(counting(), -3, 0));
        if (name == "pad_bool") return json_of(padded(flags, 0, 0));
        if (name == "pad_bool_dtype") return str("torch.", padded(flags, 0, 0).dtype());
        if (name == "pad_int_with_float_index_dtype")
            return str("torch.", padded(counting().to(i32), 0, 0.5).dtype());
        return "unknown: " + name;
    }

    // Returns whether the trigger is set. In the case trigger_1, the last process sets it first.
    json trigger(const std::string& name) {
        if (name == "trigger_1" && accelerator_.is_last_process()) accelerator_.set_trigger();
        return accelerator_.check_trigger();
    }

    json metrics(const std::string& name) {
        if (name == "gather_for_metrics_outside_loop")
            return json_of(accelerator_.gather_for_metrics(full({1}, r_, {i64})));
        const Tree object{{"id", r_}};
        if (name == "gather_for_metrics_objects")
            return json_of(accelerator_.gather_for_metrics(Tree::list({object})));
        if (name == "gather_for_metrics_object_dict")
            return json_of(accelerator_.gather_for_metrics(object));
        return "unknown: " + name;
    }

    Group group_;
    Accelerator accelerator_;
    int r_;
    bool alone_;
};

// Covers 3.gather, 3.gather_for_metrics, 13.gather, 31.gather.
TEST(Collectives, MatchAccelerateExceptForDocumentedDifferences) {
    const auto file = tests::vectors("collectives.json");
    for (const auto& c : file["cases"])
        on_ranks(c["num_processes"].get<int>(), [&](const Group& group) {
            Rank rank(group);
            const json& seen = c["per_rank"][static_cast<std::size_t>(group->rank())];
            for (const auto& [name, value] : seen.items())
                EXPECT_EQ(rank.value(name), rank.excused(name, value))
                    << name << " on rank " << group->rank() << " of " << group->size();
        });
}

// A pair of lists must not be treated as a list of two elements.
TEST(GatherForMetrics, GathersEachMemberOfAPair) {
    on_ranks(2, [](const Group& group) {
        Accelerator accelerator({.cpu = true, .process_group = group});
        using Texts = std::vector<std::string>;
        const auto pair_of = [](const Texts& names) {
            Texts labels = names;
            for (std::string& label : labels) label += '!';
            return std::pair(names, labels);
        };
        const std::string rank = str(group->rank());
        const std::pair<Texts, Texts> all = pair_of({"0a", "0b", "1a", "1b"});
        EXPECT_EQ(accelerator.gather_for_metrics(pair_of({rank + "a", rank + "b"})), all);
        EXPECT_EQ(dist::gather_object(*group, pair_of({rank + "a", rank + "b"})), all);
        // Rank 0 reads samples 0 and 1. Rank 1 reads sample 2 and repeats sample 0.
        data::DataLoader loader(data::from_function(3, [](std::int64_t i) { return Tree(i); }),
                                {.batch_size = 2});
        for (auto& batch : accelerator.prepare(loader)) {
            Texts names;
            for (const double i : batch.tensor().to_vector()) names.push_back(str(i));
            EXPECT_EQ(accelerator.gather_for_metrics(pair_of(names)), pair_of({"0", "1", "2"}));
        }
    });
}

TEST(Collectives, NeedNoPartialStateOnOneProcess) {
    const Tensor x = ones({2});
    EXPECT_TRUE(accel::gather(x).is_same(x));
    EXPECT_EQ(accel::gather({{"x", x}, {"name", "a"}})["name"].string(), "a");
    EXPECT_EQ(accel::gather_object(std::vector{1, 2}), (std::vector{1, 2}));
    EXPECT_EQ(accel::reduce(x, "sum", 3).to_vector(), std::vector<double>({3, 3}));
    EXPECT_TRUE(accel::broadcast(x).is_same(x));
    std::vector<std::string> names{"a"};
    EXPECT_EQ(accel::broadcast_object_list(names).at(0), "a");
    EXPECT_TRUE(accel::pad_across_processes(x).is_same(x));
    EXPECT_EQ(accel::copy_tensor_to_devices(x).to_vector(), x.to_vector());
    tests::expect_error<ValueError>({"copy_tensor_to_devices: "},
                                    [] { accel::copy_tensor_to_devices({}); });
    tests::expect_error<DTypeError>({"reduce: batch: integers have no mean"},
                                    [] { accel::reduce(arange(2)); });
}

TEST(Collectives, UseTheGroupOfTheAccelerator) {
    on_ranks(2, [](const Group& group) {
        const Accelerator accelerator({.cpu = true, .process_group = group});
        const Tensor mine = full({1}, group->rank(), {f32});
        EXPECT_EQ(accelerator.gather({{"x", mine}})["x"].tensor().size(0), 2);
        EXPECT_EQ(accelerator.gather(std::pair(mine, mine)).second.size(0), 2);
        EXPECT_EQ(accelerator.reduce(mine).item(), 1);
        EXPECT_EQ(accelerator.reduce(mine, "mean").item(), 0.5);
        EXPECT_EQ(accelerator.pad_across_processes(ones({group->rank() + 1})).size(0), 2);
    });
}

}  // namespace
}  // namespace axle
