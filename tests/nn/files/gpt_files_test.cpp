// Compares GPT-2 files with transformers, which wrote tests/golden/gpt2_tiny, and tests missing,
// damaged and invalid files.
#include <filesystem>

#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/models/gpt.h"
#include "tests/nn/files/pretrained_model.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::golden;
using tests::replaced;
using tests::TemporaryFolder;

std::string tiny() { return tests::golden_path("gpt2_tiny"); }

// Writes the text `config` to config.json in a folder, and the recorded weights to
// model.safetensors. `change` can change the weights before they are written.
void write_model(const TemporaryFolder& folder, const std::string& config,
                 const std::function<void(tests::Tensors&)>& change = {}) {
    tests::write_model(folder, "gpt2_tiny", config, change);
}
std::string config_text() { return tests::config_of("gpt2_tiny"); }

void expect_recorded_logits(nn::Gpt model) {
    model.eval();
    const NoGrad no_grad;
    expect_close(model(golden("gpt2_tiny.ids")), golden("gpt2_tiny.logits"), 1e-5);
}

TEST(PretrainedGpt, LoadsTransformersModelsWithTheSameLogitsAndLoss) {
    nn::Gpt model = nn::Gpt::from_pretrained(tiny());
    EXPECT_EQ(model.config.n_head, 3);
    EXPECT_EQ(model.config.block_size, 16);
    EXPECT_EQ(model.config.activation, Gelu::tanh);
    expect_recorded_logits(model.clone());
    const Tensor ids = golden("gpt2_tiny.ids");
    expect_close(model.loss(ids.slice(1, 0, -1), ids.slice(1, 1)), golden("gpt2_tiny.loss"), 1e-5);
}

TEST(PretrainedGpt, LoadsFromThePathOfTheWeights) {
    expect_recorded_logits(nn::Gpt::from_pretrained(tiny() + "/model.safetensors"));
}

TEST(PretrainedGpt, GeneratesGreedilyLikeTransformers) {
    nn::Gpt model = nn::Gpt::from_pretrained(tiny());
    std::vector<std::int64_t> expected;
    for (const double id : golden("gpt2_tiny.greedy").to_vector())
        expected.push_back(static_cast<std::int64_t>(id));
    const std::vector<std::int64_t> prompt(expected.begin(), expected.begin() + 5);
    EXPECT_EQ(model.generate(prompt, 11, {.temperature = 0}), expected);
}

TEST(PretrainedGpt, LoadsOlderFilesWithoutPrefixAndWithMasks) {
    const TemporaryFolder folder;
    write_model(folder, config_text(), [](std::map<std::string, Tensor>& tensors) {
        std::map<std::string, Tensor> old;
        for (const auto& [name, tensor] : tensors)
            old[name.substr(std::string("transformer.").size())] = tensor;
        for (const char* layer : {"h.0", "h.1"}) {
            old[std::string(layer) + ".attn.bias"] = tril(ones({1, 1, 16, 16}));
            old[std::string(layer) + ".attn.masked_bias"] = full({}, -1e4);
        }
        tensors = old;
    });
    expect_recorded_logits(nn::Gpt::from_pretrained(folder.path()));
}

TEST(PretrainedGpt, LoadsTiedWeightsUnderEitherName) {
    const TemporaryFolder folder;
    write_model(folder, config_text(), [](std::map<std::string, Tensor>& tensors) {
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
    });
    expect_recorded_logits(nn::Gpt::from_pretrained(folder.path()));
    write_model(folder, config_text(), [](std::map<std::string, Tensor>& tensors) {
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
        tensors.erase("transformer.wte.weight");
    });
    expect_recorded_logits(nn::Gpt::from_pretrained(folder.path()));
}

TEST(PretrainedGpt, SavesTheSameWeightsAndConfigAsTransformers) {
    const TemporaryFolder folder;
    nn::Gpt::from_pretrained(tiny()).save_pretrained(folder / "new/folder");
    const SafetensorsFile ours(folder / "new/folder/model.safetensors");
    const SafetensorsFile theirs(tiny() + "/model.safetensors");
    EXPECT_EQ(ours.metadata(), theirs.metadata());
    ASSERT_EQ(ours.entries().size(), theirs.entries().size());
    for (const SafetensorsFile::Entry& entry : theirs.entries())
        expect_same_bits(ours.tensor(entry.name), theirs.tensor(entry.name));

    const Tree config = from_json(read_file(folder / "new/folder/config.json"));
    const Tree recorded = from_json(config_text());
    for (const auto& [name, value] : recorded.entries()) {
        if (name == "dtype" || name == "n_inner") continue;
        ASSERT_TRUE(config.contains(name)) << name;
        if (value.is_number())
            EXPECT_EQ(config[name].number(), value.number()) << name;
        else
            EXPECT_EQ(str(config[name]), str(value)) << name;
    }
    EXPECT_EQ(config["torch_dtype"].string(), "float32");
    EXPECT_FALSE(std::filesystem::exists(folder / "new/folder/generation_config.json"));
    expect_recorded_logits(nn::Gpt::from_pretrained(folder / "new/folder"));
}

TEST(PretrainedGpt, KeepsUnknownFieldsAndSpecialTokensAndSavesItsDtypeAndDefaultEosToken) {
    const TemporaryFolder folder;
    write_model(folder,
                replaced(replaced(config_text(), "\"eos_token_id\": 0", "\"eos_token_id\": [7, 9]"),
                         "\"bos_token_id\": 0",
                         "\"bos_token_id\": 3, \"task_specific_params\": "
                         "{\"text-generation\": {\"max_length\": 50}}"));
    nn::Gpt model = nn::Gpt::from_pretrained(folder.path());
    EXPECT_EQ(model.config.bos_token_id, 3);
    EXPECT_EQ(model.config.eos_token_id, std::vector<std::int64_t>({7, 9}));
    model.to(bf16);
    model.save_pretrained(folder / "again");
    const Tree config = nn::pretrained_config(folder / "again");
    EXPECT_EQ(config["bos_token_id"].integer(), 3);
    EXPECT_EQ(str(config["eos_token_id"]), "[7, 9]");
    EXPECT_EQ(config["task_specific_params"]["text-generation"]["max_length"].integer(), 50);
    EXPECT_EQ(config["summary_type"].string(), "cls_index");
    EXPECT_EQ(config["torch_dtype"].string(), "bfloat16");
    EXPECT_FALSE(config.contains("dtype")) << "the dtype of the file was f32";
    EXPECT_EQ(nn::Gpt::from_pretrained(folder / "again").config.to_json(), model.config.to_json());
    // The default of eos_token_id is GPT-2's token if the vocabulary contains this token, else
    // null.
    EXPECT_EQ(from_json(nn::GptConfig().to_json())["eos_token_id"].integer(), 50256);
    EXPECT_TRUE(from_json(nn::GptConfig{.vocab_size = 100}.to_json())["eos_token_id"].is_null());
}

TEST(PretrainedGpt, KeepsTheGenerationConfigurationAndRejectsInvalidFiles) {
    const TemporaryFolder folder;
    write_model(folder, config_text());
    const std::string text =
        "{\"do_sample\": true, \"temperature\": 0.7, \"eos_token_id\": [7, 9]}";
    write_file_atomically(folder / "generation_config.json", text);
    const nn::Gpt model = nn::Gpt::from_pretrained(folder.path());
    EXPECT_EQ(model.generation_config["temperature"].number(), 0.7);
    model.save_pretrained(folder / "again");
    EXPECT_EQ(str(from_json(read_file(folder / "again/generation_config.json"))),
              str(from_json(text)));
    for (const char* wrong : {"[1]", "{"}) {
        write_file_atomically(folder / "generation_config.json", wrong);
        expect_error<FileError>({(folder / "generation_config.json").c_str()},
                                [&] { nn::Gpt::from_pretrained(folder.path()); });
    }
}

TEST(PretrainedGpt, LoadsModelsInEvaluationMode) {
    const TemporaryFolder folder;
    write_model(folder, replaced(config_text(), "\"resid_pdrop\": 0", "\"resid_pdrop\": 0.5"));
    nn::Gpt model = nn::Gpt::from_pretrained(folder.path());
    for (const auto& [name, module] : model.named_modules())
        EXPECT_FALSE(module->is_training()) << name;
    const NoGrad no_grad;
    const Tensor ids = golden("gpt2_tiny.ids");
    expect_close(model(ids), golden("gpt2_tiny.logits"), 1e-5);
    model.train();
    EXPECT_NE(model(ids).to_vector(), model(ids).to_vector());
}

TEST(PretrainedGpt, RoundTripsTheConfigurationAndWeights) {
    const nn::GptConfig config = {.vocab_size = 5,
                                  .block_size = 3,
                                  .n_layer = 2,
                                  .n_head = 2,
                                  .n_embd = 4,
                                  .dropout = 0.125,
                                  .embd_dropout = 0.25,
                                  .attn_dropout = 0.5,
                                  .bias = false,
                                  .activation = Gelu::erf,
                                  .layer_norm_epsilon = 1e-6};
    const TemporaryFolder folder;
    const nn::Gpt model(config);
    model.save_pretrained(folder.path());
    const nn::Gpt again = nn::Gpt::from_pretrained(folder.path());
    EXPECT_EQ(again.config.to_json(), config.to_json());
    EXPECT_EQ(again.config.dropout, 0.125);
    EXPECT_EQ(again.config.embd_dropout, 0.25);
    EXPECT_EQ(again.config.attn_dropout, 0.5);
    EXPECT_EQ(again.config.bias, false);
    EXPECT_EQ(again.config.activation, Gelu::erf);
    const nn::StateDict before = model.state_dict(), after = again.state_dict();
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
        expect_same_bits(after[i].second.detach(), before[i].second.detach());
}

TEST(PretrainedGpt, ReportsMissingFiles) {
    const TemporaryFolder folder;
    expect_error<FileError>({"", "/no/such/folder/config.json"},
                            [] { nn::Gpt::from_pretrained("/no/such/folder"); });
    expect_error<FileError>({"", "config.json"}, [&] { nn::Gpt::from_pretrained(folder.path()); });
    write_file_atomically(folder / "config.json", config_text());
    expect_error<FileError>({"", "model.safetensors"},
                            [&] { nn::Gpt::from_pretrained(folder.path()); });
}

TEST(PretrainedGpt, ReportsTruncatedFiles) {
    const TemporaryFolder folder;
    const std::string bytes = read_file(tiny() + "/model.safetensors");
    write_file_atomically(folder / "config.json", config_text());
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
        write_file_atomically(folder / "model.safetensors", bytes.substr(0, size));
        expect_error<FileError>({(folder / "model.safetensors").c_str()},
                                [&] { nn::Gpt::from_pretrained(folder.path()); });
    }
}

TEST(PretrainedGpt, ReportsWrongShapesAndMissingNames) {
    const TemporaryFolder folder;
    const std::string path = folder / "model.safetensors";
    write_model(folder, config_text(), [](std::map<std::string, Tensor>& tensors) {
        tensors["transformer.ln_f.bias"] = zeros({25});
    });
    expect_error<FileError>({path.c_str(), "transformer.ln_f.bias", "[24]", "[25]"},
                            [&] { nn::Gpt::from_pretrained(folder.path()); });
    write_model(folder, config_text(), [](std::map<std::string, Tensor>& tensors) {
        tensors.erase("transformer.ln_f.bias");
    });
    expect_error<FileError>({path.c_str(), "missing: transformer.ln_f.bias"},
                            [&] { nn::Gpt::from_pretrained(folder.path()); });
}

TEST(PretrainedGpt, ReportsInvalidOrUnsupportedConfiguration) {
    const TemporaryFolder folder;
    const auto refused = [&](const std::string& text, const char* reason) {
        write_model(folder, text);
        expect_error<FileError>({(folder / "config.json").c_str(), reason},
                                [&] { nn::Gpt::from_pretrained(folder.path()); });
    };
    const std::string good = config_text();
    refused(replaced(good, "\"gpt2\"", "\"llama\""), "llama");
    refused(replaced(good, "\"gelu_new\"", "\"swish\""), "swish");
    refused(replaced(good, "\"n_head\": 3", "\"n_head\": 5"), "n_head");
    refused(replaced(good, "\"n_layer\": 2", "\"n_layer\": 0"), "n_layer");
    refused(replaced(good, "\"n_layer\": 2", "\"n_layer\": \"two\""), "");
    refused(replaced(good, "\"n_inner\": null", "\"n_inner\": 48"), "n_inner");
    refused(replaced(good, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
            "tie_word_embeddings");
    refused(replaced(good, "\"scale_attn_weights\": true", "\"scale_attn_weights\": false"),
            "scale_attn_weights");
    refused("this is not JSON", "");
    refused("[1, 2]", "");
    refused("", "");
}

TEST(PretrainedGpt, RejectsHugeSizes) {
    const TemporaryFolder folder;
    const std::string good = config_text();
    const auto refused = [&](const char* from, const char* to, const char* reason) {
        write_model(folder, replaced(good, from, to));
        expect_error<FileError>({folder.path().c_str(), reason},
                                [&] { nn::Gpt::from_pretrained(folder.path()); });
    };
    refused("\"n_positions\": 16", "\"n_positions\": 2147483647", "wpe.weight is [2147483647, 24]");
    refused("\"n_embd\": 24", "\"n_embd\": 2147483646", "number of elements overflows int64");
    refused("\"n_embd\": 24", "\"n_embd\": 4611686018427387904", "n_embd must be below 2^31");
    refused("\"n_layer\": 2", "\"n_layer\": 2147483647", "2147483647 layers");
}

}  // namespace
}  // namespace axle
