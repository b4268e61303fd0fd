// Private to nn: loads models from folders in Hugging Face's layout. A folder contains
// config.json and the weights (nn/files/weight_files.h) as model.safetensors or pytorch_model.bin,
// each possibly split into shards; safetensors files take precedence. The files are not trusted:
// names and shapes are compared with the model before memory is allocated for a weight.
//
// Limits: config.json and generation_config.json have at most kMaxConfig bytes. Reading a
// configuration needs at most 256 bytes of memory per byte of the file, and the time to sort its
// keys.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "nn/files/pretrained.h"
#include "nn/files/weight_files.h"
#include "nn/init.h"
#include "nn/module.h"

namespace axle::nn {

// The maximum size of a configuration file. The labels of 20,000 classes need 1.4 MB.
inline constexpr std::int64_t kMaxConfig = std::int64_t{2} << 20;

// Returns the text of a value from a file for an error message. Long texts are truncated in the
// same way as by printable().
std::string shown(const Tree& value);

// The following check functions throw ValueError with the message "who: what must be ...".

// Throws unless 1 <= value < 2^31. With this limit, the product of two sizes cannot overflow.
void check_size(const char* who, const char* what, std::int64_t value);
// Throws unless 0 <= value < 1.
void check_probability(const char* who, const char* what, double value);
// Throws unless the value is finite and positive.
void check_positive(const char* who, const char* what, double value);
// Throws if a value is given and is not in [0, rows).
void check_row(const char* who, const char* what, std::optional<std::int64_t> value,
               std::int64_t rows);

// Reads the fields of a config.json. If a field is absent, read() leaves the value unchanged. If a
// field is null, read() clears optional values and token ids, and leaves other values unchanged. If
// a field has the wrong type, read() throws ValueError "who: name: reason".
class ConfigFields {
  public:
    // Throws ValueError unless the text is a JSON object.
    ConfigFields(const char* who, std::string_view text);
    // Also throws ValueError if the object has another model_type.
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
    // Throw ValueError if the field is present, not null and different from `value`, because the
    // model does not support other values.
    void require(const char* name, bool value) const;
    void require(const char* name, const char* value) const;
    // Reads an activation by any of its names in transformers. Throws ValueError unless the
    // activation is in `known`.
    void read(const char* name, Activation& value, std::initializer_list<Activation> known) const;

    // `known` is the text of a config.json. Returns a map of the fields that are neither in `known`
    // nor in the list of names `derived`. Leaves out "architectures", "torch_dtype" and "dtype",
    // which describe the model that was saved.
    Tree others(std::string_view known, std::initializer_list<std::string_view> derived = {}) const;
    // Returns the field, or nullptr if it is absent or null.
    const Tree* find(const char* name) const;
    // Throws ValueError "who: name: reason".
    [[noreturn]] void fail(const char* name, const std::string& reason) const;

  private:
    const char* who_;
    Tree fields_;
};
// Returns the text of a config.json with all entries of the map `fields`, and with the entries of
// `others` whose names are not in `fields`. `others` is a map or null. `fields` should be small,
// because it is searched for each name.
std::string config_text(const Tree& fields, const Tree& others);
// Reads the field id2label, a map {"0": "LABEL_0", ...}. If the field is absent or null, leaves the
// labels unchanged. Throws ValueError unless the field is a map with a string for each of the keys
// "0" to n - 1, where n is its size.
void read_labels(const ConfigFields& fields, std::vector<std::string>& labels);
// Returns the maps id2label and label2id of a config.json. If several classes have the same name,
// label2id maps the name to the last of these classes.
std::pair<Tree, Tree> label_maps(const std::vector<std::string>& labels);
// Returns the names LABEL_0, LABEL_1, ... of `count` classes. Throws ValueError unless the count is
// positive and below 2^31; the message begins with `who`.
std::vector<std::string> default_labels(const char* who, std::int64_t count);
// Returns one id as a number, several ids as a list, and a null Tree for no ids.
Tree ids_or_null(const std::vector<std::int64_t>& ids);
// Returns the value, or a null Tree for nullopt.
Tree or_null(const std::optional<std::int64_t>& value);
Tree or_null(const std::optional<double>& value);
// Returns the activation's name in transformers. Throws ValueError for Activation::none.
const char* activation_name(Activation activation);

// The mapping from names of tensors in the files to names in the model.
struct PretrainedNames {
    // The prefix of the inner model, for example "bert.". Names in files of the inner model do not
    // have this prefix; loading adds or removes the prefix as needed.
    std::string inner;
    // Converts names in older files to the current names.
    std::function<std::string(const std::string&)> current_name = {};
    // Returns whether a tensor in the files can be ignored if the model does not have it.
    std::function<bool(const std::string&)> ignored = {};
    // A head that can be missing in the files. If all of its weights are missing, make() is called
    // to initialize the head.
    struct Head {
        std::string prefix;  // the prefix of the names of its weights
        std::function<void()> make;
    };
    std::vector<Head> heads = {};
};

// An opened folder of a saved model.
class PretrainedFolder {
  public:
    // `path` is a directory, or a .safetensors file with config.json in the same directory. Reads
    // config.json, without parsing it, and the headers of the weight files; files of torch.save are
    // read completely to verify their checksums. Throws FileError if a file is missing, if
    // config.json has more than kMaxConfig bytes, or if a weight file is invalid.
    explicit PretrainedFolder(const std::string& path);

    // Returns Config::from_json(text of config.json). Throws FileError with the path of config.json
    // if the configuration is invalid.
    template <class Config>
    Config config() const {
        return in_file(config_path_, [&] { return Config::from_json(config_text_); });
    }
    // Returns the contents of generation_config.json, or a null Tree if the file is missing. Throws
    // FileError if the file cannot be read, has more than kMaxConfig bytes or is not a JSON object.
    Tree generation_config() const;
    // Creates a model without memory for its weights. `layers` is a number of modules of the model
    // that each have at least one weight, such as its layers. Throws FileError if the model rejects
    // the configuration, or if `layers` exceeds the number of tensors in the files. This check
    // prevents large allocations for an invalid configuration.
    template <class Model, class Config>
    Model build(const Config& config, std::int64_t layers) const {
        check_layers(layers);
        return in_file(config_path_, [&] {
            const init::EmptyWeights without_memory;
            return Model(config);
        });
    }
    // Allocates the weights of a model from build(), in the model's dtypes, and loads them one by
    // one. Sets the model to evaluation mode, as in transformers. Throws FileError before it loads
    // any weight if names or shapes differ, and while it loads them if a weight cannot be read or
    // its dtype cannot be converted.
    void load(Module& model, const PretrainedNames& names) const;
    // Copies the weights into a model with Module::load_state_dict(). Throws FileError if names or
    // shapes differ or a dtype cannot be converted; the model is then unchanged.
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

// Implements save_pretrained() of nn/files/pretrained.h. `library` is the name of the library that
// can load the model, for the model card. Writes generation_config.json unless `generation` is
// null.
void save_folder(const Module& model, const std::string& architecture, const Tree& config,
                 const Tree& generation, const char* library, const std::string& directory,
                 const SavePretrainedOptions& options);
// Calls save_folder() for a model that transformers can load. `config` is the text of config.json.
inline void save_transformers(const Module& model, const char* architecture,
                              const std::string& config, const std::string& directory,
                              const SavePretrainedOptions& options, const Tree& generation = {}) {
    save_folder(model, architecture, from_json(config), generation, "transformers", directory,
                options);
}

}  // namespace axle::nn
