// Private to nn/models: loads models from folders in Hugging Face's layout. A folder contains
// config.json and the weights (nn/files/weight_files.h) as model.safetensors or pytorch_model.bin,
// each possibly split into shards; safetensors files take precedence. The files are not trusted:
// names and shapes are compared with the model before memory is allocated for a weight.
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

namespace axle::nn {

// Throws ValueError "who: what must be ..." unless 1 <= value < 2^31. With this limit, the product
// of two sizes cannot overflow.
void check_size(const char* who, const char* what, std::int64_t value);
// Throws ValueError unless 0 <= value < 1.
void check_probability(const char* who, const char* what, double value);
// Throws ValueError unless the value is finite and positive.
void check_positive(const char* who, const char* what, double value);
// Throws ValueError if a value is given and is not in [0, rows).
void check_row(const char* who, const char* what, std::optional<std::int64_t> value,
               std::int64_t rows);

// Reads the fields of a config.json. A field that is absent or null leaves the value unchanged. A
// field of the wrong type throws ValueError "who: name: reason".
class ConfigFields {
  public:
    // Throws ValueError unless the text is a JSON object with this model_type.
    ConfigFields(const char* who, std::string_view text, const char* model_type);

    void read(const char* name, std::int64_t& value) const;
    void read(const char* name, double& value) const;
    void read(const char* name, bool& value) const;
    void read(const char* name, std::string& value) const;
    // Reads an optional number. If the field is null, the value becomes nullopt.
    void read(const char* name, std::optional<std::int64_t>& value) const;
    void read(const char* name, std::optional<double>& value) const;
    // Reads token ids: an integer, a list of integers, or null for no ids.
    void read(const char* name, std::vector<std::int64_t>& ids) const;
    // Throws ValueError if the field is present and has another value, which the model does not
    // support.
    void require(const char* name, bool value) const;
    void require(const char* name, const char* value) const;
    // Reads an activation by any of its names in transformers. Throws ValueError unless it is in
    // `known`.
    void read(const char* name, Activation& value, std::initializer_list<Activation> known) const;

    // Returns the fields that are neither in `known`, the text of a config.json, nor in `derived`.
    // Fields that save_pretrained writes for every model are left out, too.
    Tree others(std::string_view known, std::initializer_list<std::string_view> derived = {}) const;
    // Returns the field, or nullptr if it is absent or null.
    const Tree* find(const char* name) const;
    [[noreturn]] void fail(const char* name, const std::string& reason) const;

  private:
    const char* who_;
    Tree fields_;
};
// Returns the text of a config.json with these fields, and with those of `others` that are not
// among them. `others` is a map or null.
std::string config_text(Tree fields, const Tree& others);
// Returns one id as a number, several ids as a list, and a null Tree for no ids.
Tree ids_or_null(const std::vector<std::int64_t>& ids);
// Returns the value, or a null Tree for nullopt.
Tree or_null(const std::optional<std::int64_t>& value);
Tree or_null(const std::optional<double>& value);
// Returns the activation's name in transformers. Throws ValueError for Activation::none.
const char* activation_name(Activation activation);

// The mapping from names in the files to names in the model.
struct PretrainedNames {
    // The prefix of the inner model ("bert."). Files of the inner model lack the prefix; it is
    // added or removed as needed.
    std::string inner;
    // Converts names in older files to the current names.
    std::function<std::string(const std::string&)> current_name = {};
    // Returns whether a tensor in the files can be ignored if the model does not have it.
    std::function<bool(const std::string&)> ignored = {};
    // A head that the files need not contain. If all of its weights are missing, `make` initializes
    // them.
    struct Head {
        std::string prefix;
        std::function<void()> make;
    };
    std::vector<Head> heads = {};
};

// An opened folder of a saved model.
class PretrainedFolder {
  public:
    // `path` is a directory, or a .safetensors file with config.json in the same directory. Reads
    // config.json and the headers of the weight files; files of torch.save are read completely to
    // verify their checksums. Throws FileError if a file is missing or invalid.
    explicit PretrainedFolder(const std::string& path);

    // Returns the configuration read by Config::from_json. Throws FileError with the path of
    // config.json if it is invalid.
    template <class Config>
    Config config() const {
        return in_file(config_path_, [&] { return Config::from_json(config_text_); });
    }
    // Returns the contents of generation_config.json, or a null Tree if the file is missing. Throws
    // FileError if it is not a JSON object.
    Tree generation_config() const;
    // Creates a model without memory for its weights. Throws FileError if `layers` exceeds the
    // number of tensors in the files, because every layer has at least one weight. This prevents
    // large allocations for an invalid configuration.
    template <class Model, class Config>
    Model build(const Config& config, std::int64_t layers) const {
        check_layers(layers);
        return in_file(config_path_, [&] {
            const init::EmptyWeights without_memory;
            return Model(config);
        });
    }
    // Allocates the weights of a model from build(), in the model's dtypes, and loads them one by
    // one. Sets the model to evaluation mode, as in transformers. Throws FileError if names or
    // shapes differ, before it loads any weight.
    void load(Module& model, const PretrainedNames& names) const;
    // Loads the weights of a model whose weights have memory. Throws FileError if names or shapes
    // differ.
    void load(Module& model) const;

  private:
    template <class F>
    static auto in_file(const std::string& path, F&& f) {
        try {
            return f();
        } catch (const FileError&) {
            throw;  // the message already contains a path
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
    std::map<std::string, const WeightFiles::Weight*> weights_for(
        const StateDict& own, const PretrainedNames& names) const;

    std::string config_path_, config_text_;
    std::optional<WeightFiles> files_;
};

inline constexpr const char* kGenerationConfigName = "generation_config.json";

// Implements save_pretrained of nn/files/pretrained.h. `library` is the Hugging Face library that
// can load the model. Writes generation_config.json unless `generation` is null.
void save_folder(const Module& model, const std::string& architecture, const Tree& config,
                 const Tree& generation, const char* library, const std::string& directory,
                 const SavePretrainedOptions& options);
inline void save_transformers(const Module& model, const char* architecture,
                              const std::string& config, const std::string& directory,
                              const SavePretrainedOptions& options, const Tree& generation = {}) {
    save_folder(model, architecture, from_json(config), generation, "transformers", directory,
                options);
}

}  // namespace axle::nn
