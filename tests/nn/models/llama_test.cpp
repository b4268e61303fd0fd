// Compares Llama with transformers, which wrote tests/golden/llama_tiny (grouped queries) and
// llama_tied (tied head, biases, another head size). Also tests other properties,
// such as its initial weights, its errors, and the files that it can load.
#include "nn/models/llama.h"

#include "core/random.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "tests/nn/files/pretrained_model.h"

namespace axle {
namespace {

using tests::config_of;
using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::golden_path;
using tests::recorded;
using tests::replaced;
using tests::TemporaryFolder;
using tests::Tensors;
using tests::write_model;

nn::LlamaConfig small() {
    return {.vocab_size = 13,
            .hidden_size = 8,
            .intermediate_size = 12,
            .num_hidden_layers = 2,
            .num_attention_heads = 4,
            .num_key_value_heads = 2,
            .max_position_embeddings = 8};
}

class PretrainedLlama : public testing::TestWithParam<const char*> {
  protected:
    std::string path() const { return golden_path(GetParam()); }
    Tensor of(const char* name) const { return recorded(str(GetParam(), ".", name)); }
};
INSTANTIATE_TEST_SUITE_P(Llama, PretrainedLlama, testing::Values("llama_tiny", "llama_tied"));

TEST_P(PretrainedLlama, HasTheLogitsAndTheLossOfTransformers) {
    nn::Llama model = nn::Llama::from_pretrained(path());
    const Tensor ids = of("ids");
    expect_close(model(ids).detach(), of("logits"), 1e-5);
    expect_close(model.loss(ids.slice(1, 0, -1), ids.slice(1, 1)).detach(), of("loss"), 1e-5);
}

TEST_P(PretrainedLlama, MatchesTransformersWithPaddingMask) {
    nn::Llama model = nn::Llama::from_pretrained(path());
    const Tensor ids = of("ids"), mask = of("mask");
    expect_close(model(ids, mask).detach(), of("masked_logits"), 1e-5);
    expect_same_bits(model(ids, mask).detach(), model(ids, ne(mask, 0)).detach());
}

TEST_P(PretrainedLlama, GeneratesGreedilyLikeTransformers) {
    nn::Llama model = nn::Llama::from_pretrained(path());
    std::vector<std::int64_t> expected;
    for (const double id : of("greedy").to_vector())
        expected.push_back(static_cast<std::int64_t>(id));
    const std::vector<std::int64_t> prompt(expected.begin(), expected.begin() + 5);
    EXPECT_EQ(model.generate(prompt, 11, {.temperature = 0}), expected);
}

TEST_P(PretrainedLlama, TrainsLikePyTorch) {
    const Tensor tokens = of("tokens");
    tests::expect_recorded_losses<nn::Llama>(GetParam(), [&](nn::Llama& model, std::int64_t batch) {
        return model.loss(tokens[batch].slice(1, 0, -1), tokens[batch].slice(1, 1));
    });
}

TEST_P(PretrainedLlama, SavesTheSameWeightsAndConfigurationAsTransformers) {
    const TemporaryFolder folder;
    const nn::Llama model = nn::Llama::from_pretrained(path());
    model.save_pretrained(folder / "new/folder");
    tests::expect_same_weights(folder / "new/folder", GetParam());
    const Tree theirs = from_json(config_of(GetParam()));
    const Tree ours = from_json(read_file(folder / "new/folder/config.json"));
    for (const auto& [key, value] : theirs.entries()) {
        if (key == "dtype" || key == "rope_parameters") continue;
        EXPECT_EQ(str(ours[key]), str(value)) << key;
    }
    for (const char* key : {"rope_theta", "rope_type"})
        EXPECT_EQ(str(ours["rope_parameters"][key]), str(theirs["rope_parameters"][key]));
    EXPECT_EQ(ours["torch_dtype"].string(), "float32");
    tests::expect_same_state(nn::Llama::from_pretrained(folder / "new/folder"), model);
}

TEST(Llama, KeepsTheGenerationConfigurationAndLoadsInEvaluationMode) {
    const TemporaryFolder folder;
    tests::write_model(folder, "llama_tiny", config_of("llama_tiny"));
    write_file_atomically(folder / "generation_config.json", "{\"eos_token_id\": [7, 9]}");
    nn::Llama model = nn::Llama::from_pretrained(folder.path());
    for (const auto& [name, module] : model.named_modules())
        EXPECT_FALSE(module->is_training()) << name;
    model.save_pretrained(folder / "again");
    EXPECT_EQ(str(from_json(read_file(folder / "again/generation_config.json"))),
              "{\"eos_token_id\": [7, 9]}");
}

TEST(Llama, RoundTripsItsConfiguration) {
    nn::LlamaConfig config = small();
    config.head_dim = 6;
    config.rope_theta = 123;
    config.rms_norm_eps = 1e-3;
    config.attention_dropout = 0.25;
    config.initializer_range = 0.5;
    config.attention_bias = config.mlp_bias = config.tie_word_embeddings = true;
    config.pad_token_id = 4;
    config.bos_token_id.reset();
    config.eos_token_id = {7, 8};
    const nn::LlamaConfig again = nn::LlamaConfig::from_json(config.to_json());
    EXPECT_EQ(again.to_json(), config.to_json());
    EXPECT_EQ(again.head_size(), 6);
    EXPECT_EQ(again.key_value_heads(), 2);
    EXPECT_EQ(again.pad_token_id, 4);
    EXPECT_FALSE(again.bos_token_id);
    EXPECT_EQ(again.eos_token_id, std::vector<std::int64_t>({7, 8}));
    EXPECT_EQ(again.rope_theta, 123);
    EXPECT_TRUE(again.attention_bias && again.mlp_bias && again.tie_word_embeddings);
}

TEST(Llama, ReadsOlderConfigurations) {
    const nn::LlamaConfig config = nn::LlamaConfig::from_json(
        R"({"model_type": "llama", "num_key_value_heads": null, "rope_theta": 5e5,
            "rope_scaling": null, "pad_token_id": -1, "eos_token_id": null})");
    EXPECT_EQ(config.rope_theta, 5e5);
    EXPECT_EQ(config.key_value_heads(), 32);
    EXPECT_EQ(config.head_size(), 128);
    EXPECT_EQ(config.pad_token_id, 31999);
    EXPECT_TRUE(config.eos_token_id.empty());
}

TEST(Llama, HasTheDocumentedInitialWeights) {
    manual_seed(3);
    nn::LlamaConfig config = small();
    config.hidden_size = 64;
    config.attention_bias = config.mlp_bias = true;
    config.pad_token_id = 2;
    const nn::Llama model(config);
    EXPECT_EQ(model.model.embed_tokens.weight[2].abs().max().item(), 0);
    for (const auto& [name, parameter] : model.named_parameters()) {
        const Tensor p = parameter.detach();
        if (name.ends_with("bias"))
            EXPECT_EQ(p.abs().max().item(), 0) << name;
        else if (name.find("norm") != std::string::npos)
            EXPECT_EQ((p - 1).abs().max().item(), 0) << name;
        else
            EXPECT_NEAR(p.pow(2).mean().sqrt().item(), 0.02, 0.002) << name;
    }
}

TEST(Llama, CountsATiedHeadOnceAndKeepsItTiedInAClone) {
    nn::LlamaConfig config = small();
    const std::int64_t untied = nn::Llama(config).num_parameters();
    config.tie_word_embeddings = true;
    const nn::Llama model(config);
    EXPECT_EQ(untied - model.num_parameters(), 13 * 8);
    const nn::Llama copy = model.clone();
    EXPECT_TRUE(copy.lm_head.is_same(copy.model.embed_tokens.weight));
    EXPECT_FALSE(copy.lm_head.is_same(model.lm_head));
}

TEST(Llama, MatchesRepeatedKeysAndValuesWithGroupedQueries) {
    manual_seed(4);
    nn::LlamaConfig config = small();
    config.initializer_range = 0.5;
    nn::Llama grouped(config);
    config.num_key_value_heads = 4;
    nn::Llama full(config);
    nn::StateDict state;
    for (const auto& [name, tensor] : grouped.state_dict()) {
        const bool is_grouped = name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight");
        const Tensor t = tensor.detach();  // shape [2 heads * 2, 8] if it is grouped
        const Tensor a = t.narrow(0, 0, is_grouped ? 2 : 1);
        state.emplace_back(name,
                           is_grouped ? cat({a, a, t.narrow(0, 2, 2), t.narrow(0, 2, 2)}) : t);
    }
    full.load_state_dict(state);
    const Tensor ids = randint(0, 13, {2, 7});
    expect_close(grouped(ids).detach(), full(ids).detach(), 1e-5);
}

TEST(Llama, GivesSameGradientBitsWithCheckpointing) {
    nn::LlamaConfig config = small();
    config.attention_dropout = 0.3;
    nn::Llama kept(config), recomputed = kept.clone();
    recomputed.model.checkpoint_layers = true;
    const Tensor ids = randint(0, 13, {2, 8});
    const Tensor mask = tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 8}, {i64});
    for (nn::Llama* model : {&kept, &recomputed}) {
        manual_seed(2);
        model->loss(ids, ids, mask).backward();
    }
    const std::vector<Tensor> a = kept.parameters(), b = recomputed.parameters();
    for (std::size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i].grad(), b[i].grad());
}

TEST(Llama, GeneratesBeyondItsContextLength) {
    manual_seed(7);
    nn::LlamaConfig config = small();
    config.initializer_range = 0.5;
    nn::Llama model(config);
    const auto ids = model.generate({1, 2}, 12, {.temperature = 0});
    ASSERT_EQ(ids.size(), 14u);
    const std::vector<std::int64_t> window(ids.end() - 9, ids.end() - 1);
    EXPECT_EQ(argmax(model(tensor(window, {1, 8})).detach().select(1, -1), -1).item_int(),
              ids.back());
}

TEST(Llama, RejectsInvalidIdsMasksAndLabels) {
    nn::Llama model(small());
    const Tensor ids = zeros({2, 3}, {i64});
    expect_error<ShapeError>({"llama: ids", "[3]"}, [&] { model(zeros({3}, {i64})); });
    expect_error<ShapeError>({"llama: shapes differ: attention_mask [2, 4], ids [2, 3]"}, [&] {
        model(ids, ones({2, 4}));
    });
    expect_error<ShapeError>({"llama: shapes differ: labels [2, 4], ids [2, 3]"}, [&] {
        model.loss(ids, zeros({2, 4}, {i64}));
    });
}

// --- configurations and weights in files

void refused(const TemporaryFolder& folder, std::initializer_list<const char*> parts) {
    expect_error<FileError>(parts, [&] { nn::Llama::from_pretrained(folder.path()); });
}

TEST(LlamaConfig, ReportsInvalidOrUnsupportedFields) {
    const TemporaryFolder folder;
    const std::string path = (folder / "config.json") + ": LlamaConfig: ";
    const std::string good = config_of("llama_tiny");
    const auto wrong = [&](const char* from, const char* to,
                           std::initializer_list<const char*> parts) {
        write_model(folder, "llama_tiny", replaced(good, from, to));
        for (const char* part : parts) refused(folder, {path.c_str(), part});
    };
    wrong("\"llama\"", "\"gpt2\"", {"model_type", "must be llama", "gpt2"});
    wrong("\"silu\"", "\"gelu\"", {"hidden_act", "must be one of silu", "gelu"});
    wrong("\"hidden_size\": 24", "\"hidden_size\": \"24\"", {"hidden_size: must be an integer"});
    wrong("\"hidden_size\": 24", "\"hidden_size\": 24.5", {"hidden_size: must be an integer"});
    wrong("\"hidden_size\": 24", "\"hidden_size\": 0", {"hidden_size must be positive"});
    wrong("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", {"num_key_value_heads 3"});
    wrong("\"head_dim\": 6", "\"head_dim\": 5", {"head_dim must be even"});
    wrong("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": \"NaN\"",
          {"rms_norm_eps: must be a number"});
    wrong("\"attention_bias\": false", "\"attention_bias\": 0", {"attention_bias: must be true"});
    wrong("\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"",
          {"rope_parameters: rope_type: must be default, linear, dynamic or llama3", "yarn"});
    wrong("\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": 0.5",
          {"rope_scaling: factor must be at least 1"});
    wrong("\"rope_type\": \"default\"",
          "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4",
          {"rope_scaling: low_freq_factor must be positive and below high_freq_factor"});
    wrong("\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": \"8\"",
          {"rope_parameters: factor: must be a number"});
    wrong("\"rope_theta\": 10000.0", "\"rope_theta\": -1", {"rope_theta must be positive"});
    wrong("\"eos_token_id\": 0", "\"eos_token_id\": [0, \"1\"]", {"eos_token_id: must be"});
    wrong("\"attention_dropout\": 0.0", "\"attention_dropout\": 1", {"attention_dropout"});
}

TEST(LlamaConfig, RejectsHugeSizes) {
    const TemporaryFolder folder;
    const std::string config = folder / "config.json", weights = folder / "model.safetensors";
    const std::string good = config_of("llama_tiny");
    const auto with = [&](const char* from, const char* to) {
        write_model(folder, "llama_tiny", replaced(good, from, to));
    };
    with("\"vocab_size\": 61", "\"vocab_size\": 2147483647");
    refused(folder, {weights.c_str(), "model.embed_tokens.weight", "[2147483647, 24]"});
    with("\"intermediate_size\": 36", "\"intermediate_size\": 2147483647");
    refused(folder, {weights.c_str(), "gate_proj.weight", "[2147483647, 24]", "[36, 24]"});
    with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2147483647");
    refused(folder, {config.c_str(), "2147483647 layers", "only 21 tensors"});
    with("\"hidden_size\": 24", "\"hidden_size\": 9223372036854775807");
    refused(folder, {config.c_str(), "hidden_size must be below 2^31"});
    with("\"head_dim\": 6", "\"head_dim\": 2147483646");
    refused(folder, {weights.c_str(), "q_proj.weight"});
}

TEST(LlamaWeights, ReportMissingAndUnexpectedNames) {
    const TemporaryFolder folder;
    const std::string path = folder / "model.safetensors";
    write_model(folder, "llama_tiny", config_of("llama_tiny"), [](Tensors& tensors) {
        tensors["model.layers.1.self_attn.q_prj.weight"] =
            tensors["model.layers.1.self_attn.q_proj.weight"];
        tensors.erase("model.layers.1.self_attn.q_proj.weight");
        tensors.erase("lm_head.weight");
        tensors["extra"] = zeros({1});
    });
    refused(folder, {path.c_str(),
                     "missing: model.layers.1.self_attn.q_proj.weight (nearest: "
                     "model.layers.1.self_attn.q_prj.weight), lm_head.weight;",
                     "unexpected: extra, model.layers.1.self_attn.q_prj.weight (nearest: "
                     "model.layers.1.self_attn.q_proj.weight)"});
}

TEST(LlamaWeights, LoadFromHalfPrecisionButNotIntegers) {
    const TemporaryFolder folder;
    write_model(folder, "llama_tiny", config_of("llama_tiny"), [](Tensors& tensors) {
        for (auto& [name, tensor] : tensors) tensor = tensor.to(bf16);
    });
    const nn::Llama model = nn::Llama::from_pretrained(folder.path());
    EXPECT_EQ(model.lm_head.dtype(), f32);
    const std::string path = folder / "model.safetensors";
    write_model(folder, "llama_tiny", config_of("llama_tiny"), [](Tensors& tensors) {
        tensors["lm_head.weight"] = zeros({61, 24}, {i64});
    });
    refused(folder, {path.c_str(), "lm_head.weight is int64, which can't be converted to float32"});
}

TEST(LlamaWeights, SaveTheirDTypeInTheConfiguration) {
    const TemporaryFolder folder;
    nn::Llama model(small());
    model.to(bf16);
    model.save_pretrained(folder.path());
    EXPECT_EQ(from_json(read_file(folder / "config.json"))["torch_dtype"].string(), "bfloat16");
}

TEST(LlamaWeights, LoadFromOlderFilesWithRotaryFrequencies) {
    const TemporaryFolder folder;
    write_model(folder, "llama_tiny", config_of("llama_tiny"), [](Tensors& tensors) {
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ones({3});
    });
    tests::expect_same_state(nn::Llama::from_pretrained(folder.path()),
                             nn::Llama::from_pretrained(golden_path("llama_tiny")));
}

// --- shards, and files of PyTorch

// Writes llama_tiny as two shards with an index. Returns the text of the index.
std::string write_shards(const TemporaryFolder& folder) {
    const Safetensors file = load_safetensors(golden_path("llama_tiny/model.safetensors"));
    Tree map = Tree::map();
    NamedTensors parts[2];
    for (const auto& [name, tensor] : file.tensors) {
        const std::size_t part = name.find("layers.1") != std::string::npos;
        parts[part].emplace_back(name, tensor);
        map.set(name, part == 0 ? "model-1.safetensors" : "model-2.safetensors");
    }
    save_safetensors(folder / "model-1.safetensors", parts[0]);
    save_safetensors(folder / "model-2.safetensors", parts[1]);
    write_file_atomically(folder / "config.json", config_of("llama_tiny"));
    const std::string index = to_json(Tree{{"metadata", Tree::map()}, {"weight_map", map}});
    write_file_atomically(folder / "model.safetensors.index.json", index);
    return index;
}

TEST(LlamaShards, LoadLikeASingleFile) {
    const TemporaryFolder folder;
    write_shards(folder);
    tests::expect_same_state(nn::Llama::from_pretrained(folder.path()),
                             nn::Llama::from_pretrained(golden_path("llama_tiny")));
}

TEST(LlamaShards, RejectInvalidOrInconsistentIndices) {
    const TemporaryFolder folder;
    const std::string good = write_shards(folder);
    const std::string path = folder / "model.safetensors.index.json";
    const auto index = [&](const std::string& text) { write_file_atomically(path, text); };
    index("[1]");
    refused(folder, {path.c_str(), "weight_map"});
    index("nonsense");
    refused(folder, {path.c_str()});
    index(replaced(good, "\"lm_head.weight\"", "\"lm_head.wait\""));
    refused(folder, {path.c_str(), "model-1.safetensors does not contain lm_head.wait"});
    for (const char* elsewhere : {"\"../model-1.safetensors\"", "\"/etc/passwd\"", "\"\"", "7"}) {
        index(replaced(good, "\"model-1.safetensors\"", elsewhere));
        refused(folder, {path.c_str(), "must name a .safetensors or .bin file of the same folder"});
    }
    index(replaced(good, "\"model-1.safetensors\"", "\"model-3.safetensors\""));
    refused(folder, {(folder / "model-3.safetensors").c_str()});
}

TEST(LlamaWeights, LoadFromPyTorchFiles) {
    tests::expect_same_state(nn::Llama::from_pretrained(golden_path("torch_files/llama_tied")),
                             nn::Llama::from_pretrained(golden_path("llama_tied")));
}

}  // namespace
}  // namespace axle
