// Private to nn/models: models as files in Hugging Face's layout: a folder with config.json and the
// weights (nn/files/weight_files.h): model.safetensors or its shards, else pytorch_model.bin or
// its. Nothing in such a folder is believed: names and shapes are held against the model before
// memory is taken for a weight.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/files/weight_files.h"
#include "nn/init.h"
#include "nn/module.h"

namespace axle::inline v0::nn {

// ValueError "who: what must be ..." unless 1 <= value < 2^31: products of two sizes can't
// overflow.
void check_size(const char* who, const char* what, std::int64_t value);
// Unless 0 <= value < 1.
void check_probability(const char* who, const char* what, double value);
// Unless value is finite and positive.
void check_positive(const char* who, const char* what, double value);
// Unless value, where there is one, is a row: 0 <= value < rows.
void check_row(const char* who, const char* what, std::optional<std::int64_t> value,
               std::int64_t rows);

// The fields of a config.json. A field that is absent or null leaves the value as it is; one of
// another kind than the value is a ValueError "who: name: reason".
class ConfigFields {
  public:
    // ValueError for text that is no JSON object, and for another model_type than this.
    ConfigFields(const char* who, std::string_view text, const char* model_type);

    void read(const char* name, std::int64_t& value) const;
    void read(const char* name, double& value) const;
    void read(const char* name, bool& value) const;
    void read(const char* name, std::string& value) const;
    // Null in the file is no value.
    void read(const char* name, std::optional<std::int64_t>& value) const;
    void read(const char* name, std::optional<double>& value) const;
    // What must be so where it is said at all, for the model knows no other way.
    void require(const char* name, bool value) const;
    void require(const char* name, const char* value) const;
    // One of these activations, under one of the names that Transformers has for it.
    void read(const char* name, Activation& value, std::initializer_list<Activation> known) const;

    const Tree& tree() const { return fields_; }
    // Null if the field is absent or null.
    const Tree* find(const char* name) const;
    [[noreturn]] void fail(const char* name, const std::string& reason) const;

  private:
    const char* who_;
    Tree fields_;
};
// For writing: the value, or null.
Tree or_null(const std::optional<std::int64_t>& value);
Tree or_null(const std::optional<double>& value);
// As Transformers spells it; ValueError for none.
const char* activation_name(Activation activation);

// How the names in a file become those in the model.
struct PretrainedNames {
    // What the inner model is called ("bert."): a file of the inner model alone lacks the prefix,
    // and an inner model finds it in the file of a whole one.
    std::string inner;
    // A name as it is spelled today.
    std::function<std::string(const std::string&)> modern = {};
    // Whether a tensor that the model lacks may be there.
    std::function<bool(const std::string&)> ignored = {};
    // Heads that may be missing, each as a whole: all below the prefix is then made anew.
    struct Head {
        std::string prefix;
        std::function<void()> make;
    };
    std::vector<Head> heads = {};
};

class PretrainedFolder {
  public:
    // A directory, or a .safetensors file with config.json beside it. Reads config.json and the
    // headers of the weights (of PyTorch's files all, for their checksums); FileError.
    explicit PretrainedFolder(const std::string& path);

    // Config::from_json of config.json; FileError with its path.
    template <class Config>
    Config config() const {
        return in_file(config_path_, [&] { return Config::from_json(config_text_); });
    }
    // A model without memory for its weights. Each of its layers has weights of its own, so that
    // more `layers` than the files have tensors are a FileError before they cost anything.
    template <class Model, class Config>
    Model build(const Config& config, std::int64_t layers) const {
        check_layers(layers);
        return in_file(config_path_, [&] {
            const init::EmptyWeights without_memory;
            return Model(config);
        });
    }
    // Gives a built model memory and values in its own dtypes, tensor by tensor; FileError where
    // names or shapes differ, before the first.
    void load(Module& model, const PretrainedNames& names) const;
    // Gives a model with memory the values of its own names; FileError likewise.
    void load(Module& model) const;

  private:
    template <class F>
    static auto in_file(const std::string& path, F&& f) {
        try {
            return f();
        } catch (const FileError&) {
            throw;  // names its own
        } catch (const OutOfMemory&) {
            throw;
        } catch (const CudaError&) {
            throw;
        } catch (const Error& error) {
            fail(path, error.what());
        }
    }
    [[noreturn]] static void fail(const std::string& path, const std::string& reason);
    void check_layers(std::int64_t layers) const;
    std::map<std::string, const WeightFiles::Weight*> named_for(const StateDict& own,
                                                                const PretrainedNames& names) const;

    std::string config_path_, config_text_;
    std::optional<WeightFiles> files_;
};

// save_pretrained of nn/files/pretrained.h, for a model that this library of Hugging Face's knows.
void save_folder(const Module& model, const std::string& architecture, const Tree& config,
                 const char* library, const std::string& directory,
                 const SavePretrainedOptions& options);
inline void save_transformers(const Module& model, const char* architecture,
                              const std::string& config, const std::string& directory,
                              const SavePretrainedOptions& options) {
    save_folder(model, architecture, from_json(config), "transformers", directory, options);
}

}  // namespace axle::inline v0::nn
