// Compares BERT with transformers, which wrote tests/golden/bert_classifier and bert_masked_lm.
// Also tests other properties, such as its inputs, tied weights, dropout, and invalid files.
#include "nn/models/bert.h"

#include "core/random.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "tests/nn/files/pretrained_model.h"

namespace axle {
namespace {

using Classifier = nn::BertForSequenceClassification;
using MaskedLM = nn::BertForMaskedLM;
using testing::ElementsAre;
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

constexpr const char* kClassifier = "bert_classifier";
constexpr const char* kMaskedLM = "bert_masked_lm";

nn::BertConfig small() {
    return {.vocab_size = 13,
            .hidden_size = 8,
            .num_hidden_layers = 2,
            .num_attention_heads = 2,
            .intermediate_size = 12,
            .max_position_embeddings = 8};
}

struct Inputs {
    explicit Inputs(const std::string& name)
        : ids(recorded(name + ".input_ids")),
          mask(recorded(name + ".attention_mask")),
          types(recorded(name + ".token_type_ids")) {}
    Tensor ids, mask, types;
};

// --- comparison with transformers

template <class Model>
void expect_recorded_logits(const std::string& name, Model model) {
    model.eval();
    const Inputs in(name);
    expect_close(model(in.ids, in.mask, in.types).detach(), recorded(name + ".logits"), 1e-5);
    expect_close(model(in.ids).detach(), recorded(name + ".plain_logits"), 1e-5);
    expect_close(model.bert(in.ids, in.mask, in.types).detach(), recorded(name + ".hidden"), 1e-5);
}

TEST(Bert, LoadsClassifiersOfTransformersWithTheSameLogits) {
    expect_recorded_logits(kClassifier, Classifier::from_pretrained(golden_path(kClassifier)));
}

TEST(Bert, LoadsMaskedLMsOfTransformersWithTheSameLogits) {
    expect_recorded_logits(kMaskedLM, MaskedLM::from_pretrained(golden_path(kMaskedLM)));
}

TEST(Bert, PoolsLikeTransformers) {
    nn::Bert model = nn::Bert::from_pretrained(golden_path(kClassifier));
    const Inputs in(kClassifier);
    const Tensor hidden = model(in.ids, in.mask, in.types);
    expect_close(model.pooled(hidden).detach(), recorded("bert_classifier.pooled"), 1e-5);
}

template <class Model>
void expect_recorded_losses(const std::string& name) {
    const Inputs in(name + ".batches");
    const Tensor labels = recorded(name + ".batches.labels");
    tests::expect_recorded_losses<Model>(name, [&](Model& model, std::int64_t batch) {
        return model.loss(in.ids[batch], labels[batch], in.mask[batch], in.types[batch]);
    });
}

TEST(Bert, TrainsAClassifierLikePyTorch) { expect_recorded_losses<Classifier>(kClassifier); }

TEST(Bert, TrainsAMaskedLMLikePyTorch) { expect_recorded_losses<MaskedLM>(kMaskedLM); }

template <class Model>
void expect_saved_as_transformers(const std::string& name) {
    const TemporaryFolder folder;
    Model model = Model::from_pretrained(golden_path(name));
    model.save_pretrained(folder.path());
    tests::expect_same_weights(folder.path(), name);
    const Tree theirs = from_json(config_of(name));
    const Tree ours = from_json(read_file(folder / "config.json"));
    for (const auto& [key, value] : theirs.entries()) {
        if (key == "dtype") continue;
        ASSERT_TRUE(ours.contains(key)) << key;
        EXPECT_EQ(value.is_number() ? str(ours[key].number()) : str(ours[key]),
                  value.is_number() ? str(value.number()) : str(value))
            << key;
    }
    EXPECT_EQ(str(ours["architectures"]), str(theirs["architectures"]));
    tests::expect_same_state(Model::from_pretrained(folder.path()), model);
    for (const auto& [module_name, module] : model.named_modules())
        EXPECT_FALSE(module->is_training()) << module_name;
}

TEST(Bert, SavesTheSameWeightsAndConfigurationAsTransformers) {
    expect_saved_as_transformers<Classifier>(kClassifier);
    expect_saved_as_transformers<MaskedLM>(kMaskedLM);
}

// --- files

TEST(BertFromPretrained, LoadsMatchingWeightsOfAnotherModel) {
    const TemporaryFolder folder;
    const nn::Bert encoder = nn::Bert::from_pretrained(golden_path(kClassifier));
    encoder.save_pretrained(folder.path());
    EXPECT_TRUE(SafetensorsFile(folder / "model.safetensors").contains("pooler.dense.weight"));
    manual_seed(8);
    const Classifier classifier = Classifier::from_pretrained(folder.path(), 5);
    tests::expect_same_state(classifier.bert, encoder);
    EXPECT_EQ(classifier.classifier.weight.shape(), Shape({5, 24}));
    EXPECT_EQ(classifier.config.labels.size(), 5u);
    EXPECT_NEAR(classifier.classifier.weight.detach().pow(2).mean().sqrt().item(), 0.02, 0.005);
    EXPECT_EQ(classifier.classifier.bias.detach().abs().max().item(), 0);

    const MaskedLM filler = MaskedLM::from_pretrained(golden_path(kClassifier));
    EXPECT_FALSE(filler.bert.pooler);
    EXPECT_TRUE(filler.predictions.decoder.is_same(filler.bert.embeddings.word.weight));
    EXPECT_TRUE(filler.predictions.dense.weight.device().is_cpu());
    expect_same_bits(filler.predictions.decoder.detach(), encoder.embeddings.word.weight.detach());
    const nn::Bert pooled = nn::Bert::from_pretrained(golden_path(kMaskedLM));
    for (const auto& [name, tensor] : pooled.state_dict())
        EXPECT_TRUE(tensor.device().is_cpu()) << name;
    EXPECT_EQ(pooled.state_dict().back().first, "pooler.dense.bias");
}

TEST(BertFromPretrained, LoadsOlderFilesWithTensorFlowNamesAndAllHeads) {
    const TemporaryFolder folder;
    write_model(folder, kMaskedLM, config_of(kMaskedLM), [](Tensors& tensors) {
        Tensors old;
        for (const auto& [modern, tensor] : tensors) {
            std::string name = modern;
            if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
            if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
            old[name] = tensor;
        }
        old["bert.embeddings.position_ids"] = arange(12);
        old["bert.pooler.dense.weight"] = zeros({24, 24});
        old["bert.pooler.dense.bias"] = zeros({24});
        old["cls.seq_relationship.weight"] = zeros({2, 24});
        old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"];
        old["cls.predictions.decoder.bias"] = old["cls.predictions.bias"];
        tensors = old;
    });
    expect_recorded_logits(kMaskedLM, MaskedLM::from_pretrained(folder.path()));
}

TEST(BertFromPretrained, RejectsIncompleteHeadsAndWrongNumbersOfLabels) {
    const TemporaryFolder folder;
    const std::string path = folder / "model.safetensors";
    write_model(folder, kClassifier, config_of(kClassifier),
                [](Tensors& tensors) { tensors.erase("classifier.bias"); });
    expect_error<FileError>({path.c_str(), "missing: classifier.bias"},
                            [&] { Classifier::from_pretrained(folder.path()); });
    expect_error<FileError>(
        {(golden_path(kClassifier) + "/model.safetensors").c_str(), "classifier.", "[7", "[3"},
        [&] { Classifier::from_pretrained(golden_path(kClassifier), 7); });
    expect_error<ValueError>({"BertForSequenceClassification: num_labels", "0"},
                             [&] { Classifier::from_pretrained(golden_path(kClassifier), 0); });
}

TEST(BertConfig, IsReadFromTheJsonThatItWrites) {
    nn::BertConfig config = small();
    config.type_vocab_size = 3;
    config.hidden_act = Activation::relu;
    config.hidden_dropout_prob = 0.25;
    config.attention_probs_dropout_prob = 0.5;
    config.classifier_dropout = 0;
    config.initializer_range = 0.125;
    config.layer_norm_eps = 1e-6;
    config.pad_token_id.reset();
    config.labels = {"a", "b", "c"};
    const nn::BertConfig again = nn::BertConfig::from_json(config.to_json());
    EXPECT_EQ(again.to_json(), config.to_json());
    EXPECT_EQ(again.hidden_act, Activation::relu);
    EXPECT_EQ(again.classifier_dropout, 0);
    EXPECT_FALSE(again.pad_token_id);
    EXPECT_THAT(again.labels, ElementsAre("a", "b", "c"));
}

TEST(BertFromPretrained, RejectsInvalidOrUnsupportedConfigurationFields) {
    const TemporaryFolder folder;
    const std::string good = config_of(kClassifier);
    const auto refused = [&](const char* from, const char* to, const char* reason) {
        write_model(folder, kClassifier, replaced(good, from, to));
        const std::string path = (folder / "config.json") + ": BertConfig: ";
        expect_error<FileError>({path.c_str(), reason},
                                [&] { Classifier::from_pretrained(folder.path()); });
    };
    refused("\"bert\"", "\"roberta\"", "model_type: must be bert: 'roberta'");
    refused("\"gelu\"", "\"tanh\"", "hidden_act: must be one of");
    refused("\"is_decoder\": false", "\"is_decoder\": true",
            "is_decoder: must be false, the only supported value: true");
    refused("\"is_decoder\": false", "\"is_decoder\": 1", "is_decoder: must be false");
    refused("\"bert\"", "7", "model_type: must be bert: 7");
    refused("\"num_attention_heads\": 3", "\"num_attention_heads\": 5", "num_attention_heads 5");
    refused("\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 0", "layer_norm_eps");
    refused("\"1\": \"second\"", "\"5\": \"second\"", "id2label: no name for class 1 of 3 classes");
    refused("\"1\": \"second\"", "\"1\": 7", "id2label: no name for class 1 of 3 classes");
    refused("\"pad_token_id\": 0", "\"pad_token_id\": 53", "pad_token_id must be in [0, 53)");
    refused("\"hidden_size\": 24", "\"hidden_size\": 9223372036854775807", "below 2^31");
}

TEST(BertFromPretrained, RejectsHugeSizes) {
    const TemporaryFolder folder;
    for (const auto& [from, to] :
         {std::pair("\"vocab_size\": 53", "\"vocab_size\": 2147483647"),
          std::pair("\"intermediate_size\": 36", "\"intermediate_size\": 2147483647"),
          std::pair("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2147483647")}) {
        write_model(folder, kClassifier, replaced(config_of(kClassifier), from, to));
        expect_error<FileError>({folder.path().c_str(), "2147483647"},
                                [&] { Classifier::from_pretrained(folder.path()); });
    }
}

// --- tests without recordings

TEST(Bert, IgnoresTokensThatTheAttentionMaskExcludes) {
    manual_seed(5);
    nn::BertConfig config = small();
    config.initializer_range = 0.5;
    Classifier model(config);
    model.eval();
    const Tensor ids = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 0}, {2, 6}, {i64});
    const Tensor other = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 5, 6}, {2, 6}, {i64});
    const Tensor mask = tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 6}, {i64});
    expect_same_bits(model(ids, mask).detach(), model(other, mask).detach());
    EXPECT_NE(model(ids).to_vector(), model(other).to_vector());
    expect_close(model(ids, mask)[1].detach(),
                 model(ids.narrow(0, 1, 1).narrow(1, 0, 4)).detach()[0], 1e-5);
}

TEST(Bert, TreatsOneLabelAsRegression) {
    nn::BertConfig config = small();
    config.labels = {"score"};
    Classifier model(config);
    model.eval();
    const Tensor ids = randint(1, 13, {3, 5}), numbers = tensor({0.5, -1, 2}, {3});
    const Tensor expected = (model(ids).squeeze(-1) - numbers).pow(2).mean();
    expect_close(model.loss(ids, numbers).detach(), expected.detach());
}

TEST(Bert, DisablesAllDropoutInEvaluation) {
    Classifier model(small());
    const Tensor ids = randint(1, 13, {2, 5});
    EXPECT_NE(model(ids).to_vector(), model(ids).to_vector());
    model.eval();
    expect_same_bits(model(ids).detach(), model(ids).detach());
    Classifier copy = model.clone();
    expect_same_bits(copy(ids).detach(), model(ids).detach());
}

TEST(Bert, KeepsTiedWeightsTiedInAClonedMaskedLM) {
    const MaskedLM model(small());
    const MaskedLM copy = model.clone();
    EXPECT_TRUE(copy.predictions.decoder.is_same(copy.bert.embeddings.word.weight));
    EXPECT_FALSE(copy.predictions.decoder.is_same(model.predictions.decoder));
    EXPECT_EQ(copy.num_parameters(), model.num_parameters());
}

TEST(Bert, RejectsInvalidInputs) {
    Classifier model(small());
    const Tensor ids = zeros({2, 3}, {i64});
    expect_error<ShapeError>({"bert: ids", "8", "[1, 9]"}, [&] { model(zeros({1, 9}, {i64})); });
    expect_error<ShapeError>({"bert: ids", "[3]"}, [&] { model(zeros({3}, {i64})); });
    expect_error<ShapeError>({"bert: shapes differ: attention_mask [3], ids [2, 3]"},
                             [&] { model(ids, ones({3})); });
    expect_error<ShapeError>({"bert: shapes differ: token_type_ids [2, 2], ids [2, 3]"}, [&] {
        model(ids, Tensor(), zeros({2, 2}, {i64}));
    });
    expect_error<ShapeError>({"bert: labels", "[3]", "[2, 3]"},
                             [&] { model.loss(ids, zeros({3}, {i64})); });
    MaskedLM filler(small());
    expect_error<UsageError>({"bert: pooled() needs a model with a pooler"}, [&] {
        filler.bert.pooled(zeros({2, 3, 8}));
    });
    expect_error<ShapeError>({"bert: shapes differ: labels [2], ids [2, 3]"},
                             [&] { filler.loss(ids, zeros({2}, {i64})); });
}

}  // namespace
}  // namespace axle
