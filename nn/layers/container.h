// Containers of modules: ModuleList and Sequential.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace axle::nn {

// A list of modules of one type, named "0", "1", ...
template <class T>
class ModuleList : public Model<ModuleList<T>> {
  public:
    ModuleList() = default;

    void push_back(T module) { modules_.push_back(std::move(module)); }
    std::size_t size() const { return modules_.size(); }
    T& operator[](std::size_t i) { return modules_[i]; }
    auto begin() { return modules_.begin(); }
    auto end() { return modules_.end(); }
    void visit(Visitor& v) override {
        for (std::size_t i = 0; i < modules_.size(); ++i) v(std::to_string(i), modules_[i]);
    }

  private:
    std::vector<T> modules_;
};

// Applies modules and functions one after another. Modules are named by their index as in PyTorch;
// functions count too.
//
//     // The braces make C++ construct the layers in order, so initial weights are reproducible.
//     nn::Sequential net{nn::Linear(784, 512), relu, nn::Linear(512, 10)};
class Sequential : public Model<Sequential> {
  public:
    Sequential() = default;
    template <class... Stages>
        requires(sizeof...(Stages) > 1 ||
                 (sizeof...(Stages) == 1 &&
                  (!std::is_same_v<std::remove_cvref_t<Stages>, Sequential> && ...)))
    explicit Sequential(Stages&&... stages) {
        (push_back(std::forward<Stages>(stages)), ...);
    }
    Sequential(Sequential&&) = default;
    Sequential& operator=(Sequential&&) = default;
    // Copies the stages; only clone() may call this constructor (see Module).
    Sequential(const Sequential& other) : Model(other) {
        for (const auto& stage : other.stages_) stages_.push_back(stage->clone());
    }

    template <class S>
    void push_back(S&& stage) {
        using T = std::remove_cvref_t<S>;
        if constexpr (std::is_base_of_v<Module, T>) {
            static_assert(!std::is_lvalue_reference_v<S>,
                          "a module is moved in: std::move(module)");
            stages_.push_back(std::make_unique<Layer<T>>(std::forward<S>(stage)));
        } else {
            stages_.push_back(std::make_unique<Function>(std::forward<S>(stage)));
        }
    }
    std::size_t size() const { return stages_.size(); }

    Tensor forward(Tensor x) {
        for (const auto& stage : stages_) x = stage->call(x);
        return x;
    }
    void visit(Visitor& v) override {
        for (std::size_t i = 0; i < stages_.size(); ++i)
            if (Module* module = stages_[i]->module()) v(std::to_string(i), *module);
    }

  private:
    struct Stage {
        virtual ~Stage() = default;
        virtual Tensor call(const Tensor& x) = 0;
        virtual Module* module() { return nullptr; }
        virtual std::unique_ptr<Stage> clone() const = 0;
    };
    template <class T>
    struct Layer : Stage {
        explicit Layer(T&& layer_) : layer(std::move(layer_)) {}
        explicit Layer(const T& layer_) : layer(layer_) {}
        Tensor call(const Tensor& x) override { return layer(x); }
        Module* module() override { return &layer; }
        std::unique_ptr<Stage> clone() const override { return std::make_unique<Layer>(layer); }
        T layer;
    };
    struct Function : Stage {
        explicit Function(std::function<Tensor(const Tensor&)> f_) : f(std::move(f_)) {}
        Tensor call(const Tensor& x) override { return f(x); }
        std::unique_ptr<Stage> clone() const override { return std::make_unique<Function>(f); }
        std::function<Tensor(const Tensor&)> f;
    };

    std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace axle::nn
